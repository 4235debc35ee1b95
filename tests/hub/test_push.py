from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from st_xlret.hub import PushError, check_push, plan_push, push, push_to_hub

CARD = '---\nlicense: mit\n---\n# A model\nmodel = SentenceTransformer("sentence_transformers_model_id")\n'


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(push.huggingface_hub, "get_token", lambda: "logged-in")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "modules.json").write_text("[]")
    return tmp_path


class Api:
    calls: list[tuple[str, dict[str, Any]]] = []
    error: Exception | None = None

    def __init__(self, token: str | None = None) -> None:
        type(self).calls = [("token", {"token": token})]

    def create_repo(self, repo_id: str, **kwargs: Any) -> SimpleNamespace:
        self.calls.append(("create_repo", {"repo_id": repo_id, **kwargs}))
        return SimpleNamespace(repo_id=f"me/{repo_id}" if "/" not in repo_id else repo_id)

    def create_commit(self, repo_id: str, operations: list[Any], **kwargs: Any) -> str:
        files = {operation.path_in_repo: operation.path_or_fileobj for operation in operations}
        self.calls.append(("create_commit", {"repo_id": repo_id, "files": files}))
        if self.error:
            raise self.error
        return "commit-address"


@pytest.mark.parametrize("repo_id", ["a/b/c", "", "no spaces/here", "a/--b"])
def test_bad_names_are_named(online: None, repo_id: str) -> None:
    with pytest.raises(ValueError, match=f"{repo_id!r} is not a repository"):
        check_push(repo_id)


def test_offline_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(PushError, match="HF_HUB_OFFLINE is set"):
        push_to_hub(folder, "me/model", token="t")


def test_no_token_says_so(online: None, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push.huggingface_hub, "get_token", lambda: None)
    with pytest.raises(PushError, match="no access token.*hf auth login"):
        push_to_hub(folder, "me/model")
    check_push("me/model", token="given")


def test_a_folder_is_uploaded_without_its_checkpoints(
    online: None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("README.md", "checkpoint-1/model.safetensors", ".cache", "0_Transformer/.x", "1_Pooling/config.json"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(CARD if name == "README.md" else "12345")
    monkeypatch.setattr(push.huggingface_hub, "HfApi", Api)
    assert push_to_hub(str(folder), "model", private=True, token="t") == "commit-address"
    calls = dict(Api.calls)
    assert calls["token"] == {"token": "t"}
    assert calls["create_repo"] == {"repo_id": "model", "private": True, "exist_ok": True}
    assert calls["create_commit"]["repo_id"] == "me/model"
    files = calls["create_commit"]["files"]
    assert sorted(files) == ["1_Pooling/config.json", "README.md", "modules.json"]
    assert b'SentenceTransformer("me/model")' in files["README.md"]


def test_a_plan_lists_the_files_and_shows_the_card(folder: Path) -> None:
    (folder / "README.md").write_text(CARD)
    (folder / "weights").write_bytes(b"x" * 1_234_567)
    shown = str(plan_push(folder, "me/model"))
    assert "1,234,567  weights" in shown and "3 files for me/model" in shown
    assert shown.endswith('model = SentenceTransformer("me/model")\n')


@pytest.mark.parametrize("metadata", ["license: [", "model-index: 5", "- a list"])
def test_a_card_that_the_hub_cannot_read_is_not_pushed(online: None, folder: Path, metadata: str) -> None:
    (folder / "README.md").write_text(f"---\n{metadata}\n---\n# A model\n")
    with pytest.raises(ValueError, match=r"cannot read the metadata of .*README.md"):
        push_to_hub(folder, "me/model", token="t")


def test_a_folder_without_a_model_is_refused(online: None, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no saved model"):
        push_to_hub(tmp_path, "me/model")


def test_a_failure_says_where_the_model_is(online: None, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push.huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(Api, "error", ConnectionError("unreachable"))
    with pytest.raises(PushError, match=rf"me/model: ConnectionError: unreachable; the model is safe in {folder}"):
        push_to_hub(folder, "me/model")
    assert (folder / "modules.json").is_file()


def test_a_model_is_pushed_by_the_host(online: None) -> None:
    class Model:
        def push_to_hub(self, repo_id: str, **kwargs: Any) -> str:
            self.kwargs = kwargs
            return f"commit of {repo_id}"

    model = Model()
    assert push_to_hub(model, "me/model", private=False) == "commit of me/model"  # type: ignore[arg-type]
    assert model.kwargs == {"token": None, "private": False, "exist_ok": True}
