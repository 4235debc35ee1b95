r"""Mine parallel sentences from two collections of texts by margin (Artetxe and Schwenk, 2019).

    st-xlret mine english.txt french.txt.gz --model intfloat/multilingual-e5-small --output pairs.tsv

A line of the output is score, source and target, separated by tabs, best first; each text is in one pair at most. The
ratio margin divides the cosine of a pair by the mean cosine of both texts with their nearest neighbours: good pairs are
above about 1.05. Collections are files with lines of text, or whatever else holds documents. Interrupted? The same
command continues where it stopped. A file that is named like mined.en-fr.tsv can be trained on as it is (--pairs).
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from st_xlret.commands import check_options
from st_xlret.files import atomic_file
from st_xlret.options import name_leading_words, option, parse


@dataclass
class Arguments:
    """What to mine, by which model."""

    source: str = option(None, "Texts in one language: a file, a folder or a data set.")
    target: str = option(None, "Texts in the other language.")
    model: str = option(None, "The encoder: a folder or a name on the Hub.")
    output: str = option(None, "File of the pairs, new or mined before: .jsonl, or else a table.")
    source_language: str | None = option(
        None, "Language of the source, for a model with a map per language."
    )
    target_language: str | None = option(None, "The same for the target.")
    margin: str = option(
        "ratio", "How cosines are set off.", ["ratio", "distance", "absolute", "csls"]
    )
    k: int = option(4, "Nearest neighbours in each direction.")
    threshold: float | None = option(
        None, "Lowest score of a pair. By default all pairs are written."
    )
    embedding_cache: str | None = option(
        None, "Folder that keeps embeddings. By default they are removed at the end."
    )
    prompt_name: str | None = option(
        None, "Prompt of the model for both sides. By default the model's default prompt."
    )
    batch_size: int = option(64, "Size of a forward pass, in texts of 64 tokens.")
    device: str | None = option(None, "cpu, cuda, cuda:1, mps. By default the best there is.")


def main(arguments: Sequence[str], *, prog: str = "st-xlret mine") -> None:
    """Run the command `mine`."""
    (options,) = parse(
        [Arguments],
        name_leading_words(arguments, "source", "target"),
        description=__doc__,
        prog=prog,
    )
    check_options(options, "source", "target", "model", "output", "k")
    output, is_jsonl = Path(options.output), options.output.endswith(".jsonl")
    with atomic_file(output, ours="mine", inputs=[options.source, options.target]) as part:
        texts = [_distinct_texts(source) for source in (options.source, options.target)]
        print(f"{len(texts[0])} distinct source texts, {len(texts[1])} target texts", flush=True)

        from st_xlret.hub.export import load_model
        from st_xlret.search import mine_pairs

        model = load_model(options.model, options.device)
        work = Path(options.embedding_cache or output.with_name(f".{output.name}.embeddings"))
        languages = (options.source_language, options.target_language)
        vectors = [
            _cached_vectors(model, *side, options, work)
            for side in zip(texts, languages, strict=True)
        ]
        device = "cuda" if model.device.type == "cuda" else "cpu"
        mine_options: Any = {name: getattr(options, name) for name in ("k", "margin", "threshold")}
        pairs = mine_pairs(*vectors, **mine_options, device=device, show_progress_bar=True)
        with open(part, "w", encoding="utf-8", newline="\n") as file:
            for score, one, other in zip(*(column.tolist() for column in pairs), strict=True):
                source, target = texts[0][one], texts[1][other]
                pair = {"score": score, "source": source, "target": target}
                line = (
                    json.dumps(pair, ensure_ascii=False)
                    if is_jsonl
                    else f"{score:.6f}\t{source}\t{target}"
                )
                file.write(f"{line}\n")
    if options.embedding_cache is None:
        shutil.rmtree(work, ignore_errors=True)
    print(f"{len(pairs.scores)} pairs in {output}")


def _distinct_texts(source: str) -> list[str]:
    from st_xlret.data import read_documents

    documents = read_documents(source, language="und", unit="text")
    texts = list(
        dict.fromkeys(text for document in documents for text in document.sentences if text)
    )
    if not texts:
        raise ValueError(f"{source} holds no text")
    return texts


def _cached_vectors(
    model: Any, texts: list[str], language: str | None, options: Arguments, work: Path
) -> Any:
    from st_xlret.data.reading import cache_key
    from st_xlret.encoding import KeptVectors, encode, fingerprint

    encoding: Any = {
        "prompt_name": options.prompt_name,
        "batch_size": options.batch_size,
        "show_progress_bar": True,
    }
    kept = KeptVectors(
        work / cache_key([fingerprint(model), language, options.prompt_name, texts]),
        shard_size=4_096,
    )
    return kept.write(texts, lambda rows: encode(model, texts[rows], language, **encoding))
