"""The contents of a card, and the card that is written from them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.model_card import generate_model_card

from st_xlret.evaluation import markdown_table
from st_xlret.files import MODEL_MARKER, atomic_file, write_text_atomically
from st_xlret.hub import check_card, set_card_data
from st_xlret.hub.card_sections import data_section
from st_xlret.hub.model_card import card_data, escape
from st_xlret.hub.results import ResultTable, set_results
from training_scripts.studies.cards.commands import shown, start, values
from training_scripts.studies.cards.options import CardOptions
from training_scripts.studies.cards.sources import data_sources
from training_scripts.studies.cards.study import read_study

STATIC = "A static encoder ignores word order, and learns words without a seen translation only from their context."
LEFT_OUT = "Pairs whose English side is in Tatoeba were left out (compared in lower case, without punctuation)."


@dataclass(frozen=True)
class Contents:
    """What a system and its runs put on the card.

    Attributes:
        title: The heading.
        summary: What the model is; `{start}` stands for what its encoder started from.
        citations: Name -> BibTeX entry.
        limits: What it cannot do.
        folder: The folder of the run whose model the card is about.
        command: The training command of that run; None if it kept none.
        study_command: The command of the whole study; None if it was never run to its end, "" without a study.
        languages: Languages of the run, for where the command does not say them.
        tables: The results.
        seconds: Stage -> seconds; None is left out.
        absent: What a reader would look for and the runs do not have, a list of sentences.
        sections: Heading -> Markdown.
        studies: Folders of further studies, each a section with its own table.
        studies_note: What their tables show.
        test_sets: Folder below DATA -> use, for text that the training command does not name.
        plots: Pictures to copy beside the card; those that do not exist are left out.
    """

    title: str
    summary: str
    citations: Mapping[str, str]
    limits: Sequence[str]
    folder: Path
    command: str | None
    study_command: str | None
    languages: Sequence[str]
    tables: Sequence[ResultTable]
    seconds: Mapping[str, float | None]
    absent: Sequence[str] = ()
    sections: Mapping[str, str] = field(default_factory=dict)
    studies: Sequence[str] = ()
    studies_note: str = ""
    test_sets: Mapping[str, str] = field(default_factory=dict)
    plots: Sequence[Path] = ()


def write_contents(options: CardOptions, contents: Contents) -> str:
    """Write the card, and the plots beside it.

    Returns:
        The text of the card.
    """
    command = contents.command
    languages = sorted(values(command or "", "--languages") or contents.languages)
    commands = [command or "# training command: absent (the run kept none)"]
    limits = list(contents.limits)
    if command and values(command, "--from-scratch") == ["static"]:
        limits.append(STATIC)
    if command and any("tatoeba" in path for path in values(command, "--exclude")):
        limits.append(LEFT_OUT)
    if contents.study_command is None:
        commands.insert(0, "# command of the whole study: absent (no command.txt)")
    elif contents.study_command:
        commands = ["# all rows", contents.study_command, "# the row of this model", *commands]
    folder = contents.folder / "model"
    if not (folder / MODEL_MARKER).is_file():
        raise ValueError(f"{folder} holds no saved model (no {MODEL_MARKER}), which the card is to describe: train it")
    model = SentenceTransformer(str(folder), device="cpu")
    set_card_data(model, languages=languages, model_name=contents.title)
    card = card_data(model)
    card.model_id = shown(str(folder), options.data)
    card.more_citations.update(contents.citations)
    seconds = [[stage, f"{value:,.0f}"] for stage, value in contents.seconds.items() if value is not None]
    times = [markdown_table(["stage", "seconds"], seconds)] if seconds else []
    card.sections |= {
        "Summary": contents.summary.format(start=start(command)),
        "Training data": data_section(data_sources(command, languages, contents.test_sets), escape),
        "Training": "\n\n".join([_fence(commands), f"Hardware: {options.hardware}.", *times]),
    }
    measured = [shown(given, options.data) for given in options.commands]
    set_results(model, contents.tables, more=f"Commands:\n\n{_fence(measured)}" if measured else "")
    card.sections |= {"Limits": "\n".join(f"- {limit}" for limit in limits), **contents.sections}
    for study in contents.studies:
        text = f"{contents.studies_note}\n\n{read_study(study).section(options.data)}"
        card.sections[f"Study: {Path(study).name.removeprefix('study-')}"] = text.strip()
    if contents.absent:
        card.sections["Absent"] = "\n".join(f"- {sentence}" for sentence in contents.absent)
    if copied := _copy_plots(contents.plots, Path(options.output)):
        card.sections["Plots"] = "\n\n".join(f"![{name}]({name})" for name in copied)
    text = generate_model_card(model)
    check_card(text)
    write_text_atomically(options.output, text)
    return text


def _fence(commands: Sequence[str]) -> str:
    return "\n".join(["```bash", *commands, "```"])


def _copy_plots(plots: Sequence[Path], card: Path) -> list[str]:
    """Copy a study's plots to NAME-PLOT.png beside NAME.md, each whole or not at all."""
    names = []
    card.parent.mkdir(parents=True, exist_ok=True)
    for plot in plots:
        if plot.is_file():
            target = card.with_name(f"{card.stem}-{plot.name}")
            with atomic_file(target) as temporary:
                shutil.copyfile(plot, temporary)
            names.append(target.name)
    return names
