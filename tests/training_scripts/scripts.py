"""The scripts as functions, tiny data for them, and ways to stop a run."""

import importlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import TrainerCallback

from st_xlret.modules import train_tokenizer, transformer_encoder
from tests.data.files import multilingual_pool, write_jsonl, write_text

_LISTS = {
    "en": "sun moon star rain wind snow tree leaf root fish bird wolf",
    "fr": "soleil lune astre pluie vent neige arbre feuille racine poisson oiseau loup",
}
WORDS = {language: words.split() for language, words in _LISTS.items()}

_EVERYWHERE = "--use_cpu --precision fp32 --disable_tqdm true --max_seq_length 16 --learning_rate 1e-2 --logging_steps 2"
_SMALL = "--per_device_train_batch_size 4 --vocabulary 150"
_TEXTS = "--documents {data}/documents.jsonl --pairs {data}/pairs.jsonl"
SCRIPTS = {
    "ccp": f"{_SMALL} --from_scratch static --features 16 --bank_size 32 {_TEXTS}",
    "msm": f"{_SMALL} --from_scratch tiny --block_sentences 4 {_TEXTS}",
    "ml-ctl": f"{_SMALL} --from_scratch tiny --pairs {{data}}/pairs.jsonl --dictionaries {{data}}/words.en-fr.tsv",
    "language-agnostic-ir": f"--per_device_train_batch_size 4 --from_scratch static {_TEXTS} "
    "--retrieval {data}/answers.jsonl --evaluation_pairs 2",
    "retriever": "--per_device_train_batch_size 8 --from_scratch static --retrieval {data}/questions.jsonl",
    "search": "--per_device_train_batch_size 16 --bank_size 64 --model {data}/encoder --max_seq_length 24 "
    "--pairs {data}/pairs.jsonl --retrieval {data}/answers.jsonl --evaluation_pairs 4",
    "queries": "--per_device_train_batch_size 16 --max_seq_length --model {data}/encoder "
    "--documents {data}/collection.jsonl",
}
"""Options of each script that make a run of seconds."""


def script(name: str) -> ModuleType:
    """The module of a script."""
    return importlib.import_module(f"training_scripts.train_{name.replace('-', '_')}")


def command(
    name: str, data: Path, output: Path, *options: str | Path, tiny: bool = True
) -> list[str]:
    """The command line of a run: files of options, the options of `SCRIPTS`, and those given, which replace them.

    An option without a value takes away that of `SCRIPTS` where it has one: `--pairs` for a run without pairs.
    """
    files = [str(option) for option in options if str(option).endswith(".yaml")]
    defaults = f"{_EVERYWHERE} {SCRIPTS[name]}".format(data=data).split() if tiny else []
    parts = [option.split() if isinstance(option, str) else [str(option)] for option in options]
    chosen, last = dict[str, list[str]](), ""
    for word in [*defaults, *(word for part in parts for word in part if word not in files)]:
        if not word.startswith("--"):
            chosen[last].append(word)
            continue
        chosen[last := word] = []
        chosen.pop({"--model": "--from_scratch", "--from_scratch": "--model"}.get(word, ""), None)
    with_values = {word for word in defaults if word.startswith("--")} - {"--use_cpu"}
    kept = {word: values for word, values in chosen.items() if values or word not in with_values}
    return [
        *files,
        *(part for word, values in kept.items() for part in (word, *values)),
        "--output_dir",
        str(output),
    ]


class Runner:
    """Runs scripts on the tiny data, into folders of a test."""

    def __init__(self, data: Path, folder: Path) -> None:
        self.data, self.folder = data, folder

    def __call__(self, name: str, *options: str | Path, output: str = "run") -> dict[str, Any]:
        """Run a script; returns the content of results.json."""
        given = command(name, self.data, self.folder / output, *options)
        return script(name).main(given)  # type: ignore[no-any-return]

    def built(self, name: str, *options: str | Path, tiny: bool = True) -> Any:
        """What a script gives its Trainer: `model`, `args`, `datasets` and `loss`; nothing is trained.

        Without `tiny`, the script has the given options alone.
        """
        given = command(name, self.data, self.folder / "built", *options, "--overwrite", tiny=tiny)
        stop = patch.object(script(name), "CrossLingualTrainer", side_effect=InterruptedError)
        with stop as trainer, pytest.raises(InterruptedError):
            script(name).main(given)
        model, args, datasets = trainer.call_args.args
        return SimpleNamespace(
            model=model, args=args, datasets=datasets, loss=trainer.call_args.kwargs["loss"]
        )

    @contextmanager
    def stopped(self, name: str, step: int) -> Iterator[None]:
        """Runs of a script are interrupted after a step, as by Ctrl-C."""

        class Stop(TrainerCallback):
            def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                if state.global_step == step:
                    raise KeyboardInterrupt

        trainer = partial(script(name).CrossLingualTrainer, callbacks=[Stop()])
        with patch.object(script(name), "CrossLingualTrainer", trainer):
            yield


def sentence(language: str, dice: random.Random, words: int = 4) -> str:
    return " ".join(dice.choices(WORDS[language], k=words))


def translations(dice: random.Random, words: int = 4) -> dict[str, str]:
    """A sentence in each language."""
    chosen = dice.choices(range(12), k=words)
    return {language: " ".join(known[i] for i in chosen) for language, known in WORDS.items()}


def write_data(folder: Path) -> None:
    """Write documents, pairs, a dictionary, questions, a test set and an encoder with prompts."""
    dice = random.Random(0)
    documents = [
        {"language": code, "sentences": [sentence(code, dice) for _ in "1234"]}
        for code in ["en", "fr"] * 12
    ]
    write_jsonl(folder / "documents.jsonl", documents)
    both = [translations(dice) for _ in range(120)]
    languages = {"source_language": "en", "target_language": "fr"}
    write_jsonl(
        folder / "pairs.jsonl", [{**languages, "source": x["en"], "target": x["fr"]} for x in both]
    )
    collection = [{"language": code, "text": text} for each in both for code, text in each.items()]
    write_jsonl(folder / "collection.jsonl", collection)
    write_text(
        folder / "words.en-fr.tsv",
        "".join(f"{a}\t{b}\n" for a, b in zip(*WORDS.values(), strict=True)),
    )
    # Two questions in two languages for each passage, and a wrong passage.
    rows = []
    for i in range(60):
        code = ("en", "fr")[i % 2]
        words = sentence(code, dice, 5).split()
        about = {"positive": f"{i} {' '.join(words)}", "language": code}
        asked = (" ".join(words[k : k + 3]) for k in (0, 1))
        rows += [{"query": query, "negatives": [sentence(code, dice)], **about} for query in asked]
    write_jsonl(folder / "questions.jsonl", rows)
    # Three questions about each paragraph of three sentences; the answer is the number at the end of one of them.
    answers = []
    for i in range(30):
        texts = [f"{sentence('en', dice).capitalize()} {i}{n}." for n in range(3)]
        context = " ".join(texts)
        for n, text in enumerate(texts):
            place = {"answers": [f"{i}{n}"], "answer_start": context.index(f"{i}{n}.")}
            query = f"{' '.join(text.lower().split()[:3])}?"
            answers.append({"query": query, "positive": context, "title": "t", **place})
    write_jsonl(folder / "answers.jsonl", answers)
    test_set = [translations(dice) for _ in range(12)]
    multilingual_pool(folder / "xquad", {code: [text[code] for text in test_set] for code in WORDS})
    torch.manual_seed(0)
    tokenizer = train_tokenizer(
        [" ".join(map(" ".join, WORDS.values())) + " query: passage: ?."] * 4, vocabulary=200
    )
    model = transformer_encoder(tokenizer, "tiny", max_seq_length=24)
    model.prompts = {"query": "query: ", "document": "passage: "}
    model.save_pretrained(str(folder / "encoder"))


def equal_weights(one: Path, other: Path) -> bool:
    expected, other_weights = (
        SentenceTransformer(str(folder), device="cpu").state_dict() for folder in (one, other)
    )
    return expected.keys() == other_weights.keys() and all(
        torch.equal(other_weights[name], weight) for name, weight in expected.items()
    )


def figures(results: dict[str, Any]) -> dict[str, Any]:
    """What two equal runs have in common."""
    return {name: value for name, value in results.items() if name not in ("command", "seconds")}


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("checkpoint-*"))
