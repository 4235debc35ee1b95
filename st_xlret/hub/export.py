"""Models from the Hub and to it: loaded, turned into built-in Sentence Transformers modules, uploaded."""

import logging
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Router
from torch import Tensor, nn

from st_xlret.columns import Role
from st_xlret.encoding import PROMPT_NAMES, role_prompt, task_languages
from st_xlret.hub.card import CrossLingualCardData, copy_card_data, set_card_calibration, signature
from st_xlret.modules.calibration_layer import CalibrationLayer

logger = logging.getLogger(__name__)

# Files of a model that was there: engines would take those that stay for a part of the new one.
_OF_MODELS = [
    "*.safetensors",
    "*.bin",
    "*.onnx",
    "*.xml",
    "*adapter_config.json",
    "*processor_config.json",
]
_OF_MODELS += ["*added_tokens.json", "*special_tokens_map.json", "*chat_template.*"]

# One minus the cosine between a row mapped by its own length and by the mean one. multilingual-e5-small has 0.0014
# (both sides) and 0.0002 (queries alone); with more spread lengths, a point of mAP@20 is lost at 0.007 and at 0.15.
_MOST_CHANGE: dict[Role, float] = {"document": 0.006, "query": 0.1}


def load_model(name: str, device: str | None = None) -> SentenceTransformer:
    """Load the model that `--model` names: a folder, or a name on the Hub. Its card keeps what the model's states.

    A model that cannot be loaded is a `ValueError` with the host's message; so is a weight that is NaN or infinite.
    """
    path = os.path.expanduser(name)
    try:
        card = CrossLingualCardData().add_facts_of(path)
        model = SentenceTransformer(path, device=device, model_card_data=card)
        check_finite(model)
        return model
    except Exception as error:  # of the host, of safetensors, of tokenizers, of JSON
        raise ValueError(f"--model {name}: {error}") from error


def export(
    model: SentenceTransformer,
    calibration: CalibrationLayer | None = None,
    *,
    query_calibration: CalibrationLayer | None = None,
    default_language: str | None = None,
    pooled: Mapping[Role, Tensor] | None = None,
) -> SentenceTransformer:
    """Build a model of built-in modules only, which loads without st-xlret and without `trust_remote_code`.

    A calibration that needs no language, such as LSAR, becomes a single `Dense`. One per language becomes the host's
    `Router` with a `Dense` for each, chosen by `encode(texts, task="fr")`. Where queries have a calibration of their
    own, `encode_query` takes it, and per language `encode(texts, task="query_fr")`.

    Args:
        model: The model, which shares its modules with the result. A `CalibrationLayer` in it is exported in place.
        calibration: Fitted on what `model.encode` returns; put last. Behind a `Normalize`, another one follows.
        query_calibration: Calibration of queries, if `calibration` is of documents only, with the same languages.
        default_language: Language of texts that name none. Default: the pivot of the calibration.
        pooled: What `pooled_rows` gives for texts. A map for all languages then stands before the `Normalize` at the
            end, the only order that engines such as TEI and vLLM know, with its bias times the mean length of these
            rows. Where their lengths vary so much that search would lose a point, it stays behind.

    Raises:
        ValueError: If a module is not built in, the model has routes or other dimensions, or a weight is not finite.

    Example:
        >>> from sentence_transformers.sentence_transformer.modules import BoW
        >>> model = SentenceTransformer(modules=[BoW(vocab=["one", "two"])], device="cpu")
        >>> calibration = CalibrationLayer(2, ["en", "fr"], pivot="en")
        >>> calibration.offset[1] = torch.tensor([0.5, 0.0])
        >>> exported = export(model, calibration)
        >>> exported.encode("one", task="fr").tolist(), exported.encode("one").tolist()
        ([1.5, 0.0], [1.0, 0.0])
    """
    modules: list[Any] = list(model.children())
    first = next(
        filter(torch.is_floating_point, model.parameters()), torch.empty(0, device=model.device)
    )
    ends_normalized, lengths = isinstance(modules[-1], Normalize), None
    if calibration is not None:
        check_routes(model, by_language=not calibration.language_agnostic)
        # The width before `truncate_dim`, which is a setting of the whole model.
        widths = [
            module.get_embedding_dimension()
            for module in modules
            if hasattr(module, "get_embedding_dimension")
        ]
        calibration.check_width(widths[-1] if widths else None)
        layers: dict[Role, CalibrationLayer] = {
            "document": calibration,
            "query": query_calibration or calibration,
        }
        lengths = (
            _row_lengths(pooled, layers)
            if pooled and ends_normalized and calibration.language_agnostic
            else None
        )
        modules[len(modules) - bool(lengths) :] = [calibration] + [Normalize()] * ends_normalized
    last = next(
        (module for module in reversed(modules) if isinstance(module, CalibrationLayer)), None
    )
    if default_language is not None and (last is None or last.language_agnostic):
        raise ValueError(
            f"{default_language!r} would be the default of maps per language, and there are none"
        )
    for place, module in enumerate(modules):
        if isinstance(module, CalibrationLayer):
            queries, spans = (query_calibration, lengths) if module is calibration else (None, None)
            modules[place] = _built_in_module(module, queries, spans, default_language).to(first)
    routers = [module for module in nn.ModuleList(modules).modules() if isinstance(module, Router)]
    inside = [
        inner
        for router in routers
        for route in router.sub_modules.children()
        for inner in route.children()
    ]
    for module in [*modules, *inside]:
        if not type(module).__module__.startswith("sentence_transformers."):
            name = f"{type(module).__module__}.{type(module).__name__}"
            raise ValueError(
                f"{name} is no module of Sentence Transformers: the model would not load without us"
            )
    prompts = {name: text or "" for name, text in model.prompts.items()}
    prompts |= {role: role_prompt(model, role) for role in PROMPT_NAMES}
    same: Any = {
        name: getattr(model, name)
        for name in ("default_prompt_name", "similarity_fn_name", "truncate_dim")
    }
    exported = SentenceTransformer(
        modules=modules, device=str(model.device), prompts=prompts, **same
    )
    copy_card_data(model, exported)
    if last is not None:
        set_card_calibration(exported, last, query_calibration)
    check_finite(exported)
    return exported


def pooled_rows(
    model: SentenceTransformer, texts: Sequence[str], prompts: Mapping[Role, str] | None = None
) -> dict[Role, Tensor]:
    """Role -> rows before the `Normalize` at a model's end (n, d) for texts with the role's prompt; {} without one."""
    *modules, last = model.children()
    if not isinstance(last, Normalize):
        return {}
    before = SentenceTransformer(modules=modules, device=str(model.device))
    prompts = {role: role_prompt(model, role) for role in PROMPT_NAMES} | dict(prompts or {})
    encoding: Any = {"convert_to_tensor": True, "show_progress_bar": False}
    rows = {
        role: before.encode(list(texts), task=role, prompt=prompts[role], **encoding)
        for role in PROMPT_NAMES
    }
    return {role: of_role.float().cpu() for role, of_role in rows.items()}


class NotFiniteError(ValueError, FloatingPointError):
    """A weight is NaN or infinite."""


def check_finite(model: nn.Module) -> None:
    """Refuse a model with a weight that is NaN or infinite, by a `NotFiniteError` that names the tensor."""
    for name, tensor in model.state_dict().items():
        if (
            isinstance(tensor, Tensor)
            and tensor.is_floating_point()
            and (count := int((~tensor.isfinite()).sum()))
        ):
            raise NotFiniteError(
                f"{name}: {count} of {tensor.numel()} values ({tensor.dtype}) are NaN or infinite"
            )


def check_routes(model: SentenceTransformer, *, by_language: bool) -> None:
    """Refuse, by a `ValueError`, a model with routes by language, and any routes for maps `by_language`."""
    has_routes = any(isinstance(module, Router) for module in model.children())
    if task_languages(model) or (by_language and has_routes):
        way_out = "calibrate the model that it was made from, or, where routes are tasks, without languages (lsar)"
        raise ValueError(f"the model has a Router: {way_out}")


@dataclass
class Repository:
    """A model's place on the Hub, asked before long work: what cannot be pushed to is an `OSError` then.

    A repository and a branch that are not there are made, the latter by `upload`, from `main`. In a branch that holds
    files, nothing is replaced unasked, and a card that somebody wrote or changed never is. Of another model, that is
    replaced or in the `main` of a new branch, nothing stays.

    Attributes:
        repo_id: `user/name`, or `name` of the token's owner; the full name afterwards.
        token: Default: that of `hf auth login` or `HF_TOKEN`.
        private: Whether a new repository is private. Default: its owner's setting.
        revision: The branch. Default: `main`.
        create_pr: Propose the files, to the owner of a repository that is there.
        overwrite: Replace a model that is there.
    """

    repo_id: str
    _: KW_ONLY
    token: str | None = field(default=None, repr=False)
    private: bool | None = None
    revision: str | None = None
    create_pr: bool = False
    overwrite: bool = False

    def __post_init__(self) -> None:
        self._hub = HfApi(token=self.token)
        try:
            if not self.create_pr:
                self.repo_id = ensure_repository(self._hub, self.repo_id, self.private)
            self._look()
        except Exception as error:
            raise OSError(f"{self.repo_id}: nothing can be pushed there: {error}") from error

    def _look(self) -> None:
        """Read what the branch holds; an `OSError` if it may not be replaced, or added to."""
        branches = [
            None,
            *(branch.name for branch in self._hub.list_repo_refs(self.repo_id).branches),
        ]
        self._is_new = self.revision not in branches and not str(self.revision).startswith(
            "refs/pr/"
        )
        # A new branch begins with the files of main.
        known = self._hub.model_info(self.repo_id, revision=None if self._is_new else self.revision)
        files = [
            file.rfilename for file in known.siblings or () if file.rfilename != ".gitattributes"
        ]
        self._commit, self._kept, self._old = known.sha, list[str](), _OF_MODELS if files else []
        if "README.md" in files:
            path = self._hub.hf_hub_download(self.repo_id, "README.md", revision=known.sha)
            card = Path(path).read_text(encoding="utf-8", errors="replace")
            self._kept = ["README.md"] * (not card.endswith(signature(card[: -len(signature(""))])))
        problem = None
        if (
            self.create_pr
            and self._hub.whoami()["auth"].get("accessToken", {}).get("role") == "read"
        ):
            problem = "the token may only read"
        elif self._is_new and (
            self.create_pr or self._hub.revision_exists(self.repo_id, str(self.revision))
        ):
            problem = f"{self.revision} is no branch"
        elif self.private and not known.private:
            problem = "it is public"
        elif files and not (self.overwrite or self.create_pr or self._is_new):
            problem = f"it holds files, such as {files[0]}: replace them (--overwrite), or name another place"
        if problem:
            raise OSError(problem)

    def upload(self, folder: str | Path) -> str:
        """Upload a saved model in one commit; gives its address. An `OSError` has the command that tries again."""
        try:
            self._look()  # hours may have passed
            if self._is_new:
                self._hub.create_branch(self.repo_id, branch=str(self.revision), exist_ok=True)
            place: Any = {
                "repo_id": self.repo_id,
                "revision": self.revision,
                "create_pr": self.create_pr,
            }
            place |= {
                "ignore_patterns": [*self._kept],
                "delete_patterns": self._old,
                "parent_commit": self._commit,
            }
            commit = self._hub.upload_folder(folder_path=folder, **place)
        except Exception as error:
            options = ["--create-pr"] * self.create_pr + [f"--revision={self.revision}"] * bool(
                self.revision
            )
            options += [
                *(f"--exclude={file}" for file in self._kept),
                *(f"--delete={files}" for files in self._old),
            ]
            command = shlex.join(["hf", "upload", self.repo_id, str(folder), ".", *options])
            raise OSError(
                f"{folder} is saved, but was not pushed: {error}\nTo push it: {command}"
            ) from error
        if self._kept:
            logger.warning(
                "%s keeps its README.md: that of the model is in %s", self.repo_id, folder
            )
        return str(commit.pr_url or commit.commit_url)


def ensure_repository(hub: HfApi, repo_id: str, private: bool | None) -> str:
    """Make a repository if there is none, and give its full name; the Hub's error if the token may not write to it."""
    try:
        return str(hub.create_repo(repo_id, private=private).repo_id)
    except HfHubHTTPError as error:
        is_there = error.response.status_code == 409
        if not is_there and hub.whoami()["auth"]["accessToken"]["role"] != "fineGrained":
            raise  # a fine-grained token may write to what it could not make
    name = str(hub.create_repo(repo_id, exist_ok=True).repo_id)
    hub.auth_check(name, write=True)
    return name


def _row_lengths(
    pooled: Mapping[Role, Tensor], layers: Mapping[Role, CalibrationLayer]
) -> dict[Role, float] | None:
    """Role -> the mean length of its rows; None where it cannot stand for that of each row."""
    is_one = layers["query"] is layers["document"]
    lengths: dict[Role, float] = {}
    for role, layer in layers.items():
        rows = torch.cat([*pooled.values()]) if is_one else pooled[role]
        weight, bias = (tensor.cpu() for tensor in layer.map_of(None))
        of_rows = rows.norm(dim=1, keepdim=True)
        lengths[role] = float(of_rows.mean())
        exact, ours = rows @ weight.T + of_rows * bias, rows @ weight.T + lengths[role] * bias
        change = 1 - float(torch.cosine_similarity(exact, ours).mean())
        spread = layer.notes["lengths of pooled vectors"] = (
            f"{lengths[role]:.3g} ± {float(of_rows.std()):.2g}"
        )
        if change > _MOST_CHANGE["document" if is_one else role]:
            logger.warning(
                "lengths of pooled vectors vary (%s): no engine reads a map behind a Normalize",
                spread,
            )
            return None
    return lengths


def _built_in_module(
    documents: CalibrationLayer,
    queries: CalibrationLayer | None,
    lengths: Mapping[Role, float] | None,
    default: str | None,
) -> nn.Module:
    """The maps as a `Dense`, or as a `Router` by role or by language."""
    if documents.language_agnostic:
        lengths = lengths or {"document": 1.0, "query": 1.0}
        dense = _dense_layer(documents, None, lengths["document"])
        if queries is None:
            return dense
        return Router(
            {"document": [dense], "query": [_dense_layer(queries, None, lengths["query"])]},
            "document",
        )
    # A `ModuleDict` cannot hold every code: `to` (Tongan) is one of its methods.
    refused = [code for code in documents.languages if hasattr(nn.ModuleDict(), code)]
    routes = {code: f"language_{code}" if code in refused else code for code in documents.languages}
    maps: dict[str, list[Any]] = {
        route: [_dense_layer(documents, code)] for code, route in routes.items()
    }
    default = default or documents.pivot or documents.languages[0]
    default = routes.get(default, default)  # the host refuses one that is no route
    # `encode_query` and `encode_document` need routes of their own.
    tasks: dict[tuple[str | None, Any], str] = {
        ("query", None): default,
        ("document", None): default,
    }
    tasks |= {(code, None): routes[code] for code in refused}
    if queries is not None:
        maps |= {f"query_{code}": [_dense_layer(queries, code)] for code in routes}
        tasks["query", None] = next(
            f"query_{code}" for code, route in routes.items() if route == default
        )
    return Router(maps, default_route=default, route_mappings=tasks)


def _dense_layer(calibration: CalibrationLayer, language: str | None, length: float = 1.0) -> Dense:
    weight, bias = calibration.map_of(language)
    rows, columns = weight.shape
    return Dense(
        columns, rows, activation_function=None, init_weight=weight.clone(), init_bias=length * bias
    )
