"""Data that several rows of a study share: test sets, what must not be trained on, and parts of the texts.

    python -m training_scripts.studies.prepare --kind held-out --output held-out
    python -m training_scripts.studies.prepare --kind sentences --pools xquad_r --tatoeba v1 --output test.txt
    python -m training_scripts.studies.prepare --kind pairs --pairs pairs/ --without el hi --output half.jsonl
    python -m training_scripts.studies.prepare --kind pairs --pairs pairs/ --languages en tr zh --connections bridge \\
        --output bridge.jsonl
    python -m training_scripts.studies.prepare --kind documents --documents docs/ --per_language 500 --output some.jsonl

held-out: translations of TICO-19 in one pool of 11 languages. sentences: the sentences of test sets. pairs:
parallel sentences without some languages, or of a setting of lang-contrastive's Table 4, whose bridge is the last
language. documents: the first sentences of each language.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from st_xlret.data import PairOptions, load_documents, load_pairs
from st_xlret.data.lines import read_jsonl
from st_xlret.evaluation.bucc import load_bucc_directory
from st_xlret.files import atomic_directory, write_text
from st_xlret.options import option, parse
from training_scripts.demo.demo import read_sentences
from training_scripts.studies.connections import connect_languages, keep_connections, without_parallel


def test_sentences(pools: Iterable[str], tatoeba: str | None, mining: str | None) -> set[str]:
    """The texts of pools in BEIR's layout, and the English sides of Tatoeba and of hidden translations."""
    english: set[str] = set()
    for pool in pools:
        for name in ("corpus", "queries"):
            english |= {row["text"] for _, row in read_jsonl(next(Path(pool).glob(f"{name}.jsonl*")))}
    for file in Path(tatoeba).glob("*.eng") if tatoeba else ():
        english |= set(file.read_text(encoding="utf-8").splitlines())
    for split in ("training", "test") if mining else ():
        for corpus in load_bucc_directory(mining, split=split).values():  # type: ignore[arg-type]
            text_of = corpus.target
            english |= {text_of[name] for _, name in corpus.gold or ()}
    return {" ".join(text.split()) for text in english}


def pool_of(sentences: Iterable[dict[str, str]], folder: Path) -> None:
    """Write a pool in BEIR's layout: each sentence asks in one language, and its translations are the answers."""
    files: dict[str, list[str]] = {
        "corpus.jsonl": [],
        "queries.jsonl": [],
        "qrels/test.tsv": ["query-id\tcorpus-id\tscore"],
    }
    for number, row in enumerate(sentences):
        asked = list(row)[number % len(row)]
        for language, text in row.items():
            name = f"{language}-{number}"
            record = {"_id": name, "text": text, "metadata": {"language": language}}
            files["queries.jsonl" if language == asked else "corpus.jsonl"].append(
                json.dumps(record, ensure_ascii=False)
            )
            if language != asked:
                files["qrels/test.tsv"].append(f"{asked}-{number}\t{name}\t1")
    with atomic_directory(folder, overwrite=True) as temporary:
        for name, lines in files.items():
            write_text(temporary / name, "\n".join(lines) + "\n")


def documents_of(sources: Sequence[str], languages: list[str] | None, count: int | None) -> Iterator[dict[str, Any]]:
    """A document of each sentence, until a language has so many."""
    kept: Counter[str] = Counter()
    for row in load_documents(sources, languages=languages):
        kept[row["language"]] += 1
        if count is None or kept[row["language"]] <= count:
            yield {"language": row["language"], "sentences": [row["sentence"]]}


@dataclass
class Arguments:
    """What to make."""

    kind: str = field(metadata={"help": "What to make.", "choices": ["held-out", "sentences", "pairs", "documents"]})
    output: str = field(metadata={"help": "The file, or the folder of held-out."})
    pairs: list[str] = option([], "Parallel sentences.")
    documents: list[str] = option([], "Documents.")
    languages: list[str] = option([], "Languages to keep. All by default.")
    third: int | None = option(None, "pairs: keep this third of them (0, 1 or 2).", minimum=0, maximum=2)
    without: list[str] = option([], "pairs: languages to leave without parallel sentences.")
    connections: str | None = option(None, "pairs: a setting of Table 4. The bridge is the last of --languages.")
    per_language: int | None = option(None, "documents: maximum sentences of each language.", minimum=1)
    pools: list[str] = option([], "sentences: test sets in BEIR's layout.")
    tatoeba: str | None = option(None, "sentences: folder of Tatoeba.")
    mining: str | None = option(None, "sentences: folder of evaluation/make_mining_test.py.")


def main(given: Sequence[str] | None = None) -> None:
    """Make a file or folder."""
    (arguments,) = parse([Arguments], given, description=__doc__)
    output, languages = Path(arguments.output), arguments.languages or None
    if arguments.kind == "held-out":
        pool_of(read_sentences(), output)
    elif arguments.kind == "sentences":
        found = test_sentences(arguments.pools, arguments.tatoeba, arguments.mining)
        write_text(output, "\n".join(sorted(found)) + "\n")
    elif arguments.kind == "pairs":
        pairs = load_pairs(arguments.pairs, PairOptions(languages=languages))
        if arguments.connections:
            pairs = keep_connections(pairs, connect_languages(arguments.languages, arguments.connections))
        if arguments.without:
            pairs = without_parallel(pairs, arguments.without)
        if arguments.third is not None:
            pairs = pairs.shard(num_shards=3, index=arguments.third, contiguous=False)
        pairs.to_json(str(output), force_ascii=False)
    else:
        rows = documents_of(arguments.documents, languages, arguments.per_language)
        write_text(output, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


if __name__ == "__main__":
    main()
