"""The masked sentence model (MSM) as a Sentence Transformers loss."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any, Literal

import torch
import torch.distributed as dist
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from sentence_transformers.util.distributed import all_gather, all_gather_with_grad, get_world_size
from torch import Tensor, nn

from st_xlret.batches.blocks import Blocks
from st_xlret.batches.collator import text_to_id
from st_xlret.functional import masked_sentence_loss
from st_xlret.functional.tensors import at_least_float32
from st_xlret.languages import check_language, language_to_id
from st_xlret.losses.base import Batches, CrossLingualLoss, embedding_size, unwrapped
from st_xlret.losses.embedding import (
    backward_one_after_the_other,
    check_mini_batch,
    embed,
    merge_columns,
    read_tags,
    take_texts,
    without_exchange,
)
from st_xlret.losses.masked_lm import MaskedLMLoss
from st_xlret.modules import DocumentEncoder, ProjectionHead

logger = logging.getLogger(__name__)

CITATION = """
@inproceedings{zhang2023modeling,
    title = {Modeling Sequential Sentence Relation to Improve Cross-lingual Dense Retrieval},
    author = {Zhang, Shunyu and Liang, Yaobo and Gong, Ming and Jiang, Daxin and Duan, Nan},
    booktitle = {The Eleventh International Conference on Learning Representations},
    year = {2023},
}
"""

Heads = Literal["separate", "shared", "none"]
WAY_OUT = "draw the batches with Blocks (CrossLingualTrainer does, or batch_sampler=Blocks() in the training arguments)"


class MSMLoss(CrossLingualLoss):
    """Masked sentence prediction (MSM, Zhang et al. 2023, section 3.2), from documents alone.

    Each sentence of a document is masked in turn and predicted from the others by a document encoder. The predictions
    and the sentences' own vectors pass through two projection heads, and
    [`masked_sentence_loss`][st_xlret.functional.masked_sentence_loss] (Eq. 1-2) compares them. Document encoder and
    heads are discarded after training.

    A row is a sentence. `Blocks` draws all sentences of whole blocks of documents in any order, and
    `CrossLingualDataCollator` attaches the block and place of each. Documents may differ in length:
    padding does not enter the heads, the statistics or the loss.

    - A block of one sentence has no other sentence to predict it from, so it is a negative only.
    - A batch of one document has intra-document negatives only, and then no bias.
    - A batch of one language, as in the paper, has negatives of its language only. In mixed batches, rows of another
      language are masked unless `cross_language_negatives` is set.

    In distributed training, sentence vectors and predictions are gathered before the heads. R ranks compute what one
    rank computes with an R times larger batch, and they may have different numbers of rows.

    Args:
        model: The encoder.
        document_encoder: Document encoder, or options of the default one, a `DocumentEncoder` of the encoder's size.
        heads: Two projection heads ("separate"), one for both sides ("shared"), or "none" (Table 7).
        num_negatives: Number of cross-document negatives of a row (Table 6), drawn at random if there are more; None
            for all.
        mu: Fraction of the bias that is subtracted from intra-document logits; 0 for no bias (Table 5).
        temperature: Divisor of the cosines. Eq. 1 shows none; 0.1 is that of the authors' program.
        intra_document_negatives: Use the other sentences of the document as negatives. Turn it off for the ablation
            "cross-doc" (Table 5).
        cross_language_negatives: Use rows of other languages as negatives too.
        mask_same_text: Do not use rows that have the sentence's own text as negatives. The paper does not say so.
        language_groups: Groups of language codes that have a document encoder of their own (Table 4: `[["en"]]`). All
            other languages share one more. None for one document encoder for all languages.
        separate_heads: Give each group its own heads too.
        mini_batch_size: Number of sentences per micro-batch of the encoder, which are of similar length and use
            gradient caching (see `st_xlret.losses.embedding.embed`); None for none.
        mlm: A masked-language-model loss of the same encoder that is added to each batch (Eq. 3); None if the two
            alternate by batch. On each rank it reads `mini_batch_size` of the sentences, drawn at random.
        gather_across_devices: Use the rows of all ranks. If off, each rank computes its own loss.
        seed: Seed of the random draws.
        batches: How batches are drawn, see `CrossLingualLoss`. Default: `Blocks()`.
        ratio: How often batches of this loss are drawn beside those of the other losses of a run.

    Attributes:
        negatives_only: Number of sentences in blocks of one sentence, over all training steps and ranks.

    Raises:
        ValueError: If an option is out of its range, or the document encoder or `mlm` does not fit the encoder.

    Example:
        >>> from st_xlret.modules import static_encoder, train_tokenizer
        >>> model = static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8)
        >>> loss = MSMLoss(model)
        >>> features = model.preprocess(["a", "b", "c", "d", "a b"])          # two documents
        >>> features["block_id"] = torch.tensor([0, 0, 0, 1, 1])
        >>> features["sentence_position"] = torch.tensor([0, 1, 2, 0, 1])
        >>> features["language_id"] = torch.full((5,), 25966)
        >>> loss([features]).backward()
    """

    steps: Tensor
    negatives_only: Tensor

    takes = (
        "sentences with their 'document', 'position' and 'language', as load_documents gives them, or a text column "
        "for each sentence of a block"
    )
    citation = CITATION

    def __init__(
        self,
        model: SentenceTransformer,
        document_encoder: DocumentEncoder | Mapping[str, Any] | None = None,
        *,
        heads: Heads = "separate",
        num_negatives: int | None = 512,
        mu: float = 0.5,
        temperature: float = 0.1,
        intra_document_negatives: bool = True,
        cross_language_negatives: bool = False,
        mask_same_text: bool = True,
        language_groups: Sequence[Sequence[str]] | None = None,
        separate_heads: bool = False,
        mini_batch_size: int | None = None,
        mlm: MaskedLMLoss | None = None,
        gather_across_devices: bool = True,
        seed: int = 0,
        batches: Batches = None,
        ratio: float = 1.0,
    ) -> None:
        super().__init__(model, batches=batches, ratio=ratio)
        self.mini_batch_size = check_mini_batch(model, mini_batch_size)
        self.uses_gradient_cache = self.mini_batch_size is not None  # wrappers of the host ask
        features = embedding_size(model)
        if not isinstance(document_encoder, DocumentEncoder):
            document_encoder = DocumentEncoder(features, **(document_encoder or {}))
        if document_encoder.features != features:
            raise ValueError(
                f"the document encoder takes {document_encoder.features} features and the encoder gives {features}: "
                f"leave document_encoder out, or build it with DocumentEncoder({features})"
            )
        if mlm is not None and mlm.model is not model:
            raise ValueError("mlm is a loss of another encoder: build it with the model that MSMLoss has")
        self.num_negatives, self.mu, self.temperature = num_negatives, mu, temperature
        self.intra_document_negatives = intra_document_negatives
        self.cross_language_negatives = cross_language_negatives
        self.mask_same_text = mask_same_text
        self.gather_across_devices, self.seed = gather_across_devices, seed
        self.networks = MSMNetworks(document_encoder, heads, language_groups or [], separate_heads=separate_heads)
        self.mlm = mlm
        self._languages_unknown = False
        self.register_buffer("steps", torch.tensor(0))
        self.register_buffer("negatives_only", torch.tensor(0))

    def default_batches(self) -> Blocks:
        """Blocks of documents, of one language in a batch."""
        return Blocks()

    def required_columns(self, texts: list[str], columns: list[str]) -> list[str]:
        """Documents and positions, unless a row is a block already; languages, unless they do not matter."""
        if len(texts) > 1:
            known = [name for name in columns if name in ("document", "label")]
            return sorted(known)[:1]
        return ["document", "position", *([] if self.cross_language_negatives else ["language"])]

    def forward(
        self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None
    ) -> Tensor | dict[str, Tensor]:
        """Compute the loss of a batch of blocks of documents.

        Args:
            sentence_features: One column of sentences, with `block_id` and `sentence_position`; or a column for each
                sentence of a block, where a row is a block and empty texts are padding.
            labels: With several columns, the document of each row, integers, where the features have no `document_id`,
                as in `model.fit`.

        Returns:
            A scalar. With `mlm`, the two parts by name, which the Trainer logs and sums.

        Raises:
            ValueError: If tags are missing, blocks are not runs of a document's sentences, a block is too long for the
                document encoder, or no block has two sentences.
        """
        columns = self.read_columns(sentence_features, labels)
        tags = read_tags(columns)
        if len(columns) > 1:
            features, tags = self._rows_of_blocks(columns, tags, labels)
        else:
            features = columns[0]
            if not {"block_id", "sentence_position"} <= features.keys():
                raise ValueError(
                    "MSMLoss got one text column, and does not know which sentences are of one document: give the data "
                    "set the columns 'document' and 'position' and use CrossLingualTrainer (or batch_sampler=Blocks() "
                    "and data_collator=CrossLingualDataCollator(model.preprocess)); with model.fit, give a text column "
                    "for each sentence of a block: InputExample(texts=[first, second, ...], label=document)"
                )
            tags |= {tag: features[tag] for tag in ("block_id", "sentence_position")}
        mlm = self._mlm_of_some(features) if self.mlm is not None else None
        vectors = embed(self.model, features, self.mini_batch_size)
        loss = self.compute_loss_from_embeddings(vectors, tags)
        if mlm is None:
            return self._record(loss)
        self._record(loss.detach() + mlm.detach())
        if loss.requires_grad:
            loss = backward_one_after_the_other(mlm, loss)
        return {"msm": loss, "mlm": mlm.detach()}

    def _rows_of_blocks(
        self, columns: list[dict[str, Any]], tags: dict[str, Tensor], labels: Tensor | None
    ) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """One column of sentences, with its tags, of a column for each sentence of the blocks; without empty texts."""
        features = merge_columns(columns)
        if features is None:
            raise ValueError(
                f"the {len(columns)} text columns are tokenised in different ways, and MSMLoss reads them as one: give "
                "them one prompt and one route, or one text column with 'document' and 'position'"
            )
        if "language_id" not in tags and not self.cross_language_negatives and not self._languages_unknown:
            self._languages_unknown = True
            logger.warning(
                "MSMLoss does not know the languages of the texts: sentences of all languages are negatives of each "
                "other, as with cross_language_negatives=True. To keep languages apart, use CrossLingualTrainer and "
                "a 'language' column"
            )
        ids = features["input_ids"]
        if "offsets" in features:
            lengths = torch.diff(features["offsets"], append=features["offsets"].new_tensor([len(ids)]))
        else:
            special = torch.tensor(unwrapped(self.model).tokenizer.all_special_ids, device=ids.device)
            lengths = (features["attention_mask"].bool() & ~torch.isin(ids, special)).sum(1)
        rows = len(lengths) // len(columns)
        # A block has the same number on no other rank.
        block = torch.arange(rows, device=ids.device) + (dist.get_rank() << 40 if get_world_size() > 1 else 0)
        if "document_id" not in tags:
            if labels is not None and (labels.is_floating_point() or (rows > 1 and len(labels.unique()) == 1)):
                raise ValueError(
                    f"MSMLoss reads the label of a row as its document, and the {rows} rows of this batch have "
                    f"{labels.unique().tolist()}: give each document a number of its own, "
                    "InputExample(texts=[first, second, ...], label=document), in random order"
                )
            document = block if labels is None else labels
            tags["document_id"] = document.repeat(len(columns))
        tags["block_id"] = block.repeat(len(columns))
        tags["sentence_position"] = torch.arange(len(columns), device=ids.device).repeat_interleave(rows)
        filled = lengths > 0
        if "text_id" in tags:
            filled = tags["text_id"] != text_to_id("")
        return take_texts(features, filled.nonzero()[:, 0]), {name: tag[filled] for name, tag in tags.items()}

    def compute_loss_from_embeddings(self, vectors: Tensor, tags: dict[str, Tensor]) -> Tensor:
        """Compute the loss of sentence vectors (S, d) with tags (S,): `block_id`, `sentence_position`, others if known.

        Raises:
            ValueError: If `language_id` is missing where it is needed, the vectors have another size than the document
                encoder, or the blocks are wrong as in `forward`.
        """
        mixed = self.cross_language_negatives or self._languages_unknown
        if "language_id" not in tags and (self.networks.language_groups or not mixed):
            raise ValueError(
                "MSMLoss does not know the languages of the texts: give the data set a 'language' column and use "
                "CrossLingualTrainer (or data_collator=CrossLingualDataCollator(model.preprocess)), or take "
                "negatives of all languages: MSMLoss(model, cross_language_negatives=True)"
            )
        if vectors.shape[1] != self.networks.features:
            raise ValueError(
                f"MSMLoss has a document encoder for {self.networks.features} features and got vectors of "
                f"{vectors.shape[1]}: MatryoshkaLoss cannot wrap MSMLoss; wrap a loss on pairs, or CCPLoss, instead"
            )
        rows, present = arrange_blocks(tags["block_id"], tags["sentence_position"])
        check_blocks(rows, present, tags, neighbours=self.updates_state and not self.steps)
        # The networks are in float32 where the encoder is in 16 bits.
        vectors = at_least_float32(vectors)
        predictions, predicted = self.networks.predict(vectors, rows, present, tags.get("language_id"))
        tags = {name: tag for name, tag in tags.items() if name != "sentence_position"}
        tags["document_id"] = tags.get("document_id", tags.pop("block_id"))
        if self.gather_across_devices and get_world_size() > 1:
            both, predicted, tags = gather_ragged(torch.cat([predictions, vectors], 1), predicted, tags)
            predictions, vectors = both.chunk(2, dim=1)
        if not predicted.any():
            raise ValueError(
                f"none of the {len(vectors)} sentences of the batch can be predicted, since each is the only one "
                f"of its document: {WAY_OUT}, which leaves such documents out"
            )
        p, h = self.networks.project(predictions, vectors, predicted, tags.get("language_id"))
        loss = masked_sentence_loss(
            p,
            h,
            tags["document_id"],
            mu=self.mu,
            temperature=self.temperature,
            num_negatives=self.num_negatives,
            generator=self._generator(vectors.device),
            intra_document_negatives=self.intra_document_negatives,
            predicted=predicted,
            language=None if self.cross_language_negatives else tags.get("language_id"),
            text=tags.get("text_id") if self.mask_same_text else None,
        )
        if self.updates_state:
            self.steps += 1
            self.negatives_only += (~predicted).sum()
        return loss

    def _generator(self, device: torch.device) -> torch.Generator:
        # From the step alone: the same on all ranks and after a resume.
        return torch.Generator(device).manual_seed(1_000_003 * self.seed + int(self.steps))

    def _mlm_of_some(self, features: dict[str, Tensor]) -> Tensor:
        assert self.mlm is not None
        rows, size = len(features["input_ids"]), self.mini_batch_size
        if size is not None and size < rows:
            device = features["input_ids"].device
            chosen = torch.randperm(rows, generator=self._generator(device), device=device)[:size]
            features = take_texts(features, chosen)
        with without_exchange(self.model):
            return self.mlm([dict(features)])

    def get_config_dict(self) -> dict[str, Any]:
        """Options of the loss, for the model card."""
        mlm = None if self.mlm is None else self.mlm.get_config_dict()
        return {**super().get_config_dict(), **self.networks.get_config_dict(), "mlm": mlm}


class MSMNetworks(nn.Module):
    """Document encoder and projection heads, for all languages or for each group of them (MSM, Tables 4 and 7)."""

    def __init__(
        self,
        document_encoder: DocumentEncoder,
        heads: Heads = "separate",
        language_groups: Sequence[Sequence[str]] = (),
        *,
        separate_heads: bool = False,
    ) -> None:
        super().__init__()
        if heads not in ("separate", "shared", "none"):
            raise ValueError(f"heads must be 'separate', 'shared' or 'none', got {heads!r}")
        if separate_heads and (not language_groups or heads == "none"):
            raise ValueError("separate_heads needs language_groups, and heads to separate")
        self.features, self.heads, self.separate_heads = document_encoder.features, heads, separate_heads
        self.language_groups = [[check_language(code) for code in group] for group in language_groups]
        groups = 1 + len(self.language_groups)
        encoders = [document_encoder, *(deepcopy(document_encoder) for _ in range(groups - 1))]
        for encoder in encoders[1:]:
            encoder.reset_parameters()
        self.document_encoders = nn.ModuleList(encoders)
        # In each group the head of predictions comes first and the head of sentences last.
        sides = {"separate": 2, "shared": 1, "none": 0}[heads]
        self.projections = nn.ModuleList(
            nn.ModuleList(ProjectionHead(self.features) for _ in range(sides))
            for _ in range(groups if separate_heads else 1)
        )

    def predict(
        self, vectors: Tensor, rows: Tensor, present: Tensor, language_id: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Predict sentences from the others of their block."""
        rows, present = (x[present.sum(1) > 1] for x in (rows, present))
        predicted = torch.zeros(len(vectors), dtype=torch.bool, device=vectors.device)
        predicted[rows[present]] = True
        result = torch.zeros_like(vectors)
        if not len(rows):
            return result, predicted
        group = self._groups_of(language_id)[rows[:, 0]] if self.language_groups else torch.zeros_like(rows[:, 0])
        for number, encoder in enumerate(self.document_encoders):
            mine = group == number
            if mine.any():
                places, there = rows[mine], present[mine]
                predictions = encoder(vectors[places], there)[there]
                result = result.index_copy(0, places[there], predictions.to(result.dtype))
        return result, predicted

    def project(
        self, predictions: Tensor, vectors: Tensor, predicted: Tensor, language_id: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Pass predictions (S, d), where `predicted` (S,), and sentences (S, d) through the heads of their groups."""
        if self.heads == "none":
            return predictions, vectors
        group = self._groups_of(language_id) if self.separate_heads else torch.zeros_like(predicted, dtype=torch.long)
        everything = torch.ones_like(predicted)
        return self._through(0, predictions, predicted, group), self._through(-1, vectors, everything, group)

    def _through(self, side: int, x: Tensor, rows: Tensor, group: Tensor) -> Tensor:
        result = x
        for number, heads in enumerate(self.projections):
            chosen = (rows & (group == number)).nonzero()[:, 0]
            if len(chosen):
                head: Any = list(heads.children())[side]
                result = result.index_copy(0, chosen, head(x[chosen]).to(x.dtype))
        return result

    def _groups_of(self, language_id: Tensor | None) -> Tensor:
        assert language_id is not None
        group = torch.zeros_like(language_id)
        for number, codes in enumerate(self.language_groups, start=1):
            ids = torch.tensor([language_to_id(code) for code in codes], device=language_id.device)
            group[torch.isin(language_id, ids)] = number
        return group

    def get_config_dict(self) -> dict[str, Any]:
        """Options of the networks, for the model card."""
        encoder: Any = self.document_encoders[0]
        options = {name: getattr(self, name) for name in ("heads", "language_groups", "separate_heads")}
        return {"document_encoder_layers": len(encoder.layers), **options}


def arrange_blocks(block: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
    """Find which row of the batch stands at which place of which block.

    Example:
        >>> rows, present = arrange_blocks(torch.tensor([7, 3, 7]), torch.tensor([5, 0, 2]))
        >>> rows.tolist(), present.tolist()
        ([[1, 0], [2, 0]], [[True, False], [True, True]])
    """
    order = torch.argsort(position, stable=True)
    order = order[torch.argsort(block[order], stable=True)]
    sorted_block, sorted_position = block[order], position[order]
    twice = (sorted_block[1:] == sorted_block[:-1]) & (sorted_position[1:] == sorted_position[:-1])
    if twice.any():
        at = int(twice.nonzero()[0, 0])
        raise ValueError(
            f"block {int(sorted_block[at])} has two sentences at position {int(sorted_position[at])}, and a batch may "
            f"contain a block once: {WAY_OUT}"
        )
    _, number, counts = torch.unique_consecutive(sorted_block, return_inverse=True, return_counts=True)
    starts = counts.cumsum(0) - counts
    place = torch.arange(len(block), device=block.device) - starts[number]
    shape = (len(counts), int(counts.max()) if len(counts) else 0)
    rows = order.new_zeros(shape)
    present = torch.zeros(shape, dtype=torch.bool, device=block.device)
    rows[number, place], present[number, place] = order, True
    return rows, present


def check_blocks(rows: Tensor, present: Tensor, tags: dict[str, Tensor], *, neighbours: bool) -> None:
    """Refuse blocks that mix documents or languages, or are scattered: on them the loss would teach nonsense."""
    for kind in ("document", "language"):
        if f"{kind}_id" not in tags:
            continue
        ids = tags[f"{kind}_id"][rows]
        mixed = ((ids != ids[:, :1]) & present).any(1)
        if mixed.any():
            block = int(mixed.nonzero()[0])
            found = ids[block][present[block]].unique().tolist()
            raise ValueError(
                f"block {block} of the batch has sentences of {len(found)} {kind}s (ids {found[:4]}), and a block is "
                f"a run of one document's sentences: {WAY_OUT}"
            )
    both, position = present[:, 1:], tags["sentence_position"]
    steps = position[rows[:, 1:]] - position[rows[:, :-1]]
    consecutive, pairs = int(((steps == 1) & both).sum()), int(both.sum())
    if neighbours and 2 * consecutive < pairs:
        raise ValueError(
            f"of {pairs} neighbours in the blocks of this batch {consecutive} are consecutive sentences (their "
            f"'position' differs by 1), so these are not runs of a document's sentences: {WAY_OUT}"
        )


def gather_ragged(vectors: Tensor, flags: Tensor, tags: dict[str, Tensor]) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Gather the rows of all ranks, one rank after the other. Ranks may have different numbers of rows."""
    rows = torch.tensor(len(vectors), device=vectors.device)
    most = rows.clone()
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    missing = int(most - rows)
    names = sorted(tags)
    integers = torch.stack([*(tags[name] for name in names), flags.long(), torch.ones_like(flags).long()], 1)
    integers = all_gather(F.pad(integers, (0, 0, 0, missing)))
    filled = integers[:, -1].bool()
    gathered = all_gather_with_grad(F.pad(vectors, (0, 0, 0, missing)).contiguous())
    columns = integers[filled].unbind(1)
    return gathered[filled], columns[-2].bool(), dict(zip(names, columns, strict=False))
