"""What the card that the host writes learns from us."""

import re
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
from st_xlret.hub.card import set_card_data
from st_xlret.hub.export import export
from st_xlret.hub.loading import load_model
from st_xlret.hub.texts import ANSWERS, LICENSES, STEPS
from st_xlret.modules import CalibrationLayer
from tests import tiny
from tests.conftest import REPOSITORY
from tests.docs.blocks import python_blocks

EVIL = "<script>x()</script> [click](javascript:x) | `b`\n\n# Head\n---\n**b** {{ x }}"


def card(
    model: SentenceTransformer, folder: Path, save: Any = SentenceTransformer.save_pretrained
) -> ModelCard:
    save(model, str(folder))
    return ModelCard.load(folder / "README.md")


def test_a_card_shows_no_text_of_the_training_and_an_exported_one_keeps_all_but_scores(
    tmp_path: Path,
) -> None:
    model, hosts = tiny.transformer(), tiny.transformer()
    model[0].auto_model.config.name_or_path = "me/base"
    data = {"pairs": ["x.jsonl"], "documents": ["me/news:fr:train=fr", "big.jsonl"]}
    set_card_data(model, languages=["en", "fr"], license="openrail++", tags=["toy"], data=data)
    rows = Dataset.from_dict({"one": ["moon bear <script>"] * 8, "two": ["sun"] * 8})
    options: Any = {"max_steps": 1, "save_strategy": "no", "report_to": "none", "use_cpu": True}
    arguments = SentenceTransformerTrainingArguments(str(tmp_path / "run"), **options)
    for each in (model, hosts):
        SentenceTransformerTrainer(
            each, arguments, rows, loss=MultipleNegativesRankingLoss(each)
        ).train()
    assert "moon bear" in card(hosts, tmp_path / "hosts").content
    for each in (hosts, SentenceTransformer(str(tmp_path / "hosts"), device="cpu")):
        assert "moon bear" not in card(each, tmp_path / "plain", save_portable).content
    model.model_card_data.all_hyperparameters["resume_from_checkpoint"] = "/home/me/run"
    written = card(model, tmp_path / "model")
    facts = {
        "base_model": "me/base",
        "license": "openrail++",
        "language": ["en", "fr"],
        "datasets": ["me/news"],
    }
    assert {fact: getattr(written.data, fact) for fact in facts} == facts
    assert {"st-xlret", "toy", "loss:MultipleNegativesRankingLoss"} <= set(written.data.tags)
    assert "moon bear" not in written.content and "/home/me" not in written.content

    model.model_card_data.sections["Results"] = "99.9"
    calibration = CalibrationLayer(32, ["en", "fr"], pivot="en", steps=["shift"])
    written = card(export(model, calibration), tmp_path / "exported")
    assert (
        "## Calibration" in written.text
        and "- pairs: `x.jsonl`" in written.text
        and "99.9" not in written.text
    )
    assert (
        "MultipleNegativesRankingLoss" in written.text
        and "generated_from_trainer" not in written.data.tags
    )
    again = card(export(load_model(str(tmp_path / "exported"), "cpu")), tmp_path / "again")
    for each in (written, again):
        assert {
            fact: getattr(each.data, fact) for fact in facts
        } == facts and "toy" in each.data.tags


def test_what_others_wrote_is_no_markup(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(
        f"---\nlicense: 'mit\\n# x'\nbase_model: '{EVIL.splitlines()[0]}'\n---\n# B\n"
    )
    model = tiny.static()
    set_card_data(
        model, base_model=str(tmp_path), data={"pairs": ["<b>`[click](javascript:x).jsonl"]}
    )
    assert (model.model_card_data.license, model.model_card_data.base_model) == (None, None)
    text = card(
        export(model, CalibrationLayer(8, steps=[EVIL], notes={"note": EVIL})), tmp_path / "model"
    ).text
    assert (
        "<script>" not in text
        and "\n# Head" not in text
        and "`<b>'[click](javascript:x).jsonl`" in text
    )


def test_facts_come_from_the_base_models_card(tmp_path: Path) -> None:
    file, model = tmp_path / "README.md", tiny.static()
    facts = {
        "license": "mit",
        "base_model": "intfloat/e5",
        "language": ["fr", "multilingual"],
        "datasets": ["me/news"],
    }
    metadata_save(file, {**facts, "tags": ["feature-extraction", "health", "mteb"]})
    set_card_data(model, base_model=str(tmp_path))
    stated = model.model_card_data
    assert {fact: getattr(stated, fact) for fact in facts} == facts
    assert "health" in stated.tags and "mteb" not in stated.tags
    set_card_data(model, license="apache-2.0", base_model=str(tmp_path))
    assert stated.license == "apache-2.0"
    file.write_text("---\nlicense: [\n---\n")
    set_card_data(tiny.static(), base_model=str(tmp_path))
    with pytest.raises(ValueError, match="'apache2'.* apache-2.0"):
        set_card_data(model, license="apache2")


@pytest.mark.parametrize(
    ("steps", "languages", "has_queries"),
    [
        (["lsar"], [], True),
        (["shift", "scale"], ["en", "fr", "zh-tw"], True),
        (["shift", "rotate"], ["to"], False),
    ],
)
def test_the_card_of_a_calibrated_model(
    tmp_path: Path, steps: list, languages: list, has_queries: bool
) -> None:
    base = tiny.static()
    base.prompts = {"query": "sun ", "passage": "moon "}
    calibration = CalibrationLayer(8, languages, pivot=(languages or [None])[0], steps=steps)
    model = export(base, calibration, query_calibration=calibration if has_queries else None)
    set_card_data(model, languages=languages)
    written = card(model, tmp_path / "model")
    assert all(f"- `{step}` " in written.text for step in steps)
    assert written.text.count("@inproceedings") == 1 + len({STEPS[step].paper for step in steps})
    # The example of usage runs. Of codes, the Hub's metadata takes the language only.
    (code,) = (block.code for block in python_blocks(written.text))
    assert ('task="query_en", prompt_name="query"' in code) == (has_queries and bool(languages))
    exec(code.replace("sentence_transformers_model_id", str(tmp_path / "model")), {})
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
    assert (
        written.data.license in LICENSES
        and written.data.base_model
        and "st-xlret" in written.data.tags
    )
    assert f'SentenceTransformer("xlret/{file.stem}")' in written.text
    assert all(link.startswith("https://") for link in re.findall(r"\]\(([^)]*)\)", written.text))
