"""What is wrong with a model or a device is said with the option."""

from __future__ import annotations

from pathlib import Path

import pytest

from st_xlret.hub.loading import check_device, load_calibration, load_model
from st_xlret.modules import CalibrationLayer


@pytest.mark.parametrize("name", ["/nope", "./nope", "~/nope", "a/b/c", "runs/nope/", "", " "])
def test_a_folder_that_is_not_there_is_said_to_be_missing(name: str) -> None:
    with pytest.raises(ValueError, match=r"--model .*: no such folder") as caught:
        load_model(name)
    assert "Repo id" not in str(caught.value)


def test_what_may_be_a_name_on_the_hub_is_said_to_be_no_folder() -> None:
    with pytest.raises(ValueError, match=r"--model runs/nope: there is no such folder, and from the Hub(.|\n)*OFFLINE"):
        load_model("runs/nope")


def test_files_and_folders_without_a_model_are_named(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.touch()
    with pytest.raises(ValueError, match=rf"--model {file}: this is a file"):
        load_model(str(file))
    with pytest.raises(ValueError, match=rf"--model {tmp_path}: the folder holds no model"):
        load_model(str(tmp_path))
    with pytest.raises(ValueError, match="--calibration nope: no such folder"):
        load_calibration("nope")
    assert load_calibration(None) is None


@pytest.mark.parametrize("content", ["", "{", "[]", "5"])
def test_a_damaged_model_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "modules.json").write_text(content)
    with pytest.raises(ValueError, match=rf"--model {tmp_path}: the model in this folder is damaged") as caught:
        load_model(str(tmp_path))
    assert "HF_HUB_OFFLINE" not in str(caught.value)


OTHER = ['{"dimension": 2, "strange": 1}', '{"dimension": "x"}', '{"dimension": 100000000000}', '{"dimension": 3}']


@pytest.mark.parametrize("content", ["{", "[]", *OTHER])
def test_a_damaged_calibration_is_named(tmp_path: Path, content: str) -> None:
    CalibrationLayer(2, ["en"], pivot="en").save(str(tmp_path))
    (tmp_path / CalibrationLayer.config_file_name).write_text(content)
    with pytest.raises(ValueError, match=rf"--calibration {tmp_path}: the calibration in this folder is damaged"):
        load_calibration(str(tmp_path))


@pytest.mark.parametrize("device", ["gpu", "", "cuda:99", "cpu cuda", "CUDA", "meta"])
def test_a_device_that_is_not_there_is_named(device: str) -> None:
    check_device("cpu")
    with pytest.raises(ValueError, match=f"--device {device}: .*there are: cpu"):
        check_device(device)
