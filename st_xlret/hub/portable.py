"""Saved models in the form that all versions of Sentence Transformers and other engines read."""

from __future__ import annotations

import copy
import filecmp
import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from st_xlret.columns import Role
from st_xlret.files import PathLike, atomic_directory, write_text

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import nn

logger = logging.getLogger(__name__)

_ENGINES = Path(__file__).parent / "engines.md"


def save_portable(model: SentenceTransformer, folder: PathLike) -> None:
    """Save a Sentence Transformer so that its versions 3 to 6, and other engines, read it alike.

    Settings have the names of before version 5.4, which later versions read, too. What is newer
    keeps its form, as maps per language do: the card has the table of who reads what. A model with
    a `Router` for queries and documents is also written without it, as `FOLDER/query` and
    `FOLDER/document`, whose `encode` takes the prompt of the role.

    The folder is new, empty, or one that was written so before and holds nothing else: files of
    another model, such as adapters, would be read with it.

    Example:
        >>> import tempfile
        >>> from sentence_transformers import SentenceTransformer
        >>> from sentence_transformers.sentence_transformer.modules import BoW
        >>> folder = tempfile.mkdtemp()
        >>> model = SentenceTransformer(modules=[BoW(vocab=["one", "two"])], device="cpu")
        >>> save_portable(model, folder)
        >>> SentenceTransformer(folder, device="cpu").encode("one").tolist()
        [1.0, 0.0]
    """
    write_model(model, folder, overwrite=True)


def write_model(
    model: SentenceTransformer,
    path: PathLike,
    *,
    overwrite: bool = False,
    inputs: Iterable[object] = (),
) -> Path:
    """Save a model to the folder `path` as `save_portable` does, whole or not at all.

    See `atomic_directory`.
    """
    with atomic_directory(path, overwrite=overwrite, inputs=inputs) as folder:
        write_files(model, folder)
    return Path(path).expanduser()


def write_files(model: SentenceTransformer, folder: Path) -> None:
    """Write the files of `save_portable` into a new folder; the caller sees that it is whole.

    A weight that is not finite is a `ValueError`.
    """
    from st_xlret.hub.loading import check_finite
    from st_xlret.hub.old_forms import rewrite_settings

    plain = _without_adapters(model)
    check_finite(plain)
    # The host's card shows texts of the training.
    plain.save_pretrained(str(folder), create_model_card=False)
    _write_card(plain, folder)
    names = rewrite_settings(folder)
    if "Normalize" in names and "Dense" in names[names.index("Normalize") :]:
        logger.warning(
            "%s: engines such as TEI and vLLM overlook a Normalize before a Dense", folder
        )
    _save_roles(plain, folder)


def _without_adapters(model: SentenceTransformer) -> SentenceTransformer:
    """The model itself, or a copy with its adapters merged.

    Adapters refer to the folder that their Transformer was loaded from, which others lack.
    """
    from st_xlret.modules.adapters import has_adapters, merge_adapters

    return merge_adapters(copy.deepcopy(model)) if has_adapters(model) else model


def _write_card(model: SentenceTransformer, folder: Path) -> None:
    """Write the model's card, with a section that stays out of the model itself."""
    from sentence_transformers.base.model_card import generate_model_card

    from st_xlret.hub.card import ensure_card_data

    sections = ensure_card_data(model).sections
    sections["Where it runs"] = _ENGINES.read_text(encoding="utf-8").strip()
    try:
        write_text(folder / "README.md", generate_model_card(model))
    except Exception:  # of the host, which does the same: no model is lost for its card
        logger.exception("%s: no model card", folder)
    del sections["Where it runs"]


def _save_roles(model: SentenceTransformer, folder: Path) -> None:
    """Save the model of each role beside one with a `Router` for queries and documents.

    The files of the latter are in the folder already: equal weights become links to them.
    """
    from st_xlret.hub.card import copy_card_data
    from st_xlret.modules.encoders import has_route_of_each_role

    if not has_route_of_each_role(model):
        return
    roles: tuple[Role, ...] = ("query", "document")
    for role in roles:
        of_role = _model_of_role(model, role)
        copy_card_data(model, of_role)
        write_files(of_role, folder / role)
        _link_equal_weights(folder / role, folder)


def _model_of_role(model: SentenceTransformer, role: Role) -> SentenceTransformer:
    """The model without its `Router`, for the texts of one role, whose prompt is its default."""
    from st_xlret.encoding import PROMPT_NAMES
    from st_xlret.modules.encoders import with_modules

    modules: list[nn.Module] = []
    for module in model.children():
        routes = getattr(module, "sub_modules", None)
        if routes is None:
            modules.append(module)
        else:
            modules.extend(routes[role])
    with_prompt = [name for name in PROMPT_NAMES[role] if model.prompts.get(name)]
    default = with_prompt[0] if with_prompt else None
    return with_modules(model, modules, default_prompt_name=default)


def _link_equal_weights(folder: Path, whole: Path) -> None:
    """Let equal weights of one role and of the whole model be one file, if the disk can."""
    of_whole = [file for file in whole.rglob("*.safetensors") if folder not in file.parents]
    for file in folder.rglob("*.safetensors"):
        for other in of_whole:
            if not file.samefile(other) and filecmp.cmp(file, other, shallow=False):
                with suppress(OSError):
                    link = file.with_suffix(".link")
                    os.link(other, link)
                    link.replace(file)
