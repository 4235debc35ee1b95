"""Each loss on two ranks computes what it computes on one rank with the texts of both."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_xlret.losses import CZNCELoss, LangContrastiveLoss, MaskedLMLoss, MSMLoss
from st_xlret.losses.base import Tags
from st_xlret.modules import first_last_encoder
from tests import tiny
from tests.distributed.workers import Result, train
from tests.losses.batches import two_encoders
from tests.losses.examples import EXAMPLES, Share, ccp, msm, words

pytestmark = pytest.mark.distributed


def words_and_masked_words(model: SentenceTransformer) -> CZNCELoss:
    return words(model, MaskedLMLoss(model))


def sentences_and_masked_words(model: SentenceTransformer) -> MSMLoss:
    return msm(model, mlm=MaskedLMLoss(model))


VARIANTS = {
    **EXAMPLES,
    "ccp, per_language": replace(
        EXAMPLES["ccp"], build=lambda model: ccp(model, scope="per_language")
    ),
    "msm, mlm": replace(
        EXAMPLES["msm"],
        build=sentences_and_masked_words,
        owns=("projections.", "document_encoder.", "mlm.lm_head."),
        of_own_rows=True,
    ),
    "words, mlm": replace(
        EXAMPLES["words"],
        build=words_and_masked_words,
        owns=("contextual_encoder.", "mlm.lm_head."),
        of_own_rows=True,
        encoder=lambda: first_last_encoder(tiny.transformer()),
    ),
    "language, router": replace(
        EXAMPLES["language"],
        build=lambda model: LangContrastiveLoss(model, reduction="paper"),
        encoder=lambda: two_encoders()[0],
    ),
}


def work(rank: int, ranks: int, folder: Path) -> Result:
    """Three steps of each loss."""
    share = Share(rank, ranks)
    results: Result = {}
    for name, example in VARIANTS.items():
        torch.manual_seed(0)
        model = example.encoder()
        loss = example.build(model)
        batches = [example.batch(model, step, share) for step in range(3)]
        labels = [example.labels_of(step, share) for step in range(3)]
        results[name] = train(loss, model, batches, labels, ranks)
    results["gathered"] = gathered_tags(rank)
    return results


def gathered_tags(rank: int) -> Result:
    """Two tags, which the ranks have in other orders."""
    loss = LangContrastiveLoss(tiny.transformer())
    tags: Tags = {"text_id": torch.tensor([rank, rank]), "language_id": torch.tensor([7, 8])}
    if rank:
        tags = dict(reversed(tags.items()))
    _, gathered = loss.gather_rows([torch.zeros(2, 1)], tags)
    return dict(gathered)


def gradients_of(result: Result) -> dict[str, Tensor]:
    return {key: tensor for key, tensor in result.items() if "gradient of " in key}


@pytest.mark.parametrize("name", VARIANTS)
def test_losses_gradients_and_state(results: tuple[Result, Result, Result], name: str) -> None:
    single, first, second = (result[name] for result in results)
    losses = [torch.stack(rank["losses"]) for rank in (first, second)]
    torch.testing.assert_close(torch.stack(losses).mean(0), torch.stack(single["losses"]))
    if not VARIANTS[name].of_own_rows:
        assert torch.equal(*losses)
    for key in single.keys() - {"losses"}:
        torch.testing.assert_close(
            first[key],
            single[key],
            rtol=1e-5,
            atol=1e-7,
            msg=lambda text, key=key: f"{key}: {text}",
        )
        assert torch.equal(first[key], second[key]), key


def test_tags_are_gathered_by_name(results: tuple[Result, Result, Result]) -> None:
    for of_rank in results[1:]:
        assert of_rank["gathered"]["text_id"].tolist() == [0, 0, 1, 1]
        assert of_rank["gathered"]["language_id"].tolist() == [7, 8, 7, 8]


@pytest.mark.parametrize("name", VARIANTS)
def test_the_steps_were_worth_comparing(results: tuple[Result, Result, Result], name: str) -> None:
    single = results[0][name]
    gradients = gradients_of(single)
    assert any("word_embeddings" in key for key in gradients)
    for part in VARIANTS[name].owns:
        assert any(f"gradient of {part}" in key for key in gradients), part
    # The statistics of asymmetric normalisation are state.
    assert ("state head.norm.running_var" in single) == name.startswith("ccp")


def test_a_router_trains_the_encoder_of_passages_alone(
    results: tuple[Result, Result, Result],
) -> None:
    gradients = gradients_of(results[0]["language, router"])
    used = [key for key, gradient in gradients.items() if gradient.abs().sum() > 0]
    assert used
    for key in used:
        assert ".document." in key
