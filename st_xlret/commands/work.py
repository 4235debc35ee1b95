"""Where `index` and `mine` keep embeddings, so that a stopped run goes on."""

from __future__ import annotations

import os
import re
import shutil
import warnings
from collections.abc import Callable, Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any

from st_xlret.folders import UNFINISHED

if TYPE_CHECKING:
    from st_xlret.encoding import KeptVectors

TEXTS_AT_ONCE = 4_096
"""How many an interrupted run has to encode again at most."""

_MARK = "st-xlret.txt"
_CONTENT = "Embeddings of a run of st-xlret that was stopped. The same command goes on from here.\n"
# The mark, and shards as `KeptVectors` names them, in folders of their `cache_key`; those of a run
# that was killed are in a folder that `atomic_file` has made.
_OURS = re.compile(rf"st-xlret\.txt|[0-9a-f]{{32}}/(\..*{re.escape(UNFINISHED)}tmp/)?\d{{6}}\.npy")


class WorkFolder:
    """The user's cache, or a hidden folder beside an output, which is removed at the end.

    A hidden folder that is there without our mark is a `FileExistsError`. It is made when vectors
    are kept first, and `remove` is called when the output is there.
    """

    def __init__(self, output: Path, cache: str | None = None) -> None:
        self.is_kept = cache is not None
        self.path = Path(cache or output.with_name(f".{output.name}.embeddings"))
        self._mark = self.path / _MARK
        if not self.is_kept and os.path.lexists(self.path) and not self._is_ours():
            raise FileExistsError(f"{self.path} is not of this command: move it away")

    def _is_ours(self) -> bool:
        """Whether the folder has the mark that `keep_vectors` writes."""
        return self._mark.is_file() and self._mark.read_text("utf-8") == _CONTENT

    def keep_vectors(self, key: Any, texts: Sized, embed: Callable[[slice], Any]) -> KeptVectors:
        """Embed the texts whose vectors the folder does not have, and give those of all.

        The key says which texts, and how they are embedded. See `KeptVectors`.
        """
        from st_xlret.data.kept import cache_key
        from st_xlret.encoding import KeptVectors

        if not self.is_kept:
            self.path.mkdir(exist_ok=True)
            self._mark.write_text(_CONTENT, "utf-8")
        folder = self.path / cache_key(key)
        return KeptVectors(folder, shard_size=TEXTS_AT_ONCE).write(texts, embed)

    def remove(self) -> None:
        """Remove the folder; it stays, with a warning, if it holds what we have not written."""
        if self.is_kept:
            return
        for path in self.path.rglob("*"):
            name = path.relative_to(self.path).as_posix()
            is_folder = path.is_dir() and not path.is_symlink()
            if not is_folder and not _OURS.fullmatch(name):
                warnings.warn(f"{self.path} stays: it also holds {name}", stacklevel=2)
                return
        # The mark goes last: a removal that is stopped leaves a folder of ours.
        for path in self.path.glob("*/*.npy"):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.path, ignore_errors=True)
