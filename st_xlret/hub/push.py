"""Upload of a model to the Hub, with checks that find likely errors before the training instead of after it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import huggingface_hub
from huggingface_hub import constants
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def check_push(repo_id: str, *, dry_run: bool = False) -> None:
    """Check what can be checked without the network. Call it before training if the model will be pushed.

    Args:
        repo_id: `user/name` or `organisation/name`.
        dry_run: Check the name only, as nothing will be sent.

    Raises:
        ValueError: If `repo_id` is not the name of a repository.
        OSError: If the Hub is turned off (`HF_HUB_OFFLINE`) or there is no token.
    """
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise ValueError(f"cannot push: {repo_id!r} is not a repository such as 'user/name': {error}") from error
    later = "or go on without pushing and push later"
    if not dry_run and constants.HF_HUB_OFFLINE:
        raise OSError(f"cannot push to {repo_id}: HF_HUB_OFFLINE is set. Unset it, {later}.")
    if not dry_run and not huggingface_hub.get_token():
        raise OSError(f"cannot push to {repo_id}: there is no token. Run `hf auth login`, set HF_TOKEN, {later}.")


def push(model: SentenceTransformer, repo_id: str, folder: str | os.PathLike[str], *, dry_run: bool = False) -> str:
    """Upload a model by the host's `push_to_hub`. An existing repository gets a new commit.

    The token is that of `hf auth login` or `HF_TOKEN`, and whether a new repository is private is the owner's setting.

    Args:
        model: The model.
        repo_id: `user/name` or `organisation/name`. It is created if it does not exist.
        folder: Where the model is saved.
        dry_run: Send nothing.

    Returns:
        The address of the commit; with `dry_run`, the files of the folder with their sizes, and the card.

    Raises:
        ValueError: If `repo_id` is not the name of a repository.
        OSError: If the Hub is turned off or unreachable, or refuses the upload. The local model is unchanged.
    """
    check_push(repo_id, dry_run=dry_run)
    if dry_run:
        files = [file for file in sorted(Path(folder).rglob("*")) if file.is_file()]
        lines = [f"{file.stat().st_size:>13,}  {file.relative_to(folder).as_posix()}" for file in files]
        card = Path(folder, "README.md").read_text(encoding="utf-8")
        return "\n".join([f"would be uploaded to {repo_id}:", *lines, "", card])
    try:
        return model.push_to_hub(repo_id, exist_ok=True, replace_model_card=True)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        raise OSError(f"could not push to {repo_id}: {problem}; the model is safe in {os.fspath(folder)}") from error
