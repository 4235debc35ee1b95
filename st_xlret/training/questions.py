"""Questions to train on: apart from those of a test, with negatives, and measured by others."""

import logging

from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
from sentence_transformers.util import mine_hard_negatives

from st_xlret.data.reading import DataError
from st_xlret.data.texts import normalise_text
from st_xlret.evaluation.lareqa import read_lareqa

logger = logging.getLogger(__name__)

_TOO_MANY_KNOWN = 0.05
"""More of a test set's questions than chance explains."""


def without_test_questions(questions: Dataset, test: str) -> Dataset:
    """Leave out the questions of a test set.

    A `DataError` if they are more than chance explains.
    """
    texts_of_test = read_lareqa(test).queries["text"][:]
    tested = set(map(normalise_text, texts_of_test))
    asked = list(map(normalise_text, questions["query"]))
    known = tested & set(asked)
    if len(known) > _TOO_MANY_KNOWN * len(tested):
        raise DataError(
            f"{len(known)} of the {len(tested)} questions of --test {test} are among those to "
            "train on (XQuAD is made of SQuAD's dev): train on another part"
        )
    logger.info("left out, because they are in the test set: %d questions", len(known))
    kept = [row for row, question in enumerate(asked) if question not in known]
    return questions.select(kept)


def mine_negatives(questions: Dataset, model: str, count: int) -> Dataset:
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


def question_evaluator(questions: Dataset) -> InformationRetrievalEvaluator | None:
    """An evaluator that looks for each question's answers among all texts of the data set.

    None without questions.
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
