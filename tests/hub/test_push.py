"""Models on the Hub: pushed whole, without the user's texts and token, and over nobody's files."""

import os
import shlex
import sys
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import transformers
from huggingface_hub import HfApi, ModelCard, constants
from sentence_transformers import SentenceTransformer

from st_xlret import CrossLingualTrainer, CrossLingualTrainingArguments
from st_xlret.commands import main
from st_xlret.hub.portable import write_model
from st_xlret.hub.repository import Repository
from st_xlret.losses import SemanticContrastiveLoss
from tests import tiny
from tests.conftest import REPOSITORY
from tests.training.test_script import run_of

OWNER = "alice-may-write"
READER = "alice-may-read"
STRANGER = "bob-may-write"
TEXTS = ["sun moon star", "wind snow"]
MINE = b"---\nlicense: mit\ntags: [st-xlret]\n---\n# By hand\n"
OLD_MODEL = {"old.safetensors", "adapter_config.json", "added_tokens.json"}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A stand-in for the Hub on loopback, whose `repos` and `lfs` hold what was sent.

    The owner is logged in.
    """
    data = Path(os.environ.get("XLRET_DATA", REPOSITORY.parent / "shared" / "data"))
    tools = data.parent / "tools"
    monkeypatch.syspath_prepend(tools)
    # What was sent before is not there.
    monkeypatch.delitem(sys.modules, "hub_server", raising=False)
    module = pytest.importorskip("hub_server", reason=f"needs {tools}, the stand-in for the Hub")
    monkeypatch.setattr(transformers.utils.hub, "_hf_api", None)
    monkeypatch.setenv("HF_TOKEN", OWNER)
    with ThreadingHTTPServer(("127.0.0.1", 0), module.Handler) as server:
        endpoint = f"http://127.0.0.1:{server.server_port}"
        file = "{repo_id}/resolve/{revision}/{filename}"
        settings = {
            "ENDPOINT": endpoint,
            "HUGGINGFACE_CO_URL_TEMPLATE": f"{endpoint}/{file}",
            "HF_HUB_OFFLINE": False,
            "HF_HUB_DISABLE_XET": True,
            "HF_HUB_CACHE": str(tmp_path / "cache"),
        }
        for name, value in settings.items():
            monkeypatch.setattr(constants, name, value)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield module
        server.shutdown()


def files_of(hub: Any, repository: str, branch: str = "main") -> dict[str, bytes]:
    """The files of a branch."""
    repo = hub.repos[repository]
    files = repo.commits[repo.branches[branch]]["files"]
    return {name: data for name, (_, data) in files.items()}


def upload_mine(repository: str, *names: str) -> None:
    for name in names:
        HfApi().upload_file(path_or_fileobj=MINE, path_in_repo=name, repo_id=repository)


def export(encoder: Path, output: str, *options: str) -> None:
    target = encoder.parent / output
    where = ["--output", str(target), "--push_to_hub", "alice/model"]
    main(["export", str(encoder), *where, *options])


@pytest.fixture
def occupied(hub: Any) -> dict[str, bytes]:
    """A repository with a card by hand, notes, and a model of others."""
    HfApi().create_repo("alice/model")
    upload_mine("alice/model", "README.md", "notes.txt", *OLD_MODEL)
    HfApi().create_tag("alice/model", tag="v1")
    return files_of(hub, "alice/model")


def test_a_pushed_model_loads_elsewhere_and_names_its_encoder(hub: Any, encoder: Path) -> None:
    HfApi().create_repo("alice/encoder")
    HfApi().upload_folder(repo_id="alice/encoder", folder_path=encoder)
    output = ["--output", str(encoder.parent / "out")]
    main(["export", "alice/encoder", *output, "--push_to_hub", "alice/model", "--private"])

    expected = SentenceTransformer(str(encoder), device="cpu").encode(TEXTS)
    pushed = SentenceTransformer("alice/model", device="cpu").encode(TEXTS)
    assert np.array_equal(pushed, expected)
    assert hub.repos["alice/model"].private
    written = ModelCard(files_of(hub, "alice/model")["README.md"].decode())
    assert 'SentenceTransformer("alice/model")' in written.text
    assert written.data.base_model == "alice/encoder"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--revision", "v1"], "v1 is no branch"),
        ([], "holds files, such as README.md.*--overwrite"),
        (["--private", "--overwrite"], "is public"),
    ],
)
def test_nothing_on_the_hub_is_replaced_unasked(
    hub: Any, encoder: Path, occupied: dict[str, bytes], options: list[str], problem: str
) -> None:
    with pytest.raises(SystemExit, match=problem):
        export(encoder, "out", *options)
    assert not (encoder.parent / "out").exists()
    assert files_of(hub, "alice/model") == occupied


def test_a_proposal_and_a_new_branch_leave_the_others(
    hub: Any, encoder: Path, occupied: dict[str, bytes]
) -> None:
    export(encoder, "one", "--create_pr")
    export(encoder, "two", "--revision", "next")
    assert files_of(hub, "alice/model") == occupied
    assert len(hub.repos["alice/model"].prs) == 1
    assert_replaced(files_of(hub, "alice/model", "next"))


def test_of_a_model_that_is_replaced_nothing_stays_but_a_card_by_hand(
    hub: Any, encoder: Path, occupied: dict[str, bytes]
) -> None:
    export(encoder, "out", "--overwrite")
    assert_replaced(files_of(hub, "alice/model"))


@pytest.mark.parametrize("is_ours", [True, False])
def test_what_stands_beside_the_model_that_is_replaced_stays(
    hub: Any, encoder: Path, is_ours: bool
) -> None:
    others = {"data/mine.bin", "german/model.safetensors", "german/config.json"}
    if is_ours:
        export(encoder, "one")
        others |= {"mine.onnx"}
    else:
        HfApi().create_repo("alice/model")
        HfApi().upload_folder(repo_id="alice/model", folder_path=encoder)
        upload_mine("alice/model", "1_Pooling/old.bin")
    of_another_tool = {"adapter_config.json", "adapter_model.safetensors", "added_tokens.json"}
    upload_mine("alice/model", *others, *of_another_tool)
    export(encoder, "two", "--overwrite")
    files = files_of(hub, "alice/model")
    assert others <= files.keys()
    assert "1_Pooling/old.bin" not in files
    # The host would load them on top of the new weights.
    assert not of_another_tool & files.keys()


def assert_replaced(files: dict[str, bytes]) -> None:
    assert files["README.md"] == MINE
    assert files["notes.txt"] == MINE
    assert "modules.json" in files
    assert not OLD_MODEL & files.keys()


def test_a_push_that_fails_says_how_to_do_it_again(hub: Any, encoder: Path) -> None:
    hub.faults.append({"path": "/commit/", "status": 403, "times": 1})
    with pytest.raises(SystemExit, match="the third is saved, but was not pushed") as failed:
        export(encoder, "the third")
    command = str(failed.value).splitlines()[-1].partition(": ")[2]
    words = shlex.split(command.replace("COPY", str(encoder.parent / "copy")))
    assert words[0] == "st-xlret"
    main(words[1:])
    assert "modules.json" in files_of(hub, "alice/model")


def test_a_card_of_ours_is_replaced_and_one_that_was_written_meanwhile_stays(
    hub: Any, encoder: Path
) -> None:
    export(encoder, "one")
    export(encoder, "two", "--overwrite", "--license", "mit")
    assert b"license: mit" in files_of(hub, "alice/model")["README.md"]

    model = write_model(SentenceTransformer(str(encoder), device="cpu"), encoder.parent / "three")
    again = Repository("alice/model", overwrite=True)
    new = Repository("alice/new")
    upload_mine("alice/model", "README.md")
    upload_mine("alice/new", "README.md")
    again.upload(model)
    with pytest.raises(OSError, match="(?s)is saved.*holds files, such as README.md"):
        new.upload(model)
    assert files_of(hub, "alice/model")["README.md"] == MINE
    assert files_of(hub, "alice/new")["README.md"] == MINE


@pytest.mark.parametrize("token", [READER, STRANGER, "hf_nobody", None])
def test_what_cannot_be_pushed_is_said_before_the_work(
    hub: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str | None
) -> None:
    HfApi().create_repo("alice/model")
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(OSError, match="alice/model: nothing can be pushed there"):
        run_of(tmp_path / "run", push_to_hub=True, hub_model_id="alice/model", hub_token=token)
    assert not list((tmp_path / "run").glob("[!.]*"))
    with pytest.raises(OSError):
        trainer_of(tmp_path / "other", hub_token=token)


def test_a_training_pushes_the_saved_folder_to_its_branch(
    hub: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["train.py", "--hub_token", OWNER])
    monkeypatch.delenv("HF_TOKEN")
    results, _ = run_of(
        tmp_path, push_to_hub=True, hub_model_id="model", hub_token=OWNER, hub_revision="v1"
    )
    assert results["command"] == "train.py --hub_token ***"
    for file in tmp_path.rglob("*"):
        assert file.is_dir() or OWNER.encode() not in file.read_bytes()

    saved = tmp_path / "model"
    sent = files_of(hub, "alice/model", "v1")
    assert files_of(hub, "alice/model").keys() == {".gitattributes"}
    for path in saved.rglob("*.*"):
        assert sent[path.relative_to(saved).as_posix()] == path.read_bytes()
    assert 'SentenceTransformer("alice/model")' in sent["README.md"].decode()


def trainer_of(folder: Path, **options: Any) -> CrossLingualTrainer:
    model = tiny.transformer()
    pairs = tiny.pairs(16)
    args = CrossLingualTrainingArguments(
        str(folder),
        push_to_hub=True,
        hub_model_id="alice/model",
        hub_always_push=True,
        max_steps=2,
        save_steps=1,
        use_cpu=True,
        report_to="none",
        **options,
    )
    return CrossLingualTrainer(model, args, pairs, pairs, loss=SemanticContrastiveLoss(model))


def test_the_hosts_pushes_have_neither_token_nor_texts(hub: Any, tmp_path: Path) -> None:
    trainer = trainer_of(
        tmp_path / "run", hub_token=OWNER, hub_strategy="all_checkpoints", hub_revision="v1"
    )

    class OnePushAtATime(transformers.TrainerCallback):
        """The host copies files over those that it still uploads."""

        def on_push_begin(self, *_: Any, **__: Any) -> None:
            if trainer.push_in_progress is not None:
                trainer.push_in_progress.wait_until_done()

    trainer.add_callback(OnePushAtATime)
    trainer.train()
    trainer.push_to_hub()
    assert trainer.args.hub_token == OWNER
    assert files_of(hub, "alice/model").keys() == {".gitattributes"}

    sent = b"".join([*hub.lfs.values(), *all_files(hub)])
    assert b"checkpoint-2/README.md" in sent
    assert b"training_args.bin" in sent
    assert OWNER.encode() not in sent
    written = [file for file in tmp_path.rglob("*") if file.is_file()]
    for file in written:
        assert OWNER.encode() not in file.read_bytes()
    cards = [file.read_text() for file in written if file.name == "README.md"]
    assert len(cards) == 3
    for text in tiny.pairs(16)["source"]:
        assert text not in "".join(cards)


def all_files(hub: Any) -> Iterator[bytes]:
    """The name and content of each file of each commit."""
    for repo in hub.repos.values():
        for commit in repo.commits.values():
            for name, (_, data) in commit["files"].items():
                yield name.encode() + data
