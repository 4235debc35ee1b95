"""What is wrong with a model or a device is said with the option."""

from __future__ import annotations

from pathlib import Path

import pytest

from st_xlret.hub import loading
from st_xlret.hub.loading import check_backend, check_device, load_model


@pytest.mark.parametrize("name", ["/nope", "./nope", "~/nope", "a/b/c", "runs/nope/", "", " "])
def test_a_folder_that_is_not_there_is_said_to_be_missing(name: str) -> None:
    with pytest.raises(ValueError, match=r"--model .*: no such folder") as caught:
        load_model(name)
    assert "Repo id" not in str(caught.value)


def test_what_may_be_a_name_on_the_hub_is_said_to_be_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(
        ValueError, match=r"--model runs/nope: there is no such folder, and from the Hub(.|\n)*HF_HUB_OFFLINE"
    ):
        load_model("runs/nope")


def test_files_and_folders_without_a_model_are_named(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.touch()
    with pytest.raises(ValueError, match=rf"--model {file}: this is a file"):
        load_model(str(file))
    with pytest.raises(ValueError, match=rf"--model {tmp_path}: the folder holds no model"):
        load_model(str(tmp_path))


@pytest.mark.parametrize("content", ["", "{", "[]", "5"])
def test_a_damaged_model_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "modules.json").write_text(content)
    with pytest.raises(ValueError, match=rf"--model {tmp_path}: .*cannot be loaded"):
        load_model(str(tmp_path))


@pytest.mark.parametrize("device", ["gpu", "", "cuda:99", "cpu cuda", "CUDA"])
def test_a_device_that_is_not_there_is_named(device: str) -> None:
    with pytest.raises(ValueError, match=f"--device {device}: .*there are: cpu"):
        check_device(device)


@pytest.mark.parametrize("device", ["cpu", "cpu:0"])
def test_the_cpu_is_there(device: str) -> None:
    check_device(device)


@pytest.mark.parametrize("backend", ["onnx", "openvino"])
def test_a_back_end_whose_libraries_are_missing_says_how_to_install_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, backend: str
) -> None:
    monkeypatch.setattr(loading, "_is_installed", lambda library: library == "onnxruntime")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ImportError, match=rf'--backend {backend}.*pip install "sentence-transformers\[{backend}\]"'):
        load_model(str(tmp_path), backend=backend)  # type: ignore[arg-type]


def test_a_back_end_that_does_not_fit_the_host_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ImportError("cannot import name 'get_parameter_dtype'")

    monkeypatch.setattr(loading, "_is_installed", lambda library: True)
    monkeypatch.setattr("sentence_transformers.SentenceTransformer", fails)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ImportError, match=r"--backend onnx.*transformers \d.*get_parameter_dtype"):
        load_model(str(tmp_path), backend="onnx")
    with pytest.raises(ImportError, match=r"^cannot import name"):
        load_model(str(tmp_path))


def test_back_ends() -> None:
    check_backend("torch")
    assert loading._is_installed("torch.nn") and not loading._is_installed("no_such_package.part")
    with pytest.raises(ValueError, match="--backend tensorrt.*onnx"):
        check_backend("tensorrt")
