"""Identify the language of texts that do not name it, and find labels that are wrong. Needs the extra `langid`."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from st_xlret.data.languages import find_language
from st_xlret.optional import import_optional

logger = logging.getLogger(__name__)

_CLEAR = 0.95  # probability: of 3,600 sentences of TICO-19, none above it is wrong


class LanguageIdentifier:
    """Tells the language of a text by py3langid, whose model of 140 languages is a part of that package.

    Args:
        languages: Languages to choose from. A text gets one of these codes. By default all that it knows; a text that
            is not clear then gets one of the languages of the clear texts before it.

    Attributes:
        unknown: Those of `languages` that py3langid does not know. It never finds them.

    Raises:
        ImportError: If py3langid is not installed: `pip install "st-xlret[langid]"`.
        ValueError: If py3langid knows none of the languages.

    Example:
        >>> LanguageIdentifier(["en", "fr"]).identify("Le chat dort sur le toit de la maison.")
        'fr'
    """

    def __init__(self, languages: Iterable[str] | None = None) -> None:
        langid = import_optional("py3langid.langid", extra="langid", needed_for="identifying languages")
        model = langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)
        labels = list(model.labels)
        wanted = labels if languages is None else list(languages)
        label_of = {code: find_language(code, labels) for code in wanted}
        self._code_of = {label: code for code, label in label_of.items() if label is not None}
        self.unknown = [code for code, label in label_of.items() if label is None]
        if not self._code_of:
            raise ValueError(f"the identifier knows none of the languages {', '.join(wanted)}")
        model.set_languages(list(self._code_of))
        self._model = model
        self._clear: set[str] | None = set() if languages is None else None

    def identify(self, text: str) -> str:
        """The language of a text."""
        label, probability = self._model.classify(text)
        if self._clear is not None:
            if probability >= _CLEAR:
                self._clear.add(label)
            elif self._clear:
                label = next(other for other, _ in self._model.rank(text) if other in self._clear)
        return self._code_of[label]


@dataclass(frozen=True)
class LabelCheck:
    """How far an identifier agrees with the language labels of texts.

    Attributes:
        disagreement: Language -> share of its texts that the identifier takes for another language.
        found: Language -> the other language that it finds most often; only for languages with a disagreement.
        examples: Language -> a text that it takes for that other language.
        unknown: Languages that the identifier does not know, which were not checked.
    """

    disagreement: dict[str, float]
    found: dict[str, str]
    examples: dict[str, str]
    unknown: list[str]

    @property
    def share(self) -> float:
        """Mean over the languages that were checked; 0 if there are none."""
        return sum(self.disagreement.values()) / max(1, len(self.disagreement))


def check_labels(texts: Mapping[str, Sequence[str]]) -> LabelCheck:
    """Compare the language labels of texts (language -> texts) with what an identifier finds.

    It chooses among these languages and all that have a two-letter code. A few percent of disagreement are usual.

    Raises:
        ImportError: If py3langid is not installed.

    Example:
        >>> check_labels({"en": ["The cat sleeps on the roof."], "fr": ["Der Hund schläft in seinem Haus."]}).found
        {'fr': 'de'}
    """
    known = [label for label in LanguageIdentifier()._code_of if len(label) == 2]
    own = {code: find_language(code, known) for code in texts}
    others = [label for label in known if label not in own.values()]
    identifier = LanguageIdentifier([*texts, *others])
    disagreement, found, examples = {}, {}, {}
    for code, entries in texts.items():
        if code in identifier.unknown or not entries:
            continue
        guesses = [identifier.identify(text) for text in entries]
        wrong = Counter(guess for guess in guesses if guess != code)
        disagreement[code] = wrong.total() / len(entries)
        if wrong:
            found[code] = wrong.most_common(1)[0][0]
            examples[code] = entries[guesses.index(found[code])]
    return LabelCheck(disagreement, found, examples, identifier.unknown)
