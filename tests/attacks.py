"""What was tried on this package to make it lose work, hang, or go wrong without a word, and the tests that keep it so.

    python -m tests.attacks                # the table, with the number of cases of each row
    python -m tests.attacks --write        # the same, into docs/design/attacks.md

Each row lists its tests by file, or by file and name; all of them have the marker `hostile` (`tests/conftest.py`).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PAGE = REPOSITORY / "docs" / "design" / "attacks.md"
BEGIN, END = "<!-- table: python -m tests.attacks --write -->", "<!-- end of the table -->"


@dataclass(frozen=True)
class Attack:
    """A kind of attack.

    Args:
        what: What was tried.
        first: What happened at first: "held", or what went wrong and was repaired.
        tests: Files of tests, or tests (`file::name`), below `tests/`.
    """

    what: str
    first: str
    tests: tuple[str, ...]


CCP_STOPS, CCP_BAD = "training_scripts/test_train_ccp_stops.py", "training_scripts/test_train_ccp_bad_input.py"
ATTACKS = (
    Attack(
        "Killed or interrupted in training, then resumed",
        "held: weights and results are bit for bit those of a run that nobody killed",
        (
            f"{CCP_STOPS}::test_a_resumed_run_ends_as_the_uninterrupted_one",
            f"{CCP_STOPS}::test_resume_without_a_checkpoint_starts",
            f"{CCP_STOPS}::test_a_finished_run_is_not_run_again",
            "training/test_resume.py",
            "training_scripts/test_train_msm.py::test_an_interrupted_run_ends_as_an_uninterrupted_one",
            "training_scripts/test_train_ml_ctl.py::test_a_stopped_run_is_resumed_as_if_nothing_had_been",
        ),
    ),
    Attack(
        "Files of a checkpoint missing, cut off or changed",
        "repaired: fresh optimizer or random states were taken without a word",
        (
            "training/test_checkpoints.py",
            f"{CCP_STOPS}::test_every_damaged_file_of_a_checkpoint_is_named_and_the_one_before_taken",
            f"{CCP_STOPS}::test_a_damaged_best_checkpoint_does_not_end_a_run",
        ),
    ),
    Attack(
        "Resumed with other options, data or losses",
        "repaired: accepted without a word, or ended in a traceback",
        (
            f"{CCP_STOPS}::test_resuming_with_other_options_is_refused",
            f"{CCP_STOPS}::test_resuming_with_other_data_is_refused_unless_told",
            f"{CCP_STOPS}::test_a_new_run_does_not_go_on_from_the_checkpoints_of_an_old_one",
            "training/test_run.py::test_checkpoints_of_an_earlier_run_are_not_mixed_with_new_ones",
            "training/test_loss_state_callback.py::test_a_state_of_other_losses_is_refused",
        ),
    ),
    Attack(
        "One process and two, and a run resumed on another number",
        "repaired: two processes drew other batches than one",
        ("data/batches/test_ranks.py", "distributed/test_world_size.py"),
    ),
    Attack(
        "Two runs in one output folder; locks of processes that are gone",
        "repaired: both wrote, and both ended without an error",
        ("training/test_lock.py", "training/test_run.py::test_processes_that_would_train_apart_are_refused"),
    ),
    Attack(
        "Losses and weights that are not finite",
        "repaired: such a model was saved, with exit status 0",
        (
            "training/test_monitor_callback.py::test_not_a_number_stops_the_run_and_harms_no_weight",
            "training/test_monitor_callback.py::test_infinity_stops_too",
            f"{CCP_STOPS}::test_a_loss_that_is_no_number_stops_the_run",
            f"{CCP_STOPS}::test_weights_that_are_not_finite_are_not_saved",
        ),
    ),
    Attack(
        "A full disk, at every file that is written",
        "repaired: tracebacks, and false advice on how to go on",
        (
            "test_files.py",
            f"{CCP_STOPS}::test_a_disk_that_fills_at_a_checkpoint",
            f"{CCP_STOPS}::test_a_disk_that_is_full_at_the_first_checkpoint",
            f"{CCP_STOPS}::test_a_disk_that_fills_at_the_end",
            "training/test_run.py::test_a_full_disk_at_the_model_loses_nothing",
            "training/test_run.py::test_a_full_disk_at_the_results_keeps_the_model",
            "data/reading/test_arrow_cache.py::test_a_full_disk_names_a_way_out_that_exists",
            "data/documents/test_loading.py::test_a_full_disk_is_named",
            "evaluation/test_run.py::test_scores_are_printed_before_a_disk_that_has_filled_up_refuses_them",
            "evaluation/reporting/test_plots.py::test_a_full_disk_leaves_the_old_plot_alone",
        ),
    ),
    Attack(
        "A torn cache of data or of embeddings",
        "embeddings held; data: repaired, every later run stopped",
        (
            "data/reading/test_arrow_cache.py::test_a_damaged_cache_is_named_and_made_anew",
            "data/reading/test_arrow_cache.py::test_a_report_of_another_kind_is_made_anew",
            "data/reading/test_arrow_cache.py::test_what_a_killed_program_left_is_removed",
            "data/documents/test_loading.py::test_nothing_half_written_stays_behind",
            "evaluation/cache/test_embedding_cache.py::test_a_torn_shard_is_encoded_again",
            "evaluation/cache/test_embedding_cache.py::test_a_killed_process_leaves_a_valid_cache",
            "evaluation/cache/test_embedding_cache_bad_input.py",
        ),
    ),
    Attack(
        "Numbers out of their range",
        "repaired: negative counts sliced, a bank of 10^12 keys filled the memory",
        (
            "test_options.py::test_a_number_out_of_its_range_is_refused",
            "training/test_arguments.py::test_values_out_of_range_are_named",
        ),
    ),
    Attack(
        "Options that contradict each other, and runs that nothing is left for",
        "repaired: found after the training, or not at all",
        (
            CCP_BAD,
            "training/test_arguments.py::test_a_hold_out_that_leaves_nothing_says_so",
            "training/test_arguments.py::test_a_file_that_holds_no_options_is_named",
            "training/test_arguments.py::test_an_unknown_option_is_named",
            "commands/test_calibrate.py::test_what_cannot_work_is_named",
            "commands/test_calibrate_bad_input.py",
            "commands/test_search_commands.py::test_what_cannot_work_is_said_in_one_line",
            "evaluation/test_run.py::test_options_that_do_not_fit",
            "evaluation/test_run.py::test_what_a_benchmark_cannot_do_is_said",
            "evaluation/test_run.py::test_an_error_is_one_line_and_leaves_the_old_output",
        ),
    ),
    Attack(
        "Models, devices and paths that are not there or are damaged",
        "repaired: errors that spoke of something else",
        ("hub/test_loading.py", "data/documents/test_loading.py::test_wrong_paths_are_named"),
    ),
    Attack(
        "Hostile lines: encodings, JSON, records, columns, halves of surrogate pairs",
        "most held; repaired: halves of surrogate pairs, lines without a name",
        (
            "data/reading/test_hostile.py",
            "data/reading/test_jsonl.py",
            "data/documents/test_loading.py::test_bad_lines_are_named_or_counted",
            "data/pairs/test_loading.py::test_bad_lines_are_named_or_counted",
            "data/pairs/test_readers.py::test_bad_lines_of_mined_pairs",
            "data/pairs/test_readers.py::test_moses_files_of_different_length",
            "data/words/test_dictionaries.py::test_a_malformed_line_is_named_or_counted",
            "data/words/test_dictionaries.py::test_another_encoding_is_named_with_the_way_out",
            "commands/test_samples.py",
            "commands/test_texts.py::test_what_is_wrong_is_named",
        ),
    ),
    Attack(
        "Deep nesting, endless lines, entities that expand to gigabytes",
        "entities over the limit of expat held; repaired: 200 KB of brackets took 6 GB",
        (
            "data/reading/test_json_list.py",
            "data/reading/test_limits.py",
            "data/pairs/test_tmx.py",
            "data/retrieval/test_bad_input.py::test_deeply_nested_json_is_refused_at_once",
            "data/retrieval/test_bad_input.py::test_an_entry_that_is_too_long_is_refused",
        ),
    ),
    Attack(
        "Codes of languages: capitals, paths, lists, numbers",
        "`../../x` held; repaired: `EN` dropped dictionaries",
        (
            "data/test_languages.py::test_missing_unknown_and_ambiguous_languages_are_refused",
            "data/test_languages.py::test_what_is_no_language_is_refused_by_value_and_place",
            "data/test_languages.py::test_normal_forms",
        ),
    ),
    Attack(
        "Retrieval data and benchmarks with bad lines, missing files, contradictions",
        "repaired: tracebacks without the file",
        (
            "data/retrieval/test_bad_input.py",
            "evaluation/test_tatoeba.py::test_a_line_that_is_not_utf8_is_named",
            "evaluation/test_lareqa.py::test_metadata_without_a_paragraph_is_named_by_file_and_line",
            "evaluation/test_lareqa.py::test_a_corpus_with_id_in_place_of_its_other_name_has_paragraphs_too",
            "evaluation/test_mewsli_x.py::test_broken_lines_are_named",
            "evaluation/test_mr_tydi.py::test_bad_input_names_file_and_line",
            "evaluation/test_xor_retrieve.py::test_bad_input_names_file_and_line",
            "evaluation/readers/test_bucc.py::test_malformed_files_are_named_with_their_line",
        ),
    ),
    Attack(
        "Access tokens in options; HTML and Markdown in texts that cards show",
        "repaired: tokens and markup were written",
        (
            f"{CCP_STOPS}::test_a_token_is_written_nowhere",
            "hub/test_model_card.py::test_escape",
            "hub/test_model_card.py::test_texts_of_the_training_data_are_escaped",
        ),
    ),
)


def is_hostile(test: str) -> bool:
    """Whether a test (`tests/file.py::name[case]`) is of one of the attacks."""
    return any(_is_of(test, attack.tests) for attack in ATTACKS)


def count(tests: Iterable[str]) -> dict[str, int]:
    """The number of tests of each attack. A test counts for the first attack that has it."""
    counts = {attack.what: 0 for attack in ATTACKS}
    for test in tests:
        attack = next((attack for attack in ATTACKS if _is_of(test, attack.tests)), None)
        if attack is not None:
            counts[attack.what] += 1
    return counts


def _is_of(test: str, patterns: tuple[str, ...]) -> bool:
    name = test.split("[", 1)[0]
    return any(name == f"tests/{pattern}" or name.startswith(f"tests/{pattern}::") for pattern in patterns)


def collected() -> list[str]:
    """All tests with the marker, as pytest finds them."""
    command = [sys.executable, "-m", "pytest", "-m", "hostile", "--collect-only", "-q", "tests"]
    found = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    tests = [line for line in found.stdout.splitlines() if "::" in line]
    if not tests:
        raise RuntimeError(found.stdout + found.stderr)
    return tests


def table() -> str:
    """The table of the page."""
    counts = count(collected())
    rows = [f"| {attack.what} | {attack.first} | {counts[attack.what]} |" for attack in ATTACKS]
    head = ["| attack | at first | cases in the tests |", "| --- | --- | ---: |"]
    return "\n".join([*head, *rows, f"| all | | {sum(counts.values())} |"])


def page_with(new: str) -> str:
    """The page with another table."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n\n{new}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    print(table())
    if "--write" in sys.argv:
        PAGE.write_text(page_with(table()), encoding="utf-8")
