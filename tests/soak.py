r"""Kill a tiny training at random moments, resume it, and compare the end with that of an uninterrupted run.

    python tests/soak.py --kills 100

Every run trains three losses with dropout, so that weights, optimizer, banks, heads and random states all count. It is
killed by SIGKILL and started anew with --resume until it ends by itself; then its weights and its results must be bit
for bit those of the run that nobody killed, and nothing half-written may be left. Then the next run begins, until there
were as many kills as asked for. The exit status is 1 if anything differs. This program is no part of the test suite.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

LISTS = {
    "en": "sun moon star rain wind snow tree leaf root fish bird wolf",
    "fr": "soleil lune astre pluie vent neige arbre feuille racine poisson oiseau loup",
}
WORDS = {language: words.split() for language, words in LISTS.items()}
OPTIONS = (
    "--from_scratch tiny --vocabulary 150 --max_seq_length 16 --per_device_train_batch_size 4 --bank_size 32 "
    "--learning_rate 1e-2 --max_steps 60 --save_steps 4 --logging_steps 5 --evaluation_pairs 5 --use_cpu "
    "--disable_tqdm true"
)


def write_data(folder: Path) -> None:
    """Documents and parallel sentences of a dozen words."""
    dice = random.Random(0)

    def sentence(language: str, meaning: list[int]) -> str:
        return " ".join(WORDS[language][i] for i in meaning)

    documents = [
        {"language": code, "sentences": [sentence(code, dice.choices(range(12), k=4)) for _ in range(4)]}
        for _ in range(12)
        for code in WORDS
    ]
    meanings = [dice.choices(range(12), k=4) for _ in range(120)]
    pairs = [
        {"source_language": "en", "target_language": "fr", "source": sentence("en", m), "target": sentence("fr", m)}
        for m in meanings
    ]
    for name, records in (("documents", documents), ("pairs", pairs)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def start(folder: Path, output: str) -> int:
    """Fork a process that trains, or goes on training, in `output`; its words go to `log.txt`. Returns its number."""
    process = os.fork()
    if process:
        return process
    log = os.open(folder / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    status = 1
    from training_scripts import train_ccp

    try:
        files = ["--documents", str(folder / "documents.jsonl"), "--pairs", str(folder / "pairs.jsonl")]
        train_ccp.main([*OPTIONS.split(), *files, "--output_dir", str(folder / output), "--resume"])
        status = 0
    except SystemExit as stopped:
        status = stopped.code if isinstance(stopped.code, int) else 1
        print(stopped.code)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # as a killed process, it runs nothing of the program that it was forked from


def wait(process: int, seconds: float | None) -> int | None:
    """The exit status of a process, or None if it was killed after some seconds."""
    end = None if seconds is None else time.perf_counter() + seconds
    while True:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if end is not None and time.perf_counter() >= end:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            return None
        time.sleep(0.002)


def differences(expected: Path, got: Path) -> list[str]:
    """How the end of a run differs from that of the uninterrupted one."""
    import torch
    from safetensors.torch import load_file

    found = []
    weights = [load_file(folder / "model" / "model.safetensors") for folder in (expected, got)]
    if weights[0].keys() != weights[1].keys():
        found.append("the names of the weights")
    else:
        found += [name for name, tensor in weights[0].items() if not torch.equal(tensor, weights[1][name])]
    results: list[dict[str, Any]] = [json.loads((folder / "results.json").read_text()) for folder in (expected, got)]
    found += [f"results.json: {k}" for k in results[0] if k not in ("command", "seconds") and _differ(results, k)]
    hidden = [path.relative_to(got) for path in got.rglob(".*")]
    found += [f"left behind: {path}" for path in hidden if not (expected / path).exists()]
    return found


def _differ(results: list[dict[str, Any]], name: str) -> bool:
    return bool(results[0].get(name) != results[1].get(name))


def where(folder: Path) -> str:
    """How far a run is."""
    if (folder / "results.json").exists():
        return "results.json is there"
    if (folder / "model" / "modules.json").exists():
        return "the model is saved"
    steps = sorted(int(path.name[11:]) for path in folder.glob("checkpoint-*"))
    return f"checkpoints of steps {steps}" if steps else "no checkpoint yet"


def soak(folder: Path, kills: int, seed: int, minutes: float | None) -> int:
    """Kill and resume; returns the number of runs that ended differently."""
    import training_scripts.train_ccp  # noqa: F401  before the first fork: each child has it already

    write_data(folder)
    began = time.perf_counter()
    if (status := wait(start(folder, "whole"), None)) != 0:
        sys.exit(f"the uninterrupted run failed with status {status}:\n{(folder / 'log.txt').read_text()}")
    longest = time.perf_counter() - began
    print(f"uninterrupted: {longest:.1f} s", flush=True)
    dice, count, runs, wrong = random.Random(seed), 0, 0, 0
    run = folder / "run"
    while True:
        enough = count >= kills or (minutes is not None and time.perf_counter() - began > 60 * minutes)
        delay = None if enough else dice.uniform(0.02, 0.7 * longest)
        status = wait(start(folder, "run"), delay)
        if status is None:
            count += 1
            print(f"kill {count}: after {delay:.2f} s, {where(run)}", flush=True)
            continue
        runs += 1
        found = differences(folder / "whole", run) if status == 0 else [f"failed: {(folder / 'log.txt').read_text()}"]
        wrong += bool(found)
        print(f"run {runs} has ended after {count} kills in all: {found or 'bit for bit equal'}", flush=True)
        if enough:
            break
        shutil.rmtree(run)
        shutil.rmtree(folder / "cache", ignore_errors=True)  # the data is read anew, under kills too
    print(f"{count} kills, {runs} runs, {wrong} of them wrong, {time.perf_counter() - began:.0f} s")
    return wrong


def main() -> None:
    """Read the options, kill in a temporary folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, help="how often a run is killed")
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments")
    parser.add_argument("--minutes", type=float, help="stop killing after this time")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        os.environ["HF_DATASETS_CACHE"] = str(Path(folder) / "cache")
        sys.exit(1 if soak(Path(folder), given.kills, given.seed, given.minutes) else 0)


if __name__ == "__main__":
    main()
