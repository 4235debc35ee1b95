"""The commands report, mine, index and search, on a model that knows translations word by word."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from datasets import Dataset
from filelock import FileLock
from pyarrow.parquet import ParquetWriter
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from st_xlret.commands import index, main
from st_xlret.hub.export import export
from st_xlret.modules import CalibrationLayer
from st_xlret.stores import Store, open_store
from tests import tiny
from tests.stores import stores

WORDS = {
    "en": ["sun", "moon", "star", "rain", "wind", "snow", "tree", "leaf", "root", "fish", "bird", "wolf"],
    "fr": [
        "soleil",
        "lune",
        "astre",
        "pluie",
        "vent",
        "neige",
        "arbre",
        "feuille",
        "racine",
        "poisson",
        "oiseau",
        "loup",
    ],
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Translations have the same vector, plus one of their language."""
    vocabulary = {word: i for i, word in enumerate(["[UNK]", *WORDS["en"], *WORDS["fr"]])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    weights = torch.zeros(len(vocabulary), 16)
    for side, words in enumerate(WORDS.values()):
        for i, word in enumerate(words):
            weights[vocabulary[word]] = torch.eye(16)[i] + 0.8 * torch.eye(16)[12 + side]
    folder = tmp_path_factory.mktemp("model")
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=weights.numpy())]).save(str(folder))
    return folder


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    file = tmp_path / "documents.jsonl"
    records = [
        {"language": code, "sentences": [f"{a} {b}", f"{b} {a} {a}"]}
        for code, words in WORDS.items()
        for a, b in zip(words, words[1:] + words[:1], strict=True)
    ]
    file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return file


def lines(tmp_path: Path, code: str) -> str:
    file = tmp_path / f"{code}.txt"
    words = WORDS[code]
    file.write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    return str(file)


@pytest.mark.parametrize("ending", ["tsv", "jsonl"])
@pytest.mark.parametrize("cached", [False, True])
def test_mine_finds_translations(tmp_path: Path, model: Path, ending: str, cached: bool) -> None:
    output = tmp_path / f"pairs.{ending}"
    given = ["mine", lines(tmp_path, "en"), lines(tmp_path, "fr"), "--model", str(model), "--output", str(output)]
    main([*given, *(["--embedding_cache", str(tmp_path / "cache")] if cached else [])])
    rows = output.read_text(encoding="utf-8").splitlines()
    if ending == "tsv":
        found = [tuple(row.split("\t")) for row in rows]
    else:
        found = [tuple(str(json.loads(row)[key]) for key in ("score", "source", "target")) for row in rows]
    scores = [float(score) for score, _, _ in found]
    assert scores == sorted(scores, reverse=True)
    assert {(source, target) for _, source, target in found} == set(zip(*WORDS.values(), strict=True))


def test_mine_keeps_what_is_above_the_threshold(tmp_path: Path, model: Path) -> None:
    output = tmp_path / "pairs.tsv"
    given = ["mine", lines(tmp_path, "en"), lines(tmp_path, "fr"), "--model", str(model), "--output", str(output)]
    main([*given, "--threshold", "99"])
    assert output.read_text() == ""


def many_lines(tmp_path: Path, code: str, name: str) -> str:
    """All pairs of words: 144 texts."""
    words = WORDS[code]
    (tmp_path / name).write_text("".join(f"{a} {b}\n" for a in words for b in words), encoding="utf-8")
    return str(tmp_path / name)


def test_mining_leaves_nothing_but_the_pairs(tmp_path: Path, model: Path) -> None:
    output = tmp_path / "pairs.tsv"
    given = ["mine", lines(tmp_path, "en"), lines(tmp_path, "fr"), "--model", str(model), "--output", str(output)]
    main(given)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["en.txt", "fr.txt", "pairs.tsv"]
    (tmp_path / "fr.txt").write_text("\n")
    with pytest.raises(SystemExit, match="fr.txt.*no text"):
        main(given)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["en.txt", "fr.txt", "pairs.tsv"]
    assert len(output.read_text().splitlines()) == 12


def test_mining_by_an_approximate_search(tmp_path: Path, model: Path) -> None:
    sides = [lines(tmp_path, code) for code in WORDS]
    found = []
    for option in ([], ["--approximate"]):
        output = tmp_path / f"pairs{len(option)}.tsv"
        main(["mine", *sides, "--model", str(model), "--output", str(output), *option])
        found.append([line.split("\t") for line in output.read_text(encoding="utf-8").splitlines()])
    pairs = [{(source, target) for _, source, target in rows} for rows in found]
    assert pairs[0] == pairs[1] and len(pairs[0]) == 12


def test_mining_data_sets(tmp_path: Path, model: Path) -> None:
    on_disk = Dataset.from_dict({"number": list(range(12)), "sentence": WORDS["en"]})
    on_disk.save_to_disk(str(tmp_path / "english"))
    (tmp_path / "french").mkdir()
    (tmp_path / "french" / "train.jsonl").write_text(
        "".join(json.dumps({"words": word}) + "\n" for word in WORDS["fr"])
    )
    for options in ([], ["--source_column", "sentence"]):
        output = tmp_path / "pairs.jsonl"
        given = [str(tmp_path / "english"), str(tmp_path / "french"), "--model", str(model), "--output", str(output)]
        main(["mine", *given, "--target_column", "words", *options])
        found = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
        assert {(pair["source"], pair["target"]) for pair in found} == set(zip(*WORDS.values(), strict=True))
    with pytest.raises(SystemExit, match="a text column title; it has: number, sentence"):
        main(["mine", *given, "--source_column", "title"])
    with pytest.raises(SystemExit, match="no-such-set.*NAME"):
        main(["mine", "no-such-set", *given[1:]])


def test_mining_with_a_map_per_language_is_told_the_languages(tmp_path: Path, per_language: Path) -> None:
    output = tmp_path / "pairs.tsv"
    given = ["mine", lines(tmp_path, "en"), lines(tmp_path, "fr"), "--model", str(per_language), "--margin", "absolute"]
    main([*given, "--output", str(output), "--source_language", "en", "--target_language", "fra"])
    assert {line.partition("\t")[0] for line in output.read_text().splitlines()} == {"1.000000"}


def test_mining_that_was_killed_keeps_what_it_has_encoded(tmp_path: Path, model: Path, repository: Path) -> None:
    sides = [many_lines(tmp_path, code, f"{code}.txt") for code in WORDS]
    output = tmp_path / "pairs.tsv"
    program = (
        "import os, signal, sys\n"
        "from sentence_transformers import SentenceTransformer\n"
        "from st_xlret.commands import main, mine\n"
        "mine._SHARD = 32\n"
        "encode, calls = SentenceTransformer.encode, []\n"
        "def counted(self, texts, **options):\n"
        "    if isinstance(texts, list) and len(texts) > 1:\n"
        "        calls.append(len(texts))\n"
        "        if len(calls) > int(sys.argv[1]):\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return encode(self, texts, **options)\n"
        "SentenceTransformer.encode = counted\n"
        "main(['mine', *sys.argv[2:]])\n"
        "print(sum(calls))\n"
    )

    def run(calls: int) -> subprocess.CompletedProcess[str]:
        given = [*sides, "--model", str(model), "--output", str(output)]
        command = [sys.executable, "-c", program, str(calls), *given]
        return subprocess.run(command, cwd=repository, capture_output=True, text=True)

    assert run(3).returncode == -signal.SIGKILL
    assert not output.exists() and len(list(tmp_path.rglob("*.npy"))) == 3
    done = run(1_000)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.splitlines()[-1]) == 2 * 144 - 3 * 32, "what the killed run has encoded is not encoded again"
    assert len(output.read_text().splitlines()) == 78 and not list(tmp_path.rglob("*.npy"))


def test_report_shows_the_bias(
    tmp_path: Path, model: Path, documents: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "bias.json"
    given = ["--documents", str(documents), "--output", str(output), "--neighbours", "5"]
    main(["report", "--model", str(model), *given])
    report = json.loads(output.read_text())
    assert set(report["languages"]) == {"en", "fr"}
    assert report["same_language_share"] > 0.8 > report["chance"] > 0.45
    english = report["languages"]["en"]
    assert english["same_language_share"] == pytest.approx(1 - english["neighbours"]["fr"])
    printed = capsys.readouterr().out
    assert all(f"| {name} " in printed for name in ("en", "as it is", "lsar", "lsar, queries only", "shift coral"))
    assert "Scores change" in printed and "(used)" not in printed
    assert output.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def test_index_and_search(tmp_path: Path, model: Path, documents: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "index.parquet"
    main(["index", str(documents), "--model", str(model), "--output", str(file)])
    source = open_store(file)
    assert (len(source), source.dimension, source.model, source.metric) == (48, 16, str(model), "cosine")
    assert {code: len(found) for code, found in source.sample(100).items()} == {"en": 24, "fr": 24}
    capsys.readouterr()
    main(["search", str(file), "--query", "sun moon", "--query", "vent neige", "--top-k", "3", "--json"])
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [entry["query"] for entry in found] == ["sun moon", "vent neige"]
    assert all(len(entry["results"]) == 3 for entry in found)
    best = found[0]["results"][0]
    assert (best["language"], best["text"]) == ("en", "sun moon") and best["score"] == pytest.approx(1, abs=1e-3)
    assert found[1]["results"][0]["language"] == "fr"


def test_any_vectors_with_texts_are_searched(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "size", 5)
    texts = [*WORDS["en"], None, "zero", "evil \x1b[2J"]
    vectors: list[list[float] | None] = [
        *SentenceTransformer(str(model), device="cpu").encode(WORDS["en"]).tolist(), [1.0] * 16, [0.0] * 16, None
    ]  # fmt: skip
    vectors[-1] = vectors[3]
    table = pa.table({"said": texts, "lang": ["e\x1bn"] * 14 + [None], "vector": vectors})
    pq.write_table(table, tmp_path / "own.parquet")
    given = ["search", str(tmp_path / "own.parquet"), "--query", "rain", "--top_k", "99"]
    with pytest.raises(SystemExit, match="no texts that could be shown.*--text_field"):
        main(given)
    with pytest.raises(SystemExit, match="does not say which model.*--model"):
        main([*given, "--text_field", "said"])
    main([*given, "--text_field", "said", "--model", str(model)])
    printed = capsys.readouterr().out
    assert printed.splitlines()[2:4] == ["  1.000  e n  rain", "  1.000  ?    evil  [2J"] and printed.count("\n") == 15
    table = table.rename_columns(["text", "lang", "vector"])
    about = {"st_xlret": json.dumps({"metric": "dot"})}
    pq.write_table(table.replace_schema_metadata(about), tmp_path / "own.parquet")
    main([*given, "--model", str(model), "--json"])
    (rain, *_) = json.loads(capsys.readouterr().out)["results"]
    assert rain["score"] == pytest.approx(1.64, abs=1e-3), "the dot product of vectors that are longer than 1"


def test_results_in_the_querys_language_are_preferred(
    tmp_path: Path, per_language: Path, documents: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "index.parquet")
    main(["index", str(documents), "--model", str(per_language), "--output", file])
    capsys.readouterr()
    given = ["search", file, "--query", "soleil lune", "--top_k", "1", "--json", "--language"]
    for preferred, text in (("0", "sun moon"), ("0.6", "soleil lune")):
        main([*given, "fra", "--prefer_language", preferred])
        (result,) = json.loads(capsys.readouterr().out)["results"]
        assert (result["text"], result["score"]) == (text, pytest.approx(1, abs=1e-3))


def test_queries_are_mapped_as_the_vectors_were_calibrated(
    tmp_path: Path, model: Path, documents: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index, mapped, only, both = (str(tmp_path / name) for name in ("i.parquet", "m.parquet", "only", "both"))
    main(["index", str(documents), "--model", str(model), "--output", index])
    main(["calibrate", "--vectors", index, "--min_texts", "10", "--strength", "1", "--queries_only", "--output", only])
    main(["calibrate", "--vectors", index, "--min_texts", "10", "--strength", "1", "--output", both])
    main(["apply", both, "--vectors", index, "--into", mapped])
    capsys.readouterr()

    def found(*given: str) -> set[str]:
        main(["search", *given, "--query", "soleil lune", "--top_k", "2", "--json"])
        return {result["text"] for result in json.loads(capsys.readouterr().out.splitlines()[0])["results"]}

    assert found(index) == {"soleil lune", "lune soleil soleil"}
    assert found(index, "--map", only) == found(mapped, "--map", both) == {"soleil lune", "sun moon"}
    assert found(index, "--map", only, "--compare", index) == {"soleil lune", "sun moon"}
    with pytest.warns(UserWarning, match="does not say that its vectors are mapped: map them"):
        found(index, "--map", both)
    with pytest.raises(SystemExit, match=rf"mapped, by \w+ of {index}: name the map of queries \(--map\)"):
        found(mapped)
    with pytest.raises(SystemExit, match="mapped by another calibration than"):
        found(mapped, "--map", only)
    for again in (["calibrate", "--output", str(tmp_path / "new")], ["apply", both, "--into", str(tmp_path / "n")]):
        with pytest.raises(SystemExit, match=rf"mapped these vectors already.*made from, {index}"):
            main([*again, "--vectors", mapped])
    with pytest.raises(SystemExit, match=r"m.parquet: no language has 50 vectors \(min_texts\): en 24, fr 24\."):
        main(["report", "--vectors", mapped, "--output", str(tmp_path / "b.json")])
    assert "mapped by the calibration" in capsys.readouterr().out


def test_two_indexes_are_compared(
    tmp_path: Path, model: Path, documents: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = str(tmp_path / "one.parquet"), str(tmp_path / "two.parquet")
    main(["index", str(documents), "--model", str(model), "--output", one])
    main(["index", lines(tmp_path, "fr"), "--language", "fr", "--model", str(model), "--output", two])
    capsys.readouterr()
    main(["search", one, "--compare", two, "--query", "vent", "--top_k", "1", "--json"])
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(entry["vectors"], entry["results"][0]["language"]) for entry in found] == [(one, "fr"), (two, "fr")]
    main(["search", one, "--compare", two, "--query", "vent"])
    assert one in (printed := capsys.readouterr().out) and two in printed


def test_compared_vectors_are_searched_by_the_model_that_they_name(
    tmp_path: Path, model: Path, documents: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two, other = str(tmp_path / "one.parquet"), str(tmp_path / "two.parquet"), tmp_path / "other"
    without_languages = SentenceTransformer(str(model), device="cpu")
    with torch.no_grad():
        without_languages[0].embedding.weight[:, 12:] = 0
    without_languages.save(str(other))
    main(["index", str(documents), "--model", str(model), "--output", one])
    main(["index", str(documents), "--model", str(other), "--output", two])
    pq.write_table(pq.read_table(one).replace_schema_metadata(None), one)  # it names no model
    capsys.readouterr()

    def found(*given: str) -> list[set[str]]:
        main(["search", *given, "--model", str(model), "--query", "soleil lune", "--top_k", "2", "--json"])
        answers = map(json.loads, capsys.readouterr().out.splitlines())
        return [{result["text"] for result in answer["results"]} for answer in answers]

    own = {"soleil lune", "lune soleil soleil"}
    assert found(one, "--compare", two) == [own, {"soleil lune", "sun moon"}]
    assert found(one, "--compare", one) == [own, own]


def test_queries_come_from_the_terminal_too(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main(
        [
            "index",
            lines(tmp_path, "en"),
            "--language",
            "en",
            "--model",
            str(model),
            "--output",
            str(tmp_path / "i.parquet"),
        ]
    )
    monkeypatch.setattr("sys.stdin", io.StringIO("bird\n\nfish\n"))
    main(["search", str(tmp_path / "i.parquet")])
    assert "1.000  en   fish" in capsys.readouterr().out, "a blank line in a pipe is passed over"
    with pytest.raises(SystemExit, match=r"error: the query 'bird \\udcff' is not UTF-8"):
        main(["search", str(tmp_path / "i.parquet"), "--query", "bird \udcff"])


def test_an_index_is_replaced_only_if_asked(
    tmp_path: Path, model: Path, documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "i.parquet"
    given = ["index", str(documents), "--model", str(model), "--output", str(file), "--unit", "document"]
    main(given)
    with pytest.raises(SystemExit, match=f"{file} exists.*--overwrite"):
        main(given)
    main([*given, "--overwrite"])
    file.unlink()
    close = ParquetWriter.close

    def meanwhile(writer: ParquetWriter) -> None:
        close(writer)
        file.write_text("theirs")

    monkeypatch.setattr(ParquetWriter, "close", meanwhile)
    with pytest.raises(SystemExit, match=f"{file} exists"):
        main(given)
    assert file.read_text() == "theirs"
    monkeypatch.setattr(ParquetWriter, "close", close)


@pytest.mark.parametrize("call", [2, 3])
def test_indexing_continues_where_it_stopped(
    tmp_path: Path, model: Path, documents: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    encode, calls = SentenceTransformer.encode, []

    def counted(self: SentenceTransformer, texts: Any, **options: Any) -> Any:
        calls.append(len(texts))
        if len(calls) == call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return encode(self, texts, **options)

    monkeypatch.setattr(index, "_AT_A_TIME", 20)
    monkeypatch.setattr(SentenceTransformer, "encode", counted)
    given = ["index", str(documents), "--model", str(model), "--output", str(tmp_path / "i.parquet")]
    with pytest.raises(SystemExit, match="No space left"):
        main(given)
    assert not (tmp_path / "i.parquet").exists()
    main(given)
    assert sum(calls) == 48 + calls[call - 1], "what was encoded is not encoded again"
    assert pq.ParquetFile(tmp_path / "i.parquet").metadata.num_row_groups == 3
    assert len(list(tmp_path.iterdir())) == 2


def test_two_programs_do_not_write_one_index(tmp_path: Path, model: Path, documents: Path) -> None:
    (tmp_path / ".i.parquet.embeddings").mkdir()
    with FileLock(tmp_path / ".i.parquet.embeddings" / "lock"), pytest.raises(SystemExit, match="another program"):
        main(["index", str(documents), "--model", str(model), "--output", str(tmp_path / "i.parquet")])
    (tmp_path / ".p.tsv.embeddings").mkdir()
    sides = [lines(tmp_path, "en"), lines(tmp_path, "fr")]
    with FileLock(tmp_path / ".p.tsv.embeddings" / "lock"), pytest.raises(SystemExit, match="another program"):
        main(["mine", *sides, "--model", str(model), "--output", str(tmp_path / "p.tsv")])
    main(["index", str(documents), "--model", str(model), "--output", str(tmp_path / "i.parquet")])
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == [".p.tsv.embeddings"]


def test_an_index_knows_its_model(
    tmp_path: Path, model: Path, documents: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(model, tmp_path / "encoder")
    monkeypatch.chdir(tmp_path)
    main(["index", str(documents), "--model", "encoder", "--output", "i.parquet"])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    given = ["search", str(tmp_path / "i.parquet"), "--query", "sun moon", "--top_k", "1"]
    main(given)
    assert "1.000  en   sun moon" in capsys.readouterr().out
    other = SentenceTransformer(str(model), device="cpu")
    with torch.no_grad():
        other[0].embedding.weight.mul_(2)
    other.save(str(tmp_path / "encoder"))  # retrained in place: the same name and dimensions
    with pytest.raises(SystemExit, match="another model"):
        main(given)
    table = pq.read_table(tmp_path / "i.parquet")
    for about, message in (("{", "i.parquet"), ("[1]", "no JSON mapping"), ('{"map": "m"}', "--model")):
        pq.write_table(table.replace_schema_metadata({"st_xlret": about}), tmp_path / "i.parquet")
        with pytest.raises(SystemExit, match=message):
            main(given)
    pq.write_table(table.replace_schema_metadata(), tmp_path / "i.parquet")
    main([*given, "--model", str(model)])
    tiny.static().save(str(tmp_path / "narrow"))
    with pytest.raises(SystemExit, match="another model"):
        main([*given, "--model", str(tmp_path / "narrow")])
    (tmp_path / "i.parquet").write_bytes(b"PAR1")
    with pytest.raises(SystemExit, match="i.parquet"):
        main(given)


def test_what_an_index_left_out_is_counted(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d.jsonl").write_text('{"language": "en", "sentences": ["sun", "", "moon star"]}\n{\n')
    (tmp_path / "t.txt").write_bytes(b"wolf \xff\nrain wind snow tree\n\x1b[2J bird\n")
    given = ["index", "d.jsonl", "t.txt", "--model", str(model), "--output", "i.parquet"]
    with pytest.raises(SystemExit, match="d.jsonl, line 2"):
        main(given)
    main([*given, "--skip_bad_lines", "--limits", "sentence_characters=14"])
    printed = capsys.readouterr().out
    assert "bad lines skipped: 2" in printed and "sentences cut to 14 characters: 1" in printed
    main(["search", "i.parquet", "--query", "bird"])
    printed = capsys.readouterr().out
    assert "rain wind snow\n" in printed and "\x1b" not in printed and printed.count("\n  ") == 4


def test_mining_never_writes_over_what_it_mines(tmp_path: Path, model: Path) -> None:
    english = lines(tmp_path, "en")
    source = tmp_path / "source.tsv"
    source.write_text("sun\n")
    for target in (source, tmp_path / "link.tsv"):
        if target != source:
            target.symlink_to(source)
        with pytest.raises(SystemExit, match="what is mined"):
            main(["mine", english, str(source), "--model", str(model), "--output", str(target)])
    assert source.read_text() == "sun\n"
    with pytest.raises(SystemExit, match="--threshold must be a number, got nan"):
        main(["mine", english, english, "--model", str(model), "--output", "o.tsv", "--threshold", "nan"])


@pytest.mark.parametrize(
    "given, named",
    [
        (["mine", "a.txt", "--model", "m", "--output", "o.tsv"], "--target"),
        (["mine", "a.txt", "b.txt", "--model", "m", "--output", "o.txt"], "o.txt"),
        (["mine", "no/a.txt", "no/b.txt", "--model", "m", "--output", "o.tsv"], "no/a.txt"),
        (["index", "--model", "m", "--output", "o"], "--documents"),
        (["index", "a", "--model", "m", "--output", "o"], "FILE.parquet"),
        (["search", "nowhere.parquet", "--query", "q"], "nowhere.parquet: there is no such file"),
        (["search", "nowhere", "--query", "q"], "nowhere: names no stored vectors"),
        (["search", "nowhere", "--query", "q", "--top-k", "0"], "--top_k .* 0"),
        (["search", "nowhere", "--query", "q", "--serve"], "--query"),
        (["search", "nowhere", "--serve", "--port", "99999"], "--port .* 99999"),
        (["mine", "a.txt", "b.txt", "--model", "m", "--output", "o.tsv", "--k", "0"], "--k .* 0"),
        (["report", "--model", "m", "--documents", "d"], "--output"),
        (
            ["report", "--model", "m", "--documents", "d", "--output", "o.json", "--neighbours", "0"],
            "--neighbours .* 0",
        ),
    ],
)
def test_what_cannot_work_is_said_in_one_line(
    given: list[str], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=named):
        main(given)


def test_one_language_has_no_bias(tmp_path: Path, model: Path, documents: Path) -> None:
    given = ["--model", str(model), "--documents", str(documents), "--output", str(tmp_path / "o.json")]
    with pytest.raises(SystemExit, match="one language"):
        main(["report", *given, "--languages", "en"])


@pytest.fixture
def per_language(tmp_path: Path, model: Path) -> Path:
    """The model with a map per language, which takes the vector of the language off."""
    calibration = CalibrationLayer(16, list(WORDS), pivot="en", steps=["shift"])
    for side in range(2):
        calibration.bias[side, 12 + side] = -0.8
    folder = tmp_path / "per-language"
    export(SentenceTransformer(str(model), device="cpu"), calibration).save_pretrained(str(folder))
    return folder


def test_a_model_with_a_map_per_language_is_told_the_languages(
    tmp_path: Path,
    per_language: Path,
    documents: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)  # the extra that would identify languages
    folder = str(tmp_path / "index.parquet")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        main(["index", str(documents), "--model", str(per_language), "--output", folder])
        main(["search", folder, "--query", "soleil lune", "--language", "fra", "--top_k", "2", "--json"])
    results = json.loads(capsys.readouterr().out.splitlines()[-1])["results"]
    # Without the map of its language, the French text would come before its English translation.
    assert {result["text"] for result in results} == {"soleil lune", "sun moon"}
    assert [result["score"] for result in results] == [pytest.approx(1, abs=1e-3)] * 2
    with pytest.warns(UserWarning, match="taken for en"):
        main(["search", folder, "--query", "soleil lune"])
    with pytest.raises(SystemExit, match="'sw'.*en, fr"):
        main(["search", folder, "--query", "jua", "--language", "sw"])


def test_languages_without_a_map_are_warned_of_once(tmp_path: Path, per_language: Path) -> None:
    file = tmp_path / "more.jsonl"
    file.write_text("".join(json.dumps({"language": code, "text": "sun moon."}) + "\n" for code in ("sw", "fr", "de")))
    with pytest.warns(UserWarning, match="none for texts in de, sw.* taken for en") as caught:
        main(["index", str(file), "--model", str(per_language), "--output", str(tmp_path / "more.parquet")])
    assert sum("map per language" in str(entry.message) for entry in caught) == 1


def test_reports_and_mining_tell_the_languages_too(tmp_path: Path, per_language: Path, documents: Path) -> None:
    sides = [lines(tmp_path, "en"), lines(tmp_path, "fr")]
    about = ["--model", str(per_language), "--output"]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        main(["report", "--documents", str(documents), "--neighbours", "5", *about, str(tmp_path / "bias.json")])
        main(["mine", *sides, "--source_language", "eng", "--target_language", "fr", *about, str(tmp_path / "p.tsv")])
    report = json.loads((tmp_path / "bias.json").read_text())
    assert report["same_language_share"] < 0.5, "above 0.8 without the maps of the languages"
    pairs = [line.split("\t")[1:] for line in (tmp_path / "p.tsv").read_text().splitlines()]
    assert sorted(pairs) == sorted(map(list, zip(*WORDS.values(), strict=True)))


def test_no_message_of_search_shows_a_key(tmp_path: Path) -> None:
    client, models = stores.open_qdrant(tmp_path)
    client.create_collection("docs", vectors_config=models.VectorParams(size=2, distance=models.Distance.COSINE))
    client.upsert("docs", [models.PointStruct(id=0, vector=[1.0, 0.0], payload={"text": "sun", "language": "en"})])
    client.close()
    with pytest.raises(SystemExit, match="does not say which model") as error:
        main(["search", f"qdrant:{tmp_path / 'qdrant'}?collection=docs&api_key=secret", "--query", "sun"])
    assert "secret" not in str(error.value)
