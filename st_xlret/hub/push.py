"""Upload of a model to the Hub, with checks that find likely errors before the training instead of after it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import huggingface_hub
import yaml
from huggingface_hub import CommitOperationAdd, ModelCard, constants
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import filter_repo_objects, validate_repo_id

from st_xlret.files import MODEL_MARKER

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


_CARD = "README.md"
_PLACEHOLDER = "sentence_transformers_model_id"
_NOT_UPLOADED = ["checkpoint-*/**", ".*", "**/.*"]


class PushError(RuntimeError):
    """The model could not be uploaded. The local model is unchanged."""


def check_push(repo_id: str, token: str | None = None, *, dry_run: bool = False) -> None:
    """Check what can be checked without the network. Call it before training if the model will be pushed.

    Args:
        repo_id: `user/name` or `organisation/name`.
        token: An access token with write permission. Default: that of `hf auth login` or `HF_TOKEN`.
        dry_run: Check the name only, as nothing will be sent.

    Raises:
        ValueError: If `repo_id` is not the name of a repository.
        PushError: If the Hub is turned off (`HF_HUB_OFFLINE`) or there is no token.
    """
    _check_name(repo_id)
    if dry_run:
        return
    if constants.HF_HUB_OFFLINE:
        raise PushError(
            f"Cannot push to {repo_id}: HF_HUB_OFFLINE is set. Unset it, or train without pushing and push later."
        )
    if not (token or huggingface_hub.get_token()):
        raise PushError(
            f"Cannot push to {repo_id}: there is no access token. Run `hf auth login`, set HF_TOKEN, "
            "or train without pushing and push later."
        )


class Upload(NamedTuple):
    """What an upload of a folder consists of.

    Attributes:
        repo_id: The repository.
        files: Path in the repository -> bytes.
        card: Text of the model card, which names the repository in its examples.
    """

    repo_id: str
    files: dict[str, int]
    card: str

    def __str__(self) -> str:
        """The files with their sizes, and the card."""
        lines = [f"{size:>13,}  {name}" for name, size in self.files.items()]
        total = f"{sum(self.files.values()):>13,}  bytes in {len(self.files)} files for {self.repo_id}"
        return "\n".join([*lines, total, "", self.card])


def plan_push(folder: str | os.PathLike[str], repo_id: str) -> Upload:
    r"""What `push_to_hub` would upload from a folder. Nothing is sent.

    Args:
        folder: The folder of a saved model.
        repo_id: `user/name` or `organisation/name`.

    Raises:
        ValueError: If `repo_id` is not the name of a repository, the folder holds no saved model, or the Hub could not
            read the metadata of its card.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = (Path(folder) / "modules.json").write_text("[]")
        ...     _ = (Path(folder) / "README.md").write_text("---\nlicense: mit\n---\n# A model")
        ...     sorted(plan_push(folder, "me/model").files)
        ['README.md', 'modules.json']
    """
    _check_name(repo_id)
    path = Path(folder)
    if not (path / MODEL_MARKER).is_file():
        raise ValueError(f"{path} holds no saved model (no {MODEL_MARKER}); give the folder of one.")
    names = sorted(file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file())
    kept = list(filter_repo_objects(names, ignore_patterns=_NOT_UPLOADED))
    card = ""
    if _CARD in kept:
        card = (path / _CARD).read_text(encoding="utf-8").replace(_PLACEHOLDER, repo_id)
        check_card(card, where=str(path / _CARD))
    sizes = {name: len(card.encode()) if name == _CARD else (path / name).stat().st_size for name in kept}
    return Upload(repo_id, sizes, card)


def check_card(text: str, *, where: str = "the model card") -> None:
    r"""Check that the Hub can read the metadata of a card, with the Hub's own reader.

    Args:
        text: The card.
        where: What to name in the error.

    Raises:
        ValueError: If it cannot.

    Example:
        >>> check_card("---\nlicense: [\n---\n")
        Traceback (most recent call last):
        ValueError: the Hub cannot read the metadata of the model card: ...
    """
    try:
        ModelCard(text).data.to_dict()
    except (ValueError, TypeError, KeyError, yaml.YAMLError) as error:
        raise ValueError(f"the Hub cannot read the metadata of {where}: {error}") from error


def push_to_hub(
    model_or_folder: SentenceTransformer | str | os.PathLike[str],
    repo_id: str,
    *,
    private: bool | None = None,
    token: str | None = None,
) -> str:
    """Upload a model to the Hub. An existing repository gets a new commit.

    A folder is uploaded without checkpoints and hidden files, with its model card, which names the repository in its
    examples. A model is saved to a temporary folder by the host, which keeps a card that the repository already has.
    [`plan_push`][st_xlret.hub.plan_push] shows what would be uploaded.

    Args:
        model_or_folder: A `SentenceTransformer`, or the folder in which one was saved.
        repo_id: `user/name` or `organisation/name`. It is created if it does not exist.
        private: Whether a new repository is private. Default: the owner's setting.
        token: An access token. Default: that of the login.

    Returns:
        The address of the commit.

    Raises:
        ValueError: If `repo_id` is not the name of a repository, the folder holds no saved model, or the Hub could not
            read the metadata of its card.
        PushError: If the Hub is turned off or unreachable, or refuses the upload. The local model is unchanged.
    """
    check_push(repo_id, token)
    folder = Path(model_or_folder) if isinstance(model_or_folder, str | os.PathLike) else None
    upload = None if folder is None else plan_push(folder, repo_id)
    try:
        if folder is None or upload is None:
            return model_or_folder.push_to_hub(repo_id, token=token, private=private, exist_ok=True)  # type: ignore[union-attr]
        api = huggingface_hub.HfApi(token=token)
        # With the owner, where none was given.
        repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        card = plan_push(folder, repo_id).card
        operations = [
            CommitOperationAdd(name, card.encode() if name == _CARD else folder / name) for name in upload.files
        ]
        commit = api.create_commit(repo_id, operations, commit_message="Add a model trained with st-xlret")
        return str(commit)
    except Exception as error:
        kept = f"the model is safe in {folder}" if folder else "the model in memory is untouched"
        raise PushError(f"Could not push to {repo_id}: {type(error).__name__}: {error}; {kept}.") from error


def _check_name(repo_id: str) -> None:
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise ValueError(f"cannot push: {repo_id!r} is not a repository such as 'user/name': {error}") from error
