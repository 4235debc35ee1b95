"""The language of texts that name none, or a wrong one."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from statistics import mode

from st_xlret.languages.codes import find_language
from st_xlret.optional import import_optional

_CLEAR = 0.95  # probability: of 3,600 sentences of TICO-19, none above it is wrong


class LanguageIdentifier:
    """Tells the language of a text by py3langid, whose model is a part of that package.

    Args:
        languages: Languages to choose from. A text gets one of these codes. By default all 140 that
            it knows; a text that is not clear then gets one of the languages of the clear texts
            before it. `unknown` has those that py3langid does not know, and never finds; a
            `ValueError` if it is all of them.
    """

    def __init__(self, languages: Iterable[str] | None = None) -> None:
        langid = import_optional(
            "py3langid.langid", extra="langid", needed_for="identifying languages"
        )
        make = langid.LanguageIdentifier.from_model_file
        self._model = make(langid.MODEL_FILE, norm_probs=True)
        self.labels: list[str] = list(self._model.labels)
        self.unknown: list[str] = []
        self._code_of: dict[str, str] = {}
        codes = self.labels
        self._clear: set[str] | None = set()
        if languages is not None:
            codes = list(dict.fromkeys(languages))
            self._clear = None
        for code in codes:
            self._add_language(code)
        if not self._code_of:
            raise ValueError(f"the identifier knows none of the languages {', '.join(codes)}")
        self._model.set_languages(list(self._code_of))

    def _add_language(self, code: str) -> None:
        """Take a language to choose from into account, or note it as `unknown`."""
        label = find_language(code, self.labels)
        if label is None:
            self.unknown.append(code)
        else:
            self._code_of[label] = code

    def identify(self, text: str, wanted: Iterable[str] = ()) -> str:
        """The language of a text, as it is written in `wanted` if it is one of these.

        Without `languages`, what it finds for an unclear text depends on the texts before.
        """
        label, probability = self._model.classify(text)
        if self._clear is not None:
            if probability >= _CLEAR:
                self._clear.add(label)
            elif self._clear:
                ranked = (label for label, _ in self._model.rank(text))
                label = next(label for label in ranked if label in self._clear)
        code = self._code_of[label]
        return find_language(code, wanted) or code


def language_identifier_or_none(languages: Iterable[str]) -> LanguageIdentifier | None:
    """An identifier of these languages, or of all.

    None without the extra `langid`, or where it lacks one of them.
    """
    with suppress(ImportError, ValueError):
        identifier = LanguageIdentifier(sorted(languages) or None)
        return None if languages and identifier.unknown else identifier
    return None


def label_disagreements(texts: Mapping[str, Sequence[str]]) -> dict[str, tuple[float, str, str]]:
    """Compare the language labels of texts (language -> texts) with what an identifier finds.

    Gives language -> the share of its texts that the identifier takes for another language (a few
    percent are usual), the one that it takes them for most often, and one of these texts. Languages
    that it does not know are left out.
    """
    every = LanguageIdentifier()
    two_letters = [label for label in every.labels if len(label) == 2]
    labelled = {find_language(code, two_letters) for code in texts}
    others = [label for label in two_letters if label not in labelled]
    identifier = LanguageIdentifier([*texts, *others])
    checked = {}
    for code, of_code in texts.items():
        if of_code and code not in identifier.unknown:
            checked[code] = _disagreement(identifier, code, of_code)
    return checked


def _disagreement(
    identifier: LanguageIdentifier, code: str, texts: Sequence[str]
) -> tuple[float, str, str]:
    """See `label_disagreements`; without a wrong guess, the language itself and its first text."""
    guesses = [identifier.identify(text) for text in texts]
    wrong = [guess for guess in guesses if guess != code]
    other = code
    if wrong:
        other = mode(wrong)
    share = len(wrong) / len(guesses)
    first = guesses.index(other)
    return share, other, texts[first]
