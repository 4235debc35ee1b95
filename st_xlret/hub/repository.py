"""A model's place on the Hub: asked before long work, filled in one commit after it."""

import json
import logging
import re
import shlex
from dataclasses import KW_ONLY, dataclass, field
from glob import escape
from pathlib import Path
from typing import NamedTuple

from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError

from st_xlret.files import PathLike
from st_xlret.marks import FOLDER_MARK, has_digest, read_mark

logger = logging.getLogger(__name__)

_CARD = "README.md"
_MODULES = "modules.json"
# Files of a model that was there: the host would read those that stay with the new weights,
_READ_WITH_WEIGHTS = (
    r".*(adapter_config|processor_config|added_tokens|special_tokens_map)\.json"
    r"|adapter_model\..+|.*chat_template\..*"
)
# or engines would take them for the new ones.
_OF_MODELS = rf"{_READ_WITH_WEIGHTS}|.+\.(safetensors|bin|onnx|xml)"


class _Branch(NamedTuple):
    """What a branch holds; a new one, what `main` does, with whose files it begins."""

    is_new: bool
    commit: str | None
    files: list[str]


@dataclass
class Repository:
    """A model's place on the Hub; what cannot be pushed to is an `OSError` before the work.

    A repository and a branch that are not there are made, the latter by `upload`, from `main`. In a
    branch that holds files, nothing is replaced unasked, and a card that somebody wrote or changed
    never is. Of another model, that is replaced or in the `main` of a new branch, nothing stays;
    files that are none of its stay.

    Attributes:
        repo_id: `user/name`, or `name` of the token's owner; the full name afterwards.
        token: Default: that of `hf auth login` or `HF_TOKEN`.
        private: Whether a new repository is private. Default: its owner's setting.
        revision: The branch. Default: `main`.
        create_pr: Propose the files, to the owner of a repository that is there.
        overwrite: Replace a model that is there.
    """

    repo_id: str
    _: KW_ONLY
    token: str | None = field(default=None, repr=False)
    private: bool | None = None
    revision: str | None = None
    create_pr: bool = False
    overwrite: bool = False
    _hub: HfApi = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._hub = HfApi(token=self.token)
        try:
            if not self.create_pr:
                self.repo_id = ensure_repository(self._hub, self.repo_id, self.private)
            self._check_branch()
        except Exception as error:
            raise OSError(f"{self.repo_id}: nothing can be pushed there: {error}") from error

    def upload(self, folder: PathLike) -> str:
        """Upload a saved model in one commit; gives its address."""
        try:
            branch = self._check_branch()  # hours may have passed
            if branch.is_new:
                self._hub.create_branch(self.repo_id, branch=str(self.revision), exist_ok=True)
            keeps_card = self._has_card_of_others(branch)
            commit = self._hub.upload_folder(
                repo_id=self.repo_id,
                folder_path=Path(folder),
                revision=self.revision,
                create_pr=self.create_pr,
                ignore_patterns=[_CARD] if keeps_card else None,
                delete_patterns=list(map(escape, self._files_of_model(branch))),
                parent_commit=branch.commit,
            )
        except Exception as error:
            again = ["st-xlret", "export", str(folder), "--push_to_hub", self.repo_id]
            raise OSError(
                f"{folder} is saved, but was not pushed: {error}\n"
                f"To push it: {shlex.join(again)} --output COPY"
            ) from error
        if keeps_card:
            logger.warning(
                "%s keeps its README.md: that of the model is in %s", self.repo_id, folder
            )
        return str(commit.pr_url or commit.commit_url)

    def _check_branch(self) -> _Branch:
        """What the branch holds now; an `OSError` if it may not be replaced, or added to.

        Asked before the work and again at its end: what it returns is the state to be replaced.
        """
        is_new = self._is_new_branch()
        revision = None if is_new else self.revision
        known = self._hub.model_info(self.repo_id, revision=revision)
        names = [file.rfilename for file in known.siblings or ()]
        files = [name for name in names if name != ".gitattributes"]
        if self.private and not known.private:
            raise OSError("it is public")
        may_replace = self.overwrite or self.create_pr or is_new
        if files and not may_replace:
            raise OSError(
                f"it holds files, such as {files[0]}: replace them (--overwrite), or name another "
                "place"
            )
        return _Branch(is_new, known.sha, files)

    def _is_new_branch(self) -> bool:
        """Whether the branch is to be made; an `OSError` refuses a tag and the like."""
        if self.revision is None or self.revision.startswith("refs/pr/"):
            return False
        branches = self._hub.list_repo_refs(self.repo_id).branches
        if self.revision in [branch.name for branch in branches]:
            return False
        if self.create_pr or self._hub.revision_exists(self.repo_id, self.revision):
            raise OSError(f"{self.revision} is no branch")
        return True

    def _files_of_model(self, branch: _Branch) -> list[str]:
        """The files of the model in a branch, but for its card.

        They are those that its mark names and others that would be read with new weights; without a
        mark, all weights, too, at the root and in the folders of the modules.
        """
        files: set[str] = set()
        pattern = _OF_MODELS
        if FOLDER_MARK in branch.files:
            files.update(read_mark(self._download(FOLDER_MARK, branch)))
            pattern = _READ_WITH_WEIGHTS
        folders = {""}
        if _MODULES in branch.files:
            modules = json.loads(self._download(_MODULES, branch).read_text(encoding="utf-8"))
            folders |= {module["path"] for module in modules}
        for name in branch.files:
            folder, _, base = name.rpartition("/")
            if folder in folders and re.fullmatch(pattern, base):
                files.add(name)
        return sorted(files - {_CARD})

    def _has_card_of_others(self, branch: _Branch) -> bool:
        """Whether the branch has a card that somebody wrote or changed."""
        if _CARD not in branch.files:
            return False
        if FOLDER_MARK not in branch.files:
            return True
        card = self._download(_CARD, branch)
        marked = read_mark(self._download(FOLDER_MARK, branch))
        return not has_digest(card, marked.get(_CARD))

    def _download(self, name: str, branch: _Branch) -> Path:
        """A file of the commit that the branch was at when it was looked at."""
        return Path(self._hub.hf_hub_download(self.repo_id, name, revision=branch.commit))


def ensure_repository(hub: HfApi, repo_id: str, private: bool | None) -> str:
    """Make a repository if there is none, and give its full name.

    The Hub's error is raised if the token may not write to it.
    """
    try:
        return str(hub.create_repo(repo_id, private=private).repo_id)
    except HfHubHTTPError as error:
        is_there = error.response.status_code == 409
        # A fine-grained token may write to what it could not make.
        if not is_there and _token_role(hub) != "fineGrained":
            raise
    name = str(hub.create_repo(repo_id, exist_ok=True).repo_id)
    hub.auth_check(name, write=True)
    return name


def _token_role(hub: HfApi) -> str:
    """What the token may do: `read`, `write` or `fineGrained`."""
    return str(hub.whoami()["auth"]["accessToken"]["role"])
