"""Questions to train on: their options, and how they are read, held out and given negatives."""

import logging
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from datasets import Dataset, load_from_disk
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
from sentence_transformers.util import mine_hard_negatives

from st_xlret.data import load_retrieval
from st_xlret.data.held_out import hold_out_questions
from st_xlret.data.kept import Counts
from st_xlret.data.reading import DataError
from st_xlret.data.texts import normalize_text
from st_xlret.evaluation import LAReQAEvaluator
from st_xlret.evaluation.lareqa import read_lareqa
from st_xlret.options import option
from st_xlret.training.arguments import ScriptArguments
from st_xlret.training.data import TextOptions, log_held_out
from st_xlret.training.output_folder import make_folder

logger = logging.getLogger(__name__)

_TOO_MANY_KNOWN = 0.05
"""More of a test set's questions than chance explains."""


@dataclass
class AnswerOptions(TextOptions):
    """Questions with passages to train on."""

    retrieval: list[str] = option(
        [],
        'BEIR folders (training split), or JSON lines "query", "positive" ("negatives", "title", '
        '"answers", ...).',
    )
    context: bool = option(
        False,
        "Put its passage after each sentence that may answer, as evaluate --context does.",
    )

    def answers_and_evaluator(
        self,
        args: ScriptArguments,
        language: str,
        negatives: int,
        evaluated: int,
    ) -> tuple[Dataset | None, InformationRetrievalEvaluator | None]:
        """As many questions as the run reads, with answering and other sentences, and an evaluator.

        About `evaluated` questions are held out. Both None without questions or negatives; the
        evaluator measures held-out questions, and is None where there are none.
        """
        if not self.retrieval or not negatives:
            return None, None
        questions = load_retrieval(
            self.retrieval,
            positives="sentence",
            negatives=negatives,
            titles=False,
            context=self.context,
            language=language,
            languages=[*self.languages, language] if self.languages else None,
            exclude=self.exclude,
            skip_bad_lines=self.skip_bad_lines,
        )
        rest, held_out = hold_out_questions(questions, evaluated, seed=args.seed)
        log_held_out("questions", questions, rest, held_out)
        count = min(len(rest), _rows_of_run(args) or len(rest))
        drawn = rest.shuffle(seed=args.seed).select(range(count))
        return (drawn if count else None), question_evaluator(held_out)


@dataclass
class QuestionOptions(AnswerOptions):
    """Questions with passages to train on, and a test set."""

    positives: str = option(
        "passage",
        "What a question is to find; sentence: that with the answer.",
        ("passage", "sentence"),
    )
    hard_negatives: int = option(
        0,
        "Hard negatives per question: of the files, of its passage (--positives sentence), or "
        "mined by --model.",
    )
    test: str | None = option(
        None,
        "XQuAD-R to measure the finished model on; its questions are not trained on.",
    )
    evaluation_questions: int = option(
        1000,
        "Questions to hold out, at most a tenth: they measure as pairs do.",
    )

    def questions_and_evaluator(
        self,
        model: str | None,
        args: ScriptArguments,
        *,
        languages: list[str] | None = None,
    ) -> tuple[Dataset, InformationRetrievalEvaluator | None]:
        """Questions without those of the test, and an evaluator, None if none are held out.

        `model` mines negatives where the files hold none.
        """
        questions = self._read_questions(languages)
        if self.test:
            questions = _without_test_questions(questions, self.test)
        rest, held_out = hold_out_questions(questions, self.evaluation_questions, seed=args.seed)
        log_held_out("questions", questions, rest, held_out)
        if self.hard_negatives and "negative_1" not in rest.column_names:
            rest = self._with_mined_negatives(rest, model, args)
        return rest, question_evaluator(held_out)

    def _read_questions(self, languages: list[str] | None) -> Dataset:
        """The questions, with the negatives of the files where each of these has some."""
        questions = self._load_with_negatives(languages)
        if not self.hard_negatives:
            return questions
        counts = Counts()
        with suppress(DataError):  # no question has a negative
            harder = self._load_with_negatives(
                languages, negatives=self.hard_negatives, counts=counts
            )
            # A source without negatives would lose all its questions.
            if all(counts[source, "examples"] for source, _ in counts):
                return harder
        return questions

    def _load_with_negatives(
        self,
        languages: list[str] | None,
        *,
        negatives: int = 0,
        counts: Counts | None = None,
    ) -> Dataset:
        """The questions of the files, with so many negatives each; `counts` gets what was found."""
        return load_retrieval(
            self.retrieval,
            negatives=negatives,
            positives=self.positives,  # type: ignore[arg-type]
            context=self.context,
            titles=self.positives == "passage",
            languages=languages or None,
            exclude=self.exclude,
            skip_bad_lines=self.skip_bad_lines,
            counts=counts,
        )

    def _with_mined_negatives(
        self,
        questions: Dataset,
        model: str | None,
        args: ScriptArguments,
    ) -> Dataset:
        """Questions with negatives that the model finds, kept for a resumed run.

        All ranks call it together. A `ValueError` asks for a model where there is none.
        """
        if model is None:
            raise ValueError(
                f"--hard_negatives {self.hard_negatives}: no file has any, and there is no --model"
            )

        def mine(folder: Path) -> None:
            mined = _mine_negatives(questions, model, self.hard_negatives)
            mined.save_to_disk(str(folder))  # older versions of fsspec refuse a Path

        return load_from_disk(make_folder(args, "negatives", mine, keep=args.resume))

    def lareqa_evaluator(self) -> LAReQAEvaluator | None:
        """The evaluator of `test`; None without."""
        if not self.test:
            return None
        return LAReQAEvaluator.from_directory(self.test, context=self.context)


def _rows_of_run(args: ScriptArguments) -> int | None:
    """How many rows a run reads; None where it counts epochs."""
    rows_of_step = args.train_batch_size * args.world_size * args.gradient_accumulation_steps
    rows = args.max_steps * rows_of_step
    return rows if rows > 0 else None


def _without_test_questions(questions: Dataset, test: str) -> Dataset:
    """Leave out the questions of a test set.

    A `DataError` if they are more than chance explains.
    """
    texts_of_test = read_lareqa(test).queries["text"][:]
    tested = set(map(normalize_text, texts_of_test))
    asked = list(map(normalize_text, questions["query"]))
    known = tested & set(asked)
    if len(known) > _TOO_MANY_KNOWN * len(tested):
        raise DataError(
            f"{len(known)} of the {len(tested)} questions of --test {test} are among those to "
            "train on (XQuAD is made of SQuAD's dev): train on another part"
        )
    logger.info("left out, because they are in the test set: %d questions", len(known))
    kept = [row for row, question in enumerate(asked) if question not in known]
    return questions.select(kept)


def _mine_negatives(questions: Dataset, model: str, count: int) -> Dataset:
    """Give every question hard negatives among the passages of all, by the host.

    Those with fewer are left out.
    """
    mined = mine_hard_negatives(
        questions.select_columns(["query", "positive"]),
        SentenceTransformer(model),
        num_negatives=count,
        range_max=100,
        relative_margin=0.05,
        output_format="n-tuple",
        use_faiss=True,
    )
    language_of = dict(zip(questions["query"], questions["language"], strict=True))
    languages = [language_of[query] for query in mined["query"]]
    return mined.add_column("language", languages)


def questions_score(similarity: str = "cosine") -> str:
    """The score of held-out questions by which a run chooses its best checkpoint.

    It is named as the host names it, by the model's similarity.
    """
    return f"eval_questions_{similarity}_mrr@10"


def question_evaluator(questions: Dataset) -> InformationRetrievalEvaluator | None:
    """An evaluator that looks for each question's answers among all texts of the data set.

    None without questions. `questions_score` is its score.
    """
    if len(questions) == 0:
        return None
    name_of_passage: dict[str, str] = {}
    for column in questions.column_names:
        if column == "positive" or column.startswith("negative_"):
            for text in questions[column]:
                name_of_passage.setdefault(text, f"p{len(name_of_passage)}")
    name_of_query: dict[str, str] = {}
    relevant: dict[str, set[str]] = {}
    for query, positive in zip(questions["query"], questions["positive"], strict=True):
        name = name_of_query.setdefault(query, f"q{len(name_of_query)}")
        relevant.setdefault(name, set()).add(name_of_passage[positive])
    return InformationRetrievalEvaluator(
        queries={name: query for query, name in name_of_query.items()},
        corpus={name: text for text, name in name_of_passage.items()},
        relevant_docs=relevant,
        name="questions",
        write_csv=False,
    )
