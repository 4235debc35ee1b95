"""The methods that MSM is compared with learn from the same documents, and from as much text in a batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import DatasetDict
from sentence_transformers import SentenceTransformer

from st_xlret.data import BlockBatchSampler, LanguageBatchSampler, SpanDataCollator, WindowBatchSampler
from st_xlret.losses import CCPLoss, MaskedLMLoss, SemanticContrastiveLoss
from st_xlret.options import parse
from tests import tiny
from training_scripts import train_ccp
from training_scripts.studies import train_rival as program

OBJECTIVES = ("crop", "contriever", "ict", "mlm")


def arguments(objective: str, **options: Any) -> program.RivalArguments:
    return program.RivalArguments(objective=objective, **options)


def test_each_objective_has_its_loss() -> None:
    pairs = SemanticContrastiveLoss
    kinds = {"crop": CCPLoss, "contriever": pairs, "ict": pairs, "mlm": MaskedLMLoss}
    for name, kind in kinds.items():
        options = arguments(name, bank_size=64, span_temperature=0.3)
        losses: Any = program.build_losses(tiny.transformer(), DatasetDict({name: tiny.documents()}), options)
        assert list(losses) == [name] and type(losses[name]) is kind
        assert getattr(losses[name], "temperature", None) == {"crop": 0.1, "mlm": None}.get(name, 0.3)


def test_the_objective_takes_the_place_of_msm() -> None:
    def kinds(model: Any, name: str, **options: Any) -> list[str]:
        return list(program.build_datasets(model, tiny.documents(), tiny.pairs(), arguments(name, **options)))

    for name in OBJECTIVES:
        expected = ["mlm", "pairs"] if name == "mlm" else [name, "mlm", "pairs"]
        assert kinds(tiny.transformer(), name) == expected
    assert kinds(tiny.static(), "ict", pairs_ratio=0) == ["ict"]
    assert kinds(tiny.static(), "mlm", pairs_ratio=0) == []


def test_masked_words_get_a_new_head_if_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tiny.transformer().save(str(tmp_path))
    model = SentenceTransformer(str(tmp_path), device="cpu")
    for asked in (False, True):
        options = arguments("mlm", fresh_head=asked)
        datasets = program.build_datasets(model, tiny.documents(), None, options)
        assert list(datasets) == (["mlm"] if asked else [])
    losses = program.build_losses(model, datasets, options)
    assert type(losses["mlm"]) is MaskedLMLoss
    with pytest.raises(ValueError, match="--fresh_head.*ict"):
        arguments("ict", fresh_head=True)


def test_every_objective_reads_about_as_many_sentences() -> None:
    dataset = tiny.documents(count=400, sentences=6)
    pieces: dict[str, Any] = {"shortest_span": 0.25, "longest_span": 0.75, "block_sentences": 6, "span_sentences": 3}
    samplers = {"crop": WindowBatchSampler, "mlm": LanguageBatchSampler}
    for name in OBJECTIVES:
        options = arguments(name, **pieces)
        part = program.build_datasets(tiny.transformer(), dataset, None, options)[name]
        batches = program.build_batches(options)
        sampler = batches(part, 10)
        assert type(sampler) is samplers.get(name, BlockBatchSampler)
        assert 57 <= np.mean([len(batch) for batch in sampler]) <= 60
        assert (batches.counts is None) == (name in samplers)
    # Spans read half of each document here: a batch takes twice as many of them.
    half = program.build_batches(arguments("contriever", **(pieces | {"longest_span": 0.25})))
    blocks = program.build_datasets(tiny.transformer(), dataset, None, arguments("contriever"))["contriever"]
    assert 114 <= np.mean([len(batch) for batch in half(blocks, 10)]) <= 120


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_run_of_every_objective(
    documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, objective: str
) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    options = "--from_scratch tiny --vocabulary 150 --per_device_train_batch_size 3 --block_sentences 4 --use_cpu "
    options += "--span_sentences 3 --bank_size 8 --learning_rate 1e-2 --max_seq_length 16 --max_steps 6 "
    options += f"--logging_steps 6 --objective {objective}"
    given = [*options.split(), "--documents", str(documents), "--output_dir", str(tmp_path / "run")]
    results = program.main(given)
    assert results["tokens"] > 0 and (results["blocks"] is None) == (objective in ("crop", "mlm"))
    state = json.loads((tmp_path / "run/checkpoint-6/trainer_state.json").read_text())
    logged = {key for line in state["log_history"] for key in line if key.startswith("loss_")}
    assert logged == {f"loss_{objective}", "loss_mlm"}
    assert f"- {objective}\n" in (tmp_path / "run/model/README.md").read_text(encoding="utf-8")
    # What is done already is not done again, and nothing is forgotten.
    again = program.main([*given, "--resume", "--overwrite"])
    assert (again["tokens"], again["blocks"]) == (results["tokens"], results["blocks"])


def test_crop_is_that_of_the_msm_paper_which_is_ccp() -> None:
    # Section 5.3: "for CROP follow Wu et al. (2022a)", whose pairs are "two sentences" (section 2).
    dataset, ours = tiny.documents(), arguments("crop")
    parts = program.build_datasets(tiny.transformer(), dataset, None, ours)
    found: Any = program.build_losses(tiny.transformer(), parts, ours)["crop"]
    theirs = train_ccp.CCPArguments()
    expected: Any = train_ccp.build_losses(tiny.transformer(), DatasetDict({"ccp": dataset}), theirs)["ccp"]
    assert found.get_config_dict() == expected.get_config_dict()
    assert ours.window_size == theirs.window_size
    rows = dataset.to_list()
    for batch in program.build_batches(ours)(parts["crop"], 2):
        centres, contexts = batch[: len(batch) // 2], batch[len(batch) // 2 :]
        for centre, context in zip(centres, contexts, strict=True):
            assert rows[centre]["document"] == rows[context]["document"]
            assert 0 < abs(rows[centre]["position"] - rows[context]["position"]) <= ours.window_size


def test_spans_are_made_for_contriever_and_ict_alone() -> None:
    model = tiny.transformer()
    for name in OBJECTIVES:
        collator = program.build_collator(model, arguments(name, span_tokens=9, ict_keep=0.5), 0.0)
        assert isinstance(collator, SpanDataCollator) == (name in ("contriever", "ict"))
        if isinstance(collator, SpanDataCollator):
            kind = {"contriever": "crop", "ict": "ict"}[name]
            assert (collator.kind, collator.max_tokens, collator.keep_sentence) == (kind, 9, 0.5)


@pytest.mark.parametrize(
    ("options", "message"),
    [("--sum_mlm", "--sum_mlm.*ict"), ("--span_sentences 1", "--span_sentences.* 1$")],
)
def test_options_that_will_not_do(options: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse([program.RivalArguments], ["--objective", "ict", *options.split()])
