"""The languages that files are named after."""

import os
import re
from pathlib import Path

from st_xlret.languages.codes import check_language, normal_form


def languages_in_name(path: str | os.PathLike[str]) -> tuple[str, str]:
    """Read the two languages in a file name.

    Such as `WORDS.en-fr.tsv.gz`, `en-fr.txt` or `X.en-zh_TW.tsv`: they are a part of the name
    between dots, with a hyphen between them. A region or script takes an underscore. A `ValueError`
    refuses a name with no such pair, or several.
    """
    pairs: list[tuple[str, str]] = []
    for part in Path(path).name.split("."):
        for hyphen in re.finditer("-", part):
            source = normal_form(part[: hyphen.start()])
            target = normal_form(part[hyphen.end() :])
            if source and target and (source, target) not in pairs:
                pairs.append((source, target))
    if len(pairs) != 1:
        doubt = f": it may be {' or '.join(map(str, pairs))}" if pairs else ""
        name = f"{os.fspath(path)!r} does not name its two languages, as WORDS.en-pt_BR.tsv does"
        raise ValueError(f"{name}{doubt}")
    source, target = pairs[0]
    return check_language(source, where=str(path)), check_language(target, where=str(path))


def language_in_name(path: str | os.PathLike[str]) -> str:
    """Read the language in a file name such as `en.txt` or `mine.pt-BR.txt`.

    A `ValueError` refuses a name with none.
    """
    name = Path(path).name.removesuffix(".gz").rpartition(".")[0]
    return check_language(name.rpartition(".")[2], where=str(path))
