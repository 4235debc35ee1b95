"""Settings of saved models under their old names, which all versions and engines read."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

Config: TypeAlias = dict[str, Any]

_OLD_PACKAGE = "sentence_transformers.models."
# Not BoW: version 3.4 puts its words into another order.
_OLD_NAMES = {
    "Transformer",
    "StaticEmbedding",
    "Pooling",
    "Dense",
    "Normalize",
    "LayerNorm",
    "Dropout",
    "Router",
}
# In the order of old versions.
_POOLINGS = {
    "cls": "cls_token",
    "max": "max_tokens",
    "mean": "mean_tokens",
    "mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "weightedmean": "weightedmean_tokens",
    "lasttoken": "lasttoken",
}
# Of these, transformers 5 knows the first alone, and 4 gives the others special tokens other than
# `tokenizer.json`.
_READ_AS_WRITTEN = re.compile("TokenizersBackend|((Code)?Llama|Gemma|Cohere|GPTNeoX)Tokenizer")
# And their names in GPT-NeoX.
_ROTARY = {
    "rope_theta": "rotary_emb_base",
    "partial_rotary_factor": "rotary_pct",
}
_NEW_DEFAULTS = {
    "module_input_name": "sentence_embedding",
    "module_output_name": "sentence_embedding",
}


def rewrite_settings(folder: Path) -> list[str]:
    """Write the settings of a saved model under their old names.

    Gives the names of its modules, such as `Dense`, in the order in which they run.
    """
    modules = _rewrite_json(folder / "modules.json", _with_old_types)
    if modules is None:
        return []
    for module in modules:
        _rewrite_module(module["type"], folder / module["path"])
    return [module["type"].rpartition(".")[2] for module in modules]


def _with_old_types(modules: list[Config]) -> list[Config]:
    """The entries of `modules.json` with the types that old versions import."""
    return [{**module, "type": _old_type(module["type"])} for module in modules]


def _old_type(module_type: str) -> str:
    """The type that old versions import; one that is not in `_OLD_NAMES` stays."""
    package, _, name = module_type.rpartition(".")
    is_built_in = package.startswith("sentence_transformers.")
    return _OLD_PACKAGE + name if is_built_in and name in _OLD_NAMES else module_type


def _rewrite_module(module_type: str, folder: Path) -> None:
    """Rewrite the settings of a module, in its folder, and of those in a `Router`.

    The type is what `_old_type` makes of it: others are let be.
    """
    name = module_type.removeprefix(_OLD_PACKAGE)
    config = folder / "config.json"
    if name == "Transformer":
        _rewrite_transformer(folder)
    elif name == "Pooling":
        _rewrite_json(config, _old_pooling_config)
    elif name in ("Dense", "Normalize"):
        _rewrite_json(config, _without_new_defaults)
    elif name == "Router":
        router = _rewrite_json(folder / "router_config.json", _old_router_config)
        for inner_name, inner_type in router["types"].items():
            _rewrite_module(inner_type, folder / inner_name)


def _rewrite_transformer(folder: Path) -> None:
    """Rewrite the settings of a Transformer, whose limit of tokens is its tokenizer's."""
    # The limit of tokens stands in the tokenizer's settings; lower case is in `tokenizer.json`.
    tokenizer = _rewrite_json(folder / "tokenizer_config.json", _old_tokenizer_config) or {}
    limit = tokenizer.get("model_max_length")

    def with_limit(config: Config) -> Config:
        return _old_transformer_config(config, limit)

    _rewrite_json(folder / "sentence_bert_config.json", with_limit)
    _rewrite_json(folder / "config.json", _with_old_rotary_settings)


def _rewrite_json(file: Path, change: Callable[[Any], Any]) -> Any:
    """The contents of a JSON file after the change, which is written; None if there is no file."""
    if not file.is_file():
        return None
    contents = change(json.loads(file.read_text(encoding="utf-8")))
    file.write_text(json.dumps(contents, ensure_ascii=False, indent=2), encoding="utf-8")
    return contents


def _old_transformer_config(config: Config, limit: int | None) -> Config:
    """What Sentence Transformers 2 to 5 read; another configuration than that of texts stays."""
    task = config.get("transformer_task", "feature-extraction")
    modalities = list(config.get("modality_config", ["text"]))
    is_plain_text = task == "feature-extraction" and modalities == ["text"]
    if not is_plain_text or config.get("processing_kwargs"):
        return config
    return {"max_seq_length": limit, "do_lower_case": False}


def _with_old_rotary_settings(config: Config) -> Config:
    """The settings with those of rotary positions in the form of transformers 4, too.

    It has defaults for others.
    """
    rotary: Config = config.get("rope_parameters") or {}
    whole: Config = rotary.get("full_attention", rotary)  # of layers that see all tokens
    old: Config = {}
    for name, other in _ROTARY.items():
        if name in whole:
            old[name] = whole[name]
            old[other] = whole[name]
    if whole.get("rope_type", "default") != "default":
        old["rope_scaling"] = whole
    local = rotary.get("sliding_attention")
    if local:
        # ModernBERT.
        old["global_rope_theta"] = whole["rope_theta"]
        old["local_rope_theta"] = local["rope_theta"]
        # Gemma.
        old["rope_local_base_freq"] = local["rope_theta"]
    return {**config, **old}


def _old_tokenizer_config(config: Config) -> Config:
    """The settings of a tokenizer as transformers 4 reads them."""
    import transformers

    name = config.get("tokenizer_class") or ""
    if _READ_AS_WRITTEN.fullmatch(name):
        kind = getattr(transformers, name)
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
        of_kind = {
            "padding_side": kind.padding_side,
            "model_input_names": kind.model_input_names,
        }
        config = {**of_kind, **config}
    # transformers 4 expects a dictionary under this name.
    if isinstance(config.get("extra_special_tokens"), list):
        config["additional_special_tokens"] = config.pop("extra_special_tokens")
    return config


def _old_pooling_config(config: Config) -> Config:
    """The settings of a pooling with a flag for each mode; those that flags cannot say stay."""
    modes = config["pooling_mode"]
    if isinstance(modes, str):
        modes = [modes]
    if modes != [mode for mode in _POOLINGS if mode in modes]:
        return config  # a newer one, or an order that flags do not tell
    flags = {f"pooling_mode_{flag}": mode in modes for mode, flag in _POOLINGS.items()}
    return {
        "word_embedding_dimension": config["embedding_dimension"],
        **flags,
        "include_prompt": config["include_prompt"],
    }


def _without_new_defaults(config: Config) -> Config:
    """The settings but for those that say what old versions do anyway."""
    return {key: value for key, value in config.items() if _NEW_DEFAULTS.get(key) != value}


def _old_router_config(config: Config) -> Config:
    """The settings of a `Router` with old types, and without empty parameters."""
    types = {name: _old_type(inner_type) for name, inner_type in config["types"].items()}
    parameters = {name: value for name, value in config["parameters"].items() if value != {}}
    return {**config, "types": types, "parameters": parameters}
