"""Standard input and output, whatever the console's own encoding is."""

import io
import json
import os
import subprocess
import sys

import pytest

from st_xlret.commands.streams import input_lines, prepare_streams, print_json


def set_input(monkeypatch: pytest.MonkeyPatch, content: bytes, encoding: str = "latin-1") -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content), encoding))
    prepare_streams()


def test_a_byte_order_mark_is_no_part_of_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    set_input(monkeypatch, "Vögel\n\nfish\n".encode("utf-8-sig"))
    assert list(input_lines()) == ["Vögel", "", "fish"]
    set_input(monkeypatch, "Vögel\n".encode("utf-8-sig"), "utf-8")
    assert list(input_lines()) == ["Vögel"]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_what_is_no_text_is_named(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    set_input(monkeypatch, "Vögel\n".encode(encoding))
    with pytest.raises(ValueError, match="standard input, after line 0: .* not UTF-8"):
        list(input_lines())


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_json_is_json_on_any_console(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding))
    prepare_streams()
    value = {"query": "Störche 鸟 🐦", "text": "\x80é"}
    print_json(value)
    sys.stdout.flush()
    assert json.loads(written.getvalue().decode(encoding)) == value


def test_a_reader_that_has_enough_ends_a_command_quietly() -> None:
    script = "from st_xlret.commands import main; main(['train'])"
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as output:
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (141, b"")
