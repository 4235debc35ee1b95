"""Options of the training scripts for their data, and how the data are loaded and held out."""

import logging
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets import Dataset, load_from_disk
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
from sentence_transformers.util import mine_hard_negatives

from st_xlret.columns import Role
from st_xlret.data import load_documents, load_pairs, load_retrieval
from st_xlret.data.pairs import has_languages_in_name
from st_xlret.data.reading import Counts, DataError, normalise_text, source_files
from st_xlret.data.rows import by_language, hold_out_pairs, hold_out_questions
from st_xlret.data.words import build_word_samples, read_dictionary, read_stop_words, stop_words
from st_xlret.evaluation import LAReQAEvaluator, TatoebaEvaluator
from st_xlret.evaluation.lareqa import read_lareqa
from st_xlret.languages import check_languages, languages_in_name, match_language
from st_xlret.options import option
from st_xlret.training.script import ScriptArguments, make_folder

logger = logging.getLogger(__name__)

_COLUMNS = {
    "sentences": [("sentence", "language")],
    "others": [("sentence", "language")],
    "pairs": [("source", "source_language"), ("target", "target_language")],
    "questions": [("query", "language"), ("positive", "language")],
}
_POSITIVES = ("passage", "sentence")
_TOO_MANY_KNOWN = 0.05  # more of a test set's questions than chance explains


@dataclass
class TextOptions:
    """What all texts to train on have in common; the other options of data build on it."""

    _argument_group_name = "data"

    languages: list[str] = option([], "Languages to keep (ISO 639-1 codes). All by default.")
    exclude: list[str] = option(
        [], "Text files with sentences that must not be trained on, such as those of a test."
    )
    skip_bad_lines: bool = option(
        False, "Skip and count bad lines of the data instead of stopping at the first one."
    )

    def load_options(self) -> dict[str, Any]:
        """These options as the loaders of `st_xlret.data` take them."""
        return {
            "languages": self.languages or None,
            "exclude": self.exclude,
            "skip_bad_lines": self.skip_bad_lines,
        }


@dataclass
class PairOptions(TextOptions):
    """Parallel sentences to train on."""

    pairs: list[str] = option(
        [], "Files or folders: JSON lines, Moses, WikiMatrix, or two columns (X.en-fr.tsv)."
    )
    pairs_per_language: int | None = option(
        None, "Maximum pairs per language pair. A larger sample has the smaller."
    )
    evaluation_pairs: int = option(
        200, "Pairs per language pair to hold out: they measure, and choose the best."
    )

    def load_pairs(
        self, seed: int, role: Role | None = None
    ) -> tuple[Dataset | None, TatoebaEvaluator | None]:
        """Parallel sentences to train on, and an evaluator of those held out, as `role`; None where there are none."""
        if not self.pairs:
            return None, None
        pairs = load_pairs(self.pairs, per_language=self.pairs_per_language, **self.load_options())
        rest, held_out = hold_out_pairs(pairs, self.evaluation_pairs, seed=seed)
        if len(held_out):
            return rest, TatoebaEvaluator(
                by_language(held_out), name="pairs", language_metrics=False, role=role
            )
        if self.evaluation_pairs:
            logger.warning("no pairs are held out of %d: too few to measure the run by", len(pairs))
        return rest, None


@dataclass
class DocumentOptions(PairOptions):
    """Documents to train on, parallel sentences, or both."""

    documents: list[str] = option(
        [], "JSON lines, folders of them, or data sets of the Hub as NAME:CONFIG=LANGUAGE."
    )

    def load_documents(self) -> Dataset | None:
        """All documents as one memory-mapped data set of sentences, or None if there are none."""
        return load_documents(self.documents, **self.load_options()) if self.documents else None


@dataclass
class WordOptions(PairOptions):
    """Parallel sentences, and dictionaries to find words in them."""

    dictionaries: list[str] = option(
        [], "Files of two columns, named as en-fr.txt is (MUSE), or folders of them."
    )
    stop_words: list[str] = option(
        ["default"],
        "Words without samples: default (stopwordsiso's lists), none, or files in their place, as en.txt.",
    )
    samples_per_pair: int | None = option(
        None, "Maximum words of a pair of sentences, drawn. By default all."
    )

    def word_samples(
        self, pairs: Dataset, model: SentenceTransformer, args: ScriptArguments
    ) -> tuple[Dataset, dict[str, dict[str, int]]]:
        """Pairs with the token positions of a word and of its translation, and what was found, by language pair."""
        wanted = check_languages(self.languages or None)
        files = source_files(
            self.dictionaries, has_languages_in_name, "dictionary that is named after its languages"
        )
        files = [
            file
            for file in files
            if all(match_language(code, wanted) for code in languages_in_name(file))
        ]
        lists: dict[str, frozenset[str]] | None = None if self.stop_words == ["default"] else {}
        if self.stop_words not in (["default"], ["none"]):
            lists = dict(map(read_stop_words, self.stop_words))
            codes = {code for file in files for code in languages_in_name(file)} - lists.keys()
            lists |= {code: stop_words(code) for code in codes}
        counts = Counts()
        samples = build_word_samples(
            pairs,
            [read_dictionary(file, skip_bad_lines=self.skip_bad_lines) for file in files],
            model.tokenizer,
            max_seq_length=args.train_seq_length or int(model.max_seq_length or 0),
            samples_per_pair=self.samples_per_pair,
            seed=args.seed,
            stop_words_by_language=lists,
            counts=counts,
        )
        by_pair: dict[str, dict[str, int]] = {}
        for (code, what), count in counts.items():
            by_pair.setdefault(code, {})[what] = count
        return samples, by_pair


@dataclass
class AnswerOptions(TextOptions):
    """Questions with passages to train on."""

    retrieval: list[str] = option(
        [],
        'BEIR folders (training split), or JSON lines "query", "positive" ("negatives", "title", "answers", ...).',
    )
    context: bool = option(
        False, "Put its passage after each sentence that may answer, as evaluate --context does."
    )

    def load_answers(
        self, args: ScriptArguments, language: str, negatives: int, evaluated: int
    ) -> tuple[Dataset | None, InformationRetrievalEvaluator | None]:
        """As many questions as are read, with sentences that answer and others, and an evaluator of held-out ones."""
        if not self.retrieval or not negatives:
            return None, None
        options = self.load_options() | {
            "languages": None,
            "language": language,
            "context": self.context,
        }
        questions = load_retrieval(
            self.retrieval, positives="sentence", negatives=negatives, titles=False, **options
        )
        questions, held_out = hold_out_questions(questions, evaluated, seed=args.seed)
        rows = (
            args.max_steps
            * args.train_batch_size
            * args.world_size
            * args.gradient_accumulation_steps
        )
        most = min(len(questions), rows) if rows > 0 else len(questions)
        questions = questions.shuffle(seed=args.seed).select(range(most))
        return (questions if most else None), question_evaluator(held_out)


@dataclass
class QuestionOptions(AnswerOptions):
    """Questions with passages to train on, and a test set."""

    positives: str = option(
        "passage", "What a question is to find; sentence: that with the answer.", _POSITIVES
    )
    hard_negatives: int = option(
        0,
        "Hard negatives per question: of the files, of its passage (--positives sentence), or mined by --model.",
    )
    test: str | None = option(
        None, "XQuAD-R to measure the finished model on; its questions are not trained on."
    )
    evaluation_questions: int = option(
        1000, "Questions to hold out, at most a tenth: they measure as pairs do."
    )

    def load_questions(
        self, model: str | None, args: ScriptArguments, *, languages: list[str] | None = None
    ) -> tuple[Dataset, InformationRetrievalEvaluator | None]:
        """Questions without those of the test, and an evaluator; `model` mines negatives where the files hold none."""
        options = self.load_options() | {"languages": languages or None, "context": self.context}
        options |= {"positives": self.positives, "titles": self.positives == "passage"}
        questions, counts = load_retrieval(self.retrieval, **options), Counts()
        with suppress(DataError):  # no question has a negative
            harder = load_retrieval(
                self.retrieval, negatives=self.hard_negatives, counts=counts, **options
            )
            # A source without negatives would lose all its questions.
            questions = (
                harder if all(counts[source, "examples"] for source, _ in counts) else questions
            )
        if self.test:
            questions = without_test_questions(questions, self.test)
        rest, held_out = hold_out_questions(questions, self.evaluation_questions, seed=args.seed)
        if self.hard_negatives and "negative_1" not in rest.column_names:
            if model is None:
                raise ValueError(
                    f"--hard_negatives {self.hard_negatives}: no file has any, and there is no --model"
                )

            def mine(folder: Path) -> None:  # older versions of fsspec refuse a Path
                mine_negatives(rest, model, self.hard_negatives).save_to_disk(str(folder))

            rest = load_from_disk(make_folder(args, "negatives", mine, keep=args.resume))
        return rest, question_evaluator(held_out)

    def lareqa_evaluator(self) -> LAReQAEvaluator | None:
        """The evaluator of `test`."""
        return (
            LAReQAEvaluator.from_directory(self.test, context=self.context) if self.test else None
        )


def text_and_language_columns(**datasets: Dataset | None) -> list[tuple[Dataset, str, str]]:
    """Every column of texts with that of its languages, of `sentences`, `others`, `pairs` and `questions`."""
    return [
        (rows, *names)
        for kind, rows in datasets.items()
        if rows is not None
        for names in _COLUMNS[kind]
    ]


def data_facts(**datasets: Dataset | None) -> dict[str, Any]:
    """The languages of data sets as in `text_and_language_columns`, and how many rows each has, for `results.json`."""
    languages = {
        code
        for rows, _, column in text_and_language_columns(**datasets)
        for code in rows.unique(column)
    }
    return {
        "languages": sorted(languages),
        **{kind: len(rows or ()) for kind, rows in datasets.items()},
    }


def without_test_questions(questions: Dataset, test: str) -> Dataset:
    """Leave out the questions of a test set; a `DataError` if they are more than chance explains."""
    tested = {normalise_text(text) for text in read_lareqa(test).queries["text"][:]}
    asked = list(map(normalise_text, questions["query"]))
    known = tested & set(asked)
    if len(known) > _TOO_MANY_KNOWN * len(tested):
        share = f"{len(known)} of the {len(tested)} questions of --test {test}"
        raise DataError(
            f"{share} are among those to train on (XQuAD is made of SQuAD's dev): train on another part"
        )
    logger.info("left out, because they are in the test set: %d questions", len(known))
    return questions.select([row for row, question in enumerate(asked) if question not in known])


def mine_negatives(questions: Dataset, model: str, count: int) -> Dataset:
    """Give every question hard negatives among the passages of all, by the host; those with fewer are left out."""
    pairs = questions.select_columns(["query", "positive"])
    options: Any = {
        "num_negatives": count,
        "range_max": 100,
        "relative_margin": 0.05,
        "use_faiss": True,
    }
    mined = mine_hard_negatives(
        pairs, SentenceTransformer(model), output_format="n-tuple", **options
    )
    languages = dict(zip(questions["query"], questions["language"], strict=True))
    return mined.add_column("language", [languages[query] for query in mined["query"]])


def question_evaluator(questions: Dataset) -> InformationRetrievalEvaluator | None:
    """An evaluator that looks for each question's answer among all texts of the data set; None without questions."""
    if not len(questions):
        return None
    columns = [
        name
        for name in questions.column_names
        if name == "positive" or name.startswith("negative_")
    ]
    passages = {
        text: f"p{i}"
        for i, text in enumerate(dict.fromkeys(t for name in columns for t in questions[name]))
    }
    return InformationRetrievalEvaluator(
        queries={f"q{i}": text for i, text in enumerate(questions["query"])},
        corpus={name: text for text, name in passages.items()},
        relevant_docs={f"q{i}": {passages[text]} for i, text in enumerate(questions["positive"])},
        name="questions",
        write_csv=False,
    )
