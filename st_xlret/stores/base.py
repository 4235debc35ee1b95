"""What every store of vectors does: give its rows as Arrow batches, and take mapped vectors.

Mapped vectors go into something new: nothing that is there is changed.
"""

import warnings
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import DTypeLike, NDArray
from tqdm.auto import tqdm
from typing_extensions import Self

from st_xlret.languages import LanguageIdentifier, check_languages, unread_label_field
from st_xlret.stores.batches import Matrix, vector_matrix
from st_xlret.stores.descriptions import Metric
from st_xlret.stores.examined import ExaminedRows, examine_rows
from st_xlret.stores.fields import Fields
from st_xlret.stores.left_out import LeftOut, counts_in_words
from st_xlret.stores.reruns import RerunCounts
from st_xlret.stores.sampling import Draw, StoredSample

Change = Callable[[pa.RecordBatch], pa.RecordBatch]

FIRST_ROWS = 50  # among whose fields labels are looked for
_IDENTIFIED = 100_000  # texts whose language a sample identifies


class Origin(NamedTuple):
    """By which map vectors were made, and from which; a store keeps it as a text.

    The text is compared as a whole: under another one, a run is not continued.
    """

    fingerprint: str
    original: str

    def __str__(self) -> str:
        return f"{self.fingerprint} of {self.original}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The origin that a store has kept."""
        fingerprint, _, original = text.partition(" of ")
        return cls(fingerprint, original)


class Store(AbstractContextManager["Store"]):
    """Stored vectors. A `with` block closes the connection to a database.

    A kind of store is made of an address and `Fields`. Its `__init__` sets all of its attributes:
    those that have no default here, and those of the others that the store tells.

    Attributes:
        name: For messages, without passwords and keys.
        name_in_store: Of the column, named vector, collection, table or file that has the vectors;
            it stands in the origin.
        dimension: Numbers in a vector.
        numbers: The type of those that it holds.
        metric: None where the store does not say, as for the model and its fingerprint.
        model: The encoder that made the vectors.
        fingerprint: What identifies its weights.
        origin: The `Origin` of vectors that `apply_calibration` made, as a text.
        fields: Where the languages and texts are.
        present: The names of its fields, if it knows them.
        secrets: What no message may show.
        size: Rows in a batch, at most.
    """

    name: str
    name_in_store: str
    dimension: int
    numbers: DTypeLike = np.float32
    metric: Metric | None = None
    model: str | None = None
    fingerprint: str | None = None
    origin: str | None = None
    fields: Fields = Fields()
    present: Collection[str] = ()
    secrets: tuple[str, ...] = ()
    size: int = 8192

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, texts: bool) -> Iterator[pa.RecordBatch]:
        """The rows, as `batches` gives them, whose `texts` this is; `make_batch` makes a batch."""

    @abstractmethod
    def write(self, into: str, origin: str, change: Change) -> RerunCounts:
        """Write rows with the vectors that `change` gives them into something new, with the origin.

        `change` is called exactly once for each row, as `apply_calibration` counts by its calls. A
        row whose vector is null is left out, or stored without one. A file or table is whole or
        not there; a database goes on with what has this origin, and writes what is missing there or
        has changed since, see `due_rows`.
        """

    def close(self) -> None:  # noqa: B027
        """Close the connection, if there is one."""

    def __exit__(self, *error: Any) -> None:
        self.close()

    def batches(self, *, texts: bool = False) -> Iterator[pa.RecordBatch]:
        """All rows in the order of the store, the same in each pass, in constant memory.

        The batches have the columns `id` (the store's key, the column `id` or `_id` of a table, or
        else the number from 0), `vector` (a `FixedSizeList` of `dimension` float32), `language`,
        `document`, `text`, `source` and `group`; null where a row has none. The last three are read
        with `texts`, or where a text field is named, as languages may be identified in it.
        """
        with self.sanitize_errors():
            yield from self.read(texts or self.fields.text is not None)

    def checked_matrix(self, ids: Iterable[Any], vectors: Sequence[Any]) -> Matrix:
        """The `vector_matrix` of some rows; a `ValueError` names one whose length is another."""
        for name, vector in zip(ids, vectors, strict=True):
            if vector is not None and len(vector) != self.dimension:
                raise self.wrong_length(name, len(vector))
        return vector_matrix(vectors, self.dimension)

    def wrong_length(self, name: Any, length: int) -> ValueError:
        """The error of a row whose vector has another length than the first one."""
        return ValueError(
            f"{self.name}: the vector of {name} has {length} numbers, and the first one has "
            f"{self.dimension}: vectors of one length, of one model, can be mapped"
        )

    def examine_rows(
        self,
        batch: pa.RecordBatch,
        left_out: LeftOut | None = None,
        *,
        needs_language: bool = True,
        drawn: NDArray[np.bool_] | bool = True,
    ) -> ExaminedRows:
        """The rows of a batch, as they can be used.

        `left_out`, if given, counts the others. A row that needs a language and names none gets
        that of its text, if it is `drawn`, (n,), by default all are, and a text field is named.
        Where no language is needed, labels that are no codes stay.
        """
        identify = None if self.fields.text is None else self._identify_language
        return examine_rows(
            batch,
            LeftOut() if left_out is None else left_out,
            needs_language=needs_language,
            drawn=drawn,
            identify=identify,
        )

    def _identify_language(self, text: str) -> str:
        """The language of a text; the first call makes the identifier."""
        return self._identifier.identify(text)

    @cached_property
    def _identifier(self) -> LanguageIdentifier:
        """What identifies languages, made when a text first needs it.

        That is when a warning tells of a field of labels that is not read.
        """
        field = unread_label_field(self.first_rows())
        if field and self.fields.language is None:
            warnings.warn(
                f"{self.name}: languages are identified, and the field {field!r} looks like their "
                f"labels: name it (--language_field {field})",
                stacklevel=2,
            )
        return LanguageIdentifier()

    def first_rows(self) -> list[Mapping[str, Any]]:
        """The fields of some rows, among which labels are looked for; of a payload, nested ones."""
        return []

    def sample(
        self,
        per_language: int,
        *,
        languages: Collection[str] | None = None,
        seed: int = 0,
        show_progress_bar: bool = False,
    ) -> StoredSample:
        """Vectors of each language, drawn in one pass so that every row has the same chance.

        All rows are read. Those without a vector or a language are left out, with a warning that
        counts them. Of rows whose language has to be identified, about 100 000 are looked at.

        Without `languages`, all are drawn from; `"pt"` takes `"pt-br"`, too. One that has no vector
        is a `ValueError`, as are labels of which most are no codes.
        """
        if per_language < 1:
            raise ValueError(f"per_language={per_language} is below 1")
        draw = Draw(per_language, check_languages(languages), seed)
        total = len(self)
        share = 1.0
        if self.fields.text is not None:
            share = _IDENTIFIED / max(1, total)
        with tqdm(total=total, desc="Sampling", unit=" rows", disable=not show_progress_bar) as bar:
            for batch in self.batches():
                lots = draw.draw_lots(batch.num_rows)
                rows = self.examine_rows(batch, draw.left_out, drawn=lots < share)
                documents = pc.coalesce(batch.column("document"), batch.column("id"))
                draw.add(lots, rows, documents.to_numpy(zero_copy_only=False))
                bar.update(batch.num_rows)
        problem = draw.problem(total, self.present)
        if problem:
            raise ValueError(f"{self.name}: {problem}")
        words = counts_in_words(draw.left_out.counts_by_words())
        if words:
            warnings.warn(f"{self.name}: left out: {words}", stacklevel=2)
        return draw.drawn_sample()

    def refuse_mapped(self) -> None:
        """Refuse vectors that `apply_calibration` has made, and name those that they are from."""
        if self.origin is not None:
            raise ValueError(
                f"{self.name} is mapped already: take the vectors that these were made from, "
                f"{Origin.parse(self.origin).original}"
            )

    def name_taken(self, what: str) -> FileExistsError:
        """The error of a name under which there is something that has not the same origin."""
        return FileExistsError(
            f"{self.name}: {what} is there already: nothing is overwritten, give another name"
        )

    def new_file(self, into: str, suffix: str) -> Path:
        """The path of a file that is not there yet; one that is there is a `FileExistsError`.

        Another suffix is a `ValueError`: vectors stay in the form that they have.
        """
        path = Path(into).expanduser()
        if path.suffix != suffix:
            raise ValueError(f"{into}: vectors of {self.name} go into another {suffix} file")
        if path.exists():
            raise self.name_taken(f"a file {into}")
        return path

    def warn_of_others(self, into: str, count: int) -> None:
        """Warn of rows in a copy that have no vector in the store: a copy loses no row."""
        if count > 0:
            warnings.warn(
                f"{self.name}: rows of {into} that it does not have, or without a vector now, "
                f"stay there: {count}. Delete them, or write a new copy",
                stacklevel=3,
            )

    def check_all_stored(self, present: int, stored: int) -> None:
        """Raise an `OSError` if fewer vectors are stored than there are rows that were sent."""
        if stored < present:
            why = "a trigger, a rule or a policy leaves rows out, or the server has lost them"
            raise OSError(
                f"{self.name} has taken {stored} of {present} vectors: {why}. "
                "Run it again for the others"
            )

    @contextmanager
    def sanitize_errors(self) -> Iterator[None]:
        """Errors of the store's client name the store, and show no password or key.

        A `ValueError` stays one, and all others become an `OSError`, but for those of an import or
        a file, which pass as they are. Whatever asks the client stands in this context.
        """
        try:
            yield
        except (ImportError, FileExistsError, FileNotFoundError) as error:
            raise error from None  # they say enough
        except Exception as error:
            message = " ".join(str(error).split()) or type(error).__name__
            for secret in self.secrets:
                message = message.replace(secret, "***")
            if self.name not in message:
                message = f"{self.name}: {message}"
            kind = ValueError if isinstance(error, ValueError) else OSError
            raise kind(message) from None
