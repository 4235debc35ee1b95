"""Texts that the studies train on or test with, by their folder below DATA, and their licences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from st_xlret.hub.card_sections import DataSource
from training_scripts.studies.cards.commands import DATA, values


@dataclass(frozen=True)
class Source:
    """A set of text: its name, its licence, and its languages where they are few."""

    name: str
    licence: str
    languages: tuple[str, ...] = ()


SOURCES = {
    "ebible": Source("eBible", "public domain by its metadata; id and tr have restricted or doubtful terms"),
    "eltec_novels": Source(
        "ELTeC novels (fr, de, es)", "texts public domain; markup CC BY 4.0", languages=("fr", "de", "es")
    ),
    "russian_novels": Source("Russian novels of the 19th century", "public-domain texts", languages=("ru",)),
    "wikipedia_2023": Source(
        "Wikipedia, May 2023 (bn el ja uk vi)", "CC BY-SA 3.0/4.0 and GFDL", languages=("bn", "el", "ja", "uk", "vi")
    ),
    "thaigov": Source("thaigov-v2", "public domain", languages=("th",)),
    "finnish_tdt": Source("Turku Dependency Treebank (fi)", "CC BY-SA 4.0", languages=("fi",)),
    "gnome_user_docs": Source("GNOME user documentation", "CC BY 3.0"),
    "tensorflow_docs": Source("TensorFlow documentation", "Apache-2.0; text CC BY 4.0"),
    "hf_course": Source("Hugging Face course", "Apache-2.0"),
    "opensource_guide": Source("Open Source Guides", "CC BY 4.0"),
    "storybooks": Source("Global African Storybook Project", "CC BY, some stories CC BY-NC"),
    "tico19": Source("TICO-19", "CC0 1.0"),
    "mozilla_www": Source("Mozilla website strings", "MPL-2.0"),
    "indian_parallel": Source("Indian parallel corpora (bn hi te)", "CC BY-SA 3.0", languages=("bn", "hi", "te")),
    "dictionaries": Source("Wiktionary and WECHSEL word lists", "CC BY-SA 3.0 and GFDL"),
    "squad_v1.1": Source("SQuAD 1.1", "CC BY-SA 4.0", languages=("en",)),
    "nq_qed": Source("Natural Questions (QED subset)", "CC BY-SA 3.0", languages=("en",)),
    "xquad_r": Source("XQuAD-R (LAReQA)", "CC BY-SA 4.0"),
    "tatoeba": Source("Tatoeba test set (LASER)", "CC BY 2.0 FR"),
}
USES = {
    "--documents": "documents",
    "--pairs": "pairs",
    "--parallel-documents": "parallel documents as pairs",
    "--dictionaries": "word lists",
    "--retrieval": "English questions and answers",
    "--exclude": "sentences left out of training",
    "--test": "evaluation only",
}


def data_sources(command: str | None, languages: Sequence[str], further: Mapping[str, str]) -> list[DataSource]:
    """What a training command read, in the order of its options, with licences.

    Args:
        command: As [`shown`][training_scripts.studies.cards.commands.shown] returns it. None if the run kept none.
        languages: Those of the run: text in none of them was not read.
        further: Folder below DATA -> use, for what the command does not name, such as test sets.

    Example:
        >>> data_sources("python train.py --documents DATA/tico19 mine.jsonl", ["en"], {})[0].license
        'CC0 1.0'
    """
    if command is None:
        found = {"training text": ["absent: the run kept no command"]}
    else:
        found = {}
    for option, use in USES.items():
        for value in values(command or "", option):
            folder = value.removeprefix(f"{DATA}/").split("/")[0] if value.startswith(f"{DATA}/") else value
            found.setdefault(folder, []).append(use)
    for folder, use in further.items():
        found.setdefault(folder, []).append(use)
    rows = []
    for folder, uses in found.items():
        source = SOURCES.get(folder, Source(folder, "absent: not known to this program"))
        if not source.languages or set(source.languages) & set(languages):
            rows.append(DataSource(source.name, source.licence, ", ".join(dict.fromkeys(uses))))
    return rows
