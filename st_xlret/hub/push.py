"""Upload of a model to the Hub, with checks that find likely errors before the training instead of after it."""

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
    """The model could not be uploaded. The local model is unchanged."""


def check_push(repo_id: str, token: str | None = None) -> None:
    """Check what can be checked without the network. Call it before training if the model will be pushed.

    Args:
        repo_id: `user/name` or `organisation/name`.
        token: An access token with write permission. Default: that of `hf auth login` or `HF_TOKEN`.

    Raises:
        ValueError: If `repo_id` is not the name of a repository.
        PushError: If the Hub is turned off (`HF_HUB_OFFLINE`) or there is no token.
    """
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise ValueError(f"cannot push: {repo_id!r} is not a repository such as 'user/name': {error}") from error
    if constants.HF_HUB_OFFLINE:
        raise PushError(
            f"Cannot push to {repo_id}: HF_HUB_OFFLINE is set. Unset it, or train without pushing and push later."
        )
    if not (token or huggingface_hub.get_token()):
        raise PushError(
            f"Cannot push to {repo_id}: there is no access token. Run `hf auth login`, set HF_TOKEN, "
            "or train without pushing and push later."
        )


def push_to_hub(
    model_or_folder: SentenceTransformer | str | os.PathLike[str],
    repo_id: str,
    *,
    private: bool | None = None,
    token: str | None = None,
) -> str:
    """Upload a model to the Hub. An existing repository gets a new commit.

    A folder is uploaded as it is, including its model card but without checkpoints and hidden files. A model is saved
    to a temporary folder by the host, which keeps a card that the repository already has.

    Args:
        model_or_folder: A `SentenceTransformer`, or the folder in which one was saved.
        repo_id: `user/name` or `organisation/name`. It is created if it does not exist.
        private: Whether a new repository is private. Default: the owner's setting.
        token: An access token. Default: that of the login.

    Returns:
        The address of the commit.

    Raises:
        ValueError: If `repo_id` is not the name of a repository, or the folder holds no saved model.
        PushError: If the Hub is turned off or unreachable, or refuses the upload. The local model is unchanged.
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
