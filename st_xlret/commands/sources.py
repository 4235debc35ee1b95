"""Where commands find texts or vectors: an encoder and documents, or a store."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from st_xlret.calibration.fit_options import TEXTS_FOR_MEANS, TEXTS_FOR_OTHER_STEPS
from st_xlret.calibration.steps import OF_MEANS
from st_xlret.options import check_options, given_options, option, parse
from st_xlret.precision import PRECISIONS
from st_xlret.ranges import check_range
from st_xlret.stores.base import Store
from st_xlret.stores.registry import forms_in_words, open_store
from st_xlret.stores.sampling import StoredSample

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

    from st_xlret.calibration.embedding import RoleEncoder
    from st_xlret.calibration.sampling import Sample
    from st_xlret.data.documents import Unit

_UNITS = ["sentence", "text", "document"]  # those of `st_xlret.data.documents.Unit`
# Options of `SampleArguments` that are read with `--vectors`: those of the sample and, where texts
# are embedded too, those of the encoder.
_OF_SAMPLE = {"languages", "texts_per_language"}
_OF_ENCODER = {"model", "device", "batch_size", "precision", "query_prompt", "document_prompt"}
_LISTED = 30  # languages that are printed, at most


@dataclass
class EncoderArguments:
    """An encoder, and where it computes."""

    model: str | None = option(None, "The encoder: a folder or a name on the Hub.")
    device: str | None = option(None, "cpu, cuda, cuda:1, mps. By default the best there is.")

    def load_model(self) -> SentenceTransformer:
        """Load the encoder that is named."""
        from st_xlret.hub.loading import load_model

        return load_model(self.model or "", self.device)


@dataclass
class EmbeddingArguments(EncoderArguments):
    """An encoder, and how it embeds many texts."""

    batch_size: int = option(64, "Size of a forward pass, in texts of 64 tokens.")


@dataclass
class DocumentArguments:
    """Documents, and what is taken of them."""

    documents: list[str] = option(
        [], "JSON lines, Parquet, tables, text, Markdown; folders of them, or BEIR's layout."
    )
    unit: str | None = option(
        None,
        "What is taken; text: a line or an element. By default document in BEIR's layout, "
        "else sentence.",
        _UNITS,
    )
    skip_bad_lines: bool = option(
        False, "Skip and count bad lines instead of stopping at the first one."
    )


@dataclass
class TextArguments(EmbeddingArguments, DocumentArguments):
    """An encoder, and documents to embed."""

    _argument_group_name = "encoder and texts"


@dataclass
class SampleArguments(TextArguments):
    """An encoder, and a sample of texts."""

    languages: list[str] = option([], "Languages to look at. All by default.")
    texts_per_language: int | None = option(
        None,
        f"Texts or vectors of each language. By default {TEXTS_FOR_MEANS}, and "
        f"{TEXTS_FOR_OTHER_STEPS} for steps but {', '.join(sorted(OF_MEANS))}.",
    )
    query_prompt: str | None = option(
        None, "Put before queries: a text, or the name of one of the model's prompts."
    )
    document_prompt: str | None = option(
        None, "Put before documents, likewise. By default the model's own."
    )
    precision: str = option(
        "auto", "Number format: auto is bf16 where the processor computes in it.", PRECISIONS
    )

    def sample_texts(
        self, count: int, *, min_texts: int = 1, min_languages: int = 2, seed: int
    ) -> dict[str, Sample]:
        """At most `count` texts of each language of the documents, as `sample_texts` draws them."""
        from st_xlret.calibration.sampling import sample_texts

        return sample_texts(
            self.documents,
            languages=self.languages,
            texts_per_language=count,
            min_texts=min_texts,
            min_languages=min_languages,
            unit=cast("Unit | None", self.unit),
            skip_bad_lines=self.skip_bad_lines,
            seed=seed,
        )

    def load_encoder(self) -> RoleEncoder:
        """The model, with the prompts that are named, or its own."""
        from st_xlret.calibration.embedding import RoleEncoder

        return RoleEncoder.of_model(
            self.load_model(),
            query_prompt=self.query_prompt,
            document_prompt=self.document_prompt,
            batch_size=self.batch_size,
            precision=self.precision,
        )


@dataclass
class FieldArguments:
    """The fields of stored vectors."""

    vector_field: str | None = option(None, "Field of the vectors. By default 'vector'.")
    language_field: str | None = option(
        None, "Field of the languages. By default 'language' or 'lang'."
    )
    text_field: str | None = option(
        None,
        "Field of the texts. By default 'text', to show them; where it is named, a sample takes "
        "the language of a row that names none from its text.",
    )

    def open(
        self, address: str, *, group_field: str | None = None, languages_file: str | None = None
    ) -> Store:
        """Open the store at an address."""
        return open_store(
            address,
            vector_field=self.vector_field,
            language_field=self.language_field,
            text_field=self.text_field,
            group_field=group_field,
            languages_file=languages_file,
        )


@dataclass
class StoreArguments(FieldArguments):
    """Vectors that are stored already."""

    _argument_group_name = "stored vectors"

    vectors: str | None = option(None, f"{forms_in_words()}, instead of texts.")
    languages_file: str | None = option(
        None, "For .npy and .faiss: a code a line, in the order of the vectors."
    )

    def open_store(self) -> Store:
        """Open the store; without --vectors a `ValueError`."""
        check_options(self, "vectors")
        return self.open(self.vectors or "", languages_file=self.languages_file)


def parse_sources(
    own_group: Any, words: Sequence[str], *, description: str | None, prog: str
) -> tuple[SampleArguments, StoreArguments, Any]:
    """Read which texts or stored vectors, and a command's own options, which have an `output`.

    That is required. `check_sources` is called next.
    """
    groups = [SampleArguments, StoreArguments, own_group]
    texts, stored, options = parse(groups, words, description=description, prog=prog)
    check_options(options, "output")
    check_range(1, texts_per_language=texts.texts_per_language, batch_size=texts.batch_size)
    return texts, stored, options


def check_sources(
    texts: SampleArguments,
    stored: StoreArguments,
    options: object,
    *,
    not_of_texts: Collection[str] = (),
    not_of_vectors: Collection[str] = (),
    reads_model: bool = False,
) -> None:
    """Refuse a command without a source, and options that it does not read with this one.

    `not_of_texts` and `not_of_vectors` name those of its own `options` that it does not read with
    texts, or with vectors; `reads_model` says whether it embeds texts beside vectors.
    """
    if stored.vectors is None:
        check_options(texts, "model", "documents")
        where = "without --vectors"
        unread = given_options(stored)
        others = not_of_texts
    else:
        where = "with --vectors"
        read = {*_OF_SAMPLE, *_OF_ENCODER} if reads_model else _OF_SAMPLE
        unread = [name for name in given_options(texts) if name not in read]
        others = not_of_vectors
    unread += [name for name in given_options(options) if name in others]
    check_options(texts, unread=unread, where=where)


def sample_vectors(
    store: Store, languages: Sequence[str], count: int, *, min_texts: int, seed: int
) -> StoredSample:
    """Vectors of each language of a store, at most `count`, and their documents.

    How many there are is printed. Languages with fewer than `min_texts` are left out, and named;
    all are a `ValueError`.
    """
    mapped = f", mapped by the calibration {store.origin}" if store.origin else ""
    print(f"{store.name}: {len(store)} vectors of {store.dimension} dimensions{mapped}")
    sample = store.sample(count, languages=languages or None, seed=seed, show_progress_bar=True)
    kept = StoredSample({}, {})
    counts = []
    few = []
    for code, rows in sample.vectors.items():
        if len(rows) >= min_texts:
            kept.vectors[code] = rows
            kept.documents[code] = sample.documents[code]
            counts.append(f"{code} {len(rows)}")
        else:
            few.append(f"{code[:20]} {len(rows)}")
    print(f"sampled: {', '.join(counts[:_LISTED])}")
    if few:
        print(
            f"warning: left out, with fewer than {min_texts} vectors: {len(few)} languages, "
            f"{', '.join(few[:_LISTED])}"
        )
    if not kept.vectors:
        raise ValueError(f"{store.name}: no language has {min_texts} vectors to look at")
    return kept


def known_documents(sample: StoredSample) -> Mapping[str, NDArray[Any]] | None:
    """The documents that vectors are of; None if these tell nothing.

    Vectors of one document are no neighbours of each other. They tell nothing where no two vectors
    are of one, or all of a language are.
    """
    vectors = 0
    documents = 0
    fewest = 2
    for names in sample.documents.values():
        distinct = len(set(names.tolist()))
        vectors += len(names)
        documents += distinct
        fewest = min(fewest, distinct)
    return sample.documents if documents < vectors and fewest > 1 else None


def print_note_without_documents(documents: object | None) -> None:
    """Say what it means that the documents of vectors are not known."""
    if documents is None:
        print("note: without a field 'document', vectors of one document count as neighbours, too")
