"""One Trainer over word-positioned samples, or over sentences alone."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from transformers import HfArgumentParser

from st_xlret.data.words.dictionaries import Dictionary
from st_xlret.losses import CZNCELoss, MaskedLMLoss
from st_xlret.modules import ContextualEncoder
from st_xlret.training import LossMonitorCallback, LossStateCallback
from st_xlret.training.ml_ctl_run import (
    MLCTLOptions,
    ParallelArguments,
    build_loss,
    build_ml_ctl_trainer,
    find_words,
    prepare_encoder,
)
from tests import tiny
from tests.training.runs import Recorder, arguments

MODES = {
    "info-snt": ("info_nce", False),
    "CZ-snt": ("cz_nce", False),
    "ML-CTL-info": ("info_nce", True),
    "ML-CTL-CZ": ("cz_nce", True),
}


def encoder(**options: Any) -> SentenceTransformer:
    return prepare_encoder(tiny.transformer(**options), MLCTLOptions()).to("cpu")


@pytest.fixture
def samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    dictionary = Dictionary("fr", "en", [(one, other) for one in tiny.WORDS for other in tiny.WORDS])
    return find_words(tiny.pairs(), [dictionary], encoder(), MLCTLOptions())[0]


def test_every_option_has_a_help_and_the_defaults_are_the_papers(capsys: pytest.CaptureFixture[str]) -> None:
    for options in (MLCTLOptions, ParallelArguments):
        assert all(option.metadata["help"].endswith(".") for option in fields(options))
    with pytest.raises(SystemExit):
        HfArgumentParser([MLCTLOptions]).parse_args_into_dataclasses(["--mode", "ML-CTL"])
    assert "ML-CTL-CZ" in capsys.readouterr().err
    options = MLCTLOptions()
    assert (options.mode, options.mlm_alpha, options.temperature) == ("ML-CTL-CZ", 0.1, 0.07)


@pytest.mark.parametrize("mode", list(MODES))
def test_a_mode_is_an_objective_with_or_without_words(mode: str) -> None:
    options = MLCTLOptions(mode=mode, temperature=0.2, mlm_alpha=0.3, mask_probability=0.4)
    model = encoder()
    loss = build_loss(model, options)
    objective, words = MODES[mode]
    assert loss.model is model and (loss.objective, loss.temperature, loss.mlm_weight) == (objective, 0.2, 0.3)
    assert isinstance(loss.contextual_encoder, ContextualEncoder) == words == options.needs_words
    assert isinstance(loss.mlm, MaskedLMLoss) and loss.mlm.mask_probability == 0.4
    assert build_loss(model, MLCTLOptions(mode=mode, mlm_alpha=0)).mlm is None


def test_transformers_get_the_papers_pooling_and_static_encoders_stay() -> None:
    model = tiny.transformer()
    prepared = prepare_encoder(model, MLCTLOptions())
    assert [type(module).__name__ for module in prepared] == ["Transformer", "WeightedLayerPooling", "Pooling"]
    assert prepared[0] is model[0]
    static = tiny.static()
    assert prepare_encoder(static, MLCTLOptions(mode="CZ-snt")) is static
    assert build_loss(static, MLCTLOptions(mode="CZ-snt")).mlm is None
    with pytest.raises(ValueError, match="ML-CTL-CZ needs the token vectors of a Transformer.*StaticEmbedding"):
        prepare_encoder(static, MLCTLOptions())


@pytest.mark.parametrize("mode", list(MODES))
def test_a_run(mode: str, samples: Dataset, tmp_path: Path) -> None:
    options = MLCTLOptions(mode=mode, alpha=0.2, language_mixing=0.5)
    trainer = build_ml_ctl_trainer(encoder(), samples, options, arguments(tmp_path / mode, max_steps=3))
    assert ("source_start" in trainer.train_dataset.column_names) == options.needs_words
    kinds = {type(callback) for callback in trainer.callback_handler.callbacks}
    assert {LossStateCallback, LossMonitorCallback} <= kinds
    assert (trainer.args.batch_sampler.alpha, trainer.args.batch_sampler.row_mixing) == (0.2, 0.5)
    before = {name: weight.clone() for name, weight in trainer.model.named_parameters()}
    trainer.train()
    assert trainer.state.global_step == 3
    changed = [n for n, weight in trainer.model.named_parameters() if not torch.equal(weight, before[n])]
    assert changed and not any("layer_weights" in name for name in changed)
    if options.needs_words:
        own = trainer.loss.contextual_encoder.linear
        assert own.weight.grad is None or own.weight.isfinite().all()


def test_the_layer_over_words_learns(samples: Dataset, tmp_path: Path) -> None:
    trainer = build_ml_ctl_trainer(encoder(), samples, MLCTLOptions(), arguments(tmp_path, max_steps=2))
    assert isinstance(trainer.loss, CZNCELoss) and trainer.loss.contextual_encoder is not None
    before = trainer.loss.contextual_encoder.linear.weight.clone()
    trainer.train()
    assert not torch.equal(trainer.loss.contextual_encoder.linear.weight, before)


def test_sentences_alone_need_no_words_and_static_encoders_drop_tokens(tmp_path: Path) -> None:
    options = MLCTLOptions(mode="info-snt", token_dropout=0.3)
    trainer = build_ml_ctl_trainer(tiny.static(), tiny.pairs(), options, arguments(tmp_path, max_steps=2))
    assert trainer.data_collator.token_dropout == 0.3
    trainer.train()
    assert trainer.state.global_step == 2
    assert build_ml_ctl_trainer(encoder(), tiny.pairs(), options, arguments(tmp_path)).data_collator.token_dropout == 0


def test_wrong_samples_and_batches_of_one_are_refused(samples: Dataset, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ML-CTL-CZ needs word-positioned samples, got pairs"):
        build_ml_ctl_trainer(encoder(), tiny.pairs(), MLCTLOptions(), arguments(tmp_path))
    with pytest.raises(ValueError, match="batch size must be at least 2"):
        args = arguments(tmp_path, per_device_train_batch_size=1)
        build_ml_ctl_trainer(encoder(), samples, MLCTLOptions(), args)


def run_for(folder: Path, samples: Dataset, *, stop: int | None = None, **changed: Any) -> list[tuple[int, str, float]]:
    """The losses of each step of a run, which may be one that goes on."""
    torch.manual_seed(7)
    model = encoder(dropout=0.1, seed=3)
    resumed = changed.pop("resume_from_checkpoint", None)
    args = arguments(folder, max_steps=6, save_strategy="steps", save_steps=3, **changed)
    trainer = build_ml_ctl_trainer(model, samples, MLCTLOptions(), args)
    recorder = Recorder({"ml-ctl": trainer.loss})
    # Before the monitor, which forgets the value that it has seen.
    trainer.callback_handler.callbacks.insert(0, recorder)
    trainer.train(resume_from_checkpoint=resumed)
    return recorder.steps


def test_a_resumed_run_repeats_the_losses(samples: Dataset, tmp_path: Path) -> None:
    whole = run_for(tmp_path, samples)
    assert len(whole) == 6
    rest = run_for(tmp_path, samples, resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert rest == whole[3:]


def test_files_to_train_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    with pytest.raises(ValueError, match="nothing to train on"):
        ParallelArguments(dictionaries=["en-fr.txt"])
    (tmp_path / "x.en-fr.en").write_text("The sun.\nThe rain.\n", encoding="utf-8")
    (tmp_path / "x.en-fr.fr").write_text("Le soleil.\nLa pluie.\n", encoding="utf-8")
    (tmp_path / "test.txt").write_text("the rain\n", encoding="utf-8")
    words = [tmp_path / "en-fr.txt", tmp_path / "words.en-de.tsv"]
    for file in words:
        file.write_text("sun\tsol\n", encoding="utf-8")
    given = {"moses": [str(tmp_path / "x.en-fr.en")], "exclude": [str(tmp_path / "test.txt")]}
    data = ParallelArguments(**given, dictionaries=[str(file) for file in words], languages=["en", "fr"])
    assert data.load_pairs()["source"][:] == ["The sun."]
    (dictionary,) = data.load_dictionaries()
    assert (dictionary.source_language, dictionary.target_language) == ("en", "fr")
    data.languages = ["en", "ja"]
    with pytest.raises(ValueError, match="no dictionaries.*between two of en, ja: give --dictionaries"):
        data.load_dictionaries()
    with pytest.raises(ValueError, match="no dictionaries to find words by: give"):
        ParallelArguments(**given).load_dictionaries()
