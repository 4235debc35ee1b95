"""What the commands say about language labels that may be wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from st_xlret.data.language_identification import LabelCheck, check_labels

CHECKED_TEXTS = 300
DOUBTFUL = 0.2


def report_labels(texts: Mapping[str, Sequence[str]]) -> LabelCheck | None:
    """Print the share of language labels with which an identifier disagrees, and warn of languages with many.

    Args:
        texts: Language to texts. The first ones of each language are checked.

    Returns:
        What was found; None if the identifier is not installed.
    """
    try:
        check = check_labels({code: found[:CHECKED_TEXTS] for code, found in texts.items()})
    except ImportError:
        print('language labels were not checked: pip install "st-xlret[langid]" brings the identifier')
        return None
    unknown = f"; it does not know {', '.join(check.unknown)}" if check.unknown else ""
    print(f"the language identifier disagrees with {100 * check.share:.1f} % of the labels{unknown}")
    for code, share in check.disagreement.items():
        if share >= DOUBTFUL:
            print(
                f"warning: {100 * share:.0f} % of the texts labelled {code!r} look like another language, most often "
                f"{check.found[code]!r}, such as {check.examples[code][:80]!r}. A calibration on wrong labels does "
                "harm: correct them, or leave the language out with --languages"
            )
    return check
