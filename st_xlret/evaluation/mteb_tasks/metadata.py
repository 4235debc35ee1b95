"""What mteb wants to know of a task, filled in for local data."""

from __future__ import annotations

from typing import Any, Literal

from mteb.abstasks.task_metadata import TaskMetadata

# ISO 639-1 to mteb's language and script.
LANGUAGE_SCRIPTS = {
    "ar": "ara-Arab",
    "bn": "ben-Beng",
    "de": "deu-Latn",
    "el": "ell-Grek",
    "en": "eng-Latn",
    "es": "spa-Latn",
    "fa": "fas-Arab",
    "fi": "fin-Latn",
    "fr": "fra-Latn",
    "hi": "hin-Deva",
    "id": "ind-Latn",
    "ja": "jpn-Jpan",
    "ko": "kor-Hang",
    "pl": "pol-Latn",
    "ro": "ron-Latn",
    "ru": "rus-Cyrl",
    "sw": "swa-Latn",
    "ta": "tam-Taml",
    "te": "tel-Telu",
    "th": "tha-Thai",
    "tr": "tur-Latn",
    "uk": "ukr-Cyrl",
    "vi": "vie-Latn",
    "zh": "zho-Hans",
}


def local_metadata(
    name: str,
    description: str,
    languages: dict[str, list[str]],
    *,
    type: Literal["Retrieval", "BitextMining"],
    main_score: str,
    **more: Any,
) -> TaskMetadata:
    """Metadata of a task whose data lies in a local folder.

    Args:
        name: The task's name in mteb's results.
        description: One sentence.
        languages: Subset to its languages, as in ``{"fr": ["fra-Latn"]}``.
        type: mteb's task type, ``"Retrieval"`` or ``"BitextMining"``.
        main_score: The score that stands for the task.
        **more: Other fields, such as ``reference`` and ``license``.
    """
    return TaskMetadata(
        name=name,
        description=description,
        dataset={"path": "local", "revision": "local"},
        type=type,
        category="t2t",
        modalities=["text"],
        eval_langs=languages,
        main_score=main_score,
        **{"eval_splits": ["test"], "is_public": True, **more},
    )
