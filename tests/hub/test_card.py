"""What the card that the host writes learns from us, and the history that it keeps."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from huggingface_hub import ModelCard
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from st_xlret.evaluation import TatoebaEvaluator
from st_xlret.hub.card import carry_card_data, escape, set_card_data
from st_xlret.hub.export import export
from st_xlret.hub.loading import load_model
from st_xlret.modules import CalibrationLayer
from st_xlret.training.data import question_evaluator
from tests import tiny
from tests.docs.blocks import python_blocks

SECRET = "moon bear <script>"


def trained(folder: Path, *, pairs: int = 60) -> SentenceTransformer:
    """A model that the host's Trainer has trained and evaluated on held-out pairs, and on a tenth as many questions."""
    model = tiny.transformer()
    model[0].auto_model.config.name_or_path = "me/base"
    set_card_data(model, languages=["en", "fr"], license="apache-2.0", tags=["toy"])
    sides = ([f"{word} sun" for word in tiny.WORDS] * 5)[:pairs]
    questions = question_evaluator(Dataset.from_dict({"query": tiny.WORDS[:6], "positive": tiny.WORDS[:6]}))
    SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(
            str(folder / "run"),
            max_steps=1,
            eval_strategy="steps",
            eval_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        ),
        train_dataset=Dataset.from_dict({"one": [SECRET] * 8, "two": ["sun"] * 8}),
        loss=MultipleNegativesRankingLoss(model),
        evaluator=[TatoebaEvaluator({"fr": (sides, sides)}, name="pairs"), questions],
    ).train()
    return model


def card(model: SentenceTransformer, folder: Path) -> ModelCard:
    model.save_pretrained(str(folder))
    return ModelCard.load(folder / "README.md")


def squeezed(text: str) -> str:
    return re.sub(" +", " ", text)


def test_the_card_of_a_trained_model(tmp_path: Path) -> None:
    written = card(trained(tmp_path), tmp_path / "model")
    (score,) = {entry.dataset_name for entry in written.data.eval_results}
    assert score == "60 held-out pairs of the training data"
    assert "Retrieval on 6 held-out questions" in written.text
    assert "Translation retrieval on 60 held-out pairs" in written.text and "Tatoeba\n" not in written.text
    known = written.data
    assert (known.language, known.license, known.base_model) == (["en", "fr"], "apache-2.0", "me/base")
    assert {"st-xlret", "toy", "loss:MultipleNegativesRankingLoss"} <= set(written.data.tags)
    assert "moon bear" not in written.content, "texts of the training data are nobody's business"


def test_scores_of_few_pairs_are_not_in_the_metadata(tmp_path: Path) -> None:
    written = card(trained(tmp_path, pairs=6), tmp_path / "model")
    assert written.data.eval_results is None
    assert "Translation retrieval on 6 held-out pairs" in written.text


@pytest.mark.parametrize("loaded", [False, True])
def test_an_exported_model_keeps_its_history(tmp_path: Path, loaded: bool) -> None:
    model = trained(tmp_path)
    if loaded:
        model.save_pretrained(str(tmp_path / "model"))
        model = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    layer = CalibrationLayer(32, ["en", "fr"], pivot="en", steps=["shift"])
    exported = export(model, layer)
    set_card_data(exported, tags=["calibration"])
    written = card(exported, tmp_path / "exported")
    for part in ("## Calibration", "## History", "Training Hyperparameters", "60 held-out pairs", "wu2022ccp"):
        assert written.text.count(part) == 1, part
    assert "MultipleNegativesRankingLoss" in written.text and "Framework Versions" in written.text
    assert (written.data.base_model, written.data.license) == ("me/base", "apache-2.0")
    assert written.data.eval_results is None, "the scores are those of the model before"
    # And once more: each step of the way stands there once.
    again = card(export(SentenceTransformer(str(tmp_path / "exported"), device="cpu")), tmp_path / "again")
    assert again.text.count("<details><summary>SentenceTransformer based on me/base") == 2
    assert again.text.count("Training Hyperparameters") == 1 and again.text.count("### Calibration") == 1


def test_a_static_model_keeps_the_history_of_the_folder_that_it_was_loaded_from(tmp_path: Path) -> None:
    first = tiny.static()
    set_card_data(first, license="mit", data={"pairs": ["x.jsonl"]})
    first.save_pretrained(str(tmp_path / "first"))
    trained, loaded = (load_model(str(tmp_path / "first"), "cpu") for _ in range(2))
    set_card_data(trained, data={"documents": ["y.jsonl"]}, tags=["generated_from_trainer"])
    for model in (trained, export(loaded)):
        written = card(model, tmp_path / "second")
        assert written.data.license == "mit"
        before, history = written.text.split("## History")
        history, after = history.split("</details>", 1)
        assert "x.jsonl" in history and "<!--" not in history and "Training Details" not in history
        assert "x.jsonl" not in before + after and ("y.jsonl" in after) == (model is trained)


EVIL = "<script>x()</script> [click](javascript:x) | `b`\n\n# Head\n---\n**b** {{ x }}"


def test_what_others_wrote_is_escaped(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / "README.md").write_text(
        f"---\nlicense: 'mit\\n# x'\nbase_model: '{EVIL.splitlines()[0]}'\n---\n# B\n\n## Data\n\n{EVIL}\n\na\n"
    )
    (tmp_path / "<b>.jsonl").touch()
    model = tiny.static()
    set_card_data(model, base_model=str(base), data={"pairs": [str(tmp_path / "<b>.jsonl")]})
    assert (model.model_card_data.license, model.model_card_data.base_model) == (None, None)
    layer = CalibrationLayer(8, steps=[EVIL], notes={EVIL: EVIL})
    text = card(export(model, layer), tmp_path / "model").text
    for mark in ("<script>", "[click]", "**b**", "\n# Head", "<b>"):
        assert mark not in text, mark
    transformer = tiny.transformer()
    transformer[0].auto_model.config.name_or_path = str(base)
    assert "<script>" not in card(export(transformer), tmp_path / "other").content


@pytest.mark.parametrize(
    "text, escaped",
    [
        ("plain text.", "plain text."),
        ("a\n\n# b", "a &#35; b"),
        ("&lt;", "&amp;lt;"),
        ("a|b\\|c", "a&#124;b&#92;&#124;c"),
        ("https://x.y www.z", "https:&#8203;//x.y w&#8203;ww.z"),
    ],
)
def test_escape(text: str, escaped: str) -> None:
    assert escape(text) == escaped


@pytest.mark.parametrize("name, base", [("intfloat/e5", "intfloat/e5"), ("/models/e5", None), ("", None)])
def test_the_card_names_the_base_model(name: str, base: str | None) -> None:
    model = tiny.transformer()
    model[0].auto_model.config.name_or_path = name
    set_card_data(model)
    assert model.model_card_data.base_model == base


def test_base_model_and_licence_come_from_the_base_models_card(tmp_path: Path) -> None:
    file = tmp_path / "README.md"
    file.write_text("---\nlicense: mit\nbase_model: [intfloat/multilingual-e5-small]\n---\n# E5\n")
    model = tiny.static()
    set_card_data(model, base_model=str(tmp_path))
    known = model.model_card_data
    assert (known.base_model, known.license) == ("intfloat/multilingual-e5-small", "mit")
    set_card_data(model, license="apache-2.0", base_model=str(tmp_path))
    assert known.license == "apache-2.0"
    file.write_text("---\nlicense: [\n---\n")
    set_card_data(tiny.static(), base_model=str(tmp_path))
    with pytest.raises(ValueError, match="'Apache 2'"):
        set_card_data(model, license="Apache 2")


def test_data_is_listed_by_name_with_its_licence(tmp_path: Path) -> None:
    (tmp_path / "books" / "documents").mkdir(parents=True)
    (tmp_path / "books" / "NOTICE.txt").write_text("mine")
    (tmp_path / "news").mkdir()
    (tmp_path / "news" / "README.md").write_text("---\nlicense: cc-by-4.0\n---\n# News\n")
    given = {"documents": [str(tmp_path / "books" / "documents"), str(tmp_path / "news"), "me/data:fr=fr"]}
    model = tiny.static()
    set_card_data(model, data={**given, "pairs": [str(tmp_path / "x.jsonl")], "queries": []})
    text = squeezed(card(model, tmp_path / "model").text)
    for row in (
        "| books/documents | stated in its NOTICE.txt | documents |",
        "| news | cc-by-4.0 | documents |",
        "| me/data | stated on the Hub | documents |",
        "| x.jsonl | not stated | pairs |",
    ):
        assert row in text
    assert str(tmp_path) not in text


@pytest.mark.parametrize(
    ("steps", "languages", "queries"),
    [
        (["lsar"], ["en", "fr", "zh-tw"], True),
        (["shift", "scale"], ["en", "fr", "zh-tw"], True),
        (["shift", "rotate"], ["to"], False),
    ],
)
def test_the_card_of_a_calibrated_model(tmp_path: Path, steps: list[str], languages: list[str], queries: bool) -> None:
    base = SentenceTransformer(
        modules=list(tiny.static().children()), prompts={"query": "sun ", "passage": "moon "}, device="cpu"
    )
    layer = CalibrationLayer(8, [] if steps == ["lsar"] else languages, pivot=languages[0], steps=steps)
    model = export(base, layer, layer if queries else None)
    set_card_data(model, languages=languages)
    written = card(model, tmp_path / "model")
    assert all(f"\n| {step} " in written.text for step in steps)
    assert ("xie2022discovering" in written.text) == (steps == ["lsar"])
    assert ("conneau2018word" in written.text) == ("rotate" in steps)
    assert ("task=" in written.text) == (steps != ["lsar"])
    if steps == ["shift", "scale"]:
        assert 'task="query_en", prompt_name="query")' in written.text
        assert 'task="fr", prompt_name="document")' in written.text
    # The example of usage runs. Of codes, the Hub's metadata takes the language only.
    text = written.text.replace("sentence_transformers_model_id", str(tmp_path / "model"))
    (code,) = (block.code for block in python_blocks(text))
    names: dict[str, Any] = {}
    exec(compile(code, "card", "exec"), names)
    assert any(name.endswith("embeddings") for name in names)
    assert written.data.language == sorted({code.partition("-")[0] for code in languages})


def test_examples_are_in_the_models_languages(tmp_path: Path) -> None:
    model = tiny.static()
    set_card_data(model, languages=["de", "es", "ru"])
    written = card(model, tmp_path)
    (example,) = written.data.to_dict()["widget"]
    assert len(example["sentences"]) == 3 and all(sentence in written.text for sentence in example["sentences"])


def test_a_derived_card_has_sections_of_its_own() -> None:
    model = export(tiny.static(), CalibrationLayer(8, steps=["lsar"]))
    other = SentenceTransformer(modules=list(model.children()), device="cpu")
    carry_card_data(model, other)
    other.model_card_data.sections["More"] = "text"
    assert list(model.model_card_data.sections) == ["Calibration"]
