"""Upload to the Hub: checks before it, what it would send, and errors that say where the model is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from st_xlret.hub import push as module
from st_xlret.hub.push import check_push, push


class Model:
    error: Exception | None = None

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        self.options = options
        if self.error:
            raise self.error
        return f"commit of {repo_id}"


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(module.huggingface_hub, "get_token", lambda: "logged-in")


@pytest.mark.parametrize("repo_id", ["a/b/c", "", "no spaces/here", "a/--b"])
def test_bad_names_are_named(online: None, repo_id: str) -> None:
    with pytest.raises(ValueError, match=f"{repo_id!r} is not a repository"):
        check_push(repo_id)


def test_offline_and_a_missing_token_say_so(online: None, monkeypatch: pytest.MonkeyPatch) -> None:
    check_push("me/model")
    monkeypatch.setattr(module.huggingface_hub, "get_token", lambda: None)
    with pytest.raises(OSError, match="no token.*hf auth login"):
        check_push("me/model")
    monkeypatch.setattr(module.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(OSError, match="HF_HUB_OFFLINE is set"):
        check_push("me/model")
    check_push("me/model", dry_run=True)


def test_a_model_is_pushed_by_the_host(online: None, tmp_path: Path) -> None:
    model: Any = Model()
    assert push(model, "me/model", tmp_path) == "commit of me/model"
    assert model.options == {"exist_ok": True, "replace_model_card": True}
    model.error = ConnectionError("unreachable")
    with pytest.raises(OSError, match=rf"me/model: ConnectionError: unreachable; the model is safe in {tmp_path}"):
        push(model, "me/model", tmp_path)


def test_a_dry_run_lists_the_files_and_shows_the_card(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# A model\n")
    (tmp_path / "weights").write_bytes(b"x" * 1_234_567)
    model: Any = None
    shown = push(model, "me/model", tmp_path, dry_run=True)
    assert "to me/model" in shown and "1,234,567  weights" in shown and shown.endswith("# A model\n")
