"""Saved models in the form that all versions of Sentence Transformers and other engines read."""

import copy
import filecmp
import json
import logging
import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import chain, product
from pathlib import Path
from typing import Any

from st_xlret.files import PathLike, atomic_directory, write_text

logger = logging.getLogger(__name__)

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
_POOLINGS = {
    "cls": "cls_token",
    "max": "max_tokens",
    "mean": "mean_tokens",
}  # in the order of old versions
_POOLINGS |= {"mean_sqrt_len_tokens": "mean_sqrt_len_tokens", "weightedmean": "weightedmean_tokens"}
_POOLINGS |= {"lasttoken": "lasttoken"}
# Of these, transformers 5 knows the first alone, and 4 gives the others special tokens other than `tokenizer.json`.
_READ_AS_WRITTEN = re.compile("TokenizersBackend|((Code)?Llama|Gemma|Cohere|GPTNeoX)Tokenizer")
_ENGINES = (Path(__file__).parent / "engines.md").read_text(encoding="utf-8").strip()
_ROTARY = {
    "rope_theta": "rotary_emb_base",
    "partial_rotary_factor": "rotary_pct",
}  # and their names in GPT-NeoX
_NEW_DEFAULTS = {
    "module_input_name": "sentence_embedding",
    "module_output_name": "sentence_embedding",
}

Config = dict[str, Any]


def save_portable(model: Any, folder: str | Path) -> None:
    """Save a Sentence Transformer so that its versions 3 to 6, and engines that know their modules, read it alike.

    Settings have the names of before version 5.4, which later versions read, too. What is newer keeps its form, as maps
    per language do: the card has the table of who reads what. A model with a `Router` for queries and documents is also
    written without it, as `FOLDER/query` and `FOLDER/document`, whose `encode` takes the prompt of the role.

    Example:
        >>> import tempfile
        >>> from sentence_transformers import SentenceTransformer
        >>> from sentence_transformers.sentence_transformer.modules import BoW
        >>> folder = tempfile.mkdtemp()
        >>> save_portable(SentenceTransformer(modules=[BoW(vocab=["one", "two"])], device="cpu"), folder)
        >>> SentenceTransformer(folder, device="cpu").encode("one").tolist()
        [1.0, 0.0]
    """
    from sentence_transformers.base.model_card import generate_model_card

    from st_xlret.hub.card import copy_card_data, ensure_card_data, signature
    from st_xlret.hub.export import check_finite
    from st_xlret.modules.adapters import has_adapters, merge_adapters

    if has_adapters(model):
        # A folder of adapters names the one of this machine.
        model = merge_adapters(copy.deepcopy(model))
    check_finite(model)
    model.save_pretrained(
        str(folder), create_model_card=False
    )  # the host's shows texts of the training
    sections = ensure_card_data(model).sections
    sections["Where it runs"] = _ENGINES
    try:
        card = generate_model_card(model)
        write_text(Path(folder) / "README.md", card + signature(card))
    except Exception:  # of the host, which does the same: no model is lost for its card
        logger.exception("%s: no model card", folder)
    del sections["Where it runs"]
    file = Path(folder) / "modules.json"
    modules = (
        _rewrite_json(
            file, lambda every: [{**each, "type": _old_type(each["type"])} for each in every]
        )
        or []
    )
    for module in modules:
        _rewrite_settings(module["type"], Path(folder) / module["path"])
    names = [module["type"].rpartition(".")[2] for module in modules]
    if "Normalize" in names and "Dense" in names[names.index("Normalize") :]:
        logger.warning(
            "%s: engines such as TEI and vLLM overlook a Normalize before a Dense", folder
        )
    routes: Any = next(
        (module.sub_modules for module in model.children() if hasattr(module, "sub_modules")), {}
    )
    for role in ("query", "document") if {*routes} == {"query", "document"} else ():
        plain = _model_of_role(model, role)
        copy_card_data(model, plain)
        save_portable(plain, Path(folder) / role)
        _link_equal_weights(Path(folder) / role, Path(folder))


def write_model(
    model: Any, path: PathLike, *, overwrite: bool = False, inputs: Iterable[object] = ()
) -> Path:
    """Save a model to the folder `path` by `save_portable`, whole or not at all; see `atomic_directory`."""
    with atomic_directory(path, overwrite=overwrite, inputs=inputs) as folder:
        save_portable(model, folder)
    return Path(path).expanduser()


def _model_of_role(model: Any, role: str) -> Any:
    """The model without its `Router`, for the texts of one role."""
    parts = [getattr(module, "sub_modules", {role: [module]})[role] for module in model.children()]
    names = (role, "passage", "corpus") if role == "document" else (role,)
    settings = {name: getattr(model, name) for name in ("similarity_fn_name", "truncate_dim")}
    settings |= {"device": str(model.device), "prompts": dict(model.prompts)}
    settings["default_prompt_name"] = next(
        (name for name in names if model.prompts.get(name)), None
    )
    return type(model)(modules=[*chain.from_iterable(parts)], **settings)


def _link_equal_weights(folder: Path, whole: Path) -> None:
    """Let weights that a model of one role has from the whole one be the same file, where the disk can."""
    for file, other in product(folder.rglob("*.safetensors"), whole.rglob("*.safetensors")):
        if (
            folder not in other.parents
            and not file.samefile(other)
            and filecmp.cmp(file, other, shallow=False)
        ):
            with suppress(OSError):
                os.link(other, file.with_suffix(".link"))
                file.with_suffix(".link").replace(file)


def _rewrite_json(file: Path, change: Callable[[Any], Any]) -> Any:
    """The contents of a JSON file after the change, which is written; nothing if there is no such file."""
    if not file.is_file():
        return None
    contents = change(json.loads(file.read_text(encoding="utf-8")))
    file.write_text(json.dumps(contents, ensure_ascii=False, indent=2), encoding="utf-8")
    return contents


def _old_type(module_type: str) -> str:
    package, _, name = module_type.rpartition(".")
    return (
        _OLD_PACKAGE + name
        if name in _OLD_NAMES and package.startswith("sentence_transformers.")
        else module_type
    )


def _rewrite_settings(module_type: str, folder: Path) -> None:
    """Write the settings of a saved module, in its folder, and of those in a `Router`, under their old names."""
    name = module_type.removeprefix(_OLD_PACKAGE)
    if name == "Transformer":
        # The limit of tokens stands in the tokenizer's settings; lower case is a part of `tokenizer.json`.
        limit = (_rewrite_json(folder / "tokenizer_config.json", _old_tokenizer_config) or {}).get(
            "model_max_length"
        )
        _rewrite_json(
            folder / "sentence_bert_config.json",
            lambda config: _old_transformer_config(config, limit),
        )
        _rewrite_json(folder / "config.json", _with_old_rotary_settings)
    elif name == "Pooling":
        _rewrite_json(folder / "config.json", _old_pooling_config)
    elif name in ("Dense", "Normalize"):
        _rewrite_json(
            folder / "config.json",
            lambda old: {k: v for k, v in old.items() if _NEW_DEFAULTS.get(k) != v},
        )
    elif name == "Router":
        router = _rewrite_json(folder / "router_config.json", _old_router_config)
        for inner_name, inner_type in router["types"].items():
            _rewrite_settings(inner_type, folder / inner_name)


def _old_transformer_config(config: Config, limit: int | None) -> Config:
    of_text = config.get("transformer_task", "feature-extraction") == "feature-extraction"
    if (
        not of_text
        or [*config.get("modality_config", ["text"])] != ["text"]
        or config.get("processing_kwargs")
    ):
        return config
    return {"max_seq_length": limit, "do_lower_case": False}


def _with_old_rotary_settings(config: Config) -> Config:
    """The settings with those of rotary positions in the form of transformers 4, too, which has defaults for others."""
    rotary: Config = config.get("rope_parameters") or {}
    whole: Config = rotary.get("full_attention", rotary)  # of layers that see all tokens
    old: Config = {
        each: whole[name]
        for name, other in _ROTARY.items()
        if name in whole
        for each in (name, other)
    }
    if whole.get("rope_type", "default") != "default":
        old["rope_scaling"] = whole
    if local := rotary.get("sliding_attention"):
        old |= {
            "global_rope_theta": whole["rope_theta"],
            "local_rope_theta": local["rope_theta"],
        }  # ModernBERT
        old["rope_local_base_freq"] = local["rope_theta"]  # Gemma
    return {**config, **old}


def _old_tokenizer_config(config: Config) -> Config:
    import transformers

    if _READ_AS_WRITTEN.fullmatch(name := config.get("tokenizer_class") or ""):
        kind, config["tokenizer_class"] = getattr(transformers, name), "PreTrainedTokenizerFast"
        config = {
            "padding_side": kind.padding_side,
            "model_input_names": kind.model_input_names,
            **config,
        }
    if isinstance(
        config.get("extra_special_tokens"), list
    ):  # transformers 4 expects a dictionary under this name
        config["additional_special_tokens"] = config.pop("extra_special_tokens")
    return config


def _old_pooling_config(config: Config) -> Config:
    modes = config["pooling_mode"]
    modes = [modes] if isinstance(modes, str) else modes
    if modes != [
        mode for mode in _POOLINGS if mode in modes
    ]:  # a newer one, or an order that flags do not tell
        return config
    flags = {f"pooling_mode_{flag}": mode in modes for mode, flag in _POOLINGS.items()}
    size = config["embedding_dimension"]
    return {"word_embedding_dimension": size, **flags, "include_prompt": config["include_prompt"]}


def _old_router_config(config: Config) -> Config:
    parameters = {name: value for name, value in config["parameters"].items() if value != {}}
    types = {name: _old_type(inner_type) for name, inner_type in config["types"].items()}
    return {**config, "types": types, "parameters": parameters}
