"""The scripts as functions, tiny data for them, and ways to stop a run."""

import importlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
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

_EVERYWHERE = (
    "--use_cpu --precision fp32 --disable_tqdm true --max_seq_length 16 --learning_rate 1e-2 "
    "--logging_steps 2"
)
_SMALL = "--per_device_train_batch_size 4 --vocabulary 150"
_TEXTS = "--documents {data}/documents.jsonl --pairs {data}/pairs.jsonl"
SCRIPTS = {
    "ccp": f"{_SMALL} --from_scratch static --features 16 --bank_size 32 {_TEXTS}",
    "msm": f"{_SMALL} --from_scratch tiny --block_sentences 4 {_TEXTS}",
    "ml-ctl": f"{_SMALL} --from_scratch tiny --pairs {{data}}/pairs.jsonl "
    "--dictionaries {data}/words.en-fr.tsv",
    "language-agnostic-ir": f"--per_device_train_batch_size 4 --from_scratch static {_TEXTS} "
    "--retrieval {data}/answers.jsonl --evaluation_pairs 2",
    "retriever": "--per_device_train_batch_size 8 --from_scratch static "
    "--retrieval {data}/questions.jsonl",
    "search": "--per_device_train_batch_size 16 --bank_size 64 --model {data}/encoder "
    "--max_seq_length 24 --pairs {data}/pairs.jsonl --retrieval {data}/answers.jsonl "
    "--evaluation_pairs 4",
    "queries": "--per_device_train_batch_size 16 --max_seq_length --model {data}/encoder "
    "--documents {data}/collection.jsonl",
}
"""Options of each script that make a run of seconds."""

_ALTERNATIVES = {"--model": "--from_scratch", "--from_scratch": "--model"}


def script(name: str) -> ModuleType:
    """The module of a script."""
    return importlib.import_module(f"training_scripts.train_{name.replace('-', '_')}")


def command(
    name: str, data: Path, output: Path, *options: str | Path, tiny: bool = True
) -> list[str]:
    """The command line of a run: option files, the options of `SCRIPTS`, and those given.

    The latter replace. An option without a value takes away that of `SCRIPTS` where it has one:
    `--pairs` for a run without pairs.
    """
    files: list[str] = []
    given: list[str] = []
    for option in options:
        if str(option).endswith(".yaml"):
            files.append(str(option))
        else:
            given += [str(option)] if isinstance(option, Path) else option.split()
    layers = [given]
    if tiny:
        layers = [_EVERYWHERE.split(), SCRIPTS[name].format(data=data).split(), given]
    with_values: set[str] = set()
    chosen: dict[str, list[str]] = {}
    for layer in layers:
        for option, values in values_by_option(layer).items():
            chosen.pop(_ALTERNATIVES.get(option, ""), None)
            if values:
                with_values.add(option)
            if values or option not in with_values:
                chosen[option] = values
            else:
                chosen.pop(option, None)
    words = list(files)
    for option, values in chosen.items():
        words += [option, *values]
    return [*words, "--output_dir", str(output)]


def values_by_option(words: list[str]) -> dict[str, list[str]]:
    """Each option of a command line with the words that follow it; the last one counts."""
    values: dict[str, list[str]] = {}
    last = ""
    for word in words:
        if word.startswith("--"):
            last = word
            values[last] = []
        else:
            values[last].append(word)
    return values


@dataclass
class Built:
    """What a script gives its Trainer."""

    model: SentenceTransformer
    args: Any
    datasets: Any
    loss: Any


class Runner:
    """Runs scripts on the tiny data, into folders of a test."""

    def __init__(self, data: Path, folder: Path) -> None:
        self.data = data
        self.folder = folder

    def __call__(self, name: str, *options: str | Path, output: str = "run") -> dict[str, Any]:
        """Run a script; returns the content of results.json."""
        given = command(name, self.data, self.folder / output, *options)
        return script(name).main(given)  # type: ignore[no-any-return]

    def built(self, name: str, *options: str | Path, tiny: bool = True) -> Built:
        """What a script gives its Trainer; nothing is trained.

        Without `tiny`, the script has the given options alone.
        """
        given = command(name, self.data, self.folder / "built", *options, "--overwrite", tiny=tiny)
        stop = patch.object(script(name), "CrossLingualTrainer", side_effect=InterruptedError)
        with stop as trainer, pytest.raises(InterruptedError):
            script(name).main(given)
        model, args, datasets = trainer.call_args.args
        return Built(model, args, datasets, trainer.call_args.kwargs["loss"])

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
    sentences = {}
    for language, known in WORDS.items():
        sentences[language] = " ".join(known[place] for place in chosen)
    return sentences


def write_data(folder: Path) -> None:
    """Write documents, pairs, a dictionary, questions, a test set and an encoder with prompts."""
    dice = random.Random(0)
    write_jsonl(folder / "documents.jsonl", drawn_documents(dice))
    both = [translations(dice) for _ in range(120)]
    write_translations(folder, both)
    write_jsonl(folder / "questions.jsonl", drawn_questions(dice))
    write_jsonl(folder / "answers.jsonl", drawn_answers(dice))
    test_set = [translations(dice) for _ in range(12)]
    of_language = {code: [text[code] for text in test_set] for code in WORDS}
    multilingual_pool(folder / "xquad", of_language)
    write_encoder(folder / "encoder")


def drawn_documents(dice: random.Random) -> list[dict[str, Any]]:
    documents = []
    for code in ["en", "fr"] * 12:
        sentences = [sentence(code, dice) for _ in range(4)]
        documents.append({"language": code, "sentences": sentences})
    return documents


def write_translations(folder: Path, both: list[dict[str, str]]) -> None:
    """Translations as pairs, as texts of a collection, and their words as a dictionary."""
    pairs = []
    collection = []
    for each in both:
        languages = {"source_language": "en", "target_language": "fr"}
        pairs.append({**languages, "source": each["en"], "target": each["fr"]})
        for code, text in each.items():
            collection.append({"language": code, "text": text})
    write_jsonl(folder / "pairs.jsonl", pairs)
    write_jsonl(folder / "collection.jsonl", collection)
    lines = [f"{a}\t{b}\n" for a, b in zip(WORDS["en"], WORDS["fr"], strict=True)]
    write_text(folder / "words.en-fr.tsv", "".join(lines))


def drawn_questions(dice: random.Random) -> list[dict[str, Any]]:
    """Two questions in two languages for each passage, and a wrong passage."""
    rows = []
    for number in range(60):
        code = ("en", "fr")[number % 2]
        words = sentence(code, dice, 5).split()
        passage = f"{number} {' '.join(words)}"
        for first in (0, 1):
            query = " ".join(words[first : first + 3])
            wrong = sentence(code, dice)
            rows.append(
                {"query": query, "negatives": [wrong], "positive": passage, "language": code}
            )
    return rows


def drawn_answers(dice: random.Random) -> list[dict[str, Any]]:
    """Three questions about each paragraph of three sentences.

    The answer is the number at the end of one of them.
    """
    rows = []
    for number in range(30):
        texts = [f"{sentence('en', dice).capitalize()} {number}{n}." for n in range(3)]
        context = " ".join(texts)
        for n, text in enumerate(texts):
            answer = f"{number}{n}"
            rows.append(
                {
                    "query": f"{' '.join(text.lower().split()[:3])}?",
                    "positive": context,
                    "title": "t",
                    "answers": [answer],
                    "answer_start": context.index(f"{answer}."),
                }
            )
    return rows


def write_encoder(folder: Path) -> None:
    torch.manual_seed(0)
    words = [" ".join(of_language) for of_language in WORDS.values()]
    text = f"{' '.join(words)} query: passage: ?."
    tokenizer = train_tokenizer([text] * 4, vocabulary=200)
    model = transformer_encoder(tokenizer, "tiny", max_seq_length=24)
    model.prompts = {"query": "query: ", "document": "passage: "}
    model.save_pretrained(str(folder))


def equal_weights(one: Path, other: Path) -> bool:
    """Whether two models have the same weights, bit for bit."""
    weights = SentenceTransformer(str(one), device="cpu").state_dict()
    others = SentenceTransformer(str(other), device="cpu").state_dict()
    if weights.keys() != others.keys():
        return False
    return all(torch.equal(others[name], weight) for name, weight in weights.items())


def figures(results: dict[str, Any]) -> dict[str, Any]:
    """What two equal runs have in common."""
    return {name: value for name, value in results.items() if name not in ("command", "seconds")}


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("checkpoint-*"))
