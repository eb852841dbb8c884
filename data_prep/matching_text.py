"""The text of a question without what copyists add to it or write in another way.

The first half of `data_prep.matching.tokenise`. Data files are untrusted and may hold very long
questions, so every pattern here is bounded or linear in the length of the text.
"""

import re
import unicodedata

from data_prep.matching_tables import SIGNS

_FIGURE = re.compile(
    r"\[asy\].*?(?:\[/asy\]|\Z)|< ?asy ?>.*?(?:< ?/ ?asy ?>|\Z)"
    r"|\\begin\{(asy|tikzpicture)\}.*?(?:\\end\{\1\}|\Z)"
    r"|!\[[^\]]{0,200}\]\([^)]{0,500}\)"
    r"|\\includegraphics\s?(?:\[[^\]]{0,200}\])?\s?\{[^{}]{0,500}\}|<img\b[^>]{0,500}>",
    re.DOTALL | re.IGNORECASE,
)
_FIGURE_MARKS = ("asy]", "asy>", "asy >", "\\begin", "![", "includegraphics", "<img")
_LINK = re.compile(r"\[([^\]]{0,200})\]\(https?:[^)]{0,500}\)")
_EMPTY = re.compile(r"[\^_]\{\s?\}")
_EMPHASIS = re.compile(r"(?<![\w)])\*{1,2}([A-Za-z][A-Za-z ,.'-]{0,60})\*{1,2}(?!\w)")
# "12.", "B-1.3.", "Problem 5.", "(2)", "[6]", "(10 points)", "[2003 AIME I]", "(NET 3 only)".
_ENUMERATION = re.compile(
    r"\s*(?:"
    r"\#+\s|\*\*|[-*]\s(?=\s*[A-Z])"
    r"|(?i:problem|example|exercise|question|task|test|case)\s?[A-Z]?[-\d.]{0,9}\d[-\w.]{0,9}[.:)]?\**"
    r"(?=\s)"
    r"|[A-Z]{0,2}-?\d{1,3}(?:\.\d{1,3}){0,3}[.):](?!\d)"
    r"|[A-Z]{0,2}\d{1,2}\.\d{1,3}\s(?=\s*[A-Z])"
    r"|[A-Z]\d{1,2}\s?(?=\([A-Z]{2,})"
    r"|[(\[]\d{1,2}[)\]]\s(?=\s*[A-Z])"
    r"|[(\[](?=[^)\]$\\]{0,60}(?:(?:19|20)\d\d|\bpoints?\b|\bmarks?\b|\bpts?\b))[^)\]$\\]{1,60}[)\]]"
    r"|\([A-Z]{2,4}(?:\s\d)?[^)$]{0,20}\)(?=\s)"
    r")\s*"
)
# Last sentences such as "Express your answer as a fraction." and "The original answer is in the
# form m/n, please give m+n." They are sought in the end of the text only.
_SENTENCE = r"(?:[^.?!]|\.(?=[^\s$]))*"
_ANSWER_FORM = re.compile(
    r"(?:[.?!]\s*|[$)\]}]\s+|\n\s*|\s(?=\())\(?(?:"
    r"(?:express|enter|give|write|state|submit|leave|simplify|round|report|put|justify|your)\b"
    + _SENTENCE
    + r"\banswers?\b|(?:if )?(?:the )?(?:original |final )?answers?\b|please (?!find)|provide\b)"
    + _SENTENCE
    + r"[.?!]?[$)\s]*\Z",
    re.IGNORECASE,
)
_ANSWER_FORM_MARKS = ("nswer", "rovide", "lease")
_LONGEST_ANSWER_FORM = 300
_MOST_ANSWER_FORMS = 3
_COMBINING = re.compile(r"[\u0300-\u036f]")
# What is left of \f and \v where a reader of JSON took them for escapes.
_CONTROL = re.compile(r"[\x0b\x0c](?=[a-z])")
_BULLET = re.compile(r"^\s*(?:\*\s(?=[A-Za-z$])|-\s(?=[A-Z$]))", re.MULTILINE)
# The article, lest it be taken for the variable.
_ARTICLE = re.compile(
    r"(?<![\w$\\^(=+*/-])(?<![=+*/-]\s)[aA]\s+(?=\$|\\\(|\d|[a-zA-Z]{2})"
    r"(?!(?i:and|or|is|are|be|by|in|if|to|as|at|on|of|with|for|such|so|that|where|has|have|from)\b)"
)
# "(in centimeters)", of which another edition has no brackets; unlike "(sin x + 1)".
_ASIDE = re.compile(
    r"(?<!\S)\((?=(?:[a-z]{3,}|in|so|if|we|it|is|as|or|to|at|by|no|of|on|an|be)\s)"
    r"(?!(?:sin|cos|tan|cot|sec|csc|log|exp|gcd|lcm|max|min|deg|det)\b)"
)
_ORDINAL = re.compile(
    r"\^ ?\{{0,2} ?(?:\\(?:text|textrm|mathrm|rm) ?\{{0,2} ?)?(?=(?:st|nd|rd|th)\b)"
)
_DEGREES = re.compile(r"\^ ?\{? ?\\circ\b ?\}?")
_ENVIRONMENT = re.compile(r"\\(?:begin|end) ?\{[^{}]{0,40}\}(?: ?\{[lcr|@ ]{0,40}\})?")
_SPACING = re.compile(r"\\(?:[hv]space ?\*?|label|tag|color) ?\{[^{}]{0,80}\}")
_THOUSANDS = re.compile(r"(?<![\d.,(\[{])(\d{1,3})((?:(?:\{,\}|,\\!|\\,|,)\d{3})+)(?![\d)\]}]|,\d)")
_SPACED_LETTERS = re.compile(r"(?<![a-z'\\_^])([a-z]) (?=[a-z](?![a-z']))")


def plain(question: str) -> str:
    """The question in lower case and LaTeX, on one line, less what stands around it.

    Figures, links, emphasis, numbering before it and answer-form instructions after it go, as do
    articles; signs of Unicode become commands, and letters of one name are put together (A B = AB).
    """
    text = _remove_markup(question)
    text = _remove_answer_form(_remove_enumeration(text))
    if not text.isascii():
        text = unicodedata.normalize("NFKD", text.translate(SIGNS))
        text = unicodedata.normalize("NFKC", _COMBINING.sub("", text)).translate(SIGNS)
    if not text.isprintable():
        text = _BULLET.sub("", _CONTROL.sub("", text.replace("\x0crac", "\\frac")))
    text = _ARTICLE.sub("", text).casefold().replace("non-", "non")
    return _unify_latex(" ".join(text.split()))


def _remove_markup(text: str) -> str:
    if any(mark in text for mark in _FIGURE_MARKS):
        text = _FIGURE.sub(" ", text)
    if "](http" in text:
        text = _LINK.sub(r"\1", text)
    if "*" in text:
        text = _EMPHASIS.sub(r"\1", text)
    return text


def _remove_enumeration(text: str) -> str:
    start = 0
    while found := _ENUMERATION.match(text, start):
        start = found.end()
    rest = text[start:]
    return rest if rest.strip() else text


def _remove_answer_form(text: str) -> str:
    for _ in range(_MOST_ANSWER_FORMS):
        start = max(0, len(text) - _LONGEST_ANSWER_FORM)
        if not any(text.find(mark, start) >= 0 for mark in _ANSWER_FORM_MARKS):
            return text
        found = _ANSWER_FORM.search(text, start)
        if not found:
            return text
        text = text[: found.start() + 1]
    return text


def _unify_latex(text: str) -> str:
    """Write in one way what LaTeX can write in several; `text` is in lower case, on one line."""
    if "(" in text:
        text = _ASIDE.sub(" ", text)
    if "{}" in text:
        text = _EMPTY.sub("", text)
    if "^" in text:
        text = _ORDINAL.sub(" ", text)
        text = _DEGREES.sub("°", text)
    if "\\begin" in text:
        text = _ENVIRONMENT.sub(" ", text)
    if "space" in text or "\\label" in text or "\\tag" in text or "\\color" in text:
        text = _SPACING.sub(" ", text)
    if "," in text:
        text = _THOUSANDS.sub(_join_thousands, text)
    return _SPACED_LETTERS.sub(r"\1", text)


def _join_thousands(found: re.Match) -> str:
    return found[1] + re.sub(r"\D", "", found[2])
