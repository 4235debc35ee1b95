"""Tatoeba: nearest-neighbour accuracy between 112 languages and English."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor
from tqdm.auto import tqdm

from st_xlret.data.reading.jsonl import DataError
from st_xlret.evaluation.bilingual_retrieval import retrieval_accuracy, weighted_f1
from st_xlret.evaluation.encoding.embedding import Calibration, Pooling, TextEmbedder
from st_xlret.evaluation.reporting.benchmark_evaluator import BenchmarkEvaluator
from st_xlret.evaluation.reporting.tables import BenchmarkResult, macro_average

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


HUB_DATASET = "mteb/tatoeba-bitext-mining"

SentencePairs = dict[str, tuple[list[str], list[str]]]


class TatoebaEvaluator(BenchmarkEvaluator):
    """Accuracy of the nearest neighbour by cosine between each language and English, in both directions.

    The test set is that of Artetxe and Schwenk (2019): up to 1 000 sentences of each of 112 languages with
    their English translations; each sentence is looked up among the translations of its own language pair.
    CCP ([Wu et al., 2022](https://arxiv.org/abs/2206.03281), Table 1) reports the mean of both directions,
    which is `accuracy` here; XTREME reports English to X alone, `accuracy_from_en`; mteb reports a
    weighted F1 of X to English, `f1_to_en` with `mteb_f1=True`. For large models CCP averages the hidden
    states of layer 14: `layer=14`.

    Metrics: `average_accuracy` (primary), `average_accuracy_to_en`, `average_accuracy_from_en`, and the same three
    per language, such as `fr_accuracy`.

    Args:
        sentences: Language to (sentences, their English translations), row-aligned.
        name: Prefix of the metrics.
        layer: See `encode_layer`.
        pooling: See `encode_layer`.
        calibration: Applied to each language's embeddings, such as a `CalibrationLayer`.
        batch_size: Size of a forward pass, in texts of 64 tokens (see `encode_texts`).
        precision: Number format of the model, `"fp32"`, `"bf16"` or `"auto"` (bf16 where the device computes in it).
        max_sentences: Maximum pairs per language, taken from the start. The task is then quicker and easier, so that
            scores are comparable only with scores of the same setting.
        show_progress_bar: Whether to show a bar over the languages.
        write_csv: Whether to append the accuracies to a CSV file where an output path is given.
        language_metrics: Whether to return the metrics of each language. Without them a training log stays readable;
            they are in the CSV file in any case.
        mteb_f1: Whether to add `f1_to_en`, see `weighted_f1`.

    Raises:
        ValueError: If there are no languages, if a language has no sentences or another number of
            translations than sentences, or if the calibration does not know a language.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> from sentence_transformers.sentence_transformer.modules import BoW
        >>> model = SentenceTransformer(modules=[BoW(vocab=["taxi", "hotel", "radio"])], device="cpu")
        >>> evaluator = TatoebaEvaluator({"fr": (["un taxi", "la radio"], ["taxi", "hotel radio"])})
        >>> evaluator(model)["tatoeba_fr_accuracy"]
        1.0
    """

    card_metric = "accuracy"

    def __init__(
        self,
        sentences: Mapping[str, tuple[Sequence[str], Sequence[str]]],
        *,
        name: str = "tatoeba",
        layer: int | None = None,
        pooling: Pooling | None = None,
        calibration: Calibration | None = None,
        batch_size: int = 128,
        precision: str = "fp32",
        max_sentences: int | None = None,
        show_progress_bar: bool = False,
        write_csv: bool = True,
        language_metrics: bool = True,
        mteb_f1: bool = False,
    ) -> None:
        super().__init__(
            name=name,
            csv_file=f"tatoeba_evaluation{'_' + name if name else ''}_results.csv",
            primary_metric="average_accuracy",
            write_csv=write_csv,
            language_metrics=language_metrics,
        )
        if not sentences:
            raise ValueError("there are no languages to evaluate.")
        if max_sentences is not None and max_sentences < 1:
            raise ValueError(f"max_sentences must be at least 1, got {max_sentences}.")
        self.sentences: dict[str, tuple[list[str], list[str]]] = {}
        for language, (texts, english) in sentences.items():
            if len(texts) != len(english) or not len(texts):
                raise ValueError(
                    f"language {language!r} has {len(texts)} sentences and {len(english)} English "
                    "translations: give it the same, positive number of both."
                )
            self.sentences[language] = (list(texts)[:max_sentences], list(english)[:max_sentences])
        self.embedder = TextEmbedder(layer, pooling, calibration, batch_size, precision=precision)
        self.embedder.require_languages(["en", *self.sentences])
        self.max_sentences = max_sentences
        self.show_progress_bar = show_progress_bar
        self.mteb_f1 = mteb_f1

    @classmethod
    def from_directory(
        cls, path: str | os.PathLike[str], languages: Sequence[str] | None = None, **options: Any
    ) -> TatoebaEvaluator:
        """Read LASER's layout: `tatoeba.fra-eng.fra` and `tatoeba.fra-eng.eng` in one directory.

        Args:
            path: The directory, such as LASER's `data/tatoeba/v1`.
            languages: ISO 639-1 codes (`fr`) or the files' own ISO 639-3 codes (`fra`). Default: all
                there.
            **options: The evaluator's own.

        Raises:
            FileNotFoundError: If the directory or one side of a pair is missing.
            ValueError: If a language is not there, or two files differ in their number of lines.
        """
        return cls(load_tatoeba_directory(path, languages), **options)

    @classmethod
    def from_hub(cls, languages: Sequence[str] | None = None, **options: Any) -> TatoebaEvaluator:
        """Load `mteb/tatoeba-bitext-mining` from the Hugging Face Hub, or from its cache when offline.

        Args:
            languages: ISO 639-1 or 639-3 codes. Default: all 112.
            **options: The evaluator's own.

        Raises:
            ValueError: If a language is not there.
        """
        return cls(load_tatoeba_hub(languages), **options)

    def evaluate(self, model: SentenceTransformer) -> BenchmarkResult:
        """Accuracies per language, their averages, and the protocol."""
        english = self._embed_english(model)
        scores: dict[str, dict[str, float]] = {}
        languages = tqdm(self.sentences.items(), desc="Tatoeba", disable=not self.show_progress_bar)
        for language, (texts, english_texts) in languages:
            embeddings = self.embedder.embed(model, texts, language)
            english_embeddings = english(english_texts)
            to_english, from_english = retrieval_accuracy(embeddings, english_embeddings)
            scores[language] = {
                "accuracy": (to_english + from_english) / 2,
                "accuracy_to_en": to_english,
                "accuracy_from_en": from_english,
            }
            if self.mteb_f1:
                scores[language]["f1_to_en"] = weighted_f1(embeddings, english_embeddings)
        return BenchmarkResult("tatoeba", scores, macro_average(scores), self._protocol(model))

    def _embed_english(self, model: SentenceTransformer) -> Any:
        """Embed each distinct English sentence once, as language pairs share them; returns a look-up."""
        distinct = list(dict.fromkeys(text for _, english in self.sentences.values() for text in english))
        embeddings = self.embedder.embed(model, distinct, "en")
        row_of = {text: row for row, text in enumerate(distinct)}

        def rows(texts: Sequence[str]) -> Tensor:
            return embeddings[[row_of[text] for text in texts]]

        return rows

    def _protocol(self, model: SentenceTransformer | None = None) -> dict[str, str]:
        counts = {len(texts) for texts, _ in self.sentences.values()}
        return {
            "task": "nearest neighbour by cosine within the language pair, equal cosines to the lower row",
            "direction": "to_en: X to English; from_en: English to X; accuracy: mean of both",
            **self.embedder.describe(model),
            "languages": str(len(self.sentences)),
            "sentences": "all" if self.max_sentences is None else f"the first {self.max_sentences} of each language",
            "sentences_per_language": f"{min(counts)} to {max(counts)}" if len(counts) > 1 else str(max(counts)),
        }


@cache
def tatoeba_language(code: str) -> str:
    """The ISO 639-1 code of an ISO 639-3 code of Tatoeba, or the code itself if there is none.

    Individual languages that represent their macrolanguage in ISO 639-1 are resolved as well (`cmn` to `zh`).
    Languages that only belong to one are not: `arz` (Egyptian Arabic) stays `arz`.

    Example:
        >>> [tatoeba_language(code) for code in ("fra", "cmn", "pes", "swh", "tgl", "arz", "kzj")]
        ['fr', 'zh', 'fa', 'sw', 'tl', 'arz', 'kzj']
    """
    import langcodes

    if code == "tgl":  # CLDR prefers "fil", which is no ISO 639-1 code
        return "tl"
    tag = langcodes.standardize_tag(code, macro=True)
    return tag if len(tag) == 2 else code


def load_tatoeba_directory(path: str | os.PathLike[str], languages: Sequence[str] | None = None) -> SentencePairs:
    """Read `tatoeba.<xxx>-eng.<xxx>` and `tatoeba.<xxx>-eng.eng`, one sentence per line, UTF-8.

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
    """Load the test split of `mteb/tatoeba-bitext-mining`, from its cache when offline.

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
        # The rows still end with the newline of LASER's files.
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
    # splitlines() would also split at characters that end no line of a text file.
    lines = path.read_bytes().removesuffix(b"\n").split(b"\n")
    texts = []
    for number, line in enumerate(lines, start=1):
        try:
            texts.append(line.decode("utf-8").removesuffix("\r"))
        except UnicodeDecodeError as error:
            reason = f"not UTF-8 text ({error.reason} at byte {error.start})"
            raise DataError(reason, file=str(path), line=number) from None
    return texts if lines != [b""] else []
