"""What the card that the host writes learns from us, and what a model made from another carries over."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset, DatasetDict
from huggingface_hub import ModelCard
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.evaluation import SentenceEvaluator
from sentence_transformers.sentence_transformer.modules import Dense, StaticEmbedding
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch import Tensor, nn

from st_xlret.data import CrossLingualBatches, CrossLingualDataCollator
from st_xlret.files import save_model_atomically
from st_xlret.hub import carry_card_data, check_card, set_card_data
from st_xlret.hub.export import export
from st_xlret.hub.model_card import escape
from st_xlret.losses import SemanticContrastiveLoss
from st_xlret.modules import CalibrationLayer
from tests import tiny
from tests.docs.blocks import python_blocks
from tests.training.runs import arguments

CITATION = "@article{ccp,\n  title = {Contrastive Context Prediction}\n}"


class CitedLoss(nn.Module):
    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, features: list[dict[str, Tensor]], labels: Tensor) -> Tensor:
        a, b = (self.model(column)["sentence_embedding"] for column in features)
        return (a - b).square().mean()

    @property
    def citation(self) -> str:
        return CITATION


class AccuracyEvaluator(SentenceEvaluator):
    def __init__(self) -> None:
        super().__init__()
        self.name = "toy"
        self.primary_metric = "toy_accuracy"

    def __call__(
        self, model: SentenceTransformer, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        metrics = {"toy_accuracy": 0.625}
        self.store_metrics_in_model_card_data(model, metrics, epoch, steps)
        return metrics


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> SentenceTransformer:
    torch.manual_seed(0)
    words = {word: i for i, word in enumerate(["[UNK]", "a", "b", "c", "d"])}
    tokenizer = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=4)], device="cpu")
    set_card_data(model, languages=["en", "fr"], license="apache-2.0", model_name="A toy", tags=["toy"])
    trainer = SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(
            output_dir=str(tmp_path_factory.mktemp("run")),
            max_steps=1,
            per_device_train_batch_size=2,
            eval_strategy="steps",
            eval_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        ),
        train_dataset=Dataset.from_dict({"one": ["a b", "c"], "two": ["a", "d c"]}),
        loss=CitedLoss(model),
        evaluator=AccuracyEvaluator(),
    )
    trainer.train()
    return model


def check_host_card(text: str) -> None:
    assert "#### CitedLoss" in text and "@article{ccp" in text
    assert "toy_accuracy" in text or "**accuracy**" in text
    assert "0.625" in text
    data = ModelCard(text).data
    assert data.language == ["en", "fr"]
    assert data.license == "apache-2.0"
    assert {"st-xlret", "toy", "loss:CitedLoss"} <= set(data.tags)
    assert data.eval_results[0].metric_value == 0.625


def test_the_hosts_card_carries_our_citations_and_results(trained: SentenceTransformer, tmp_path: Path) -> None:
    save_model_atomically(trained, tmp_path / "model")
    text = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    check_host_card(text)
    assert "# A toy" in text
    assert ".tmp" not in text


def test_a_model_made_from_another_carries_its_card(trained: SentenceTransformer, tmp_path: Path) -> None:
    derived = SentenceTransformer(modules=[trained[0], Dense(4, 2)], device="cpu")
    carry_card_data(trained, derived)
    derived.model_card_data.add_tags("derived")
    save_model_atomically(derived, tmp_path / "model")
    text = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    check_host_card(text)
    assert "**Output Dimensionality:** 2" in text
    assert "derived" not in trained.model_card_data.tags
    assert trained.model_card_data.model is trained


EVIL = "<script>x()</script> [click](javascript:x) ![i](http://e/x.png) | `b`\n\n# Head\n---\n</details> **b** {{ x }}"


def test_texts_of_the_training_data_are_escaped(tmp_path: Path) -> None:
    model = tiny.static()
    set_card_data(model, languages=["en", "fr"])
    rows = {side: [f"{i} {EVIL}" for i in range(20)] for side in ("source", "target")}
    languages = {"source_language": ["en"] * 20, "target_language": ["fr"] * 20}
    data = DatasetDict({"<img src=x>|[a](b)": Dataset.from_dict({**rows, **languages})})
    SentenceTransformerTrainer(
        model=model,
        args=arguments(tmp_path / "run", max_steps=1, batch_sampler=CrossLingualBatches()),
        train_dataset=data,
        loss={name: SemanticContrastiveLoss(model) for name in data},
        data_collator=CrossLingualDataCollator(model.preprocess),
    ).train()
    model.save_pretrained(str(tmp_path / "model"))
    text = (tmp_path / "model" / "README.md").read_text()
    card = ModelCard(text)
    # The front matter ends where it should, and its examples are texts, on one line, without HTML.
    widget = card.data.to_dict()["widget"]
    assert card.data.language == ["en", "fr"] and len(widget) == 5
    shown = [sentence for example in widget for sentence in (example["source_sentence"], *example["sentences"])]
    assert all("&lt;script&gt;" in sentence and "<" not in sentence and "\n" not in sentence for sentence in shown)
    # In the rest, HTML and Markdown are only in the fenced code of the example of usage.
    parts = card.text.split("```")
    (usage,) = (part for part in parts[1::2] if "<script>" in part)
    assert usage.startswith("python") and "\n" not in usage.split("<script>")[1].split("</details>")[0]
    rest = "".join(parts[0::2])
    for mark in ("<script>", "<img", "[click]", "![i]", "**b**", "\n# Head", "{{ x", "http://e", "[a]"):
        assert mark not in rest, mark
    assert "&lt;script&gt;" in rest and "&#42;&#42;b&#42;&#42;" in rest and "&lt;img src=x&gt;&#124;" in rest


@pytest.mark.parametrize(
    "text, escaped",
    [
        ("plain text.", "plain text."),
        ("a\n\n# b", "a &#35; b"),
        ("x_y*z*", "x&#95;y&#42;z&#42;"),
        ("<a href='x'>", "&lt;a href='x'&gt;"),
        ("&lt;", "&amp;lt;"),
        ("a|b\\|c", "a&#124;b&#92;&#124;c"),
        ("https://x.y www.z", "https:&#8203;//x.y w&#8203;ww.z"),
    ],
)
def test_escape(text: str, escaped: str) -> None:
    assert escape(text) == escaped


def test_metadata_columns_are_no_text(tmp_path: Path) -> None:
    model = tiny.static()
    set_card_data(model, languages=["en", "fr"])
    words = {"source_word": ["sun"] * 8, "source_start": [1] * 8, "source_end": [2] * 8}
    data = DatasetDict(ccp=tiny.documents(), pairs=Dataset.from_dict({**tiny.pairs(8).to_dict(), **words}))
    losses = {"ccp": CitedLoss(model), "pairs": CitedLoss(model)}
    args = SentenceTransformerTrainingArguments(str(tmp_path), report_to="none", use_cpu=True)
    SentenceTransformerTrainer(model=model, args=args, train_dataset=data, loss=losses)
    card = model.model_card_data
    shown = [text for example in card.widget for text in [example["source_sentence"], *example["sentences"]]]
    texts = {*data["ccp"]["sentence"], *data["pairs"]["source"], *data["pairs"]["target"]}
    assert shown and {*shown} <= texts and {*card.usage_examples} <= texts
    columns = [column for about in card.train_datasets for column in about["columns"]]
    assert columns == [f"<code>{name}</code>" for name in ("sentence", "source", "target")]


@pytest.mark.parametrize(
    ("name", "base"), [("intfloat/multilingual-e5-small", True), ("/models/e5", False), ("", False)]
)
def test_the_card_names_the_base_model(name: str, base: bool) -> None:
    model = tiny.transformer()
    model[0].auto_model.config._name_or_path = name
    set_card_data(model)
    assert model.model_card_data.base_model == (name if base else None)


def calibrated(steps: list[str], languages: list[str], *, queries: bool = False) -> SentenceTransformer:
    base = SentenceTransformer(
        modules=list(tiny.static().children()), prompts={"query": "sun ", "passage": "moon "}, device="cpu"
    )
    layer = CalibrationLayer(8, [] if steps == ["lsar"] else languages, pivot=languages[0], steps=steps)
    model = export(base, layer, query_calibration=layer if queries else None)
    set_card_data(model, languages=languages)
    return model


def run_usage(card: Path) -> dict[str, Any]:
    """Run the example of a card's usage, as it stands in a repository that is named like the card's folder."""
    text = card.read_text(encoding="utf-8").replace("sentence_transformers_model_id", str(card.parent))
    (code,) = (block.code for block in python_blocks(text))
    names: dict[str, Any] = {}
    exec(compile(code, str(card), "exec"), names)
    return names


@pytest.mark.parametrize(
    ("steps", "languages", "queries"),
    [
        (["lsar"], ["en", "fr", "zh-tw"], True),
        (["shift", "scale"], ["en", "fr", "zh-tw"], True),
        (["shift", "rotate"], ["to"], False),
    ],
)
def test_the_card_of_a_calibrated_model(tmp_path: Path, steps: list[str], languages: list[str], queries: bool) -> None:
    calibrated(steps, languages, queries=queries).save_pretrained(str(tmp_path / "model"))
    card = tmp_path / "model" / "README.md"
    text = card.read_text(encoding="utf-8")
    assert "## Calibration" in text and all(f"\n| {step} " in text for step in steps)
    assert ("xie2022discovering" in text) == (steps == ["lsar"]) and ("wu2022ccp" in text) == (steps != ["lsar"])
    assert ("conneau2018word" in text) == ("rotate" in steps)
    assert ("task=" in text) == (steps != ["lsar"])
    names = run_usage(card)
    assert any(name.endswith("embeddings") for name in names)
    check_card(text)
    # Of codes, the Hub's metadata takes the language only.
    codes = ModelCard.load(card).data.language
    assert codes == sorted({code.partition("-")[0] for code in languages})


def test_the_example_names_language_and_prompt(tmp_path: Path) -> None:
    calibrated(["shift"], ["en", "fr"], queries=True).save_pretrained(str(tmp_path))
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert 'task="query_en", prompt_name="query")' in text and 'task="fr", prompt_name="passage")' in text


def test_base_model_and_licence_come_from_the_base_models_card(tmp_path: Path) -> None:
    folder = tmp_path / "e5"
    folder.mkdir()
    (folder / "README.md").write_text("---\nlicense: mit\nbase_model: [intfloat/multilingual-e5-small]\n---\n# E5\n")
    model = tiny.static()
    set_card_data(model, base_model=str(folder))
    assert (model.model_card_data.base_model, model.model_card_data.license) == (
        "intfloat/multilingual-e5-small",
        "mit",
    )
    set_card_data(model, license="apache-2.0", base_model=str(folder))
    assert model.model_card_data.license == "apache-2.0"
    (folder / "README.md").write_text("---\nlicense: [\n---\n")
    set_card_data(tiny.static(), base_model=str(folder))
    with pytest.raises(ValueError, match="'Apache 2'"):
        set_card_data(model, license="Apache 2")


def test_data_is_listed_by_name_with_its_licence(tmp_path: Path) -> None:
    (tmp_path / "books" / "documents").mkdir(parents=True)
    (tmp_path / "books" / "NOTICE.txt").write_text("mine")
    (tmp_path / "news").mkdir()
    (tmp_path / "news" / "README.md").write_text("---\nlicense: cc-by-4.0\n---\n# News\n")
    (tmp_path / "<b>.jsonl").touch()
    given = {"documents": [str(tmp_path / "books" / "documents"), str(tmp_path / "news"), "me/data:fr=fr"]}
    model = tiny.static()
    set_card_data(model, data={**given, "pairs": [str(tmp_path / "<b>.jsonl")], "queries": []})
    model.save_pretrained(str(tmp_path / "model"))
    text = re.sub(" +", " ", (tmp_path / "model" / "README.md").read_text(encoding="utf-8"))
    for row in (
        "| books/documents | stated in its NOTICE.txt | documents |",
        "| news | cc-by-4.0 | documents |",
        "| me/data | see [its card](https://huggingface.co/datasets/me/data) | documents |",
        "| &lt;b&gt;.jsonl | not stated | pairs |",
    ):
        assert row in text
    assert str(tmp_path) not in text


def test_examples_are_in_the_models_languages(tmp_path: Path) -> None:
    model = tiny.static()
    set_card_data(model, languages=["de", "es", "ru"])
    model.save_pretrained(str(tmp_path))
    card = ModelCard.load(tmp_path / "README.md")
    (example,) = card.data.to_dict()["widget"]
    assert len(example["sentences"]) == 3 and all(sentence in card.text for sentence in example["sentences"])


def test_a_derived_card_has_sections_of_its_own() -> None:
    model = calibrated(["lsar"], ["en", "fr"])
    other = SentenceTransformer(modules=list(model.children()), device="cpu")
    carry_card_data(model, other)
    other.model_card_data.sections["More"] = "text"
    assert list(model.model_card_data.sections) == ["Calibration"]
