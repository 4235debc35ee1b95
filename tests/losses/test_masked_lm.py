"""MaskedLMLoss against the checkpoint's own masked language model."""

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor
from transformers import AutoConfig, AutoModelForMaskedLM

from st_xlret.losses import MaskedLMLoss
from st_xlret.losses.lm_head import NoHeadError, new_head
from st_xlret.modules.reloading import load_again
from tests import tiny

SHAPE = {
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "hidden_size": 16,
    "intermediate_size": 32,
}
COMMON: dict[str, Any] = {
    "vocab_size": len(tiny.tokenizer()),
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
COMMON |= {"max_position_embeddings": 40}
CONFIGURATIONS = {
    "xlm-roberta": SHAPE,
    "bert": SHAPE,
    "ibert": SHAPE,
    "distilbert": {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32},
    "modernbert": {**SHAPE, "cls_token_id": 0, "sep_token_id": 2},
    "xlm-roberta untied": {**SHAPE, "tie_word_embeddings": False},
}


def save_checkpoint(folder: Path, architecture: str, seed: int = 0) -> Any:
    """A checkpoint of a language model whose biases are not all zero; returns the model."""
    torch.manual_seed(seed)
    config = AutoConfig.for_model(architecture.split()[0], **COMMON, **CONFIGURATIONS[architecture])
    model = AutoModelForMaskedLM.from_config(config)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    model.save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return model.eval()


def load_encoder(folder: Path) -> SentenceTransformer:
    encoder = Transformer(str(folder), max_seq_length=16)
    return SentenceTransformer(modules=[encoder, Pooling(16, "mean")], device="cpu").eval()


TEXTS = [row["sentence"] for row in tiny.window_rows(8)]


def mask_every_third(input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Masking without chance."""
    chosen = (input_ids > 4) & (input_ids % 3 == 0)
    return input_ids.masked_fill(chosen, tiny.tokenizer().mask_token_id), chosen


@pytest.mark.parametrize("architecture", CONFIGURATIONS)
def test_loss_and_gradients_equal_the_checkpoints_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, architecture: str
) -> None:
    reference = save_checkpoint(tmp_path, architecture)
    model = load_encoder(tmp_path)
    loss = MaskedLMLoss(model, weight=2.0)
    monkeypatch.setattr(loss, "mask_tokens", mask_every_third)
    features = model.preprocess(TEXTS)
    masked, chosen = mask_every_third(features["input_ids"], features["attention_mask"])
    labels = features["input_ids"].masked_fill(~chosen, -100)
    expected = (
        2
        * reference(input_ids=masked, attention_mask=features["attention_mask"], labels=labels).loss
    )
    value = loss([features])
    torch.testing.assert_close(value, expected)
    # In two columns, every token weighs alike.
    sides = [model.preprocess(TEXTS[:2]), model.preprocess(TEXTS[2:])]
    torch.testing.assert_close(loss(sides, torch.ones(2)), expected)
    value.backward()
    expected.backward()
    ours = dict(model[0].auto_model.named_parameters())
    # A tied embedding matrix is used twice: at the bottom and as the projection to the vocabulary.
    for name, parameter in reference.base_model.named_parameters():
        torch.testing.assert_close(
            ours[name].grad, parameter.grad, msg=lambda text, name=name: f"{name}: {text}"
        )
    # The head's parameters have other names.
    norms = [
        [p.grad.norm().item() for p in each.parameters() if p.grad is not None]
        for each in (loss, reference)
    ]
    assert sorted(norms[0]) == pytest.approx(sorted(norms[1]), rel=1e-4, abs=1e-6)


def hide(loss: MaskedLMLoss, texts: list[str]) -> tuple[Tensor, ...]:
    """The tokens that are no padding and not special, what is read, and what is predicted."""
    features = loss.model.preprocess(texts)
    ids = features["input_ids"]
    attention = features["attention_mask"].bool()
    special = torch.isin(ids, torch.tensor(tiny.tokenizer().all_special_ids))
    return ids, attention & ~special, *loss.mask_tokens(ids, attention)


def test_masking_follows_bert() -> None:
    loss = MaskedLMLoss(tiny.transformer(), seed=0)
    dice = random.Random(0)
    texts = [tiny.sentence(dice, 3 + i % 6) for i in range(3200)]
    ids, candidates, read, chosen = hide(loss, texts)
    assert not (chosen & ~candidates).any() and torch.equal(read[~chosen], ids[~chosen])
    count = int(chosen.sum())
    mask_token = tiny.tokenizer().mask_token_id
    assert count / int(candidates.sum()) == pytest.approx(0.15, abs=0.02)
    assert (read[chosen] == mask_token).sum() / count == pytest.approx(0.8, abs=0.03)
    assert (read[chosen] == ids[chosen]).sum() / count == pytest.approx(0.1, abs=0.03)
    replaced = read[chosen & (read != ids) & (read != mask_token)]
    assert replaced.unique().numel() > 20 and replaced.max() < len(tiny.tokenizer())
    # The next batch hides others.
    loss.steps += 1
    assert (hide(loss, texts)[3] & chosen).sum() / count == pytest.approx(0.15, abs=0.04)


def test_what_is_hidden_depends_on_text_seed_and_step_alone() -> None:
    model = tiny.transformer()
    loss = MaskedLMLoss(model, mask_probability=0.5, seed=3)
    *_, read, chosen = hide(loss, TEXTS)
    *_, alone, chosen_alone = hide(loss, TEXTS[5:7])
    length = alone.shape[1]
    assert torch.equal(read[5:7, :length], alone) and torch.equal(
        chosen[5:7, :length], chosen_alone
    )
    for seed, same in ((3, True), (4, False)):
        assert (
            torch.equal(hide(MaskedLMLoss(model, mask_probability=0.5, seed=seed), TEXTS)[2], read)
            == same
        )
    loss([model.preprocess(TEXTS)])
    assert loss.steps == 1
    with torch.no_grad():
        loss([model.preprocess(TEXTS)])
        # Evaluation always hides the same words.
        assert loss.steps == 1 and torch.equal(hide(loss, TEXTS)[2], read)


def test_a_short_batch_still_predicts_one_token_and_empty_texts_give_zero_and_a_graph() -> None:
    loss = MaskedLMLoss(tiny.transformer(), mask_probability=1e-9)
    assert (
        hide(loss, ["sun", "moon"])[3].sum() == 1
        and loss([loss.model.preprocess(["sun", "moon"])]) > 0
    )
    value = loss([loss.model.preprocess(["", ""])])
    value.backward()
    assert value == 0


def save_without_head(folder: Path) -> SentenceTransformer:
    """A checkpoint of an encoder alone, and beside it one with a head."""
    save_checkpoint(folder / "mlm", "xlm-roberta")
    load_encoder(folder / "mlm").save(str(folder / "encoder"))
    return SentenceTransformer(str(folder / "encoder"), device="cpu")


def test_a_head_may_come_from_another_checkpoint_or_be_new(tmp_path: Path) -> None:
    encoder = save_without_head(tmp_path)
    reference = AutoModelForMaskedLM.from_pretrained(tmp_path / "mlm")
    fresh = MaskedLMLoss(encoder, fresh_head=True)
    taken = MaskedLMLoss(encoder, lm_head_from=str(tmp_path / "mlm"))
    assert torch.equal(taken.lm_head.bias, reference.lm_head.bias)
    assert not torch.equal(fresh.lm_head.bias, reference.lm_head.bias)


def test_an_encoder_without_a_head_is_told_what_to_do(tmp_path: Path) -> None:
    encoder = save_without_head(tmp_path)
    with pytest.raises(NoHeadError, match="lm_head.dense.weight.*Leave.*lm_head_from") as told:
        MaskedLMLoss(encoder)
    assert told.value.__cause__ is None
    with pytest.raises(NoHeadError, match="nothing"):
        MaskedLMLoss(encoder, lm_head_from=str(tmp_path / "nothing"))
    encoder[0].tokenizer.mask_token = None
    with pytest.raises(NoHeadError, match="mask token"):
        MaskedLMLoss(encoder)


@pytest.mark.parametrize("options", [{}, {"fresh_head": True}])
def test_the_host_does_not_report_a_head_that_is_not_there(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], options: dict[str, Any]
) -> None:
    encoder = save_without_head(tmp_path)
    capfd.readouterr()
    with suppress(NoHeadError):
        MaskedLMLoss(encoder, **options)
    said = capfd.readouterr().err
    assert "LOAD REPORT" not in said
    assert "corrupted" not in said


def save_revisions(cache: Path) -> dict[str, Any]:
    """A cache of the Hub with two revisions of a model, and the models."""
    repository = cache / "models--org--model"
    (repository / "refs").mkdir(parents=True)
    models = {}
    for revision, number in (("main", "a"), ("v2", "b")):
        commit = 40 * number
        (repository / "refs" / revision).write_text(commit)
        folder = repository / "snapshots" / commit
        models[revision] = save_checkpoint(folder, "xlm-roberta", seed=ord(number))
    return models


def test_the_head_is_that_of_the_revision_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SENTENCE_TRANSFORMERS_HOME", str(tmp_path))
    models = save_revisions(tmp_path)
    main = SentenceTransformer("org/model", device="cpu", local_files_only=True)
    assert torch.equal(MaskedLMLoss(main).lm_head.bias, models["main"].lm_head.bias)
    second = SentenceTransformer("org/model", revision="v2", device="cpu", local_files_only=True)
    with pytest.raises(NoHeadError, match="'org/model'.*another revision.*lm_head_from"):
        MaskedLMLoss(second)
    # Where the card knows the revision, as with a network, it is taken.
    second.model_card_data.base_model = "org/model"
    second.model_card_data.base_model_revision = "v2"
    assert torch.equal(MaskedLMLoss(second).lm_head.bias, models["v2"].lm_head.bias)


class Recorded:
    """Stands in the place of a class of Transformers."""

    options: dict[str, Any]

    @classmethod
    def from_pretrained(cls, name: str, **options: Any) -> Any:
        cls.options = options
        return None, {"missing_keys": []}


@pytest.mark.parametrize(
    ("trusted", "is_given", "expected"),
    [(False, False, False), (False, True, False), (True, False, False), (True, True, True)],
)
def test_code_runs_only_if_it_is_known_to_be_that_of_the_encoder(
    trusted: bool, is_given: bool, expected: bool
) -> None:
    model = tiny.static()
    model.trust_remote_code = trusted
    load_again(Recorded, "org/model", model, is_given=is_given)
    assert Recorded.options["trust_remote_code"] is expected


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("turned", [False, True])
def test_a_new_head_is_trained_in_fp32_whatever_the_encoder_is_in(
    tmp_path: Path, dtype: torch.dtype, turned: bool
) -> None:
    encoder = save_without_head(tmp_path).to(dtype)
    loss = MaskedLMLoss(encoder, fresh_head=True)
    if turned:
        encoder.float()
    loss.train_head(["sun moon star"] * 20, max_steps=2, show_progress_bar=False)
    loss([encoder.preprocess(TEXTS)]).backward()
    for name, parameter in loss.lm_head.named_parameters():
        assert parameter.dtype == torch.float32, name
        assert parameter.grad is None or parameter.grad.isfinite().all(), name


@pytest.mark.parametrize(
    ("architecture", "options"),
    [
        (
            "mobilebert",
            {**SHAPE, "true_hidden_size": 16, "intra_bottleneck_size": 16, "embedding_size": 16},
        ),
        ("longformer", {**SHAPE, "attention_window": [4]}),
        (
            "perceiver",
            {"num_latents": 2, "d_latents": 16, "d_model": 16, "num_self_attends_per_block": 1},
        ),
        ("t5", {}),  # has none
    ],
)
def test_a_head_that_cannot_be_used_apart_is_none(
    architecture: str, options: dict[str, Any]
) -> None:
    with pytest.raises(NoHeadError, match=f"'{architecture}'"):
        new_head(AutoConfig.for_model(architecture, vocab_size=60, **options))


def test_a_new_head_learns_while_the_encoder_stays() -> None:
    texts = tiny.texts(200)["sentence"]
    options = {"learning_rate": 3e-2, "max_steps": 30, "evaluate_every": 15}
    curves = []
    for low in (False, True):
        model = tiny.transformer(dropout=0.1).train()
        torch.manual_seed(0)
        loss = MaskedLMLoss(model, seed=0)
        encoder = [p.clone() for p in model.parameters()]
        random_state = torch.random.get_rng_state()
        with torch.autocast("cpu", torch.bfloat16, enabled=low):
            curves.append(loss.train_head(texts, **options))
        assert all(torch.equal(*pair) for pair in zip(encoder, model.parameters(), strict=True))
        assert (
            all(p.grad is None for p in model.parameters()) and model.training and loss.steps == 0
        )
        assert torch.equal(random_state, torch.random.get_rng_state())
    assert len(curves[0]) == 3 and curves[0][2] < curves[0][1] < 0.95 * curves[0][0]
    assert curves[1] == pytest.approx(curves[0], rel=0.02)
    assert len(loss.train_head(["sun moon"] * 40, learning_rate=0.0, evaluate_every=1)) == 4, (
        "the loss is flat"
    )
    with pytest.raises(ValueError, match="19"):
        loss.train_head(["sun"] * 19)
