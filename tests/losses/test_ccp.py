"""CCPLoss: the equation over encoder, head and bank, and what it leaves alone."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from st_xlret.functional import contrastive_context_loss
from st_xlret.losses import CCPLoss
from st_xlret.modules import AsymmetricBNHead, LanguageMemoryBank
from tests import tiny
from tests.losses.batches import EN, FR


@pytest.mark.parametrize(("make", "mini_batch_size"), [(tiny.static, None), (tiny.transformer, 3)])
def test_one_column_equals_two(make: Any, mini_batch_size: int | None) -> None:
    model = make()
    loss = CCPLoss(model, bank_size=6, mini_batch_size=mini_batch_size)
    before = {name: tensor.clone() for name, tensor in loss.owned_state().items()}
    batches = [tiny.window_rows(4, seed=seed) for seed in (0, 1, 2)]
    one = [loss([tiny.features(model, rows)]) for rows in batches]
    loss.load_owned_state(before)
    two = [loss([tiny.features(model, side) for side in (rows[:4], rows[4:])]) for rows in batches]
    torch.testing.assert_close(torch.stack(one), torch.stack(two))


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("left_out", ["", "document", "text", "normalize"])
def test_equals_the_functional_loss_on_its_parts(cross: bool, left_out: str) -> None:
    mask_document, mask_text, normalize = (
        name != left_out for name in ("document", "text", "normalize")
    )
    model = tiny.static()
    head = AsymmetricBNHead(8, out_features=5)
    other_head = AsymmetricBNHead(8, out_features=5)
    other_head.load_state_dict(head.state_dict())
    shared: Any = {"temperature": 0.2, "cross_language_negatives": cross, "normalize": normalize}
    masks: Any = {"mask_same_document": mask_document, "mask_same_text": mask_text}
    loss = CCPLoss(model, head, LanguageMemoryBank(5, 6), **masks, **shared)
    bank = LanguageMemoryBank(5, 6)
    english = tiny.window_rows(3)
    french = tiny.window_rows(3, seed=1, language="fr")
    rows = english[:3] + french[:3] + english[3:] + french[3:]
    rows[1]["sentence"] = rows[2]["sentence"]
    for side in (0, 6):
        rows[side + 1]["document"] = rows[side]["document"]
    for step in range(3):
        batch = tiny.features(
            model, [{**row, "document": row["document"] + step // 2} for row in rows]
        )
        z_centres, z_contexts = other_head(*model(dict(batch))["sentence_embedding"].chunk(2))
        expected = contrastive_context_loss(
            torch.cat([z_centres, z_contexts]),
            torch.arange(6).repeat(2),
            batch["language_id"],
            document=batch["document_id"] if mask_document else None,
            text=batch["text_id"] if mask_text else None,
            **shared,
            **bank.get(),
        )
        torch.testing.assert_close(loss([batch]), expected)
        # The contexts enter the bank, after the loss.
        keys = F.normalize(z_contexts, dim=1) if normalize else z_contexts
        bank.enqueue(keys, *(batch[f"{kind}_id"][6:] for kind in ("language", "document", "text")))


def test_what_is_no_window_is_refused() -> None:
    model = tiny.static()
    loss = CCPLoss(model, bank_size=4)
    rows = tiny.window_rows(4)
    untagged = model.preprocess(["sun", "moon"])
    of_two_languages = [*rows[:5], {**rows[5], "language": "fr"}, *rows[6:]]
    for named, columns in (
        ("document_id", [tiny.features(model, rows[:3] + rows[:1] + rows[2:])]),
        ("language_id", [tiny.features(model, of_two_languages)]),
        ("document_id", [untagged]),
        ("language_id", [{**untagged, "text_id": torch.arange(2)}] * 2),
        ("3 text columns", [tiny.features(model, rows)] * 3),
    ):
        with pytest.raises(ValueError, match=named):
            loss(columns)
    assert loss.bank is not None and not len(loss.bank)


def test_the_label_is_the_language_of_a_window() -> None:
    model = tiny.static()
    columns = [
        model.preprocess(["sun", "moon", "star", "wolf"]),
        model.preprocess(["rain", "wind", "snow", "tree"]),
    ]
    loss = CCPLoss(model, bank_size=8)
    languages = torch.tensor([EN, EN, FR, FR])
    start = {name: tensor.clone() for name, tensor in loss.owned_state().items()}
    expected = loss([{**features, "language_id": languages} for features in columns])
    loss.load_owned_state(start)
    assert loss(columns, languages) == expected
    loss.load_owned_state(start)
    assert loss(columns, torch.tensor([EN] * 4)) != expected
    with pytest.raises(ValueError, match="language_id"):
        loss(columns, torch.tensor([0.5] * 4))
    with pytest.raises(ValueError, match="^2 is no"):
        loss(columns, torch.tensor([2, 2, 2, 2]))  # of NLI
