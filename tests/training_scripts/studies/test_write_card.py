"""The cards of model_cards/, from tiny studies made by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

from tests import tiny
from tests.training_scripts.scripts import load_script
from training_scripts.studies import study_language_agnostic_ir, study_ml_ctl, study_msm
from training_scripts.studies.cards import language_agnostic_ir, ml_ctl, msm
from training_scripts.studies.cards.commands import shown, values
from training_scripts.studies.cards.sources import data_sources

Write = Callable[..., str]


@pytest.fixture
def write(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """The script as a function that returns the card, in a folder of its own."""
    module = load_script(repository, "write_card", monkeypatch)
    monkeypatch.chdir(tmp_path)

    def run(system: str, *options: str) -> str:
        output = Path("cards", f"{system}.md")
        module.main(["--system", system, "--data", "../shared/data", "--output", str(output), *options])
        text = output.read_text(encoding="utf-8")
        assert "../shared" not in text and str(tmp_path) not in text
        return "\n".join(map(without_padding, text.split("\n")))

    return run


def without_padding(line: str) -> str:
    """A row of a table without the spaces that align its columns; other lines stay as they are."""
    return f"| {' | '.join(cell.strip() for cell in line[1:-1].split('|'))} |" if line.startswith("|") else line


def save(folder: str, **files: Any) -> None:
    """Write files named stem_suffix: objects as JSON, texts as they are."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        Path(folder, name.replace("_", ".")).write_text(text, encoding="utf-8")


def save_model(run: str) -> None:
    """The model of a run."""
    tiny.static().save_pretrained(f"{run}/model")


def metadata(text: str) -> dict[tuple[str, str, str], float]:
    found = ModelCard(text).data.eval_results or []
    return {(r.dataset_name, r.metric_type, r.dataset_config): r.metric_value for r in found}


def ml_ctl_run(accuracy: float, **changes: Any) -> dict[str, Any]:
    average = {"accuracy": accuracy, "accuracy_to_en": accuracy + 1, "accuracy_from_en": accuracy - 1}
    run = {"average": average, "languages": {"fr": accuracy, "de": accuracy}, "seconds": 60.4, "steps": 7}
    return {**run, "pairs": 1234, "word_samples": None, "seconds_to_measure": 3.0, **changes}


def test_ml_ctl(write: Write) -> None:
    runs = {"info-snt seed 0": ml_ctl_run(30.0), "CZ-snt seed 0": ml_ctl_run(33.0), "CZ-snt seed 1": ml_ctl_run(35.0)}
    runs["ML-CTL-CZ seed 0"] = ml_ctl_run(32.0, word_samples={"fr": {"samples": 50}, "de": {"samples": 5}})
    command = "python training_scripts/study_ml_ctl.py --data ../shared/data --output runs/s"
    save("runs/s", study_json=runs, command_txt=command + "\n")
    trained = "python training_scripts/train_ml_ctl.py --from-scratch mini --languages en fr de"
    trained += " --pairs ../shared/data/tico19/pairs --exclude ../shared/data/tatoeba/v1/a.eng"
    save("runs/s/ML-CTL-CZ-seed-0", results_json={"command": trained})
    save_model("runs/s/ML-CTL-CZ-seed-0")
    text = write("ml-ctl", "--study", "runs/s")
    for line in (
        "from random weights (`mini` encoder). This is the model of the row ML-CTL-CZ, seed 0.",
        'SentenceTransformer("runs/s/ML-CTL-CZ-seed-0/model")',
        "study_ml_ctl.py --data DATA --output runs/s",
        "--pairs DATA/tico19/pairs --exclude DATA/tatoeba/v1/a.eng",
        "| TICO-19 | CC0 1.0 | pairs |",
        "| Tatoeba test set (LASER) | CC BY 2.0 FR | sentences left out of training, evaluation only |",
        "| system | fr | de | average | average, to en | average, from en | XTREME's average, from en |",
        "| CZ-snt | 34.0 | 34.0 | 34.0 | 35.0 | 33.0 |  |",
        "| ML-CTL-CZ, ML-CTL paper, Table 1 (published) |  |  |  |  |  | 43.4 |",
        "CZ-snt 1.4 (2 seeds)",
        "- By average accuracy, rows of this study are above this model (32.0): CZ-snt 34.0.",
        "| info-snt | 7 | 1,234 | 60 |",
        "| ML-CTL-CZ | 7 | 55 | 60 |",
        "| ML-CTL-CZ (this model) | 32.0 | 32.0 |",
        "- Rows that were not run, or are not finished: ML-CTL-info.",
        "- The floating-point study of CZ-NCE: not given to this card.",
        "@inproceedings{mlctl2022",
    ):
        assert line in text
    assert metadata(text)["tatoeba", "accuracy", "average"] == 0.32
    assert ModelCard(text).data.language == ["de", "en", "fr"]


def test_the_floating_point_study_goes_with_ml_ctl(write: Write) -> None:
    save("runs/s", study_json={"ML-CTL-CZ seed 3": ml_ctl_run(32.0)})
    save_model("runs/s/ML-CTL-CZ-seed-3")
    trainings = [{"seed": seed, "loss": "usual"} for seed in (0, 1)]
    figures = {"temperature": 0.07, "gradients": [], "encoder": "static", "steps": 2000, "trainings": trainings}
    save("runs/float", float_json=figures, gradients_md="| gap table |\n", training_md="| accuracy table |\n")
    save("runs/float", gradients_png="picture")
    text = write("ml-ctl", "--study", "runs/s", "--float-study", "runs/float")
    for line in ("| gap table |", "| accuracy table |", "static encoder", "2,000 steps", "seeds: 0, 1"):
        assert line in text
    assert "![ml-ctl-gradients.png](ml-ctl-gradients.png)" in text and "not given to this card" not in text
    assert sorted(path.name for path in Path("cards").iterdir()) == ["ml-ctl-gradients.png", "ml-ctl.md"]
    # What the run did not keep is absent, and said to be.
    for line in (
        "# command of the whole study: absent",
        "# training command: absent",
        "| training text | absent: not known to this program | absent: the run kept no command |",
        "from a start that is absent here",
    ):
        assert line in text
    save("runs/float", float_json={"temperature": 0.07, "gradients": []})
    text = write("ml-ctl", "--study", "runs/s", "--float-study", "runs/float")
    assert "| accuracy table |" not in text and "Trainings with these losses are absent" in text


def msm_run(score: float, row: str) -> dict[str, Any]:
    xquad = {"map_at_20": score, "mrr_at_100": score, "recall_at_100": score}
    parts = {"tatoeba": {"accuracy": score}, "tuned tatoeba": {"accuracy": score}}
    parts |= {"xquad_r": xquad, "xquad_r own language": xquad}
    command = "python training_scripts/train_msm.py --from-scratch mini --documents ../shared/data/thaigov mine.jsonl"
    command += f" --languages en th --seed 4 --max_steps 9 --seed 5 --output_dir runs/m/{row}-5"
    return {
        "average": parts,
        "languages": {name: {"th": scores} for name, scores in parts.items()},
        "training": {"command": command, "seconds": 10.0, "steps": 9, "tokens": 12345, "sentences": 6, "blocks": None},
        "seconds_to_tune_and_measure": 20.0,
    }


def test_msm(write: Write) -> None:
    save("runs/m", study_json={"MLM": [msm_run(0.1, "MLM")], "MSM": [msm_run(0.2, "MSM"), msm_run(0.3, "MSM")]})
    save("runs/m", study_png="picture")
    save_model("runs/m/MSM-5")
    text = write("msm", "--study", "runs/m", "--commands", "python evaluation/run.py --data=../shared/data/xquad_r")
    for line in (
        "The model is that of the row MSM, seed 5.",
        'SentenceTransformer("runs/m/MSM-5/model")',
        "| thaigov-v2 | public domain | documents |",
        "| mine.jsonl | absent: not known to this program | documents |",
        "| SQuAD 1.1 | CC BY-SA 4.0 | English questions and answers, fine-tuning",
        "| MLM | 10.0 | 10.0 |",
        "| MSM (this model) | 25.0 | 25.0 |",
        "| MSM (this model, fine-tuned) | 25.0 | 25.0 |",
        "| MSM, MSM paper, Table 12 (published) | 30.2 | 33.4 |",
        "| mBERT*, MSM paper, Table 1 (published) |  | 21.6 |",
        "MSM 7.1 (2 seeds)",
        "| MSM | 9 | 12,345 |",
        "Rows that were not run, or are not finished: no pre-training; mContriever; ICT; CROP; MSM, no bias;",
        "python evaluation/run.py --data=DATA/xquad_r",
        "![msm-study.png](msm-study.png)",
        "@inproceedings{zhang2023modeling",
    ):
        assert line in text
    assert text.count("### XQuAD-R, one pool of all languages") == 1
    # The model of the card is not the fine-tuned one.
    assert metadata(text) == {("Tatoeba", "accuracy", "th"): 0.25, ("Tatoeba", "accuracy", "average"): 0.25}


def ir_run(score: float, run: str, further: str = "") -> dict[str, Any]:
    scores = dict.fromkeys(("mrr_at_100", "recall_at_100", "map_at_20"), score)
    command = (
        "python -m training_scripts.studies.train_ir_ablation --model runs/ccp/model "
        f"{further} --output_dir runs/i/{run}"
    )
    return {
        "average": {group: scores for group in ("with", "without", "all")},
        "languages": {"en": scores, "th": scores},
        **{"seconds": 61.0, "steps": 8, "questions": 9000, "pairs": 0, "others": 5, "command": command},
    }


def test_language_agnostic_ir(write: Write) -> None:
    own = ir_run(0.4, "semantic-language-half", "--retrieval ../shared/data/squad_v1.1/train --no_parallel th")
    save("runs/i", study_json={"IR-half": ir_run(0.5, "IR-half"), "semantic-language-half": own, "mine-half": own})
    save_model("runs/i/semantic-language-half")
    save_model("runs/i/IR-half")
    text = write("language-agnostic-ir", "--study", "runs/i", "--hardware", "a pocket calculator")
    for line in (
        "from `runs/ccp/model`. The model is that of the row IR + semantic + language. "
        "Languages without parallel sentences: th.",
        "| SQuAD 1.1 | CC BY-SA 4.0 | English questions and answers |",
        "Hardware: a pocket calculator.",
        "| system | en | th | average with pairs | average without | average |",
        "| IR | 50.0 | 50.0 | 50.0 | 50.0 | 50.0 |",
        "| mine-half | 40.0 |",
        "| MSM, MSM paper, Table 12 (published) | 40.6 | 30.2 |  |  | 33.4 |",
        "| XLM-R + semaCL, lang-contrastive paper, Table 5 (published) | 38.9 |",
        "- By average MRR@100, rows of this study are above this model (40.0): IR 50.0.",
        "Rows that were not run, or are not finished: IR + semantic; IR + language; IR, pairs in all languages;",
        "@inproceedings{hu2023language",
    ):
        assert line in text
    assert {benchmark for benchmark, _, _ in metadata(text)} == {"XQuAD-R"}
    other = write("language-agnostic-ir", "--study", "runs/i", "--row", "IR-half")
    assert metadata(other)["XQuAD-R", "mrr-100", "average"] == 0.5
    assert "rows of this study are above" not in other and "Languages without parallel sentences: th." in other


def ccp_files() -> None:
    command = "python training_scripts/train_ccp.py --from-scratch static --documents ../shared/data/ebible/documents"
    training = {"command": command, "seconds": 120.0, "languages": ["en", "fr"], "sentences": 2000, "pairs": 30}
    save("runs/best", results_json=training)
    save_model("runs/best")
    save_model("runs/study-static/CCP-all")
    for label, model, score in (("raw", "runs/best/model", 0.5), ("shift", "runs/best/shift", 0.6)):
        scores = {"scores": {"fr": {"accuracy": score}}, "average": {"accuracy": score}}
        save("runs/best", **{f"{label}_json": {"benchmark": "tatoeba", "model": model, **scores}})
    figures = {"average": {"raw": 9.2, "rotate": 9.8}, "languages": {"raw": {"fr": 9.2}, "rotate": {"fr": 9.8}}}
    save("runs/study-static", study_json={"CCP-all": {**figures, "seconds": 65.0, "steps": 3, "pairs": 7}})
    save("runs/study-static", study_md="| study table |\n", command_txt="python s.py --data ../shared/data\n")


def test_ccp_from_a_run_and_evaluations(write: Write) -> None:
    ccp_files()
    files = ["raw=runs/best/raw.json", "shift=runs/best/shift.json"]
    text = write(
        "ccp", "--training", "runs/best", "--evaluations", *files, "--studies", "runs/study-static", "--commands", "one"
    )
    for line in (
        "```bash\npython training_scripts/train_ccp.py --from-scratch static --documents DATA/ebible/documents\n```",
        "| shift | 60.0 | 60.0 |\n| XLM-R (published) | 56.0 |",
        "Trained for 2 minutes (2 CPU cores, no GPU) on 2,000 sentences and 30 pairs",
        "- A static encoder ignores word order",
        "## Study: static",
        "| study table |",
        "Command: `python s.py --data DATA`",
        "@inproceedings{wu2022ccp",
    ):
        assert line in text
    # The calibrated model is another one.
    assert metadata(text)["tatoeba", "accuracy", "average"] == 0.5


def test_ccp_from_a_study(write: Write) -> None:
    ccp_files()
    text = write("ccp", "--study", "runs/study-static")
    assert "| CCP-all, rotate | 9.8 | 9.8 |" in text and "| study table |" in text
    assert "an absent number of sentences and 7 pairs" in text
    assert metadata(text)["tatoeba", "accuracy", "average"] == 0.092


def test_what_cannot_be_a_card_is_named(write: Write) -> None:
    with pytest.raises(ValueError, match=r"runs/none/study.json does not exist"):
        write("msm", "--study", "runs/none")
    save("runs/s", study_json={})
    with pytest.raises(ValueError, match="holds no runs"):
        write("msm", "--study", "runs/s")
    save("runs/s", study_json={"CZ-snt seed 0": ml_ctl_run(1.0)})
    with pytest.raises(ValueError, match=r"no run of 'ML-CTL-CZ', the card's model; there are \['CZ-snt'\]"):
        write("ml-ctl", "--study", "runs/s")
    with pytest.raises(ValueError, match="float.json does not exist"):
        write("ml-ctl", "--study", "runs/s", "--row", "CZ-snt", "--float-study", "runs/none")
    with pytest.raises(ValueError, match=r"runs/s/CZ-snt-seed-0/model holds no saved model"):
        write("ml-ctl", "--study", "runs/s", "--row", "CZ-snt")
    save("runs/s", study_json={"CZ-snt": ml_ctl_run(1.0)})
    with pytest.raises(ValueError, match="'CZ-snt' is not the name of a run"):
        write("ml-ctl", "--study", "runs/s")
    assert not Path("cards").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("msm", "--study is missing"),
        ("msm --study s --float-study f", "--float-study is for the card of ml-ctl, not of msm"),
        ("msm --study s --training r --evaluations a=b", "are for the card of ccp; msm takes --study"),
        ("ccp --training r", "--training and --evaluations belong together"),
        ("ccp --training r --evaluations a=b --row CCP-all", "--row chooses a run of --study"),
        ("ccp --study s --output card", "a card is a file that ends in .md"),
    ],
)
def test_options_that_do_not_fit_are_refused(write: Write, options: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        write(*options.split())


def test_commands_name_the_data_and_no_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = [f"data/v1/t.{code}.eng" for code in "abcdefg"]
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()
    command = f"python x.py --exclude {' '.join(names)} --pairs '{tmp_path}/data/p' data2 --output {tmp_path}/runs/a"
    assert shown(command, "data/") == "python x.py --exclude DATA/v1/t.*.eng --pairs 'DATA/p' data2 --output runs/a"
    Path("data/v1/t.h.eng").touch()  # now the pattern would name a file too many
    assert "DATA/v1/t.a.eng DATA/v1/t.b.eng" in shown(command, str(tmp_path / "data"))
    assert values("x --max_steps 1 --b --max-steps=2", "--max-steps") == ["2"]


def test_text_in_other_languages_is_no_source() -> None:
    command = "x --documents DATA/finnish_tdt DATA/wikipedia_2023 --pairs DATA/tico19"
    names = [source.name for source in data_sources(command, ["en", "ja"], {"tico19": "evaluation only"})]
    assert names == ["Wikipedia, May 2023 (bn el ja uk vi)", "TICO-19"]


def test_the_rows_are_those_of_the_studies() -> None:
    assert [*study_msm.ROWS, *study_msm.ABLATIONS] == msm.ROWS
    assert list(study_ml_ctl.ROWS) == ml_ctl.ROWS
    names = ["-".join(row.replace("+", " ").split()) for row in study_language_agnostic_ir.ROWS]
    assert names == list(language_agnostic_ir.OBJECTIVES)
