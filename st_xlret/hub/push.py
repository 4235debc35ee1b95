"""Publishing a model, with the errors that are likely said before the training, not after it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import huggingface_hub
from huggingface_hub import constants
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from st_xlret.files import MODEL_MARKER

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


class PushError(RuntimeError):
    """The model could not be published. The local model is untouched."""


def check_push(repo_id: str, token: str | None = None) -> None:
    """Check what can be known without the network: call it before training when a push was asked for.

    Args:
        repo_id: ``user/name`` or ``organisation/name``.
        token: An access token that may write; default: the one of ``hf auth login`` or ``HF_TOKEN``.

    Raises:
        ValueError: When ``repo_id`` is not the name of a repository.
        PushError: When the Hub is switched off (``HF_HUB_OFFLINE``) or there is no token.
    """
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise ValueError(f"--push-to-hub {repo_id!r} is not a repository such as 'user/name': {error}") from error
    if constants.HF_HUB_OFFLINE:
        raise PushError(
            f"Cannot push to {repo_id}: HF_HUB_OFFLINE is set. Unset it, or leave --push-to-hub out and push later."
        )
    if not (token or huggingface_hub.get_token()):
        raise PushError(
            f"Cannot push to {repo_id}: there is no access token. Run `hf auth login`, set HF_TOKEN, "
            "or leave --push-to-hub out and push later."
        )


def push_to_hub(
    model_or_folder: SentenceTransformer | str | os.PathLike[str],
    repo_id: str,
    *,
    private: bool | None = None,
    token: str | None = None,
) -> str:
    """Upload a model to the Hub; an existing repository gets a new commit.

    A folder is uploaded as it is, its model card included, except for checkpoints in it. A model is saved
    to a temporary folder by the host, which keeps a card that the repository already has.

    Args:
        model_or_folder: A ``SentenceTransformer``, or the folder that one was saved to.
        repo_id: ``user/name`` or ``organisation/name``; made where it does not exist.
        private: Whether a new repository is private; default: the owner's setting.
        token: An access token; default: the one that is logged in.

    Returns:
        The address of the commit.

    Raises:
        ValueError: When ``repo_id`` is no repository name, or the folder holds no saved model.
        PushError: When the Hub is off, unreachable or refuses. The local model is untouched.
    """
    check_push(repo_id, token)
    folder = Path(model_or_folder) if isinstance(model_or_folder, str | os.PathLike) else None
    if folder is not None and not (folder / MODEL_MARKER).is_file():
        raise ValueError(f"{folder} holds no saved model (no {MODEL_MARKER}); give the folder of one.")
    try:
        if folder is None:
            return model_or_folder.push_to_hub(repo_id, token=token, private=private, exist_ok=True)  # type: ignore[union-attr]
        api = huggingface_hub.HfApi(token=token)
        repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        commit = api.upload_folder(
            repo_id=repo_id,
            folder_path=folder,
            commit_message="Add a model trained with st-xlret",
            ignore_patterns=["checkpoint-*/**", ".*", "**/.*"],
        )
        return str(commit)
    except Exception as error:
        kept = f"the model is safe in {folder}" if folder else "the model in memory is untouched"
        raise PushError(f"Could not push to {repo_id}: {type(error).__name__}: {error}; {kept}.") from error
