"""Writing files and models so that a full disk or an interrupt never leaves half of one behind."""

from st_xlret.files.checks import check_output_directory, check_output_file
from st_xlret.files.folders import (
    MODEL_MARKER,
    SavesPretrained,
    atomic_directory,
    remove_leftovers,
    save_model_atomically,
)
from st_xlret.files.writing import atomic_file, write_json_atomically, write_text_atomically

__all__ = [
    "MODEL_MARKER",
    "SavesPretrained",
    "atomic_directory",
    "atomic_file",
    "check_output_directory",
    "check_output_file",
    "remove_leftovers",
    "save_model_atomically",
    "write_json_atomically",
    "write_text_atomically",
]
