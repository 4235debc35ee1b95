"""Each loss on two ranks computes what it computes on one rank with the texts of both."""

from pathlib import Path
from typing import Any

import pytest
import torch

from st_xlret.losses import (
    CCPLoss,
    CrossLingualLoss,
    CZNCELoss,
    LangContrastiveLoss,
    MaskedLMLoss,
    MSMLoss,
    RetrievalContrastiveLoss,
    SemanticContrastiveLoss,
    SimilarityDistillationLoss,
)
from st_xlret.losses.embedding import select_texts
from st_xlret.modules import (
    AsymmetricBNHead,
    ContextualEncoder,
    LanguageMemoryBank,
    first_last_encoder,
)
from tests import tiny
from tests.distributed.workers import Features, Result, mask_every_third, share, train
from tests.losses.batches import EN, block_features, columns, two_encoders

pytestmark = pytest.mark.distributed
STATISTICS = ["ccp", "ccp, per_language"]
OWNERS = [*STATISTICS, "msm", "msm, micro-batches", "msm, mlm", "mlm", "words, mlm"]
LOSSES = [
    *OWNERS,
    "cz_nce",
    "semantic",
    "language",
    "language, router",
    "retrieval",
    "distillation",
]
# Numbers of sentences of the documents of each rank: documents of one sentence, ranks of different numbers.
BLOCKS = [((3, 2, 2), (4, 2, 2, 1)), ((4, 2, 2, 1), (2, 2)), ((3, 3), (1, 1))]


def build(name: str) -> tuple[Any, CrossLingualLoss]:
    torch.manual_seed(0)
    kind, _, option = name.partition(", ")
    model = two_encoders()[0] if option == "router" else tiny.transformer()
    if kind == "ccp":
        bank = LanguageMemoryBank(8, 13, scope=option or "total")  # type: ignore[arg-type]
        return model, CCPLoss(model, AsymmetricBNHead(32, out_features=8), bank)
    if kind == "language":
        return model, LangContrastiveLoss(model, reduction="paper" if option else "mean")
    if kind == "distillation":
        return model, SimilarityDistillationLoss(
            model, torch.randn(40, 32), bank_size=10, temperature=0.1
        )
    mlm = None
    if "mlm" in name:
        model = first_last_encoder(model) if kind == "words" else model
        mlm = MaskedLMLoss(model)
        mlm.mask_tokens = mask_every_third  # type: ignore[method-assign]
    if kind == "msm":
        options: dict[str, Any] = {"mini_batch_size": 3, "num_negatives": 2} if option else {}
        loss = MSMLoss(model, {"dropout": 0.0}, mlm=mlm, **options)
        # All rows: which ones are drawn depends on the share of the rank.
        loss._draw_texts = lambda columns: columns  # type: ignore[method-assign]
        return model, loss
    if kind == "words":
        return model, CZNCELoss(model, ContextualEncoder(32, out_features=8), mlm=mlm)
    plain = {
        "cz_nce": CZNCELoss,
        "semantic": SemanticContrastiveLoss,
        "retrieval": RetrievalContrastiveLoss,
    }
    return model, mlm or plain[kind](model)


def batch(name: str, model: Any, step: int, rank: int, ranks: int) -> Features:
    """The rank's share of a batch."""
    kind = name.partition(",")[0]
    if kind == "ccp":
        windows = tiny.window_rows(8, seed=step, language=("en", "fr")[step % 2])
        return [
            tiny.features(model, share(windows[:8], rank, ranks) + share(windows[8:], rank, ranks))
        ]
    if kind == "msm":
        first, second = BLOCKS[step]
        features = block_features(
            model, (*first, *second), seed=step, languages=[EN] * len((*first, *second))
        )
        # The last document of the first rank and the first of the second are two blocks of one document.
        last = 100 * step + len(first) - 1
        features["document_id"][features["document_id"] == last + 1] = last
        rows = torch.arange(sum(first) + sum(second))
        return [
            select_texts(
                features, rows if ranks == 1 else rows.split([sum(first), sum(second)])[rank]
            )
        ]
    if kind == "mlm":
        # In the last batch the second rank has nothing to predict.
        texts = [row["sentence"] for row in tiny.window_rows(12)]
        texts = texts[8 * step : 8 * step + 8] if step < 2 else texts[16:20] + [""] * 4
        return [model.preprocess(share(texts, rank, ranks))]
    pairs = tiny.word_rows(36)
    rows = [
        {**row, "other": other["target"]} for row, other in zip(pairs[:18], pairs[18:], strict=True)
    ]
    rows = rows[6 * step : 6 * step + 6]
    rows[5] = rows[0]  # the same pair on both ranks
    rows[4]["target"] = rows[1]["target"]  # and the same text beside another
    three = ("source", "target", "other")
    if kind == "retrieval":
        three = ("query", "positive", "negative")
        rows = [
            {"query": row["source"], "positive": row["target"], "negative": row["other"]}
            for row in rows
        ]
    names = {"language": three, "retrieval": three, "distillation": ("target",)}.get(
        kind, three[:2]
    )
    return columns(model, share(rows, rank, ranks), names)


def work(rank: int, ranks: int, folder: Path) -> Result:
    """Three steps of each loss."""
    results = {}
    labels = [
        torch.tensor(share([7 * step + row for row in range(6)], rank, ranks)) for step in range(3)
    ]
    for name in LOSSES:
        model, loss = build(name)
        batches = [batch(name, model, step, rank, ranks) for step in range(3)]
        results[name] = train(
            loss, model, batches, ranks, labels if name == "distillation" else None
        )
    return results


@pytest.mark.parametrize("name", LOSSES)
def test_losses_gradients_and_state(results: tuple[Result, Result, Result], name: str) -> None:
    single, *ranks = (result[name] for result in results)
    losses = [torch.stack(rank["losses"]) for rank in ranks]
    torch.testing.assert_close(torch.stack(losses).mean(0), torch.stack(single["losses"]))
    # Else each rank predicts its own tokens, or reaches its own goals.
    if "mlm" not in name and name != "distillation":
        assert torch.equal(*losses)
    gradients = [key for key in single if "gradient of" in key]
    assert any("word_embeddings" in key for key in gradients)
    parts = (
        "of head.",
        "of projections",
        "of document_encoder",
        "lm_head.",
        "of contextual_encoder.",
    )
    assert any(part in key for key in gradients for part in parts) == (name in OWNERS)
    assert any("running_var" in key for key in single) == (name in STATISTICS)
    if "router" in name:
        used = [key for key in gradients if single[key].abs().sum() > 0]
        assert used and all(".document." in key for key in used)
    for key in single.keys() - {"losses"}:
        torch.testing.assert_close(
            ranks[0][key], single[key], rtol=1e-5, atol=1e-7, msg=lambda m, k=key: f"{k}: {m}"
        )
        assert torch.equal(ranks[0][key], ranks[1][key]), key
