"""Masked language modelling with the checkpoint's own head."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.util.distributed import get_world_size
from torch import Tensor

from st_xlret.citations import CITATIONS
from st_xlret.columns import BESIDE_ONE_TEXT, Layout
from st_xlret.functional import chunked_cross_entropy
from st_xlret.losses.base import Batches, Columns, CrossLingualLoss, unwrap_model
from st_xlret.losses.embedding import Features, parts_by_length, select_texts
from st_xlret.losses.head_training import HeadTraining
from st_xlret.losses.lm_head import NoHeadError, load_head
from st_xlret.losses.token_masking import TokenMasking
from st_xlret.ranges import check_range


class _MaskedPart(NamedTuple):
    """Some texts of a column, which of their tokens are hidden, and all as they were.

    The last two are (rows, length).
    """

    features: Features
    is_hidden: Tensor
    target: Tensor


class MaskedLMLoss(CrossLingualLoss):
    """Masked language modelling beside a contrastive loss (BERT; CCP, section 3; MSM, Eq. 3).

    The checkpoint's own language-model head, tied to the input embeddings if it was, predicts
    masked tokens (Devlin et al. 2019). The loss is the mean
    [`chunked_cross_entropy`][st_xlret.functional.chunked_cross_entropy] over those of all ranks.

    Of the chosen tokens, 80 % are replaced by the mask token, 10 % by a random one, and 10 % stay.
    The choice depends on the text, the seed and, in training, the number of batches before, but not
    on the place in the batch or the rank.

    Args:
        model: An encoder that starts with a `Transformer` module. Unpadding of its inputs is turned
            off.
        mask_probability: Fraction of tokens to predict.
        lm_head_from: Checkpoint to take the head from. Default: the encoder's own, or a new one for
            one from scratch.
        fresh_head: Make a new head for a checkpoint without one. Call
            [`train_head`][st_xlret.MaskedLMLoss.train_head] first, else its random gradients
            disturb the encoder.
        seed: Seed of the choice of tokens. Default: that of torch's global random generator.

    Raises:
        NoHeadError: No trained head, none that works apart from its encoder (as of MobileBERT,
            ESM), or no mask token.

    Example:
        >>> from st_xlret.modules import train_tokenizer, transformer_encoder
        >>> tokenizer = train_tokenizer(["a b c d"] * 4, vocabulary=60)
        >>> model = transformer_encoder(tokenizer, "tiny").to("cpu")
        >>> loss = MaskedLMLoss(model)
        >>> loss([model.preprocess(["a b c d", "b c"])]).backward()
    """

    seed: Tensor
    steps: Tensor

    data = "any texts"
    equation = staticmethod(chunked_cross_entropy)
    paper = "BERT; MSM, Eq. 3"
    citation = CITATIONS["devlin2019bert"]
    # Sentences of documents, translations, or the blocks that `MSMLoss` hands on.
    layouts = (
        Layout(1, leaves_out=BESIDE_ONE_TEXT),
        Layout(2),
        Layout(0),
    )
    takes = "one text column, or 'source' and 'target'"

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        mask_probability: float = 0.15,
        weight: float = 1.0,
        lm_head_from: str | None = None,
        fresh_head: bool = False,
        seed: int | None = None,
        batches: Batches = None,
        ratio: float = 1.0,
    ) -> None:
        super().__init__(model, weight=weight, batches=batches, ratio=ratio)
        encoder = model[0]
        if not 0 < mask_probability <= 1 or not isinstance(encoder, Transformer):
            kind = type(encoder).__name__
            self.refuse(
                f"an encoder that starts with a {kind}, no Transformer, "
                f"or mask_probability {mask_probability}"
            )
        tokenizer = encoder.tokenizer
        if tokenizer is None or tokenizer.mask_token_id is None:
            raise NoHeadError(
                "MaskedLMLoss needs a tokenizer with a mask token, and this one has none"
            )
        encoder.unpad_inputs = False
        self.mask_probability = mask_probability
        embeddings: Any = encoder.auto_model.get_input_embeddings()
        head = load_head(model, lm_head_from, fresh=fresh_head)
        # What is trained is in float32 at least, also beside an encoder in 16 bits.
        self.lm_head = head.to(torch.promote_types(embeddings.weight.dtype, torch.float32))
        self.masking = TokenMasking(
            probability=mask_probability,
            mask_token=tokenizer.mask_token_id,
            special_tokens=tokenizer.all_special_ids,
            vocabulary=len(embeddings.weight),
        )
        if seed is None:
            seed = torch.initial_seed()
        self.register_buffer("seed", torch.tensor(seed % (1 << 63)))
        self.register_buffer("steps", torch.tensor(0))

    def forward(
        self,
        sentence_features: Iterable[dict[str, Tensor]],
        labels: Tensor | None = None,
    ) -> Tensor:
        """Compute the loss of a batch of texts; in training, the next one hides other tokens.

        All ranks call it together.
        """
        columns = self.read_columns(sentence_features)
        loss, count = self.mean_of_masked_tokens(columns)
        if self.updates_state:
            self.steps += 1
        if get_world_size() > 1:
            # Ranks mask different numbers of tokens, and their gradients are averaged.
            total = torch.tensor(float(count), device=loss.device)
            dist.all_reduce(total)
            loss = loss * count * get_world_size() / total.clamp(min=1)
        return self.weight * loss

    def train_head(
        self,
        texts: Sequence[str],
        *,
        batch_size: int = 64,
        learning_rate: float = 1e-3,
        max_steps: int = 2000,
        evaluate_every: int = 50,
        held_out: int = 256,
        show_progress_bar: bool = True,
    ) -> list[float]:
        """Train a new head alone, before the encoder is trained with it.

        Encoder, random state and `steps` stay. Of a head tied to the word embeddings, the layer
        before the projection and the bias learn, until the held-out loss falls by less than 1 % in
        three evaluations. Returns these losses, that before the first step included. All ranks call
        it together. A `ValueError` refuses fewer than 20 texts.

        Args:
            texts: 20 texts or more, as the encoder is to read them, in any order.
            batch_size: Texts of a step.
            learning_rate: Learning rate of AdamW.
            max_steps: Most steps.
            evaluate_every: Steps between two evaluations.
            held_out: Texts to evaluate on, at most a tenth of all.
            show_progress_bar: Show a progress bar with the held-out loss.
        """
        check_range(1, batch_size=batch_size, max_steps=max_steps)
        check_range(1, evaluate_every=evaluate_every, held_out=held_out)
        check_range(0, learning_rate=learning_rate)
        if len(texts) < 20:
            self.refuse(
                f"{len(texts)} texts are too few to train a head on: "
                "give 20 or more, better thousands"
            )
        training = HeadTraining(
            self, texts, held_out=held_out, batch_size=batch_size, learning_rate=learning_rate
        )
        return training.run(max_steps, evaluate_every, show_progress_bar=show_progress_bar)

    def mean_of_masked_tokens(
        self, columns: Columns, *, frozen: bool = False
    ) -> tuple[Tensor, int]:
        """The mean cross-entropy of hidden tokens on this rank, and how many there are.

        All ranks call it together, with as many columns. It counts no step: `mask_tokens` says
        which tokens are hidden. Of a frozen encoder only the head learns.
        """
        vectors = []
        targets = []
        for features in columns:
            for part in self._masked_parts(features):
                states = self._last_hidden_states(part.features, frozen)
                vectors.append(states[part.is_hidden])
                targets.append(part.target[part.is_hidden])
        projection = self.lm_head.own_projection
        if projection is None:
            encoder: Any = unwrap_model(self.model)[0]
            projection = encoder.auto_model.get_input_embeddings().weight
            if frozen:
                projection = projection.detach()
        hidden = self.lm_head(torch.cat(vectors))
        target = torch.cat(targets)
        loss = chunked_cross_entropy(hidden, projection, self.lm_head.bias, target)
        return loss, len(target)

    def _masked_parts(self, features: Features) -> Iterator[_MaskedPart]:
        """A column in parts by length, with some tokens hidden; all ranks read it together."""
        ids = features["input_ids"]
        masked_ids, chosen = self.mask_tokens(ids, features["attention_mask"])
        masked = {**features, "input_ids": masked_ids, "is_hidden": chosen, "target": ids}
        for rows in parts_by_length(masked) or [torch.arange(len(ids), device=ids.device)]:
            part = select_texts(masked, rows)
            is_hidden = part.pop("is_hidden")
            target = part.pop("target")
            yield _MaskedPart(part, is_hidden, target)

    def _last_hidden_states(self, features: Features, frozen: bool) -> Tensor:
        """The last hidden states (rows, length, h), without a gradient of a frozen encoder.

        They are those of the last layer also where the encoder averages several.
        """
        learns = torch.is_grad_enabled() and not frozen
        with torch.set_grad_enabled(learns):
            # Through DDP's wrapper, where there is one: its forward pass synchronises gradients.
            output = self.model(features)
        # Where layers are averaged, token_embeddings are no longer what the checkpoint's head was
        # trained on.
        layers = output.get("all_layer_embeddings") or [output["token_embeddings"]]
        return layers[-1]

    def mask_tokens(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        """The token ids with some hidden, and which of them the head is to predict.

        Both are (rows, length), the second one boolean. It draws by the texts, the seed and, in
        training, the step. All ranks call it together: at least one token of theirs is hidden.
        """
        seed = self.seed
        if self.updates_state:
            seed = seed + 1_000_003 * self.steps
        return self.masking.hide(input_ids, attention_mask, seed)
