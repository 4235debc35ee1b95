"""What the card that the host writes learns from us."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from huggingface_hub import ModelCard, metadata_save
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from st_xlret import save_portable
from st_xlret.calibration.steps import STEPS
from st_xlret.hub.card import ensure_card_data, set_card_data
from st_xlret.hub.export import export
from st_xlret.hub.loading import load_model
from st_xlret.hub.texts import ANSWERS, LICENSES, STEPS_IN_WORDS
from st_xlret.modules import CalibrationLayer
from tests import tiny
from tests.conftest import REPOSITORY
from tests.docs.blocks import python_blocks

EVIL = "<script>x()</script> [click](javascript:x) | `b`\n\n# Head\n---\n**b** {{ x }}"


FACTS = {
    "base_model": "me/base",
    "license": "openrail++",
    "language": ["en", "fr"],
    "datasets": ["me/news"],
}


def card(
    model: SentenceTransformer,
    folder: Path,
    save: Callable[..., None] = SentenceTransformer.save_pretrained,
) -> ModelCard:
    save(model, str(folder))
    return ModelCard.load(folder / "README.md")


def facts_in(written: ModelCard) -> dict[str, Any]:
    return {fact: getattr(written.data, fact) for fact in FACTS}


def train(model: SentenceTransformer, folder: Path) -> None:
    rows = Dataset.from_dict({"one": ["moon bear <script>"] * 8, "two": ["sun"] * 8})
    arguments = SentenceTransformerTrainingArguments(
        str(folder), max_steps=1, save_strategy="no", report_to="none", use_cpu=True
    )
    loss = MultipleNegativesRankingLoss(model)
    SentenceTransformerTrainer(model, arguments, rows, loss=loss).train()


@pytest.fixture
def trained(tmp_path: Path) -> SentenceTransformer:
    """A model whose card knows its facts."""
    model = tiny.transformer()
    model[0].auto_model.config.name_or_path = "me/base"
    set_card_data(
        model,
        languages=["en", "fr"],
        license="openrail++",
        tags=["toy"],
        data={"pairs": ["x.jsonl"], "documents": ["me/news:fr:train=fr", "big.jsonl"]},
    )
    train(model, tmp_path / "run")
    return model


def test_a_card_shows_facts_and_no_text_or_path_of_the_training(
    tmp_path: Path, trained: SentenceTransformer
) -> None:
    trained.model_card_data.all_hyperparameters["resume_from_checkpoint"] = "/home/me/run"
    written = card(trained, tmp_path / "model")
    assert facts_in(written) == FACTS
    assert {"st-xlret", "toy", "loss:MultipleNegativesRankingLoss"} <= set(written.data.tags)
    assert "moon bear" not in written.content
    assert "/home/me" not in written.content


def test_a_portable_folder_of_a_model_of_the_host_shows_no_text_of_its_training(
    tmp_path: Path,
) -> None:
    model = tiny.transformer()
    train(model, tmp_path / "run")
    assert "moon bear" in card(model, tmp_path / "hosts").content
    loaded = SentenceTransformer(str(tmp_path / "hosts"), device="cpu")
    for each in (model, loaded):
        assert "moon bear" not in card(each, tmp_path / "plain", save_portable).content


def test_an_exported_model_keeps_all_but_scores(
    tmp_path: Path, trained: SentenceTransformer
) -> None:
    trained.model_card_data.sections["Results"] = "99.9"
    calibration = CalibrationLayer(32, ["en", "fr"], pivot="en", steps=["shift"])
    written = card(export(trained, calibration), tmp_path / "exported")
    assert "## Calibration" in written.text
    assert "- pairs: `x.jsonl`" in written.text
    assert "99.9" not in written.text
    assert "MultipleNegativesRankingLoss" in written.text
    assert "generated_from_trainer" not in written.data.tags
    again = card(export(load_model(str(tmp_path / "exported"), "cpu")), tmp_path / "again")
    for each in (written, again):
        assert facts_in(each) == FACTS
        assert "toy" in each.data.tags


def test_what_others_wrote_is_no_markup(tmp_path: Path) -> None:
    first_line = EVIL.splitlines()[0]
    metadata = f"license: 'mit\\n# x'\nbase_model: '{first_line}'"
    (tmp_path / "README.md").write_text(f"---\n{metadata}\n---\n# B\n")
    model = tiny.static()
    source = "<b>`[click](javascript:x).jsonl"
    set_card_data(model, base_model=str(tmp_path), data={"pairs": [source]})
    assert model.model_card_data.license is None
    assert model.model_card_data.base_model is None

    calibration = CalibrationLayer(8, steps=[EVIL], notes={"note": EVIL})
    text = card(export(model, calibration), tmp_path / "model").text
    assert "<script>" not in text
    assert "\n# Head" not in text
    assert "`<b>'[click](javascript:x).jsonl`" in text


def test_the_name_of_a_source_shows_no_key() -> None:
    model = tiny.static()
    sources = ["data/pairs-hf_abcdefghijkl.jsonl", "a.jsonl?sig=abc"]
    set_card_data(model, data={"pairs": sources})
    shown = ensure_card_data(model).sections["Data"]
    assert shown == "- pairs: `pairs-hf_***.jsonl`, `a.jsonl?sig=***`"


def test_facts_come_from_the_base_models_card(tmp_path: Path) -> None:
    facts = {
        "license": "mit",
        "base_model": "intfloat/e5",
        "language": ["fr", "multilingual"],
        "datasets": ["me/news"],
    }
    file = tmp_path / "README.md"
    metadata_save(file, {**facts, "tags": ["feature-extraction", "health", "mteb"]})
    model = tiny.static()
    set_card_data(model, base_model=str(tmp_path))
    stated = model.model_card_data
    assert {fact: getattr(stated, fact) for fact in facts} == facts
    assert "health" in stated.tags
    assert "mteb" not in stated.tags
    set_card_data(model, license="apache-2.0", base_model=str(tmp_path))
    assert stated.license == "apache-2.0"


def test_a_card_that_nobody_can_read_states_nothing_and_a_wrong_license_is_named(
    tmp_path: Path,
) -> None:
    (tmp_path / "README.md").write_text("---\nlicense: [\n---\n")
    model = tiny.static()
    set_card_data(model, base_model=str(tmp_path))
    assert model.model_card_data.license is None
    with pytest.raises(ValueError, match="'apache2'.* apache-2.0"):
        set_card_data(model, license="apache2")


def test_the_working_folder_is_no_base_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    metadata_save(tmp_path / "README.md", {"license": "mit"})
    model = tiny.static()  # which names no checkpoint
    set_card_data(model)
    assert model.model_card_data.license is None


@pytest.mark.parametrize(
    ("steps", "languages", "has_queries"),
    [
        (["lsar"], [], True),
        (["shift", "scale"], ["en", "fr", "zh-tw"], True),
        (["shift", "rotate"], ["to"], False),
    ],
)
def test_the_card_of_a_calibrated_model(
    tmp_path: Path, steps: list[str], languages: list[str], has_queries: bool
) -> None:
    base = tiny.static()
    base.prompts = {"query": "sun ", "passage": "moon "}
    pivot = languages[0] if languages else None
    calibration = CalibrationLayer(8, languages, pivot=pivot, steps=steps)
    model = export(base, calibration, query_calibration=calibration if has_queries else None)
    set_card_data(model, languages=languages)
    written = card(model, tmp_path / "model")
    for step in steps:
        assert f"- `{step}` " in written.text
    papers = {STEPS_IN_WORDS[step].paper for step in steps}
    assert written.text.count("@inproceedings") == 1 + len(papers)

    # The example of usage runs.
    (block,) = python_blocks(written.text)
    names_its_prompt = 'task="query_en", prompt_name="query"' in block.code
    assert names_its_prompt == (has_queries and bool(languages))
    exec(block.code.replace("sentence_transformers_model_id", str(tmp_path / "model")), {})
    # Of codes, the Hub's metadata takes the language only.
    assert (written.data.language or []) == [code.partition("-")[0] for code in languages]


@pytest.mark.parametrize(
    ("languages", "answers"),
    [
        (["de", "es", "zh"], ["de", "es", "zh"]),
        (["de", "sw", "en"], ["en", "de"]),  # no third one, which has no part in a calibration
        (["sw"], ["en", "de", "es"]),
    ],
)
def test_examples_are_in_the_models_languages(
    tmp_path: Path, languages: list[str], answers: list[str]
) -> None:
    model = tiny.static()
    set_card_data(model, languages=languages)
    written = card(model, tmp_path)
    (example,) = written.data.to_dict()["widget"]
    assert example["sentences"] == [ANSWERS[code] for code in answers]
    for sentence in example["sentences"]:
        assert sentence in written.text


def test_the_card_says_what_its_differences_and_scores_are_of(tmp_path: Path) -> None:
    save_portable(export(tiny.static(), CalibrationLayer(8, steps=["lsar"])), tmp_path)
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "Measured on another model, multilingual-e5-small" in text
    assert "Scores are lower than those of the encoder" in text


@pytest.mark.parametrize(
    "file", sorted((REPOSITORY / "model_cards").glob("[!R]*.md")), ids=lambda file: file.stem
)
def test_the_cards_of_the_systems_are_ready_to_push(file: Path) -> None:
    written = ModelCard.load(file)
    assert written.data.license in LICENSES
    assert written.data.base_model
    assert "st-xlret" in written.data.tags
    assert f'SentenceTransformer("xlret/{file.stem}")' in written.text
    for link in re.findall(r"\]\(([^)]*)\)", written.text):
        assert link.startswith("https://")


def test_names_of_data_show_no_secrets(tmp_path: Path) -> None:
    model = tiny.static()
    sources = ["https://me:pass@host/a.jsonl?token=abc", "https://me:pass@host"]
    set_card_data(model, data={"documents": sources})
    written = card(model, tmp_path).text
    assert "a.jsonl?token=***" in written
    assert "pass" not in written
    assert "abc" not in written


def test_each_step_has_words_for_cards() -> None:
    assert set(STEPS_IN_WORDS) == set(STEPS)
