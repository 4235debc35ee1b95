"""`st-xlret calibrate`, `report` and `apply`: a model or a map, a table and one recommendation; mapped vectors."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from huggingface_hub import ModelCard
from sentence_transformers import SentenceTransformer

import st_xlret
from st_xlret import VectorCalibration
from st_xlret.commands.apply import main as apply
from st_xlret.commands.calibrate import main
from st_xlret.commands.report import main as report
from st_xlret.marks import FOLDER_MARK
from tests.commands import bias_files
from tests.commands.bias_files import WORDS, sentences
from tests.data.files import write_jsonl
from tests.stores import stores


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An encoder, and documents of six sentences."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    torch.manual_seed(0)
    bias_files.encoder().save(str(tmp_path / "encoder"))
    bias_files.write_documents(tmp_path / "documents.jsonl")
    return tmp_path


def calibrate(folder: Path, *options: str) -> SentenceTransformer:
    words = [
        "--model",
        str(folder / "encoder"),
        "--output",
        str(folder / "out"),
        "--precision",
        "fp32",
    ]
    main([*words, "--corpus", str(folder / "documents.jsonl"), *options])
    return SentenceTransformer(str(folder / "out"), device="cpu")


def test_by_default_the_result_needs_no_language(folder: Path, capsys) -> None:
    asked = [{"text": f"{text}?", "language": code} for code in WORDS for text in sentences(code)]
    model = calibrate(folder, "--queries", str(write_jsonl(folder / "questions.jsonl", asked)))
    printed = capsys.readouterr().out
    assert all(
        words in printed for words in ("lsar, with phrases, queries apart (used)", "encode_query")
    )
    questions = {code: [f"{text}?" for text in sentences(code)] for code in WORDS}
    sides = [
        [model.encode_document(sentences(code)), model.encode_query(questions[code])]
        for code in WORDS
    ]
    means = np.mean(sides, axis=2)
    np.testing.assert_allclose(means, means[:1].repeat(3, axis=0), atol=1e-5)
    card = ModelCard.load(folder / "out" / "README.md")
    assert card.data.language == ["de", "en", "fr"] and {"calibration", "lsar"} <= {*card.data.tags}
    assert "- texts: `documents.jsonl`" in card.text
    # `report` finds the same in the same texts.
    before = json.loads((folder / "out" / "language_bias.json").read_text())["before"]
    words = [
        "--model",
        str(folder / "encoder"),
        "--documents",
        str(folder / "documents.jsonl"),
        "--precision",
        "fp32",
    ]
    report([*words, "--output", str(folder / "bias.json")])
    assert json.loads((folder / "bias.json").read_text()) == before
    assert (folder / "bias.png").read_bytes().startswith(b"\x89PNG")
    assert before["same_language_share"] != before["documents"]["same_language_share"]
    with pytest.raises(FileExistsError, match="--overwrite"):
        calibrate(folder)


def test_the_papers_calibration_with_pairs_and_prompts(folder: Path, capsys) -> None:
    bias_files.encoder(prompts=False).save(str(folder / "encoder"))
    codes, sides = (
        {"source_language": "en", "target_language": "fr"},
        zip(*map(sentences, ("en", "fr")), strict=True),
    )
    write_jsonl(
        folder / "pairs.jsonl",
        [{"source": source, "target": target, **codes} for source, target in sides],
    )
    options = [
        "--pairs",
        str(folder / "pairs.jsonl"),
        "--steps",
        "shift",
        "scale",
        "rotate",
        "--languages",
        "en",
        "fr",
    ]
    model = calibrate(folder, *options, "--query_prompt", "ask ", "--document_prompt", "tell ")
    printed = capsys.readouterr().out
    assert "| shift scale rotate (used) |" in printed and 'task="fr"' in printed
    assert (model.prompts["query"], model.prompts["document"]) == ("ask ", "tell ")
    for code in ("en", "fr"):
        rows = model.encode(sentences(code), task=code, prompt_name="document")
        np.testing.assert_allclose(rows.mean(axis=0), 0, atol=1e-5)


def test_wrong_labels_and_a_model_without_prompts_are_reported(folder: Path, capsys) -> None:
    pytest.importorskip("py3langid")
    bias_files.encoder(prompts=False).save(str(folder / "encoder"))
    texts = {
        "en": "The train to the town leaves at nine",
        "de": "Le train pour la vieille ville part à neuf heures",
    }
    records = [
        {"language": code, "sentences": [f"{text}, {i}." for i in range(60)]}
        for code, text in texts.items()
    ]
    write_jsonl(folder / "documents.jsonl", records)
    calibrate(folder)
    printed = capsys.readouterr().out
    assert all(
        word in printed
        for word in ("50.0 % of the labels", "labelled 'de'", "'fr'", "names no prompts")
    )


def test_what_cannot_work_is_named_and_nothing_is_written(folder: Path) -> None:
    messages = {
        "--pairs p.jsonl": "p.jsonl",
        "--min_texts 1000 --model no-such-model": "1000 .*'de': 72",
        "--queries nowhere.jsonl": "nowhere.jsonl",
        "--qrels q.tsv": "--qrels",
        "--vectors v.parquet": "--model and --documents",
        "--strength full": "'full'",
    }
    for options, message in messages.items():
        with pytest.raises((ValueError, OSError), match=message):
            calibrate(folder, *options.split())
    assert not (folder / "out").exists()


@pytest.fixture
def vectors(tmp_path: Path) -> str:
    """Stored vectors of three languages, each in a region of its own, and three of a fourth."""
    generator = np.random.default_rng(0)
    topics = generator.normal(size=(60, 16))
    clouds = [topics + 2 * np.eye(16)[i] + 0.3 * generator.normal(size=(60, 16)) for i in range(4)]
    codes = ["de"] * 60 + ["en"] * 60 + ["fr"] * 60 + ["sw"] * 3
    rows = np.concatenate(clouds)[: len(codes)].astype(np.float32)
    pq.write_table(
        pa.table({"vector": rows.tolist(), "language": codes}), tmp_path / "vectors.parquet"
    )
    return str(tmp_path / "vectors.parquet")


@pytest.mark.parametrize("queries_only", [True, False])
def test_stored_vectors_get_a_map_and_the_lines_that_use_it(
    vectors: str, tmp_path, capsys, queries_only: bool
) -> None:
    output = tmp_path / "map"
    command = ["--vectors", vectors, "--output", str(output), *["--queries_only"] * queries_only]
    main(command)
    printed = capsys.readouterr().out
    calibration = VectorCalibration.load(output)
    assert calibration.queries_only == queries_only == (f"st-xlret apply {output}" not in printed)
    assert (
        "(used)" in printed and printed.count("Recommended") == 1 and "1 languages, sw 3" in printed
    )
    written = json.loads((output / "language_bias.json").read_text())
    scores = {row["strength"]: row["score"] for row in written["strengths"]}
    assert [*scores] == [i / 10 for i in range(11)] and scores[calibration.strength] == max(
        scores.values()
    )
    # The lines that are printed run.
    lines = [
        line.strip()
        for line in printed.partition("In the service")[2].splitlines()
        if line.startswith("    ")
    ]
    names = {"st_xlret": st_xlret, "query": np.ones(16)}
    exec("\n".join(lines), names)
    np.testing.assert_allclose(names["query"], calibration.transform(np.ones(16)))
    report(["--vectors", vectors, "--output", str(tmp_path / "bias.png")])
    assert json.loads((tmp_path / "bias.png").read_text()) == written["before"]
    # Only a map is replaced, and only if asked.
    with pytest.raises(FileExistsError, match="--overwrite"):
        main(command)
    main([*command, "--overwrite", "--strength", "0"])
    assert VectorCalibration.load(output).strength == 0
    (output / FOLDER_MARK).unlink()
    with pytest.raises(FileExistsError, match=str(output)):
        main([*command, "--overwrite"])


def test_stored_queries_without_labels_get_maps_of_their_own(vectors: str, tmp_path: Path) -> None:
    table = pq.read_table(vectors)
    asked = np.stack(table["vector"].to_numpy()) + np.eye(16)[15]
    pq.write_table(
        table.set_column(0, "vector", [asked.astype(np.float32).tolist()]),
        tmp_path / "queries.parquet",
    )
    main(
        [
            "--vectors",
            vectors,
            "--queries",
            str(tmp_path / "queries.parquet"),
            "--output",
            str(tmp_path / "map"),
        ]
    )
    calibration = VectorCalibration.load(tmp_path / "map")
    assert not np.allclose(
        calibration.transform(np.ones(16), "query"), calibration.transform(np.ones(16), "document")
    )


def test_judged_queries_choose_the_strength_and_are_reported(
    vectors: str, tmp_path: Path, capsys
) -> None:
    rows = [f"{row}\t{row + 60 * side}\t1" for row in range(60) for side in (1, 2)]
    (tmp_path / "qrels.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]))
    judgements = ["--queries", vectors, "--qrels", str(tmp_path / "qrels.tsv")]
    with pytest.raises(FileNotFoundError, match=f"{vectors} {vectors}"):
        main(
            ["--vectors", vectors, "--queries", vectors, vectors, "--output", str(tmp_path / "map")]
        )
    main(["--vectors", vectors, *judgements, "--output", str(tmp_path / "map")])
    judged = json.loads((tmp_path / "map" / "language_bias.json").read_text())["judged"]
    best = max(judged, key=lambda row: row["first_half"]["overall"])["strength"]
    assert VectorCalibration.load(tmp_path / "map").strength == best > 0
    assert f"| {best:g} (used) " in capsys.readouterr().out


CLOUDS = {
    code: np.random.default_rng(i).normal(size=(60, 4)) + i for i, code in enumerate(["en", "de"])
}


def command_of(
    calibration: VectorCalibration, table: pa.Table, folder: Path, **about: str
) -> list[str]:
    """The command that maps the vectors of a table; `about` is what their file says of them."""
    calibration.save(folder / "map")
    pq.write_table(
        table.replace_schema_metadata({"st_xlret": json.dumps(about)}), folder / "vectors.parquet"
    )
    paths = {"--vectors": folder / "vectors.parquet", "--into": folder / "mapped.parquet"}
    return [str(folder / "map"), *(str(word) for option in paths.items() for word in option)]


def test_what_is_written_and_what_is_left_out_is_said(tmp_path: Path, capsys) -> None:
    apply(
        command := command_of(
            VectorCalibration.fit(CLOUDS, steps=["shift"]), stores.table(), tmp_path
        )
    )
    printed, into = capsys.readouterr().out, command[-1]
    assert all(
        words in printed
        for words in ("2 rows in fr", "1 row without a language", f"7 rows written to {into}")
    )
    with pytest.raises(FileExistsError, match=into):
        apply(command)


@pytest.mark.parametrize(
    ("options", "about", "message"),
    [
        ({}, {"metric": "euclidean"}, "euclidean.*cosine"),
        ({"model": "one"}, {"model": "other"}, "other.*one"),
        ({"queries_only": True}, {}, "queries alone"),
        (
            {"documents": {code: rows[:, :3] for code, rows in CLOUDS.items()}},
            {},
            "dimensions 4.*3",
        ),
    ],
)
def test_a_map_of_other_vectors_is_refused(
    options: Any, about: dict[str, str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        apply(
            command_of(
                VectorCalibration.fit(**{"documents": CLOUDS, **options}),
                stores.table(),
                tmp_path,
                **about,
            )
        )
    assert not (tmp_path / "mapped.parquet").exists()
