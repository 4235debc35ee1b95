"""Options of the training scripts for texts, pairs and documents, and how these are loaded."""

import logging
from dataclasses import dataclass
from pathlib import Path

from datasets import Dataset
from sentence_transformers import SentenceTransformer

from st_xlret.columns import Role
from st_xlret.data import load_documents, load_pairs
from st_xlret.data.dictionaries import read_dictionary
from st_xlret.data.held_out import hold_out_pairs
from st_xlret.data.kept import Counts
from st_xlret.data.pair_files import has_languages_in_name
from st_xlret.data.rows import by_language
from st_xlret.data.sources import source_files
from st_xlret.data.word_samples import build_word_samples
from st_xlret.data.words import read_stop_words, stop_words
from st_xlret.evaluation import TatoebaEvaluator
from st_xlret.languages import check_languages, languages_in_name, match_language
from st_xlret.options import option
from st_xlret.training.arguments import ScriptArguments

logger = logging.getLogger(__name__)

PAIRS_SCORE = "eval_pairs_average_accuracy"
"""The score of held-out pairs by which a run chooses its best checkpoint, as the host names it."""


@dataclass
class TextOptions:
    """What all texts to train on have in common; the other options of data build on it."""

    _argument_group_name = "data"

    languages: list[str] = option([], "Languages to keep (ISO 639-1 codes). All by default.")
    exclude: list[str] = option(
        [],
        "Text files with sentences that must not be trained on, such as those of a test.",
    )
    skip_bad_lines: bool = option(
        False,
        "Skip and count bad lines of the data instead of stopping at the first one.",
    )


@dataclass
class PairOptions(TextOptions):
    """Parallel sentences to train on."""

    pairs: list[str] = option(
        [],
        "Files or folders: JSON lines, Moses, WikiMatrix, or two columns (X.en-fr.tsv).",
    )
    pairs_per_language: int | None = option(
        None,
        "Maximum pairs per language pair. A larger sample has the smaller.",
    )
    evaluation_pairs: int = option(
        200,
        "Pairs per language pair to hold out: they measure, and choose the best.",
    )

    def pairs_and_evaluator(
        self,
        seed: int,
        *,
        role: Role | None = None,
        pivot: str | None = None,
    ) -> tuple[Dataset | None, TatoebaEvaluator | None]:
        """Parallel sentences to train on, and an evaluator of those held out.

        None where there are none. It embeds them as `role`, and measures those with a side in
        `pivot`: by default, in the language that most pairs have. `PAIRS_SCORE` is its score.
        """
        if not self.pairs:
            return None, None
        pairs = load_pairs(
            self.pairs,
            per_language=self.pairs_per_language,
            languages=self.languages or None,
            exclude=self.exclude,
            skip_bad_lines=self.skip_bad_lines,
        )
        rest, held_out = hold_out_pairs(pairs, self.evaluation_pairs, seed=seed)
        log_held_out("pairs", pairs, rest, held_out)
        measured = by_language(held_out, pivot)
        if not measured:
            if self.evaluation_pairs:
                logger.warning(
                    "no pairs are held out of %d: too few to measure the run by", len(pairs)
                )
            return rest, None
        evaluator = TatoebaEvaluator(
            measured,
            name="pairs",
            language_metrics=False,
            role=role,
        )
        return rest, evaluator


@dataclass
class DocumentOptions(PairOptions):
    """Documents to train on, parallel sentences, or both."""

    documents: list[str] = option(
        [],
        "JSON lines, folders of them, or data sets of the Hub as NAME:CONFIG=LANGUAGE.",
    )

    def load_documents(self) -> Dataset | None:
        """All documents as one memory-mapped data set of sentences, or None if there are none."""
        if not self.documents:
            return None
        return load_documents(
            self.documents,
            languages=self.languages or None,
            exclude=self.exclude,
            skip_bad_lines=self.skip_bad_lines,
        )


@dataclass
class WordOptions(PairOptions):
    """Parallel sentences, and dictionaries to find words in them."""

    dictionaries: list[str] = option(
        [],
        "Files of two columns, named as en-fr.txt is (MUSE), or folders of them.",
    )
    stop_words: list[str] = option(
        ["default"],
        "Words without samples: default (stopwordsiso's lists), none, or files in their place, "
        "as en.txt.",
    )
    samples_per_pair: int | None = option(
        None,
        "Maximum words of a pair of sentences, drawn. By default all.",
    )

    def word_samples(
        self,
        pairs: Dataset,
        model: SentenceTransformer,
        args: ScriptArguments,
    ) -> tuple[Dataset, dict[str, dict[str, int]]]:
        """Pairs with the token positions of a word and of its translation, and what was found.

        The counts of what was found are by language pair.
        """
        files = self._dictionary_files()
        counts = Counts()
        samples = build_word_samples(
            pairs,
            [read_dictionary(file, skip_bad_lines=self.skip_bad_lines) for file in files],
            model.tokenizer,
            max_seq_length=args.train_seq_length or int(model.max_seq_length or 0),
            samples_per_pair=self.samples_per_pair,
            seed=args.seed,
            stop_words_by_language=self._stop_words_by_language(files),
            counts=counts,
        )
        by_pair: dict[str, dict[str, int]] = {}
        for (code, what), count in counts.items():
            by_pair.setdefault(code, {})[what] = count
        return samples, by_pair

    def _dictionary_files(self) -> list[Path]:
        """The dictionaries of the languages to keep."""
        wanted = check_languages(self.languages or None)
        files = []
        for file in source_files(
            self.dictionaries, has_languages_in_name, "dictionary that is named after its languages"
        ):
            if all(match_language(code, wanted) for code in languages_in_name(file)):
                files.append(file)
        return files

    def _stop_words_by_language(self, files: list[Path]) -> dict[str, frozenset[str]] | None:
        """The words without samples; None for the default lists."""
        if self.stop_words == ["default"]:
            return None
        lists: dict[str, frozenset[str]] = {}
        if self.stop_words == ["none"]:
            return lists
        for path in self.stop_words:
            language, words = read_stop_words(path)
            lists[language] = words
        for file in files:
            for code in languages_in_name(file):
                if code not in lists:
                    lists[code] = stop_words(code)
        return lists


def log_held_out(what: str, everything: Dataset, rest: Dataset, held_out: Dataset) -> None:
    """Say how many rows are not trained on, and why."""
    sharing = len(everything) - len(rest) - len(held_out)
    logger.info(
        "%s to train on: %d of %d; held out to measure the run by: %d; left out, as they share a "
        "text with these: %d",
        what,
        len(rest),
        len(everything),
        len(held_out),
        sharing,
    )
