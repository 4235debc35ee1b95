"""Vectors whose rows are numbered and have no fields."""

import sys
from abc import abstractmethod
from collections.abc import Iterator

import pyarrow as pa

from st_xlret.stores.base import Store
from st_xlret.stores.batches import Matrix, make_batch, vector_column


class NumberedStore(Store):
    """Rows that are numbered from 0; their languages are in a file, a code a line."""

    @abstractmethod
    def read_vectors(self, start: int, stop: int) -> Matrix:
        """The vectors of the rows from `start` to before `stop`, (n, d) in float32."""

    def read(self, texts: bool) -> Iterator[pa.RecordBatch]:
        """The rows in their order."""
        codes = self._read_codes()
        for start in range(0, len(self), self.size):
            stop = min(start + self.size, len(self))
            column = vector_column(self.read_vectors(start, stop))
            yield make_batch(range(start, stop), column, {"language": codes[start:stop]})

    def _read_codes(self) -> list[str | None]:
        """The label of each row; None for an empty line, and for all rows without a file.

        A file with more or fewer lines than rows is a `ValueError`.
        """
        file = self.fields.languages_file
        if file is None:
            return [None] * len(self)
        with open(file, encoding="utf-8-sig") as lines:
            codes = [sys.intern(line.strip()) or None for line in lines]
        if len(codes) != len(self):
            raise ValueError(
                f"{file} has {len(codes)} lines, and {self.name} has {len(self)} vectors"
            )
        return codes
