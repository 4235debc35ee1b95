"""Models on the Hub: pushed whole, without the texts of the user and the token, and over nobody's files unasked."""

import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from huggingface_hub import HfApi, ModelCard, constants
from sentence_transformers import SentenceTransformer

from st_xlret import CrossLingualTrainer, CrossLingualTrainingArguments
from st_xlret.commands import main
from st_xlret.hub.export import Repository
from st_xlret.losses import SemanticContrastiveLoss
from tests import tiny
from tests.conftest import REPOSITORY
from tests.training.test_script import run_of

OWNER, READER, STRANGER = "alice-may-write", "alice-may-read", "bob-may-write"
TEXTS = ["sun moon star", "wind snow"]
MINE = b"---\nlicense: mit\ntags: [st-xlret]\n---\n# By hand\n"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A stand-in for the Hub on loopback, whose `repos` and `lfs` hold what was sent; the owner is logged in."""
    data = Path(os.environ.get("XLRET_DATA", REPOSITORY.parent / "shared" / "data"))
    monkeypatch.syspath_prepend(data.parent / "tools")
    monkeypatch.delitem(
        sys.modules, "hub_server", raising=False
    )  # what was sent before is not there
    module: Any = pytest.importorskip(
        "hub_server", reason=f"needs {data.parent}/tools, the stand-in for the Hub"
    )
    monkeypatch.setattr(transformers.utils.hub, "_hf_api", None)
    monkeypatch.setenv("HF_TOKEN", OWNER)
    with ThreadingHTTPServer(("127.0.0.1", 0), module.Handler) as server:
        endpoint = f"http://127.0.0.1:{server.server_port}"
        settings = {"ENDPOINT": endpoint, "HF_HUB_OFFLINE": False, "HF_HUB_DISABLE_XET": True}
        settings |= {
            "HUGGINGFACE_CO_URL_TEMPLATE": endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        }
        for name, value in {**settings, "HF_HUB_CACHE": str(tmp_path / "cache")}.items():
            monkeypatch.setattr(constants, name, value)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield module
        server.shutdown()


def files_of(hub: Any, repository: str, branch: str = "main") -> dict[str, bytes]:
    """The files of a branch."""
    repo = hub.repos[repository]
    return {name: data for name, (_, data) in repo.commits[repo.branches[branch]]["files"].items()}


def export(encoder: Path, output: str, *options: str) -> None:
    main(
        [
            "export",
            str(encoder),
            "--output",
            str(encoder.parent / output),
            "--push_to_hub",
            "alice/model",
            *options,
        ]
    )


def test_a_pushed_model_loads_elsewhere_and_names_its_encoder(hub: Any, encoder: Path) -> None:
    HfApi().create_repo("alice/encoder")
    HfApi().upload_folder(repo_id="alice/encoder", folder_path=encoder)
    output = ["--output", str(encoder.parent / "out")]
    main(["export", "alice/encoder", *output, "--push_to_hub", "alice/model", "--private"])
    expected = SentenceTransformer(str(encoder), device="cpu").encode(TEXTS)
    assert np.array_equal(SentenceTransformer("alice/model", device="cpu").encode(TEXTS), expected)
    written = ModelCard(files_of(hub, "alice/model")["README.md"].decode())
    assert 'SentenceTransformer("alice/model")' in written.text and hub.repos["alice/model"].private
    assert written.data.base_model == "alice/encoder"


def test_nothing_on_the_hub_is_replaced_unasked(hub: Any, encoder: Path) -> None:
    api = HfApi()
    api.create_repo("alice/model")
    old = {"old.safetensors", "adapter_config.json", "added_tokens.json"}
    for name in ("README.md", "notes.txt", *old):
        api.upload_file(path_or_fileobj=MINE, path_in_repo=name, repo_id="alice/model")
    api.create_tag("alice/model", tag="v1")
    before = files_of(hub, "alice/model")
    with pytest.raises(SystemExit, match="v1 is no branch"):
        export(encoder, "one", "--revision", "v1")
    with pytest.raises(SystemExit, match="holds files, such as README.md.*--overwrite"):
        export(encoder, "one")
    with pytest.raises(SystemExit, match="is public"):
        export(encoder, "one", "--private", "--overwrite")
    assert not (encoder.parent / "one").exists()
    export(encoder, "one", "--create_pr")
    export(encoder, "two", "--revision", "next")
    assert files_of(hub, "alice/model") == before
    assert len(hub.repos["alice/model"].prs) == 1
    hub.faults.append({"path": "/commit/", "status": 403, "times": 1})
    with pytest.raises(SystemExit) as failed:
        export(encoder, "the third", "--overwrite")
    settings = {"HF_ENDPOINT": constants.ENDPOINT, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}
    command = shlex.split(str(failed.value).splitlines()[-1].partition(": ")[2])
    subprocess.run(
        [Path(sys.executable).with_name(command[0]), *command[1:]],
        check=True,
        env=os.environ | settings,
    )
    for branch in ("main", "next"):
        after = files_of(hub, "alice/model", branch)
        assert after["README.md"] == after["notes.txt"] == MINE
        assert "modules.json" in after and not old & after.keys()


def test_what_was_written_meanwhile_stays(hub: Any, encoder: Path) -> None:
    export(encoder, "one")
    export(encoder, "two", "--overwrite", "--license", "mit")
    assert b"license: mit" in files_of(hub, "alice/model")["README.md"]
    again, new = Repository("alice/model", overwrite=True), Repository("alice/new")
    for name in ("alice/model", "alice/new"):
        HfApi().upload_file(path_or_fileobj=MINE, path_in_repo="README.md", repo_id=name)
    again.upload(encoder)
    with pytest.raises(OSError, match="(?s)is saved.*--exclude=README.md"):
        new.upload(encoder)
    assert (
        files_of(hub, "alice/model")["README.md"] == files_of(hub, "alice/new")["README.md"] == MINE
    )


def test_what_cannot_be_pushed_is_said_before_the_work(
    hub: Any, tmp_path: Path, monkeypatch
) -> None:
    HfApi().create_repo("alice/model")
    monkeypatch.delenv("HF_TOKEN")
    for token in (READER, STRANGER, "hf_nobody", None):
        with pytest.raises(OSError, match="alice/model: nothing can be pushed there"):
            run_of(tmp_path / "run", push_to_hub=True, hub_model_id="alice/model", hub_token=token)
        assert not list((tmp_path / "run").glob("[!.]*"))
        with pytest.raises(OSError):
            trainer_of(tmp_path / "other", hub_token=token)


def test_a_training_pushes_the_saved_folder_to_its_branch(
    hub: Any, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr("sys.argv", ["train.py", "--hub_token", OWNER])
    monkeypatch.delenv("HF_TOKEN")
    results, _ = run_of(
        tmp_path, push_to_hub=True, hub_model_id="model", hub_token=OWNER, hub_revision="v1"
    )
    assert results["command"] == "train.py --hub_token ***"
    assert all(
        OWNER.encode() not in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()
    )
    sent, saved = files_of(hub, "alice/model", "v1"), tmp_path / "model"
    assert files_of(hub, "alice/model").keys() == {".gitattributes"}
    assert all(
        sent[path.relative_to(saved).as_posix()] == path.read_bytes() for path in saved.rglob("*.*")
    )
    assert 'SentenceTransformer("alice/model")' in sent["README.md"].decode()


def trainer_of(folder: Path, **options: Any) -> CrossLingualTrainer:
    model, pairs = tiny.transformer(), tiny.pairs(16)
    options |= {
        "max_steps": 2,
        "save_steps": 1,
        "use_cpu": True,
        "report_to": "none",
        "push_to_hub": True,
    }
    args = CrossLingualTrainingArguments(
        str(folder), hub_model_id="alice/model", hub_always_push=True, **options
    )
    return CrossLingualTrainer(model, args, pairs, pairs, loss=SemanticContrastiveLoss(model))


def test_the_hosts_pushes_have_neither_token_nor_texts(hub: Any, tmp_path: Path) -> None:
    trainer = trainer_of(
        tmp_path / "run", hub_token=OWNER, hub_strategy="all_checkpoints", hub_revision="v1"
    )

    class OnePushAtATime(
        transformers.TrainerCallback
    ):  # the host copies files over those that it still uploads
        def on_push_begin(self, *_: Any, **__: Any) -> None:
            if trainer.push_in_progress is not None:
                trainer.push_in_progress.wait_until_done()

    trainer.add_callback(OnePushAtATime)
    trainer.train()
    trainer.push_to_hub()
    assert (
        files_of(hub, "alice/model").keys()
        == {".gitattributes"}
        != files_of(hub, "alice/model", "v1").keys()
    )
    commits = [commit for repo in hub.repos.values() for commit in repo.commits.values()]
    files = [
        name.encode() + data for commit in commits for name, (_, data) in commit["files"].items()
    ]
    sent = b"".join([*files, *hub.lfs.values()])
    assert (
        b"checkpoint-2/README.md" in sent
        and b"training_args.bin" in sent
        and trainer.args.hub_token == OWNER
    )
    everything = sent + b"".join(
        file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()
    )
    assert OWNER.encode() not in everything
    cards = [file.read_text() for file in tmp_path.rglob("README.md")]
    assert len(cards) == 3 and not any(
        text in card for card in cards for text in tiny.pairs(16)["source"]
    )
