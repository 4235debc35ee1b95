"""A stand-in for the Hub on loopback."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import transformers
from huggingface_hub import constants

from tests.conftest import REPOSITORY

OWNER, READER, STRANGER = "alice-may-write", "alice-may-read", "bob-may-write"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """The module of the stand-in, whose `repos` and `lfs` hold what was sent; the owner is logged in."""
    data = Path(os.environ.get("XLRET_DATA", REPOSITORY.parent / "shared" / "data"))
    file = data.parent / "tools" / "hub_server.py"
    if not file.is_file():
        pytest.skip(f"needs the stand-in for the Hub ({file} does not exist)")
    monkeypatch.syspath_prepend(file.parent)
    monkeypatch.delitem(sys.modules, "hub_server", raising=False)  # what was sent before is not there
    module = importlib.import_module("hub_server")
    server = ThreadingHTTPServer(("127.0.0.1", 0), module.Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    settings = {"ENDPOINT": endpoint, "HF_HUB_OFFLINE": False, "HF_HUB_DISABLE_XET": True}
    settings |= {"HUGGINGFACE_CO_URL_TEMPLATE": endpoint + "/{repo_id}/resolve/{revision}/{filename}"}
    for name, value in {**settings, "HF_HUB_CACHE": str(tmp_path / "cache")}.items():
        monkeypatch.setattr(constants, name, value)
    monkeypatch.setattr(transformers.utils.hub, "_hf_api", None)
    monkeypatch.setenv("HF_TOKEN", OWNER)
    yield module
    server.shutdown()
    server.server_close()


def files_of(hub: Any, repository: str, branch: str = "main") -> dict[str, bytes]:
    """The files of a branch."""
    repo = hub.repos[repository]
    return {name: data for name, (_, data) in repo.commits[repo.branches[branch]]["files"].items()}


def all_bytes(hub: Any) -> bytes:
    """Every file of every commit, and all large files."""
    commits = [commit for repo in hub.repos.values() for commit in repo.commits.values()]
    files = [name.encode() + data for commit in commits for name, (_, data) in commit["files"].items()]
    return b"".join([*files, *hub.lfs.values()])
