"""How a model is used, in a card: a question, answers to it, and the calls that embed them."""

from collections.abc import Sequence
from typing import NamedTuple

from sentence_transformers import SentenceTransformer

from st_xlret.columns import Role
from st_xlret.encoding import PROMPT_NAMES, prompt_name, task_languages
from st_xlret.encoding.maps import query_task
from st_xlret.hub.texts import ANSWERS, QUESTION

_SHOWN = 3


def example_answers(languages: Sequence[str]) -> list[str]:
    """Answers to the question, in the languages of a model; in any where it names none of ours.

    In another language than those of its calibration, a right answer may score low.
    """
    answers = [text for code, text in ANSWERS.items() if code in languages]
    if not answers:
        answers = list(ANSWERS.values())
    return answers[:_SHOWN]


class EncodingCall(NamedTuple):
    """A language of a model, empty for one without a map for each, and code that embeds texts."""

    language: str
    code: str


def encoding_calls(model: SentenceTransformer) -> dict[Role, EncodingCall]:
    """How the texts of each role are embedded, queries first, in one of the model's languages.

    The calls are of Sentence Transformers alone. The host's `encode_query` and `encode_document`
    take no language: calls with one name the model's prompt themselves.
    """
    tasks = task_languages(model)
    if not tasks:
        return {role: EncodingCall("", f"model.encode_{role}(texts)") for role in PROMPT_NAMES}
    codes = sorted(set(tasks.values()), key=lambda code: (code != "en", code))
    of_role: dict[Role, str] = {"query": codes[0], "document": codes[-1]}
    calls: dict[Role, EncodingCall] = {}
    for role, code in of_role.items():
        task = code
        if role == "query" and query_task(code) in tasks:
            task = query_task(code)
        arguments = ["texts", f'task="{task}"']
        name = prompt_name(model, role)
        if name:
            arguments.append(f'prompt_name="{name}"')
        calls[role] = EncodingCall(code, f"model.encode({', '.join(arguments)})")
    return calls


def language_snippet(model: SentenceTransformer, name: str) -> str:
    """How a model with a map per language is used: a query and a document in different ones."""
    lines = [
        "from sentence_transformers import SentenceTransformer",
        "",
        f'model = SentenceTransformer("{name}")',
        "# The task is the language of the texts.",
    ]
    for role, call in encoding_calls(model).items():
        text = QUESTION if role == "query" else ANSWERS.get(call.language, ANSWERS["en"])
        lines.append(f"texts = [{text!r}]")
        lines.append(f"{role}_embeddings = {call.code}")
    lines.append("print(model.similarity(query_embeddings, document_embeddings))")
    return "\n".join(["```python", *lines, "```"])
