"""Where Tatoeba's sentences come from: a directory in LASER's layout, or the Hugging Face Hub."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import langcodes

HUB_DATASET = "mteb/tatoeba-bitext-mining"

SentencePairs = dict[str, tuple[list[str], list[str]]]


@cache
def tatoeba_language(code: str) -> str:
    """The ISO 639-1 code of one of Tatoeba's ISO 639-3 codes, or the code itself where there is none.

    Individual languages that stand for their macrolanguage in 639-1 are resolved as well (``cmn`` to ``zh``);
    languages that merely belong to one are not (``arz``, Egyptian Arabic, stays).

    Example:
        >>> [tatoeba_language(code) for code in ("fra", "cmn", "pes", "swh", "tgl", "arz", "kzj")]
        ['fr', 'zh', 'fa', 'sw', 'tl', 'arz', 'kzj']
    """
    if code == "tgl":  # CLDR prefers "fil", which is no ISO 639-1 code
        return "tl"
    tag = langcodes.standardize_tag(code, macro=True)
    return tag if len(tag) == 2 else code


def load_tatoeba_directory(path: str | os.PathLike[str], languages: Sequence[str] | None = None) -> SentencePairs:
    """Reads ``tatoeba.<xxx>-eng.<xxx>`` and ``tatoeba.<xxx>-eng.eng``, one sentence a line, UTF-8.

    Args:
        path: The directory.
        languages: ISO 639-1 codes or the files' own ISO 639-3 codes. Default: all there, in the files' order.

    Returns:
        ISO 639-1 code (639-3 where there is none) to (sentences, English sentences).

    Raises:
        FileNotFoundError: If the directory, its Tatoeba files, or one side of a pair is missing.
        ValueError: If a language is not there, or two files differ in their number of lines.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is no directory: expected one with files such as {_side('fra', 'fra')}.")
    codes = sorted({file.name.split(".")[1].removesuffix("-eng") for file in folder.glob("tatoeba.*-eng.*")})
    if not codes:
        inner = sorted({file.parent for file in folder.glob("**/tatoeba.*-eng.*")})
        hint = f" There are some in {inner[0]}: give that directory." if inner else ""
        raise FileNotFoundError(f"{folder} holds no files such as {_side('fra', 'fra')}.{hint}")
    return {tatoeba_language(code): _read_pair(folder, code) for code in _choose(codes, languages, where=str(folder))}


def load_tatoeba_hub(languages: Sequence[str] | None = None) -> SentencePairs:
    """Loads the test split of ``mteb/tatoeba-bitext-mining`` (from its cache where the Hub is offline).

    Args:
        languages: ISO 639-1 or 639-3 codes. Default: all there.

    Returns:
        As `load_tatoeba_directory`.

    Raises:
        ValueError: If a language is not there.
    """
    from datasets import load_dataset

    dataset = load_dataset(HUB_DATASET, split="test")
    pairs: SentencePairs = {}
    columns = (dataset["lang"], dataset["sentence1"], dataset["sentence2"])
    for pair, text, english in zip(*columns, strict=True):
        # The rows keep the newline that ended them in LASER's files.
        texts, translations = pairs.setdefault(pair.removesuffix("-eng"), ([], []))
        texts.append(text.rstrip("\r\n"))
        translations.append(english.rstrip("\r\n"))
    chosen = _choose(sorted(pairs), languages, where=HUB_DATASET)
    return {tatoeba_language(code): pairs[code] for code in chosen}


def _choose(codes: Sequence[str], languages: Sequence[str] | None, *, where: str) -> list[str]:
    """The files' codes of the languages asked for, in the order asked for."""
    if languages is None:
        return list(codes)
    languages = [languages] if isinstance(languages, str) else languages
    code_of = {name: code for code in codes for name in (code, tatoeba_language(code))}
    unknown = [language for language in languages if language not in code_of]
    if unknown:
        raise ValueError(f"{where} has no {unknown}; it has {sorted(map(tatoeba_language, codes))}.")
    return list(dict.fromkeys(code_of[language] for language in languages))


def _side(code: str, side: str) -> str:
    return f"tatoeba.{code}-eng.{side}"


def _read_pair(folder: Path, code: str) -> tuple[list[str], list[str]]:
    paths = (folder / _side(code, code), folder / _side(code, "eng"))
    for path in paths:
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing: {paths[0].name} and {paths[1].name} belong together.")
    texts, english = map(_read_lines, paths)
    if len(texts) != len(english):
        raise ValueError(
            f"{paths[0]} has {len(texts)} lines and {paths[1]} has {len(english)}: "
            "the two must be aligned line by line."
        )
    return texts, english


def _read_lines(path: Path) -> list[str]:
    # Not splitlines(): a sentence may hold characters that Python, but no text file, ends lines at.
    text = path.read_bytes().decode("utf-8").removesuffix("\n")
    return [line.removesuffix("\r") for line in text.split("\n")] if text else []
