"""The languages that files are named after."""

from locale import locale_alias
from pathlib import Path

from st_xlret.files import PathLike
from st_xlret.folders import unpacked_name
from st_xlret.languages.codes import check_language, normal_code_or_none


def languages_in_name(path: PathLike) -> tuple[str, str]:
    """Read the two languages in a file name.

    Such as `WORDS.en-fr.tsv.gz`, `en-fr.txt` or `X.en-zh_TW.tsv`: they are a part of the name
    between dots, with a hyphen between them. A region or script takes an underscore. A `ValueError`
    refuses a name with no such pair, or several.
    """
    found = []
    for part in Path(path).name.split("."):
        for pair in _pairs_of_codes(part):
            if pair not in found:
                found.append(pair)
    if len(found) != 1:
        problem = f"{str(path)!r} does not name its two languages, as WORDS.en-pt_BR.tsv does"
        if found:
            problem += f": it may be {' or '.join(map(str, found))}"
        raise ValueError(problem)
    source, target = found[0]
    place = str(path)
    return check_language(source, where=place), check_language(target, where=place)


def _pairs_of_codes(text: str) -> list[tuple[str, str]]:
    """The pairs of languages that a text may be, cut at one of its hyphens."""
    pairs = []
    pieces = text.split("-")
    for cut in range(1, len(pieces)):
        source = normal_code_or_none("-".join(pieces[:cut]))
        target = normal_code_or_none("-".join(pieces[cut:]))
        if source and target:
            pairs.append((source, target))
    return pairs


def language_in_name(path: PathLike) -> str:
    """Read the language in a file name such as `en.txt` or `mine.pt-BR.txt`.

    A `ValueError` refuses a name with none, or with two, as `en-fr.txt`.
    """
    name = unpacked_name(path)
    before_ending, _, _ = name.rpartition(".")
    _, _, code = before_ending.rpartition(".")
    return check_named_language(code, path)


def check_named_language(code: str, path: PathLike) -> str:
    """The normal form of a code in the name of a file, as of `check_language`.

    `en-fr` is a pair; `pt-br` is known as the language of a region, and `en-FR` is spelled as one.
    """
    hyphenated = code.replace("_", "-")
    underscored = code.replace("-", "_")
    may_be_pair = code.islower() and underscored not in locale_alias
    if may_be_pair and _pairs_of_codes(hyphenated):
        raise ValueError(f"{path} is named after two languages, {code}")
    return check_language(code, where=str(path))
