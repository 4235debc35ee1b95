"""Encoders of the host's modules: from scratch, with avg-first-last pooling, one of queries beside one of passages."""

import copy
import json
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router, Transformer
from sentence_transformers.sentence_transformer.modules import (
    Pooling,
    StaticEmbedding,
    WeightedLayerPooling,
)
from sentence_transformers.util import batch_to_device
from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerFast, XLMRobertaConfig, XLMRobertaModel

SIZES = {
    "tiny": (1, 32, 2),
    "mini": (1, 128, 4),
    "small": (3, 256, 4),
    "base": (12, 768, 12),
}  # layers, width, heads
SPECIAL_TOKENS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def train_tokenizer(
    texts: Iterable[str], vocabulary: int = 32000, *, show_progress: bool = False
) -> PreTrainedTokenizerFast:
    """Train a unigram tokenizer, the kind that XLM-R has, on texts in any languages.

    It makes texts lower case, which helps small models, and lets punctuation and digits stand alone. The vocabulary
    must have room for all characters of the texts. The same texts always give the same tokenizer.

    Example:
        >>> tokenizer = train_tokenizer(["the cat", "the dog"] * 10, vocabulary=60)
        >>> tokenizer.decode(tokenizer("the cat")["input_ids"], skip_special_tokens=True)
        'the cat'
    """
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Lowercase(), normalizers.Replace(Regex(r"\s+"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Metaspace(),
            pre_tokenizers.Punctuation(),
            pre_tokenizers.Digits(individual_digits=True),
        ]
    )
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=vocabulary,
        special_tokens=SPECIAL_TOKENS,
        unk_token="<unk>",
        show_progress=show_progress,
    )
    tokenizer.train_from_iterator((text for text in texts if text.strip()), trainer)
    tokenizer = _with_stable_vocabulary(tokenizer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("<s>", "</s>")],
    )
    roles = {"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>"}
    roles |= {"pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **roles)


def _with_stable_vocabulary(tokenizer: Tokenizer) -> Tokenizer:
    """Sort pieces and round scores, which the trainer leaves to chance: the same texts give the same vocabulary."""
    state = json.loads(tokenizer.to_str())
    specials, pieces = (
        state["model"]["vocab"][: len(SPECIAL_TOKENS)],
        state["model"]["vocab"][len(SPECIAL_TOKENS) :],
    )
    # By the trainer's code, a character too rare for a score gets the lowest one plus 0.0001 for each such one before.
    lowest = round(min(score for _, score in pieces), 9)
    characters = sum(len(piece) == 1 for piece, _ in pieces)
    stable = []
    for piece, score in pieces:
        steps = (score - lowest) / 0.0001
        if len(piece) == 1 and steps < characters and abs(steps - round(steps)) < 1e-3:
            score = lowest
        stable.append((piece, round(score, 9)))
    state["model"]["vocab"] = [*specials, *sorted(stable, key=lambda entry: (-entry[1], entry[0]))]
    return Tokenizer.from_str(json.dumps(state))


def static_encoder(tokenizer: PreTrainedTokenizerFast, features: int = 256) -> SentenceTransformer:
    """Build an untrained bag of token vectors (the host's `StaticEmbedding`), which trains on two CPU cores in minutes.

    Example:
        >>> model = static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8)
        >>> model.encode(["a b", "c"]).shape
        (2, 8)
    """
    embedding = StaticEmbedding(tokenizer, embedding_dim=features)
    # Vectors have unit length on average, so that frequent and rare tokens start with equal influence.
    nn.init.normal_(embedding.embedding.weight, std=features**-0.5)
    return SentenceTransformer(modules=[embedding], device="cpu")


def transformer_encoder(
    tokenizer: PreTrainedTokenizerFast,
    size: Literal["tiny", "mini", "small", "base"] = "small",
    *,
    max_seq_length: int = 64,
    pooling: Literal["mean", "cls"] = "mean",
) -> SentenceTransformer:
    """Build an untrained XLM-R with pooling, of built-in modules.

    Args:
        tokenizer: A tokenizer as `train_tokenizer` makes it.
        size: "tiny" (1 layer of 32 features, for tests), "mini" (1 of 128), "small" (3 of 256) or "base" (12 of 768).
        max_seq_length: Maximum number of tokens of a text.
        pooling: "mean", which learns faster from scratch, or "cls", which the papers use.

    Example:
        >>> tokenizer = train_tokenizer(["a b c d"] * 4, vocabulary=60)
        >>> transformer_encoder(tokenizer, "tiny").encode(["a b", "c"]).shape
        (2, 32)
    """
    layers, features, heads = SIZES[size]
    config = XLMRobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=features,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * features,
        max_position_embeddings=max_seq_length + 2,
        **{
            role: getattr(tokenizer, role)
            for role in ("bos_token_id", "pad_token_id", "eos_token_id")
        },
    )
    tokenizer.model_max_length = max_seq_length
    with tempfile.TemporaryDirectory() as folder:
        # Not the model's save_pretrained: with several processes it writes in the first one only.
        config.save_pretrained(folder)
        save_file(
            XLMRobertaModel(config).state_dict(),
            Path(folder) / "model.safetensors",
            {"format": "pt"},
        )
        tokenizer.save_pretrained(folder)
        encoder = Transformer(folder, max_seq_length=max_seq_length)
    # The folder is gone: a model made here has no checkpoint to load a language-model head from.
    encoder.auto_model.config.name_or_path = ""
    return SentenceTransformer(modules=[encoder, Pooling(features, pooling_mode=pooling)])


def first_last_encoder(model: SentenceTransformer) -> SentenceTransformer:
    """Build an encoder with avg-first-last pooling (ML-CTL, Chen et al. 2022, section 2.2) from the host's own modules.

    After the model's own Transformer, a `WeightedLayerPooling` takes the average of its first and last layer (not the
    embedding layer), which `token_embeddings` are too, as `ContextualEncoder` needs them. Mean pooling follows.

    Example:
        >>> plain = transformer_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), "tiny")
        >>> [type(module).__name__ for module in first_last_encoder(plain)]
        ['Transformer', 'WeightedLayerPooling', 'Pooling']
    """
    transformer: Any = model[0]
    # In the configuration, so that the saved model gives its layers too.
    transformer.auto_model.config.output_hidden_states = True
    features = transformer.get_embedding_dimension()
    # Counted by a run, since configurations name the number in many ways. The embeddings come first.
    layers = len(_outputs_of_short_text(model)["all_layer_embeddings"]) - 1
    weights = torch.zeros(layers)
    weights[0] += 0.5
    weights[-1] += 0.5
    fixed = nn.Parameter(weights, requires_grad=False)
    first_last = WeightedLayerPooling(
        features, num_hidden_layers=layers, layer_start=1, layer_weights=fixed
    )
    include_prompt = all(module.include_prompt for module in model if isinstance(module, Pooling))
    return _model_of_modules(
        model, [transformer, first_last, Pooling(features, "mean", include_prompt=include_prompt)]
    )


def with_two_encoders(model: SentenceTransformer) -> SentenceTransformer:
    """Copy an encoder, so that queries and passages each have their own, behind the host's `Router`.

    `encode_query` uses the copy; `encode_document` and `encode` use the encoder itself.

    Example:
        >>> model = with_two_encoders(static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8))
        >>> model.encode_query(["a b"]).shape
        (1, 8)
    """
    modules: list[Any] = list(model.children())
    if any(isinstance(module, Router) for module in modules):
        raise ValueError(
            "the model has a Router already, of two encoders or a calibration: take what it was made from"
        )
    return _model_of_modules(
        model, [Router.for_query_document([copy.deepcopy(module) for module in modules], modules)]
    )


def freeze_unused(model: SentenceTransformer) -> list[str]:
    """Freeze parameters that neither queries nor passages use (XLM-R's pooler under mean pooling); gives their names.

    With none left, `ddp_find_unused_parameters=False` is right: a step on two encoders runs two forward passes.
    """
    for task in ("query", "document"):
        if (
            total := _outputs_of_short_text(model, task=task)["sentence_embedding"].sum()
        ).requires_grad:
            total.backward()  # a route may be frozen
    unused = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    for name in unused:
        model.get_parameter(name).requires_grad_(False)
    model.zero_grad(set_to_none=True)
    return unused


def _outputs_of_short_text(model: SentenceTransformer, **task: str) -> dict[str, Any]:
    """What a forward pass gives, without dropout."""
    training = model.training
    features = batch_to_device(model.preprocess(["a"], **task), model.device)
    result = model.eval()({**features, **task})
    model.train(training)
    return result


def _model_of_modules(model: SentenceTransformer, modules: list[Any]) -> SentenceTransformer:
    """A model of other modules, with all settings of a model."""
    prompts = {name: prompt for name, prompt in model.prompts.items() if prompt is not None}
    same: Any = {
        name: getattr(model, name)
        for name in ("default_prompt_name", "similarity_fn_name", "truncate_dim")
    }
    same |= {"device": str(model.device), "model_card_data": copy.copy(model.model_card_data)}
    return SentenceTransformer(modules=modules, prompts=prompts, **same)


def merge_adapters(model: SentenceTransformer) -> SentenceTransformer:
    """Add the LoRA adapters of a model to its weights, in place: a plain model with the same vectors is left."""
    adapted: list[Any] = [
        part for part in outermost_transformers(model) if getattr(part, "peft_config", None)
    ]
    for transformer in adapted:
        for parent in list(transformer.modules()):
            for name, layer in list(parent.named_children()):
                if hasattr(layer, "get_base_layer"):
                    layer.merge(safe_merge=True)
                    setattr(parent, name, layer.get_base_layer())
        del transformer.peft_config
        transformer._hf_peft_config_loaded = False  # else the host would save adapters
        vars(transformer).pop(
            "_weight_conversions", None
        )  # else it would save weights under names of the adapter
        transformer.requires_grad_(True)
    return model


def outermost_transformers(model: nn.Module) -> Iterator[PreTrainedModel]:
    """The outermost models of Transformers in a module."""
    for child in model.children():
        if isinstance(child, PreTrainedModel):
            yield child
        else:
            yield from outermost_transformers(child)
