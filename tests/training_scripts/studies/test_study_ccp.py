"""The study's plan, commands and table; the runs themselves are those of train_ccp.py."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from torch.utils.data import ConcatDataset

from st_xlret.options import parse
from st_xlret.training.arguments import DataArguments, LazyAdamArguments, RunArguments, TrainingArguments
from st_xlret.training.encoders import PretrainingEncoderArguments
from tests import tiny
from tests.training_scripts.scripts import load_script
from training_scripts.studies import train_ccp_ablation
from training_scripts.studies.train_ccp_ablation import AblationArguments


@pytest.fixture
def study(repository: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_script(repository, "study_ccp", monkeypatch)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for file in ("tatoeba/v1/tatoeba.fra-eng.eng", "dictionaries/words.en-fr.tsv.gz"):
        (tmp_path / "data" / file).parent.mkdir(parents=True)
        (tmp_path / "data" / file).touch()
    return tmp_path / "data"


def parsed(command: list[str]) -> list[object]:
    kinds = [
        PretrainingEncoderArguments,
        DataArguments,
        AblationArguments,
        LazyAdamArguments,
        RunArguments,
        TrainingArguments,
    ]
    return list(parse(kinds, [*command, "--use_cpu"]))


def test_every_row_is_run_with_every_number_of_pairs_and_ablations_come_last(study: ModuleType) -> None:
    plan = study.plan_of(study.Arguments(data="d", output="o", encoder="mini"))
    assert sorted(plan) == sorted((row, size) for row in study.ROWS for size in ("500", "5000", "all"))
    main = ["pairs only", "pairs only x 2", "+ CCP", "pairs only x 3", "+ CCP + MLM"]
    assert plan[:5] == [(row, "500") for row in main]
    first = [row for row, _ in plan].index("+ CCP, vanilla BN")
    assert first == 15 and all("," in row for row, _ in plan[first:])


def test_a_static_encoder_has_no_masked_words(study: ModuleType) -> None:
    rows = ["+ CCP", "+ CCP + MLM", "pairs only x 3"]
    plan = study.plan_of(study.Arguments(data="d", output="o", rows=rows, pairs=["7", "all"]))
    assert plan == [("+ CCP", "7"), ("+ CCP", "all")]


def batches_by_kind(options: AblationArguments, args: TrainingArguments) -> Counter[str]:
    """What the sampler of a run gives in its optimizer steps, over as many epochs as they take."""
    kinds = {"ccp": tiny.documents(), "mlm": tiny.texts(), "pairs": tiny.pairs()}
    kinds = {kind: data for kind, data in kinds.items() if getattr(options, f"{kind}_ratio")}
    samplers: Any = [train_ccp_ablation.build_batches(options)(data, 4) for data in kinds.values()]
    mixture = train_ccp_ablation.build_mixture(options, list(kinds))
    sampler = mixture(ConcatDataset(list(kinds.values())), batch_samplers=samplers, seed=args.seed)
    offsets = np.cumsum([len(data) for data in kinds.values()])
    counts: Counter[str] = Counter()
    for epoch in count():
        sampler.set_epoch(epoch)
        for batch in sampler:
            if counts.total() == args.max_steps:
                return counts
            counts[list(kinds)[int(np.searchsorted(offsets, batch[0], side="right"))]] += 1
    raise AssertionError("endless")


def test_rows_compare_at_equal_batches_of_pairs_and_at_equal_steps(study: ModuleType, data: Path) -> None:
    arguments = study.Arguments(data=str(data), output="out", encoder="mini", tokenizer="t", pair_steps=37)
    counts = {}
    for row in study.ROWS:
        *_, options, _, _, args = parsed(study.training_command(arguments, row, "500")[3:])
        assert isinstance(options, AblationArguments) and isinstance(args, TrainingArguments)
        counts[row] = batches_by_kind(options, args)
        assert dict(counts[row]) == study.batches_of(arguments, row)
    for row, found in counts.items():
        if row.startswith("+"):
            assert found["pairs"] == counts["pairs only"]["pairs"] == counts["pairs only"].total() == 37
            assert found.total() == counts[f"pairs only x {len(found)}"]["pairs"]


def test_the_bank_outnumbers_the_batch_as_in_the_paper(study: ModuleType) -> None:
    # Section 4: 32 768 keys, 108 languages, small batches of 32, which are 2 x 32 rows.
    paper = (32768 / 108) / (2 * 32 - 2)
    for batch_size in (16, 512):
        arguments = study.Arguments(data="d", output="o", batch_size=batch_size)
        ours = (arguments.bank_size / len(study.LANGUAGES)) / (2 * batch_size)
        assert ours == 5 == round(paper)
    assert study.Arguments(data="d", output="o", bank_size=0).bank_size == 0


@pytest.mark.parametrize("encoder", ["static", "mini", "small"])
def test_rows_see_the_same_pairs_and_differ_in_what_they_add(study: ModuleType, data: Path, encoder: str) -> None:
    arguments = study.Arguments(
        data=str(data), output="out", encoder=encoder, tokenizer="t", pair_steps=100, bank_size=64
    )
    pairs, ccp = {"ccp_ratio": 0, "mlm_ratio": 0}, {"ccp_ratio": 1, "mlm_ratio": 0}
    expected: dict[str, tuple[int, dict[str, Any]]] = {
        "pairs only": (100, pairs),
        "pairs only x 2": (200, pairs | {"pairs_ratio": 2}),
        "+ CCP": (200, ccp),
        "pairs only x 3": (300, pairs | {"pairs_ratio": 3}),
        "+ CCP + MLM": (300, {"ccp_ratio": 1, "mlm_ratio": 1}),
        "+ CCP, vanilla BN": (200, ccp | {"normalization": "batch"}),
        "+ CCP, no BN": (200, ccp | {"normalization": "none"}),
        "+ CCP, no L2 norm": (200, ccp | {"l2_normalization": False}),
        "+ CCP, no bank": (200, ccp | {"bank_size": 0}),
    }
    assert expected.keys() == study.ROWS.keys()
    common: dict[str, Any] = {"bank_size": 64, "language_smoothing": 0.6, "exact_ratios": True}
    others = set()
    for row, (steps, changed) in expected.items():
        _, module, *command = study.training_command(arguments, row, "500")[1:]
        assert module == "training_scripts.studies.train_ccp_ablation"
        model, texts, options, static, run, args = parsed(command)
        assert isinstance(args, TrainingArguments) and isinstance(static, LazyAdamArguments)
        assert options == AblationArguments(**(common | changed))
        assert static == LazyAdamArguments(*((True, 0.15) if encoder == "static" else (False, 0.0)))
        assert args.max_steps == steps
        assert args.output_dir == str(Path("out") / study.run_name(row, "500"))
        # What a head learns with is set where there is one and the rate of the vectors would be too high for it.
        assert bool(args.learning_rate_mapping) == (encoder == "static" and row.startswith("+"))
        own = {"max_steps": 0, "output_dir": "", "logging_dir": "", "learning_rate_mapping": {}}
        others.add(repr((model, texts, run, {**args.to_dict(), **own})))
    assert len(others) == 1


def test_the_number_of_pairs_decides_where_they_come_from(study: ModuleType, data: Path) -> None:
    arguments = study.Arguments(data=str(data), output="out")
    some, everything = (parsed(study.training_command(arguments, "+ CCP", size)[3:])[1] for size in ("500", "all"))
    assert isinstance(some, DataArguments) and isinstance(everything, DataArguments)
    assert some.pairs_per_language == 500 and everything.pairs_per_language is None
    more = [str(data / "ebible/documents"), str(data / "dictionaries/words.en-fr.tsv.gz")]
    assert everything.pairs == [*some.pairs, *more]
    # The test set's sentences are in neither.
    assert some.exclude == everything.exclude == [str(data / "tatoeba/v1/tatoeba.fra-eng.eng")]
    assert some.languages == everything.languages == study.LANGUAGES


def test_finished_runs_are_tabulated_and_not_run_again(
    study: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for row, size, accuracy in (("pairs only", "500", 40.0), ("+ CCP", "500", 41.23)):
        file = study.file(tmp_path, row, size)
        file.parent.mkdir()
        figures = {"average": {stage: accuracy + i for i, stage in enumerate(study.STAGES)}, "seconds": 61.4}
        file.write_text(json.dumps(figures))
    started: list[tuple[str, str]] = []
    monkeypatch.setattr(study, "training_command", lambda _, *run: started.append(run))
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 1))
    given = ["--data", "d", "--output", str(tmp_path), "--tokenizer", "t", "--pairs", "500"]
    study.main([*given, "--rows", "pairs only", "+ CCP", "+ CCP, no bank"])
    table = (tmp_path / "study.md").read_text(encoding="utf-8")
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    assert cells[0] == [
        "pairs per language",
        "training",
        "steps",
        "of pairs",
        "raw",
        "shift",
        "scale",
        "rotate",
        "seconds",
    ]
    assert cells[2:] == [
        ["500", "pairs only", "600", "600", "40.0", "41.0", "42.0", "43.0", "61"],
        ["500", "+ CCP", "1200", "600", "41.2", "42.2", "43.2", "44.2", "61"],
    ]
    shown = capsys.readouterr()
    assert table.strip() in shown.out and "CCP-no-bank-500 failed: see" in shown.err
    assert started == [("+ CCP, no bank", "500")]
    assert set(json.loads((tmp_path / "study.json").read_text())) == {"pairs-only-500", "CCP-500"}
    # What was run can be run again as it stands.
    assert "--rows 'pairs only' '+ CCP' '+ CCP, no bank'\n" in (tmp_path / "command.txt").read_text()
    study.main([*given, "--table_only"])
    assert len(started) == 1
