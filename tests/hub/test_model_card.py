from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
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

from st_xlret.files import save_model_atomically
from st_xlret.hub import (
    DataSource,
    ResultTable,
    carry_card_data,
    merge_into_host_card,
    set_card_data,
    table_from_evaluations,
    write_model_card,
)

CITATION = "@article{ccp,\n  title = {Contrastive Context Prediction}\n}"
RUN = {
    "benchmark": "tatoeba",
    "model": "runs/ccp/model",
    "scores": {"fr": {"accuracy": 0.512, "accuracy_to_en": 0.5}, "de": {"accuracy": 0.25}},
    "average": {"accuracy": 0.381},
}


def card(path: Path, **changes: Any) -> str:
    table = table_from_evaluations(
        {"pairs only": {**RUN, "average": {"accuracy": 0.3}}, "+ CCP": RUN},
        "accuracy",
        published={"CCP (XLM-R)": {"fr": 0.951, "el": 0.9}},
        note="Both directions, averaged.",
    )
    options: dict[str, Any] = {
        "model_name": "me/ccp",
        "title": "CCP from scratch",
        "summary": "A retriever.",
        "languages": ["en", "fr", "de"],
        "data": [DataSource("Books | old", "public domain", "documents", url="books.example")],
        "training_command": "python training_scripts/train_ccp.py --output runs/ccp",
        "results": [table],
        "citations": [CITATION, CITATION + "\n"],
        "limits": ["Short sentences only."],
        "evaluation_commands": ["python evaluation/run.py --model runs/ccp/model --benchmark tatoeba"],
        "seconds": {"training": 1234.4},
        "hardware": "2 CPU cores",
        "license": "apache-2.0",
        "tags": ["ccp"],
    }
    return write_model_card(path, **{**options, **changes})


def test_the_card_holds_what_the_run_gave(tmp_path: Path) -> None:
    text = card(tmp_path)
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == text
    for line in (
        "# CCP from scratch",
        'model = SentenceTransformer("me/ccp")',
        "| [Books \\| old](books.example) | public domain | documents |",
        "python training_scripts/train_ccp.py --output runs/ccp",
        "Hardware: 2 CPU cores.",
        "| training | 1,234 |",
        "| system | fr | de | average | el |",
        "| pairs only | 51.2 | 25.0 | 30.0 | |",
        "| + CCP | 51.2 | 25.0 | 38.1 | |",
        "| CCP (XLM-R) (published) | 95.1 | | | 90.0 |",
        "Both directions, averaged.",
        "- Short sentences only.",
    ):
        assert line in re.sub(" +", " ", text)
    assert text.count("@article{ccp") == 1


def test_the_metadata_is_what_the_hub_reads(tmp_path: Path) -> None:
    data = ModelCard(card(tmp_path)).data
    assert data.language == ["en", "fr", "de"]
    assert data.license == "apache-2.0"
    assert data.library_name == "sentence-transformers"
    assert {"st-xlret", "ccp"} <= set(data.tags)
    values = {result.dataset_config: result.metric_value for result in data.eval_results}
    assert values == {"fr": 0.512, "de": 0.25, "average": 0.381}
    assert data.eval_results[0].dataset_name == "tatoeba"


def test_published_figures_are_never_the_models_own(tmp_path: Path) -> None:
    text = card(tmp_path, results=[ResultTable("tatoeba", "accuracy", {}, {"CCP": {"fr": 0.951}})])
    assert "95.1" in text
    assert ModelCard(text).data.eval_results is None


def test_tables_of_one_benchmark_stand_together_and_may_be_of_another_model(tmp_path: Path) -> None:
    tables = [
        ResultTable("tatoeba", "accuracy", {"a": {"fr": 0.5}}),
        ResultTable("tatoeba", "f1", {"a": {"fr": 0.4}}, in_metadata=False),
    ]
    text = card(tmp_path, results=tables)
    assert text.count("### tatoeba") == 1 and "Metric: f1 (%)" in text
    assert [result.metric_type for result in ModelCard(text).data.eval_results] == ["accuracy"]


def test_a_file_name_is_taken_as_it_is(tmp_path: Path) -> None:
    card(tmp_path / "cards" / "ccp.md")
    assert [p.name for p in (tmp_path / "cards").iterdir()] == ["ccp.md"]


def test_a_calibrated_models_usage_names_the_language(tmp_path: Path) -> None:
    assert 'model.encode(texts, task="fr")' in card(tmp_path, task_language="fr")


def test_bad_input_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="languages is empty"):
        card(tmp_path, languages=[])
    with pytest.raises(ValueError, match="'best' is not a row"):
        card(tmp_path, results=[ResultTable("t", "accuracy", {"a": {"fr": 1.0}}, model_row="best")])
    with pytest.raises(ValueError, match="'f1'.*'accuracy'"):
        table_from_evaluations({"a": RUN}, "f1")
    with pytest.raises(ValueError, match=r"\['bucc', 'tatoeba'\]"):
        table_from_evaluations({"a": RUN, "b": {**RUN, "benchmark": "bucc"}}, "accuracy")
    assert list(tmp_path.iterdir()) == []


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


def test_sections_join_the_hosts_card_once(trained: SentenceTransformer, tmp_path: Path) -> None:
    folder = save_model_atomically(trained, tmp_path / "model")
    original = (folder / "README.md").read_text(encoding="utf-8")
    merge_into_host_card(folder, {"Data": "First version."})
    text = merge_into_host_card(folder, {"Data": "Books.", "Limits": "Short texts."})
    assert (folder / "README.md").read_text(encoding="utf-8") == text
    assert "First version." not in text and text.count("## Data\n") == 1
    assert text.index("## Data") < text.index("## Limits") < text.index("## Citation")
    check_host_card(text)
    assert text.split("## Citation")[1] == original.split("## Citation")[1]


def test_sections_go_to_the_end_where_there_are_no_citations(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"README\.md does not exist"):
        merge_into_host_card(tmp_path, {"Data": "Books."})
    (tmp_path / "README.md").write_text("# Model\n")
    text = merge_into_host_card(tmp_path, {"Data": "Books."})
    assert text.startswith("# Model\n\n") and "## Data\n\nBooks." in text
