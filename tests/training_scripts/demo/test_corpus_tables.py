"""The tables of the generated corpus: what they contain, and how errors in them are reported."""

from __future__ import annotations

import shutil

import pytest

from training_scripts.demo.corpus.lexicon import TABLES, TOY_LANGUAGES, fitting, lexicon, named, read_lexicon
from training_scripts.demo.corpus.morphology import forms, inflect_all
from training_scripts.demo.corpus.realise import compile_template

CONTENT = ["noun", "verb", "adjective", "role", "place", "city", "feeling", "weather", "giving", "telling"]


def test_the_lexicon_is_large():
    assert sum(len(named(kind)) for kind in CONTENT) >= 350
    assert len(lexicon().templates) >= 25 and len(lexicon().topics) >= 12


def test_every_word_is_used():
    used = {a for thing_class in lexicon().classes.values() for a in thing_class.adjectives}
    assert used == set(named("adjective"))
    assert all(fitting(thing) for thing in named("noun"))
    topics = lexicon().topics
    actions = [action for topic in topics for action in topic.actions]
    assert {action.verb for action in actions} | set(named("verb", "everyday")) == set(named("verb"))
    assert {thing for action in actions for thing in action.things + action.tools} == set(named("noun"))
    assert {person for topic in topics for person in topic.people} == set(named("role"))
    assert {place for topic in topics for place in topic.places} == set(named("place"))


@pytest.mark.parametrize("language", TOY_LANGUAGES)
def test_no_two_concepts_of_a_kind_share_a_word(language):
    owner: dict[tuple[str, str], str] = {}
    for name, synonyms in forms(language).items():
        kind = lexicon().concepts[name].kind
        for table in synonyms:
            if "_" in table and kind not in ("pronoun", "number"):
                assert owner.setdefault((kind, table["_"]), name) == name


@pytest.mark.parametrize(
    ("table", "line", "old", "new", "message"),
    [
        ("nouns", 1, "marks", "mark", "concept kind mark en"),
        ("nouns", 16, "knife|knives", "", "'en' is empty"),
        ("nouns", 16, "\tm|couteau|couteaux", "", "8 cells.* 9 columns"),
        ("nouns", 16, "knife\t", "bread\t", "'bread' is already defined in nouns.tsv, line 2"),
        ("nouns", 16, "blade portable", "blade portabel", "'portabel'"),
        ("nouns", 16, "blade portable", "blade food", "exactly one"),
        ("nouns", 16, "noun", "nuon", "'nuon'"),
        ("people", 3, "name\tm", "name\tmf", "'mf'"),
        ("verbs", 2, "moving", "movin", "'movin'"),
        ("classes", 2, "tasty", "tastey", "'tastey'"),
        ("classes", 17, "read_to", "read_at", "'read_at'"),
        ("reasons", 2, "buy", "buys", "'buys'"),
        ("templates", 2, "\t3\t", "\tthree\t", "'three'"),
        ("templates", 2, "\t-\t", "\tno_verbs\t", "'no_verbs'"),
        ("topics", 2, "grandmother", "granny", "'granny'"),
        ("actions", 4, "knife", "knives", "'knives'"),
        ("actions", 4, "peel", "peel cut", "'peel cut'"),
    ],
)
def test_errors_name_the_file_and_the_line(tmp_path, table, line, old, new, message):
    edit(tmp_path, table, line, old, new)
    with pytest.raises(ValueError, match=f"^{table}.tsv, line {line}: .*{message}"):
        read_lexicon(tmp_path)


@pytest.mark.parametrize(
    ("table", "line", "old", "new", "language", "message"),
    [
        ("nouns", 16, "n|Messer|Messer", "n|Messer", "de", "'n.Messer', but a noun is gender.singular.plural"),
        ("nouns", 16, "n|Messer|Messer", "x|Messer|Messer", "de", "'x'"),
        ("nouns", 16, "ins=ножом", "inst=ножом", "ru", "'inst'"),
        ("verbs", 2, "أحضر|يحضر", "أحضر", "ar", "past.present"),
    ],
)
def test_errors_in_word_forms_name_the_file_and_the_line(tmp_path, table, line, old, new, language, message):
    edit(tmp_path, table, line, old, new)
    concepts = read_lexicon(tmp_path).concepts
    with pytest.raises(ValueError, match=f"^{table}.tsv, line {line}: .*{language!r}.*{message}"):
        inflect_all(concepts, language)


def test_errors_in_patterns_name_the_file_and_the_line(tmp_path):
    edit(tmp_path, "templates", 2, "{s}{p}{v}了{o}", "{s}{t}{v}了{o}")
    template = read_lexicon(tmp_path).templates["do_place"]
    with pytest.raises(ValueError, match="^templates.tsv, line 2: .*'zh'.*'t'"):
        compile_template(template, "zh")


def edit(folder, table, line, old, new):
    """Copy the tables, and change one line of one of them."""
    shutil.copytree(TABLES, folder, dirs_exist_ok=True)
    path = folder / f"{table}.tsv"
    lines = path.read_text(encoding="utf-8").split("\n")
    assert old in lines[line - 1]
    lines[line - 1] = lines[line - 1].replace(old, new, 1)
    path.write_text("\n".join(lines), encoding="utf-8")
