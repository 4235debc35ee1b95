"""The hidden folder beside an output, in which a stopped command finds its embeddings again."""

import os
import shutil
import warnings
from contextlib import suppress
from pathlib import Path

_MARK = "st-xlret.txt"
_CONTENT = "Embeddings of a run of st-xlret that was stopped. The same command goes on from here.\n"
_KEY = "[0-9a-f]" * 32
_SHARD = "[0-9]" * 6 + ".npy"


class WorkFolder:
    """The folder of one output. One that is there without our mark is a `FileExistsError`."""

    def __init__(self, output: Path) -> None:
        self.path = output.with_name(f".{output.name}.embeddings")
        self._mark = self.path / _MARK
        if os.path.lexists(self.path) and not self._is_ours():
            raise FileExistsError(f"{self.path} is not of this command: move it away")

    def _is_ours(self) -> bool:
        return self._mark.is_file() and self._mark.read_text("utf-8") == _CONTENT

    def make(self) -> Path:
        """Make the folder, with our mark, if it is not there."""
        self.path.mkdir(exist_ok=True)
        self._mark.write_text(_CONTENT, "utf-8")
        return self.path

    def remove(self) -> None:
        """Remove what we wrote. The folder stays, with a warning, if there is anything else."""
        shards = list(self.path.glob(f"{_KEY}/{_SHARD}"))
        parts = list(self.path.glob(f"{_KEY}/.{_SHARD}.*.st-xlret-tmp"))  # of a run that was killed
        for shard in shards:
            shard.unlink()
        for part in parts:
            shutil.rmtree(part, ignore_errors=True)
        for folder in {path.parent for path in [*shards, *parts]}:
            with suppress(OSError):
                folder.rmdir()
        if list(self.path.iterdir()) == [self._mark]:
            shutil.rmtree(self.path, ignore_errors=True)
        else:
            warnings.warn(f"{self.path} stays: it holds files of others", stacklevel=2)
