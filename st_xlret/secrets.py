"""Messages without secrets: passwords, keys and tokens that errors of libraries repeat."""

import re

# Names of secrets, wherever a value follows; with more of a name after them, as `secret_name` has.
_SURE = (
    r"(?:(?:pass(?:phrase|w(?:or)?d)|pwd|secrets?|credentials?|auth(?:orization)?\b|\bcookie\b"
    r"|(?:api|access|private|account|shared|subscription)[-_ ]?key)(?:[-_][\w-]+)?|[-_]token)"
)
# Names that are words of everyday language, too.
_SHORT = r"(?:\bpw|pass|token|key|sig(?:nature)?|\bauth)"
_QUOTED_SHORT = r"(?:\bpw|pass|token|sig(?:nature)?|\bauth)"

_EQUALS = r"\s*(?:=|%3D)\s*"
_EQUALS_OR_COLON = r"\s*(?:[=:]|%3D|%3A)\s*"
_QUOTE = r"""\\?['"]"""
_SCHEME = r"(?:(?:bearer|basic|token|apikey|negotiate)\s+)?"
_VALUE = (
    r"""(?:'(?:\\.|''|[^'\\])*'|"(?:\\.|""|[^"\\])*"|'[^']*\Z|"[^"]*\Z"""
    r"""|['"]?(?:[^\s&'"]|&(?![\w.-]+=)|['"](?=\w))+)"""
)
_NOT_A_VALUE = r"(?!--|(?:is|was|has|and|or|needs|must|belongs)\b)"

_FORMS = {
    # Keys and tokens that are known by their beginning.
    r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)": r"\1***",
    r"\b(hf_)\w{9,}": r"\1***",
    r"\b(gh[pousr]_|github_pat_|npm_|pcsk_|dckr_pat_|xox[abprs]-|glpat-|pypi-)[\w-]{9,}": r"\1***",
    r"(?<![\w.])(sk-)(?=[\w-]*\d)[\w-]{16,}": r"\1***",
    r"(?-i:\b(AKIA|ASIA)[A-Z\d]{12,})": r"\1***",
    r"(?-i:\b(AIza|ya29\.)[\w-]{20,})": r"\1***",
    r"(?-i:\b(eyJ)[\w-]+\.[\w-]+(?:\.[\w-]*)?)": r"\1***",
    r"\b(bearer\s+)[\w.~+/=-]{12,}": r"\1***",
    # The login of a URL, or of an address without a scheme.
    r"(\w{2,}:/*)\S*(@)": r"\1***\2",
    r"[\w.%+-]+:[^\s/'\"]+(@\w)": r"***\1",
    # A setting, a parameter, a header, or a field of JSON.
    rf"({_SURE}(?:{_QUOTE})?{_EQUALS_OR_COLON}{_SCHEME}){_VALUE}": r"\1***",
    rf"({_QUOTED_SHORT}{_QUOTE}{_EQUALS_OR_COLON}{_SCHEME}){_VALUE}": r"\1***",
    rf"({_SHORT}{_EQUALS}{_SCHEME}){_VALUE}": r"\1***",
    r"((?:token|key):\s*)(?=\S*\d)\S{12,}": r"\1***",
    rf"(\bpw:\s*){_VALUE}": r"\1***",
    rf"(\({_QUOTE}[\w.-]*{_SURE}{_QUOTE},\s*{_SCHEME}){_VALUE}": r"\1***",
    # An option of a command line.
    rf"(--[\w-]*(?:{_SURE}|{_SHORT})\s+){_NOT_A_VALUE}{_VALUE}": r"\1***",
}
"""What a secret looks like, and what is shown in its place; they are replaced in this order."""

_COMPILED = {re.compile(form, re.IGNORECASE | re.DOTALL): shown for form, shown in _FORMS.items()}
_ESCAPES_OF_TERMINALS = re.compile(r"[\0-\x08\x0b-\x1f\x7f-\x9f]")


def without_secrets(text: str) -> str:
    """A message without the users, passwords and keys of URLs, settings and headers.

    Escapes of terminals become spaces.
    """
    shown = _ESCAPES_OF_TERMINALS.sub(" ", text)
    for form, replacement in _COMPILED.items():
        shown = form.sub(replacement, shown)
    return shown
