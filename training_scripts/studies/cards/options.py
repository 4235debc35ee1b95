"""Options of write_card.py."""

from __future__ import annotations

from dataclasses import dataclass, field

NAMES = ["ccp", "msm", "ml-ctl", "language-agnostic-ir"]


@dataclass
class CardOptions:
    """Which system, from which finished runs, to which file."""

    system: str = field(metadata={"help": "The published system.", "choices": NAMES})
    output: str = field(metadata={"help": "The card, such as model_cards/msm.md; plots are copied beside it."})
    study: str | None = field(
        default=None,
        metadata={"help": "Folder of the study with the figures of the card (written by study_msm.py, ...)."},
    )
    data: str = field(default="DATA", metadata={"help": "Folder to print as DATA in commands."})
    row: str | None = field(
        default=None,
        metadata={"help": "Run of the study whose model the card describes. By default that of the full method."},
    )
    hardware: str = field(default="2 CPU cores, no GPU", metadata={"help": "Machine that the runs were made on."})
    commands: list[str] = field(
        default_factory=list, metadata={"help": "Further commands behind the figures, as they were run."}
    )
    studies: list[str] = field(
        default_factory=list, metadata={"help": "Further studies. The table of each becomes a section."}
    )
    float_study: str | None = field(default=None, metadata={"help": "ml-ctl: folder of study_float.py."})
    training: str | None = field(
        default=None, metadata={"help": "ccp: folder of the run that the card describes, instead of a run of --study."}
    )
    evaluations: list[str] = field(
        default_factory=list,
        metadata={"help": "ccp with --training: LABEL=FILE of evaluation/run.py, in the order of the rows."},
    )

    def __post_init__(self) -> None:
        """Refuse options that would be ignored, and what no card can be made of."""
        if not self.output.endswith(".md"):
            raise ValueError(f"--output {self.output}: a card is a file that ends in .md")
        if self.float_study and self.system != "ml-ctl":
            raise ValueError(f"--float-study is for the card of ml-ctl, not of {self.system}")
        if (self.training or self.evaluations) and self.system != "ccp":
            raise ValueError(f"--training and --evaluations are for the card of ccp; {self.system} takes --study")
        if bool(self.training) != bool(self.evaluations):
            raise ValueError("--training and --evaluations belong together: a run, and what evaluation/run.py wrote")
        if not self.training and not self.study:
            raise ValueError(f"--study is missing: the folder of a finished study of {self.system}")
        if self.training and self.row:
            raise ValueError("--row chooses a run of --study; with --training the run is that one")
