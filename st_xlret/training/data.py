"""Options of the training scripts for their data, and how the data are loaded and held out."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from accelerate import PartialState
from datasets import Dataset, load_from_disk
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
from sentence_transformers.util import mine_hard_negatives

from st_xlret.batches.collator import prompt_tokens
from st_xlret.data import (
    DataError,
    PairOptions,
    WordSampleReport,
    build_word_samples,
    by_language,
    hold_out_pairs,
    hold_out_questions,
    load_dictionaries,
    load_documents,
    load_pairs,
    load_retrieval,
    normalise_text,
)
from st_xlret.data.dictionaries import read_stop_words, stop_words
from st_xlret.data.retrieval import find_retrieval
from st_xlret.evaluation import LAReQAEvaluator, TatoebaEvaluator
from st_xlret.evaluation.lareqa import read_lareqa
from st_xlret.files import atomic_directory
from st_xlret.options import option
from st_xlret.training.script import TrainingArguments

logger = logging.getLogger(__name__)

# More of a test set's questions than chance explains.
_TOO_MANY_KNOWN = 0.05


@dataclass
class DataArguments:
    """Documents and parallel sentences to train on."""

    _argument_group_name = "data"

    documents: list[str] = option(
        [],
        "Documents: JSON lines files, folders of them, or Hugging Face data sets as NAME:CONFIG=LANGUAGE, such as "
        "wikimedia/wikipedia:20231101.fr=fr.",
    )
    pairs: list[str] = option(
        [],
        "Parallel sentences, as files or folders: JSON lines, TMX, Moses (X.en-fr.en beside X.en-fr.fr), WikiMatrix, "
        "two columns (X.en-fr.tsv, word lists too), or documents with verse references.",
    )
    languages: list[str] = option([], "Languages to keep (ISO 639-1 codes). All by default.")
    pairs_per_language: int | None = option(
        None,
        "Maximum pairs per language pair. Samples are nested: a 500-pair sample is contained in the 5,000-pair one.",
    )
    exclude: list[str] = option(
        [],
        "Text files with sentences that must not be trained on, such as the English side of a test set.",
    )
    evaluation_pairs: int = option(
        200,
        "Pairs per language pair to hold out: they measure the run and choose the best checkpoint.",
    )
    skip_bad_lines: bool = option(False, "Skip and count bad lines of the data instead of stopping at the first one.")

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

    def load_pairs(self, seed: int) -> tuple[Dataset | None, TatoebaEvaluator | None]:
        """Parallel sentences to train on, and an evaluator of those that are held out; None where there are none."""
        if not self.pairs:
            return None, None
        options = PairOptions(
            languages=self.languages or None,
            per_language=self.pairs_per_language,
            exclude=tuple(self.exclude),
            skip_bad_lines=self.skip_bad_lines,
        )
        pairs = load_pairs(self.pairs, options)
        if not self.evaluation_pairs:
            return pairs, None
        rest, held_out = hold_out_pairs(pairs, self.evaluation_pairs, seed=seed)
        if not len(rest):
            raise ValueError(
                f"holding out --evaluation_pairs {self.evaluation_pairs} leaves none of the {len(pairs)} pairs to "
                "train on, because sentences that occur on both sides are removed; lower it, or set it to 0"
            )
        if not len(held_out):
            logger.warning("no pairs are held out of %d: too few to measure the run by", len(pairs))
            return rest, None
        return rest, TatoebaEvaluator(by_language(held_out), name="pairs", language_metrics=False)


@dataclass
class WordArguments(DataArguments):
    """Parallel sentences, and dictionaries to find words in them."""

    documents: list[str] = field(default_factory=list, init=False)
    dictionaries: list[str] = option(
        [], "Dictionaries: two columns, named after their languages, such as en-fr.txt (MUSE) or WORDS.en-fr.tsv.gz."
    )
    stop_words: list[str] = option(
        ["default"],
        "Words to make no samples of: default (the long lists of the library stopwordsiso), none, or files of your "
        "own with one word per line, named after their language, such as en.txt; a language without a file has the "
        "default list.",
    )
    samples_per_pair: int | None = option(
        None, "Maximum words of a pair of sentences, chosen at random. By default all that are found."
    )

    def word_samples(
        self, pairs: Dataset, model: SentenceTransformer, args: TrainingArguments
    ) -> tuple[Dataset, dict[str, dict[str, int]]]:
        """Pairs with the token positions of a word and of its translation, and what was found, by language pair.

        Raises:
            ValueError: If there are no dictionaries, or stop words of a language that no dictionary has.
        """
        if not self.dictionaries:
            raise ValueError("there are no dictionaries: give --dictionaries, or train on sentences with --mode CZ-snt")
        if len(self.stop_words) != 1 and {"default", "none"} & set(self.stop_words):
            raise ValueError(f"--stop_words takes default, none or files, got {' '.join(self.stop_words)}")
        languages = self.languages or None
        found = load_dictionaries(self.dictionaries, languages=languages, skip_bad_lines=self.skip_bad_lines)
        left_out: dict[str, frozenset[str]] | None = None if self.stop_words == ["default"] else {}
        if self.stop_words not in (["default"], ["none"]):
            codes = {code for one in found for code in (one.source_language, one.target_language)}
            own = dict(map(read_stop_words, self.stop_words))
            if unknown := sorted(set(own) - codes):
                raise ValueError(f"--stop_words: no dictionary has {', '.join(unknown)}; they have {sorted(codes)}")
            left_out = {code: own[code] if code in own else stop_words(code) for code in codes}
        report = WordSampleReport()
        tokens_read = args.train_seq_length or int(model.max_seq_length or 0)
        samples = build_word_samples(
            pairs,
            found,
            model.tokenizer,
            max_seq_length=tokens_read - prompt_tokens(model, args.prompts),
            samples_per_pair=self.samples_per_pair,
            seed=args.seed,
            stop_words_by_language=left_out,
            report=report,
        )
        return samples, {code: dict(counts) for code, counts in report.languages.items()}


@dataclass
class QuestionArguments(DataArguments):
    """Questions with passages to train on, beside parallel sentences and documents."""

    retrieval: list[str] = option(
        [],
        "Questions with passages: BEIR folders (their training split), JSON files of DPR (XOR-TyDi's too) or SQuAD, "
        "MS MARCO triplets (TSV), Mr.TyDi's train.jsonl.gz or the folder that contains them, Mewsli-X's pairs, or "
        "JSON lines "
        '{"query", "positive", "negatives", "language"}. PATH=sw names the language of a file that names none; '
        "without it, "
        "English.",
    )
    positives: str = option(
        "passage",
        "What a question is to find: the whole passage with its title, or the sentence with the answer.",
        choices=["passage", "sentence"],
    )
    hard_negatives: int = option(
        0,
        "Hard negatives per question: those in the files of DPR, MS MARCO or Mr.TyDi, and with --positives sentence "
        "the other sentences of the passage; for other data, --model finds them among all passages before it is "
        "trained.",
    )
    test: str | None = option(
        None,
        "XQuAD-R to measure the finished model on, as a BEIR folder or LAReQA's release. Its questions are not "
        "trained on.",
    )
    evaluation_questions: int = option(
        1000, "Questions to hold out, at most a tenth: they measure the run and choose the best checkpoint."
    )

    context = False

    def __post_init__(self) -> None:
        if not self.retrieval:
            raise ValueError("there is nothing to train on: give --retrieval, questions with passages")

    def load_questions(
        self, seed: int, *, languages: Sequence[str] = ()
    ) -> tuple[Dataset, InformationRetrievalEvaluator | None]:
        """Questions to train on, without those of the test, and an evaluator of those that are held out.

        Args:
            seed: Seed of what is held out.
            languages: Languages of questions to keep; all if it is empty.

        Raises:
            DataError: If more test questions are among the training data than chance explains.
        """
        sources = find_retrieval(self.retrieval)
        questions = load_retrieval(
            self.retrieval,
            negatives=self.hard_negatives if all(source.has_negatives(self.positives) for source in sources) else 0,
            positives=self.positives,
            context=self.context,
            titles=self.positives == "passage",
            languages=languages or None,
            skip_bad_lines=self.skip_bad_lines,
        )
        if self.test:
            questions = without_test_questions(questions, self.test)
        rest, held_out = hold_out_questions(questions, self.evaluation_questions, seed=seed)
        if self.evaluation_questions and not len(held_out):
            logger.warning("no questions are held out of %d: too few to measure the run by", len(questions))
        return rest, question_evaluator(held_out)

    def add_hard_negatives(self, questions: Dataset, model: str | None, args: TrainingArguments) -> Dataset:
        """Mine hard negatives for questions whose files hold none; they are kept in `output_dir/negatives`.

        Raises:
            DataError: If no question has as many negatives.
            ValueError: If there is no model to mine with.
        """
        if not self.hard_negatives or "negative_1" in questions.column_names:
            return questions
        if model is None:
            raise ValueError(
                f"--hard_negatives {self.hard_negatives}: an encoder from scratch finds none, and the files hold "
                "none; give a trained one by --model"
            )
        folder, state = Path(str(args.output_dir)) / "negatives", PartialState()
        # Rank 0 mines while the others wait.
        with state.main_process_first():
            if state.is_main_process and not (args.resume and folder.is_dir()):
                mined = mine_negatives(questions, model, self.hard_negatives)
                shutil.rmtree(folder, ignore_errors=True)
                with atomic_directory(folder) as temporary:
                    mined.save_to_disk(str(temporary))  # older versions of fsspec refuse a Path
        return load_from_disk(str(folder))

    def lareqa(self) -> LAReQAEvaluator | None:
        """The evaluator of `test`."""
        return LAReQAEvaluator.from_directory(self.test, context=self.context) if self.test else None


@dataclass
class QuestionsAloneArguments(QuestionArguments):
    """Questions with passages to train on."""

    documents: list[str] = field(default_factory=list, init=False)
    pairs: list[str] = field(default_factory=list, init=False)
    pairs_per_language: int | None = field(default=None, init=False)
    evaluation_pairs: int = field(default=0, init=False)
    context: bool = option(
        False, "Put its passage after each sentence of --positives sentence, as evaluate --context does."
    )


@dataclass
class PairQuestionArguments(DataArguments):
    """Translations, and questions where there are any."""

    documents: list[str] = field(default_factory=list, init=False)
    retrieval: list[str] = option(
        [],
        "Questions in the pivot language with passages and answers: BEIR folders whose queries name their answers "
        "(their training split), or JSON files of DPR or SQuAD.",
    )
    context: bool = option(
        False, "Put its paragraph after each sentence that may answer, as evaluate --context does: for search in such."
    )

    def load_answers(
        self, args: TrainingArguments, language: str, negatives: int
    ) -> tuple[Dataset | None, InformationRetrievalEvaluator | None]:
        """Questions with the sentence that answers and others of its paragraph, and an evaluator of held-out ones.

        No more questions than the run can read are kept. Without `retrieval`, or with 0 negatives, there are none.
        """
        if not self.retrieval or not negatives:
            return None, None
        questions = load_retrieval(
            self.retrieval,
            positives="sentence",
            context=self.context,
            negatives=negatives,
            titles=False,
            language=language,
            exclude=self.exclude,
            skip_bad_lines=self.skip_bad_lines,
        )
        questions, held_out = hold_out_questions(questions, 5 * self.evaluation_pairs, seed=args.seed)
        evaluator, questions = question_evaluator(held_out), questions.shuffle(seed=args.seed)
        if args.max_steps > 0:
            most = args.max_steps * args.train_batch_size * args.world_size * args.gradient_accumulation_steps
            questions = questions.select(range(min(len(questions), most)))
        return (questions if len(questions) else None), evaluator


def without_test_questions(questions: Dataset, test: str) -> Dataset:
    """Leave out the questions of a test set.

    Raises:
        DataError: If more of them are among the training data than chance explains.
    """
    tested = {normalise_text(text) for text in read_lareqa(test).queries.texts}
    asked = list(map(normalise_text, questions["query"]))
    known = tested & set(asked)
    if len(known) > _TOO_MANY_KNOWN * len(tested):
        raise DataError(
            f"{len(known)} of the {len(tested)} questions of --test {test} are among those to train on: is it the "
            "part that the test set was made of (XQuAD of SQuAD's dev)? Train on another one"
        )
    logger.info("left out, because they are in the test set: %d questions", len(known))
    return questions.select([row for row, question in enumerate(asked) if question not in known])


def mine_negatives(questions: Dataset, model: str, count: int) -> Dataset:
    """Give every question hard negatives among the passages of all questions, by the host's `mine_hard_negatives`.

    A negative is among the 100 most similar passages, and at least 5 % less similar to the question than its passage.

    Returns:
        Rows with `query`, `positive`, `negative_1` ... and `language`; questions with fewer negatives are left out.

    Raises:
        DataError: If no question has as many negatives.
    """
    mined = mine_hard_negatives(
        questions.select_columns(["query", "positive"]),
        SentenceTransformer(model),
        anchor_column_name="query",
        positive_column_name="positive",
        num_negatives=count,
        range_max=100,
        relative_margin=0.05,
        use_faiss=True,
        output_format="n-tuple",
    )
    if not len(mined):
        raise DataError(
            f"{model} finds {count} hard negatives for no question: they must be among its 100 most similar passages "
            "and at least 5% less similar than the right one; ask for fewer, or take another model"
        )
    languages = dict(zip(questions["query"], questions["language"], strict=True))
    return mined.add_column("language", [languages[query] for query in mined["query"]])


def question_evaluator(questions: Dataset) -> InformationRetrievalEvaluator | None:
    """An evaluator that looks for each question's answer among all texts of the data set; None without questions.

    Args:
        questions: Rows with `query`, `positive` and, if there are any, `negative_1` and so on.
    """
    if not len(questions):
        return None
    columns = [name for name in questions.column_names if name == "positive" or name.startswith("negative_")]
    passages = {text: f"p{i}" for i, text in enumerate(dict.fromkeys(t for name in columns for t in questions[name]))}
    return InformationRetrievalEvaluator(
        queries={f"q{i}": text for i, text in enumerate(questions["query"])},
        corpus={name: text for text, name in passages.items()},
        relevant_docs={f"q{i}": {passages[text]} for i, text in enumerate(questions["positive"])},
        name="questions",
        write_csv=False,
    )
