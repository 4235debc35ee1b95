"""Options of scripts that train on questions with passages: where they come from, and what is held out of them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from datasets import Dataset
from sentence_transformers import SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

from st_xlret.data import DataError, load_retrieval, normalise_text
from st_xlret.data.holdout import hold_out_questions
from st_xlret.data.reading.jsonl import Limits
from st_xlret.data.retrieval.layouts import find_retrieval
from st_xlret.evaluation.lareqa import LAReQAEvaluator, read_lareqa
from st_xlret.options import LIMITS_HELP, option
from st_xlret.training.arguments import DataArguments, RunArguments
from st_xlret.training.hard_negatives import mine_negatives_once

logger = logging.getLogger(__name__)

# More of a test set's questions than chance explains.
_TOO_MANY_KNOWN = 0.05


@dataclass
class QuestionArguments:
    """Questions with passages to train on."""

    _argument_group_name = "data"

    retrieval: list[str] = option(
        [],
        "Questions with passages: BEIR folders (their training split), JSON files of DPR (XOR-TyDi's too) or SQuAD, MS "
        "MARCO triplets (TSV), Mr.TyDi's train.jsonl.gz or the folder that contains them, Mewsli-X's pairs, or JSON "
        'lines {"query", "positive", "negatives", "language"}. PATH=sw names the language of a file that names none; '
        "without it, English.",
    )
    languages: list[str] = option([], "Languages of questions to keep (ISO 639-1 codes). All by default.")
    skip_bad_lines: bool = option(False, "Skip and count bad lines of the data instead of stopping at the first one.")
    limits: list[str] = option([], LIMITS_HELP)
    positives: str = option(
        "passage",
        "What a question is to find: the whole passage with its title, or the sentence with the answer.",
        choices=["passage", "sentence"],
    )
    hard_negatives: int = option(
        0,
        "Hard negatives per question: those in the files of DPR, MS MARCO or Mr.TyDi; for other data, --model finds "
        "them among all passages before it is trained.",
        minimum=0,
    )
    test: str | None = option(
        None,
        "XQuAD-R to measure the finished model on, as a BEIR folder or LAReQA's release. Its questions are not trained "
        "on.",
    )
    evaluation_questions: int = option(
        1000,
        "Questions to hold out, at most a tenth of them: they measure the run and choose the best checkpoint.",
        minimum=0,
    )

    def __post_init__(self) -> None:
        if not self.retrieval:
            raise ValueError("there is nothing to train on: give --retrieval, questions with passages")

    def load_questions(self, language: str = "en", languages: Sequence[str] = ()) -> Dataset:
        """All questions with passages, and with hard negatives where their files hold them, without those of the test.

        Args:
            language: Language of questions that name none.
            languages: Languages of questions to keep; all if it is empty.

        Raises:
            DataError: If more test questions are among the training data than chance explains.
        """
        given = all(source.has_negatives for source in find_retrieval(self.retrieval))
        dataset = load_retrieval(
            self.retrieval,
            negatives=self.hard_negatives if given else 0,
            positives=self.positives,
            titles=self.positives == "passage",
            language=language,
            languages=languages or None,
            skip_bad_lines=self.skip_bad_lines,
            limits=Limits.parse(self.limits),
        )
        if not self.test:
            return dataset
        tested = {normalise_text(text) for text in read_lareqa(self.test).queries.texts}
        questions = list(map(normalise_text, dataset["query"]))
        known = tested & set(questions)
        if len(known) > _TOO_MANY_KNOWN * len(tested):
            raise DataError(
                f"{len(known)} of the {len(tested)} questions of --test {self.test} are among those to train on: is it "
                "the part that the test set was made of (XQuAD of SQuAD's dev)? Train on another one"
            )
        logger.info("left out, because they are in the test set: %d questions", len(known))
        return dataset.select([row for row, question in enumerate(questions) if question not in known])

    def hold_out_questions(self, questions: Dataset, seed: int) -> tuple[Dataset, InformationRetrievalEvaluator | None]:
        """Put questions aside, with all others about the same passages.

        Returns:
            The questions to train on, and an evaluator of the others; None where nothing is held out.
        """
        questions, held_out = hold_out_questions(questions, self.evaluation_questions, seed=seed)
        if not len(held_out):
            return questions, None
        return questions, question_evaluator(held_out.select_columns(["query", "positive"]))

    def add_hard_negatives(
        self,
        questions: Dataset,
        model: str | None,
        args: SentenceTransformerTrainingArguments,
        run: RunArguments,
    ) -> Dataset:
        """Mine hard negatives for questions whose files hold none; they are kept in `output_dir/negatives`.

        Args:
            questions: The questions to train on.
            model: Hub name or folder of the model that finds them.
            args: The host's training arguments.
            run: With `overwrite`, negatives that are there are replaced, unless the run is resumed.

        Raises:
            ValueError: If there is no model to mine with.
        """
        if not self.hard_negatives or "negative_1" in questions.column_names:
            return questions
        if model is None:
            raise ValueError(
                f"--hard_negatives {self.hard_negatives}: an encoder from scratch finds none, and the files hold none; "
                "give a trained one by --model"
            )
        folder = Path(str(args.output_dir)) / "negatives"
        return mine_negatives_once(questions, model, self.hard_negatives, folder, keep=run.resume or not run.overwrite)

    def lareqa(self) -> LAReQAEvaluator | None:
        """The evaluator of `test`."""
        return LAReQAEvaluator.from_directory(self.test) if self.test else None


@dataclass
class RetrievalDataArguments(QuestionArguments, DataArguments):
    """Questions with passages, beside parallel sentences and documents."""

    languages: list[str] = option(
        [], "Languages of parallel sentences and documents to keep (ISO 639-1 codes). All by default."
    )
    evaluation_questions: int = field(default=0, init=False)
    evaluation_pairs: int = option(
        200,
        "Pairs per language pair to hold out, and 5 times as many questions (at most a tenth of them): they measure "
        "the run, and the questions choose the best checkpoint.",
    )

    def __post_init__(self) -> None:
        DataArguments.__post_init__(self)
        self.evaluation_questions = 5 * self.evaluation_pairs
        super().__post_init__()


def question_evaluator(questions: Dataset) -> InformationRetrievalEvaluator | None:
    """An evaluator that looks for each question's answer among all texts of the data set.

    Args:
        questions: Rows with `query`, `positive` and, if there are any, `negative_1` and so on.

    Returns:
        The evaluator; None if there are no questions.
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
