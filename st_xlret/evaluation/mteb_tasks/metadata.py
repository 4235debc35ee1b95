"""The metadata of mteb tasks over local data."""

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
    """Metadata of a task with its data in a local folder.

    Args:
        name: Name of the task in the results of mteb.
        description: Description in one sentence.
        languages: Subset to its languages, as in `{"fr": ["fra-Latn"]}`.
        type: mteb's task type, `"Retrieval"` or `"BitextMining"`.
        main_score: The main score of the task.
        **more: Other fields, such as `reference` and `license`.
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
