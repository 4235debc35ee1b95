"""Masked language modelling with the checkpoint's own head."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.util import batch_to_device
from sentence_transformers.util.distributed import get_world_size
from torch import Tensor, nn
from tqdm.auto import tqdm
from transformers import AutoModelForMaskedLM, PretrainedConfig
from transformers.modeling_outputs import BaseModelOutput

from st_xlret.citations import CITATIONS
from st_xlret.columns import BESIDE_ONE_TEXT, Layout
from st_xlret.functional import chunked_cross_entropy
from st_xlret.losses.base import Batches, Columns, CrossLingualLoss, unwrap_model
from st_xlret.losses.embedding import parts_by_length, select_texts

# Odd constants of common integer hashes (SplitMix64, Steele et al. 2014), as signed 64-bit integers.
_GOLDEN = -7046029254386353131
_MIX_1 = -4658895280553007687
_MIX_2 = -7723592293110705685


class NoHeadError(ValueError):
    """An encoder has no head for masked words that is as trained as it is; sentence encoders usually have none."""


class MaskedLMLoss(CrossLingualLoss):
    """Masked language modelling beside a contrastive loss (BERT, Devlin et al. 2019; CCP, section 3; MSM, Eq. 3).

    The checkpoint's own language-model head, tied to the input embeddings if it was, predicts masked tokens.
    The loss is the mean [`chunked_cross_entropy`][st_xlret.functional.chunked_cross_entropy] over those of all ranks.

    Of the chosen tokens, 80 % are replaced by the mask token, 10 % by a random one, and 10 % stay. The choice depends
    on the text, the seed and, in training, the number of batches before, but not on the place in the batch or the rank.

    Args:
        model: An encoder that starts with a `Transformer` module. Unpadding of its inputs is turned off.
        mask_probability: Fraction of tokens to predict.
        lm_head_from: Checkpoint to take the head from. Default: the encoder's own, or a new one for one from scratch.
        fresh_head: Make a new head for a checkpoint without one. Call
            [`train_head`][st_xlret.MaskedLMLoss.train_head] first, else its random gradients disturb the encoder.
        seed: Seed of the choice of tokens. Default: that of torch's global random generator.

    Raises:
        NoHeadError: No trained head, none that works apart from its encoder (as of MobileBERT, ESM), or no mask token.

    Example:
        >>> from st_xlret.modules import train_tokenizer, transformer_encoder
        >>> model = transformer_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=60), "tiny").to("cpu")
        >>> loss = MaskedLMLoss(model)
        >>> loss([model.preprocess(["a b c d", "b c"])]).backward()
    """

    seed: Tensor
    steps: Tensor

    # Sentences of documents, translations, or the blocks that `MSMLoss` hands on.
    layouts = (
        Layout(1, leaves_out=BESIDE_ONE_TEXT),
        Layout(2),
        Layout(0),
    )
    takes = "one text column, or 'source' and 'target'"
    citation = CITATIONS["devlin2019bert"]

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
        super().__init__(model, batches=batches, ratio=ratio)
        encoder: Any = model[0]
        if not 0 < mask_probability <= 1 or not isinstance(encoder, Transformer):
            kind = type(encoder).__name__
            self.refuse(
                f"an encoder that starts with a {kind}, no Transformer, or mask_probability {mask_probability}"
            )
        if encoder.tokenizer is None or encoder.tokenizer.mask_token_id is None:
            raise NoHeadError(
                "MaskedLMLoss needs a tokenizer with a mask token, and this one has none"
            )
        encoder.unpad_inputs = False
        self.mask_probability, self.weight = mask_probability, weight
        self.mask_token_id: int = encoder.tokenizer.mask_token_id
        self.special_token_ids: list[int] = encoder.tokenizer.all_special_ids
        embeddings = encoder.auto_model.get_input_embeddings()
        head = LanguageModelHead(encoder.auto_model.config, lm_head_from, fresh=fresh_head)
        self.lm_head, self.vocabulary = head.to(embeddings.weight.dtype), len(embeddings.weight)
        seed = torch.initial_seed() if seed is None else seed
        self.register_buffer("seed", torch.tensor(seed % (1 << 63)))
        self.register_buffer("steps", torch.tensor(0))

    def forward(
        self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None
    ) -> Tensor:
        """Compute the loss of a batch of texts."""
        loss, count = self._masked_token_loss(self.read_columns(sentence_features))
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
        """Train a new head alone, before the encoder is trained with it: encoder, random state and `steps` stay.

        Of a head tied to the word embeddings, the layer before the projection and the bias learn, until the held-out
        loss falls by less than 1 % in three evaluations. Returns these losses, that before the first step included.

        Args:
            texts: 20 texts or more, as the encoder is to read them, in any order.
            batch_size: Texts of a step.
            learning_rate: Learning rate of AdamW.
            max_steps: Most steps.
            evaluate_every: Steps between two evaluations.
            held_out: Texts to evaluate on, at most a tenth of all.
            show_progress_bar: Show a progress bar with the held-out loss.
        """
        if len(texts) < 20:
            self.refuse(
                f"{len(texts)} texts are too few to train a head on: give 20 or more, better thousands"
            )
        self.to(self.model.device)  # a Trainer moves a loss only when training begins
        order = np.random.default_rng(int(self.seed)).permutation(len(texts)).tolist()
        size = min(held_out, len(texts) // 10)
        test, rest = order[:size], order[size:]
        optimizer = torch.optim.AdamW(self.owned_parameters(), lr=learning_rate)
        training, steps = self.model.training, int(self.steps)

        def loss_of_rows(rows: list[int]) -> Tensor:
            features = batch_to_device(
                self.model.preprocess([texts[row] for row in rows]), self.model.device
            )
            return self._masked_token_loss([features], frozen=True)[0]

        @torch.no_grad()
        def held_out_loss() -> float:
            parts = [test[start : start + batch_size] for start in range(0, size, batch_size)]
            return sum(float(loss_of_rows(part)) * len(part) for part in parts) / size

        self.model.eval()
        losses = [held_out_loss()]
        steps_to_take = tqdm(
            range(1, max_steps + 1), "head for masked words", disable=not show_progress_bar
        )
        for step in steps_to_take:
            self.steps.fill_(step)  # other words of a text are hidden in each pass over the texts
            start = (step - 1) * batch_size % len(rest)
            loss_of_rows(rest[start : start + batch_size]).backward()
            optimizer.step()
            optimizer.zero_grad()
            torch.clear_autocast_cache()  # which has the weights of before the step
            if step % evaluate_every == 0:
                losses.append(held_out_loss())
                steps_to_take.set_postfix_str(f"held-out loss {losses[-1]:.3f}")
                if len(losses) > 3 and losses[-1] > 0.99 * losses[-4]:
                    break
        self.steps.fill_(steps)
        self.model.train(training)
        return losses

    def _masked_token_loss(self, columns: Columns, *, frozen: bool = False) -> tuple[Tensor, int]:
        """The mean cross-entropy of hidden tokens, and how many there are; of a frozen encoder only the head learns."""
        vectors, targets = [], []
        for features in columns:
            ids = features["input_ids"]
            masked_ids, chosen = self.mask_tokens(ids, features["attention_mask"])
            masked = {**features, "input_ids": masked_ids, "chosen": chosen, "target": ids}
            for rows in parts_by_length(masked) or [torch.arange(len(ids), device=ids.device)]:
                part = select_texts(masked, rows)
                here, target = part.pop("chosen"), part.pop("target")
                with torch.set_grad_enabled(torch.is_grad_enabled() and not frozen):
                    output = self.model(part)
                # Where layers are averaged, token_embeddings are no longer what the checkpoint's head was trained on.
                layers = output.get("all_layer_embeddings") or [output["token_embeddings"]]
                vectors.append(layers[-1][here])
                targets.append(target[here])
        projection = self.lm_head.own_projection
        if projection is None:
            tied = unwrap_model(self.model)[0].auto_model.get_input_embeddings().weight
            projection = tied.detach() if frozen else tied
        hidden, target = self.lm_head(torch.cat(vectors)), torch.cat(targets)
        return chunked_cross_entropy(hidden, projection, self.lm_head.bias, target), len(target)

    def mask_tokens(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        """The token ids with some hidden, and which of them the head is to predict, boolean; (rows, length) both."""
        specials = torch.tensor(self.special_token_ids, device=input_ids.device)
        candidates = attention_mask.bool() & ~torch.isin(input_ids, specials)
        keys = _token_keys(
            input_ids, attention_mask, self.seed + 1_000_003 * self.steps * self.updates_state
        )
        draw = _uniform_numbers(keys, 0).masked_fill(~candidates, 2.0)
        lowest = draw.min()
        if get_world_size() > 1:
            dist.all_reduce(lowest, op=dist.ReduceOp.MIN)
        # The lowest draw of all ranks is always chosen: a short batch still teaches something.
        chosen = candidates & ((draw < self.mask_probability) | (draw == lowest))
        kind = _uniform_numbers(keys, 1)
        random_ids = (_uniform_numbers(keys, 2) * self.vocabulary).long()
        masked = input_ids.masked_fill(chosen & (kind < 0.8), self.mask_token_id)
        return torch.where(chosen & (kind >= 0.9), random_ids, masked), chosen


class LanguageModelHead(nn.Module):
    """The layers of a masked language model between the last hidden states and the projection to the vocabulary."""

    def __init__(
        self, config: PretrainedConfig, checkpoint: str | None = None, *, fresh: bool = False
    ) -> None:
        super().__init__()
        try:
            self.transform = _load_masked_lm(config, checkpoint, fresh)
            projection = self._extract_projection()
        except Exception as error:  # whatever the program of one of many architectures raises
            raise NoHeadError(f"no head of {config.model_type!r} can be used: {error}") from error
        # A tied projection is the encoder's embedding matrix.
        self.bias, self.own_projection = (
            projection.bias,
            None if config.tie_word_embeddings else projection.weight,
        )

    def _extract_projection(self) -> Any:
        """The projection to the vocabulary, which is taken out as the encoder is; the logits must stay."""
        mlm: Any = self.transform
        training, projection = mlm.training, mlm.get_output_embeddings()
        setattr(mlm, mlm.base_model_prefix, _PassThrough())
        mlm.eval()
        with torch.no_grad():
            hidden = (
                torch.linspace(-1, 1, 2 * mlm.config.hidden_size).view(2, -1).to(projection.weight)
            )
            logits = self(hidden)
            for name, module in list(mlm.named_modules()):
                if module is projection:
                    parent, _, attribute = name.rpartition(".")
                    setattr(mlm.get_submodule(parent), attribute, nn.Identity())
            torch.testing.assert_close(
                F.linear(self(hidden), projection.weight, projection.bias), logits
            )
        mlm.train(training)
        return projection

    def forward(self, hidden: Tensor) -> Tensor:
        """Map hidden states (M, d) to the inputs of the vocabulary projection (M, d)."""
        return self.transform(inputs_embeds=hidden[None]).logits[0]


class _PassThrough(nn.Module):
    def forward(self, *args: Any, inputs_embeds: Tensor, **kwargs: Any) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=inputs_embeds)


def _load_masked_lm(config: PretrainedConfig, checkpoint: str | None, fresh: bool) -> Any:
    name = checkpoint or config.name_or_path
    if not name:
        return AutoModelForMaskedLM.from_config(config)
    if fresh and not checkpoint:
        with suppress(OSError, ValueError):
            return AutoModelForMaskedLM.from_pretrained(name)
        return AutoModelForMaskedLM.from_config(config)
    mlm, info = AutoModelForMaskedLM.from_pretrained(name, output_loading_info=True)
    missing = [
        key for key in info["missing_keys"] if not key.startswith(f"{mlm.base_model_prefix}.")
    ]
    # Biases that are missing are zero, as in a model that has none.
    if not fresh and any(key.endswith("weight") for key in missing):
        way_out = "give lm_head_from=..., or train a new one: fresh_head=True, and train_head before the training"
        raise NoHeadError(
            f"{name!r} has no trained language-model head (no {', '.join(sorted(missing))}): {way_out}"
        )
    return mlm


def _token_keys(input_ids: Tensor, attention_mask: Tensor, seed: Tensor) -> Tensor:
    """A key for each token (rows, length) from seed, text and place in the text, and nothing else."""
    place = attention_mask.long().cumsum(1)
    tokens = _scramble_bits(input_ids * _GOLDEN + place) * attention_mask.long()
    text = _scramble_bits(tokens.sum(1, keepdim=True) + seed * _GOLDEN)
    return _scramble_bits(text + place * _GOLDEN)


def _uniform_numbers(keys: Tensor, stream: int) -> Tensor:
    """A number in [0, 1) for each key, of as many bits as float32 has; streams are independent of each other."""
    return _logical_right_shift(_scramble_bits(keys + (stream + 1) * 1_000_003), 40).to(
        torch.float32
    ) / float(1 << 24)


def _scramble_bits(x: Tensor) -> Tensor:
    """Scramble integers; products wrap around."""
    x = (x ^ _logical_right_shift(x, 30)) * _MIX_1
    x = (x ^ _logical_right_shift(x, 27)) * _MIX_2
    return x ^ _logical_right_shift(x, 31)


def _logical_right_shift(x: Tensor, bits: int) -> Tensor:
    return (x >> bits) & ((1 << (64 - bits)) - 1)
