"""Encoding texts in batches of about equal numbers of tokens, which evaluation, calibration, mining and index share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from tqdm.auto import tqdm

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Method = Literal["encode", "encode_query", "encode_document"]

TOKENS_PER_TEXT = 64
"""Tokens that one text of `batch_size` stands for."""

PROMPT_NAMES: dict[str, tuple[str, ...]] = {"query": ("query",), "document": ("document", "passage", "corpus")}
"""The names under which models keep the prompts of a role, in the order in which the host looks them up."""

_MOST_TOKENS_ON_A_CPU = 4_096  # Larger batches no longer fit the caches and take up to 1.6 times as long.
_TEXTS_PER_TOKENIZER_CALL = 4_096
_NO_LIMIT = 2**31  # A tokenizer without a limit of its own says 1e30, which it does not take as a length.
_BLOCK = 16  # Tokens that the length of a batch is a multiple of where each new length costs time and memory.


def encode_texts(
    model: SentenceTransformer,
    texts: str | Sequence[str],
    *,
    method: Method = "encode",
    batch_size: int = 64,
    show_progress_bar: bool | None = False,
    **options: Any,
) -> Any:
    """Embed texts by a method of the model, in batches of texts that have about the same number of tokens.

    The host's `encode` sorts texts by their characters and cuts them into batches of equally many texts. In a
    collection of many languages, characters say little about tokens, and up to half of what the model computes is
    padding. Here, texts are sorted by their tokens, and a batch holds as many texts as fit a number of tokens, padding
    included. The embeddings are those of the host's batches up to rounding.

    Where texts have no tokens to count, batches have `batch_size` texts as in the host: a model that does not start
    with a Transformer, a pool of processes (`pool=`), several devices, or another output than embeddings of texts.

    Args:
        model: Any Sentence Transformer.
        texts: A text or several, of any length and language.
        method: `"encode"`, `"encode_query"` or `"encode_document"`.
        batch_size: Size of a forward pass in texts of 64 tokens: fewer of longer texts, more of shorter ones. On a CPU
            at most 4 096 tokens are taken, as larger batches are slower there.
        show_progress_bar: Whether to show a bar over the tokens.
        **options: Options of the method, such as `prompt_name`, `task`, `normalize_embeddings` or `convert_to_tensor`.

    Returns:
        What the method returns with these options: by default a NumPy array (n, d).

    Raises:
        ValueError: If `batch_size` is below 1, or the model does not take an option.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> from sentence_transformers.sentence_transformer.modules import BoW
        >>> model = SentenceTransformer(modules=[BoW(vocab=["one", "two"])], device="cpu")
        >>> encode_texts(model, ["one two", "two"]).tolist()
        [[1.0, 1.0], [0.0, 1.0]]
    """
    encode = getattr(model, method)
    lengths = None
    if batch_size > 0 and len(texts) and _returns_embeddings(texts, options):
        lengths = token_lengths(model, texts, prompt=_prompt_of(model, method, options))
    if lengths is None:
        return encode(texts, batch_size=batch_size, show_progress_bar=show_progress_bar, **options)
    texts = list(texts)
    if "processing_kwargs" not in options and _computes_in_bf16_on_a_cpu(model):
        if padding := few_lengths(model):
            lengths = [-(-length // _BLOCK) * _BLOCK for length in lengths]
        options |= padding
    on_device, as_array = options.pop("convert_to_tensor", False), options.pop("convert_to_numpy", True)
    # The host, too, keeps embeddings on their device unless they are to be an array.
    keep = torch.device("cpu") if as_array and not on_device else None
    found: Tensor | None = None
    with tqdm(total=sum(lengths), desc="Encoding", unit=" tokens", disable=not show_progress_bar) as bar:
        for rows in token_batches(lengths, token_budget(model, batch_size)):
            batch = [texts[row] for row in rows]
            part = encode(batch, batch_size=len(batch), show_progress_bar=False, convert_to_tensor=True, **options)
            part = part if keep is None else part.to(keep)
            if found is None:
                found = part.new_empty(len(texts), part.shape[1])
            found[torch.tensor(rows, device=part.device)] = part
            bar.update(sum(lengths[row] for row in rows))
    assert found is not None
    if on_device:
        return found
    if not as_array:
        return list(found)
    return (found.float() if found.dtype == torch.bfloat16 else found).numpy()  # NumPy has no bfloat16


def few_lengths(model: Any, *cuts: int | None) -> dict[str, Any]:
    """Options of `model.preprocess` by which batches have few different lengths, in bfloat16 on a CPU.

    There oneDNN compiles its kernels anew for each length of a batch and keeps them: about 10 MB and some tenths of a
    second for each. The lengths become multiples of 16. Padding is masked, so that the embeddings stay the same up to
    rounding.

    Args:
        model: Any Sentence Transformer.
        *cuts: Tokens that some texts are cut to, where it is not the model's own length.

    Returns:
        The options; none if the model does not start with a Transformer of texts, or if the longest texts have no
        multiple of 16 tokens: the tokenizer takes no other lengths to cut to then.
    """
    from sentence_transformers.base.modules import Transformer

    module = model[0] if len(model) else None
    tokenizer = getattr(module, "tokenizer", None)
    if not isinstance(module, Transformer) or tokenizer is None or tokenizer.pad_token_id is None:
        return {}
    own = (getattr(module, "processing_kwargs", None) or {}).get("text") or {}
    of_roles = [getattr(module, f"{role}_length", None) for role in ("query", "document")]
    limits = [*cuts, own.get("max_length"), *of_roles]
    longest = model.max_seq_length
    if longest is None or any(limit % _BLOCK for limit in (longest, *limits) if limit is not None):
        return {}
    return {"processing_kwargs": {"text": {"pad_to_multiple_of": _BLOCK}}}


def token_budget(model: Any, batch_size: int) -> int:
    """Tokens of a forward pass, padding included."""
    budget = batch_size * TOKENS_PER_TEXT
    return min(budget, _MOST_TOKENS_ON_A_CPU) if model.device.type == "cpu" else budget


def token_lengths(model: Any, texts: Sequence[str], *, prompt: str = "") -> list[int] | None:
    """The number of tokens of each text as the model reads it: with a prompt and special tokens, and truncated.

    Args:
        model: Any Sentence Transformer.
        texts: The texts.
        prompt: Text that is put before each.

    Returns:
        A length for each text; None for a model without the tokenizer of a Transformer, which pads nothing.
    """
    from transformers import PreTrainedTokenizerBase

    tokenizer = getattr(model[0], "tokenizer", None) if len(model) else None
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        return None
    limit = model.max_seq_length
    if limit is not None and limit >= _NO_LIMIT:
        limit = None
    lengths: list[int] = []
    for start in range(0, len(texts), _TEXTS_PER_TOKENIZER_CALL):
        some = [prompt + text for text in texts[start : start + _TEXTS_PER_TOKENIZER_CALL]]
        tokens = tokenizer(some, truncation=limit is not None, max_length=limit, verbose=False)
        lengths += map(len, tokens["input_ids"])
    return lengths


def token_batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Cut texts into batches whose tokens, padding included, are at most a budget; the longest texts come first.

    A text that is longer than the budget is a batch of its own.

    Args:
        lengths: Tokens of each text.
        budget: Most tokens of a batch, which are its number of texts times the length of its longest text.

    Yields:
        Rows of the texts of a batch.

    Example:
        >>> list(token_batches([2, 9, 2, 3, 2], budget=8))
        [[1], [3, 0], [2, 4]]
    """
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    start = 0
    while start < len(order):
        count = max(1, budget // max(1, lengths[order[start]]))
        yield order[start : start + count]
        start += count


def _computes_in_bf16_on_a_cpu(model: Any) -> bool:
    """Whether a forward pass that began now would multiply in bfloat16 on a CPU."""
    if model.device.type != "cpu":
        return False
    if torch.is_autocast_enabled("cpu"):
        return torch.get_autocast_dtype("cpu") == torch.bfloat16
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), None) == torch.bfloat16


def _returns_embeddings(texts: Any, options: dict[str, Any]) -> bool:
    """Whether a call asks for one float embedding of each of several texts, from one device."""
    return (
        not isinstance(texts, str)
        and isinstance(texts[0], str)
        and options.get("output_value", "sentence_embedding") == "sentence_embedding"
        and options.get("precision", "float32") in ("float32", None)
        and options.get("pool") is None
        and not isinstance(options.get("device"), list)
    )


def _prompt_of(model: Any, method: Method, options: dict[str, Any]) -> str:
    """The prompt that the host will put before the texts."""
    if (prompt := options.get("prompt")) is not None:
        return prompt
    name = options.get("prompt_name")
    if name is None:
        candidates = PROMPT_NAMES.get(method.removeprefix("encode_"), ())
        name = next((each for each in candidates if each in model.prompts), model.default_prompt_name)
    return model.prompts.get(name, "") if name is not None else ""
