# ruff: noqa: RUF001 - tables of just those characters
"""The text of a question without what copyists add to it or write in another way.

`plain` is the ground of `words.tokenise`; `normalise_question` and `text_keys` are the stricter
sense in which two texts are the same. Data files are untrusted and may hold very long questions, so
every pattern here is bounded or linear in the length of the text.
"""

import hashlib
import html
import re
import unicodedata

# Signs -> LaTeX, before Unicode's own folding would turn x² into x2. Spaces keep words apart.
_SIGN_TEXT = {
    "\u2212": "-", "\u2010": "-", "\u2011": "-", "\u2013": "-", "\u2014": " ", "\u2015": " ",
    "\u2018": "'", "\u2019": "'", "\u2032": "'", "\u2033": "''", "\u201c": '"', "\u201d": '"',
    "×": "*", "·": "*", "⋅": "*", "∙": "*", "∗": "*", "•": " ", "÷": "/", "∕": "/", "⁄": "/",
    "∶": ":", "：": ":", "≤": "<=", "⩽": "<=", "≦": "<=", "≥": ">=", "⩾": ">=", "≧": ">=",
    "≠": "!=", "±": r"\pm ", "∓": r"\mp ", "√": r"\sqrt ", "∛": r"\sqrt 3 ", "∞": r"\infty ",
    "≡": r"\equiv ", "≈": r"\approx ", "≅": r"\cong ", "∼": r"\sim ", "∠": r"\angle ",
    "△": r"\triangle ", "▲": r"\triangle ", "∆": r"\triangle ", "⊥": r"\perp ", "∥": r"\parallel ",
    "∈": r"\in ", "∉": r"\notin ", "⊂": r"\subset ", "⊆": r"\subseteq ", "∪": r"\cup ",
    "∩": r"\cap ", "∅": r"\emptyset ", "∑": r"\sum ", "∏": r"\prod ", "∫": r"\int ",
    "→": r"\to ", "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ",
    "⟨": r"\langle ", "⟩": r"\rangle ", "∣": "|", "‖": "|", "…": " ", "⋯": " ", "º": "°", "˚": "°",
    "％": "%", "‰": " ", "￥": " ", "€": " ", "£": " ", "¥": " ", "₹": " ",
    "½": " 1/2 ", "⅓": " 1/3 ", "⅔": " 2/3 ", "¼": " 1/4 ", "¾": " 3/4 ", "⅕": " 1/5 ",
    "⅛": " 1/8 ", "\u00a0": " ", "\u202f": " ", "\u2009": " ", "\u3000": " ",
    "（": "(", "）": ")", "，": ", ", "。": ". ", "？": "? ", "；": "; ", "、": ", ",
}  # fmt: skip
_GREEK = {
    "αΑ": "alpha", "βΒ": "beta", "γΓ": "gamma", "δΔ": "delta", "εϵΕ": "epsilon", "ζΖ": "zeta",
    "ηΗ": "eta", "θϑΘ": "theta", "ιΙ": "iota", "κΚ": "kappa", "λΛ": "lambda", "μµΜ": "mu",
    "νΝ": "nu", "ξΞ": "xi", "πΠ": "pi", "ρΡ": "rho", "σςΣ": "sigma", "τΤ": "tau", "υΥ": "upsilon",
    "φϕΦ": "phi", "χΧ": "chi", "ψΨ": "psi", "ωΩ": "omega",
}  # fmt: skip
_INVISIBLE = "\u200b\u200c\u200d\u200e\u200f\u2060\u2061\u2062\u2063\ufeff\u00ad\ufe0e\ufe0f"
SIGNS = str.maketrans(
    _SIGN_TEXT
    | {sign: rf"\{name} " for signs, name in _GREEK.items() for sign in signs}
    | {sign: f"^{digit}" for digit, sign in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")}
    | {sign: f"_{digit}" for digit, sign in enumerate("₀₁₂₃₄₅₆₇₈₉")}
    | {"ⁿ": "^n", "⁻": "^-", "ₙ": "_n"}
    | dict.fromkeys(_INVISIBLE, "")
)

_FIGURE = re.compile(
    r"\[asy\].*?(?:\[/asy\]|\Z)|< ?asy ?>.*?(?:< ?/ ?asy ?>|\Z)"
    r"|\\begin\{(asy|tikzpicture)\}.*?(?:\\end\{\1\}|\Z)"
    r"|!\[[^\]]{0,200}\]\([^)]{0,500}\)"
    r"|\\includegraphics\s?(?:\[[^\]]{0,200}\])?\s?\{[^{}]{0,500}\}|<img\b[^>]{0,500}>",
    re.DOTALL | re.IGNORECASE,
)
_FIGURE_MARKS = ("asy]", "asy>", "asy >", "\\begin", "![", "includegraphics", "<img")
_LINK = re.compile(r"\[([^\]]{0,200})\]\(https?:[^)]{0,500}\)")
_ENTITY = re.compile(r"&(?:\#\d{1,7}|\#[xX][\da-fA-F]{1,6}|[A-Za-z][A-Za-z\d]{1,30});")
# Unlike a < b and c > d: nothing but attributes precedes the bracket that closes.
_TAG = re.compile(
    r"</?(?:p|br|div|span|b|i|u|em|strong|li|ul|ol|h[1-6]|hr|center|font|blockquote|pre|code)"
    r"(?: [a-z-]{1,20}=(?:\"[^\"<>]{0,200}\"|'[^'<>]{0,200}')){0,9} ?/?>",
    re.IGNORECASE,
)
_SCRIPTS = (("<sup>", "^{"), ("</sup>", "}"), ("<sub>", "_{"), ("</sub>", "}"))
_CODE_POINT = re.compile(r"\\u(?!d[89a-f])([\da-f]{4})")
_BACKSLASHES = re.compile(r"\\+")
_ESCAPED_BREAK = re.compile(r"(?<!\\)(?:\\r)?\\n(?![a-z])")
_DOUBLED = re.compile(r"(?<!\\)\\{2,}+(?=[A-Za-z])")
_EMPTY = re.compile(r"[\^_]\{\s?\}")
# Bold text of any length; 2**3 is a power.
_BOLD = re.compile(r"(?<![\w)])\*\*|\*\*(?![\w(])")
_EMPHASIS = re.compile(r"(?<![\w)])\*{1,2}([A-Za-z][A-Za-z ,.'-]{0,60})\*{1,2}(?!\w)")
# "12.", "B-1.3.", "Problem 5.", "(2)", "[6]", "(10 points)", "[2003 AIME I]", "(NET 3 only)".
_ENUMERATION = re.compile(
    r"\s*(?:"
    r"\#+\s|>\s|\*\*|[-*]\s(?=\s*[A-Z])"
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
_SENTENCE = r"(?:[^.?!]|\.(?![\s$]|\\[\])]|\Z))*"
# Between the verb and its object come a few words and no formula, which would be the question.
_FEW_WORDS = r"(?:[^\w.?!$\\]{1,3}\w+){0,6}?[^\w.?!$\\]{1,3}"
_ANSWER_FORM = re.compile(
    r"(?:[.?!]\s*|[$)\]}]\s+|\n\s*|\s(?=\())\(?(?:"
    r"(?:express|enter|give|write|state|submit|leave|simplify|round|report|put|justify|your)\b"
    + _FEW_WORDS
    + r"answers?\b|(?:enter|list|write|separate)\b"
    + _FEW_WORDS
    + r"commas?\b|(?:if )?(?:the )?(?:original |final )?answers?\b|please (?!find)|provide\b)"
    + _SENTENCE
    + r"[.?!]?[$)\s]*\Z",
    re.IGNORECASE,
)
_ANSWER_FORM_MARKS = ("nswer", "omma", "rovide", "lease")
_LONGEST_ANSWER_FORM = 300
_MOST_ANSWER_FORMS = 3
# "(A) 12 (B) 13", "A. 12", "\\textbf{(A)} 12".
_CHOICE = re.compile(r"(?:\\text(?:bf|rm)? ?\{|(?<![\w$^\\]))\(?([A-E])(?:\)|[.:]\s)")
_LONGEST_CHOICES = 600
_MIN_CHOICES = 3
_COMBINING = re.compile(r"[\u0300-\u036f]")
# What is left of \f and \v where a reader of JSON took them for escapes.
_CONTROL = re.compile(r"[\x0b\x0c](?=[a-z])")
_BULLET = re.compile(r"^ ?(?:\*\s(?=[A-Za-z$])|-\s(?=[A-Z$])|>\s)", re.MULTILINE)
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
_MIN_LETTERS = 30
_NO_LETTER = re.compile(r"[\W_]")
_INVISIBLE = re.compile(r"[\u200b-\u200d\u2060\ufeff]")
_COMMA_IN_NUMBER = re.compile(r"(?<=\d),(?=\d{3}\b)")
# Signs that carry mathematics stay (3-2 is not 3+2, 1.5 is not 15, 5! is not 5); the rest goes.
_PUNCTUATION = re.compile(r"[,;:?$'\"`\u2018\u2019\u201c\u201d\u2026]|(?<![\d)])!|\.(?!\d)")
_AROUND_SIGN = re.compile(r" ?([-+*/=<>^(){}\[\]|]) ?")


def plain(question: str) -> str:
    """The question in lower case and LaTeX, on one line, without what surrounds it.

    Figures, links, emphasis, numbering before it and answer-form instructions after it go, as do
    articles; signs of Unicode become commands, and letters of one name are put together (A B = AB).
    """
    text = _remove_markup(_one_break(_unescape(question)))
    text = _remove_answer_form(_remove_enumeration(text))
    if not text.isascii():
        text = unicodedata.normalize("NFKD", text.translate(SIGNS))
        text = unicodedata.normalize("NFKC", _COMBINING.sub("", text)).translate(SIGNS)
    if not text.isprintable():
        text = _BULLET.sub("", text)
    text = _ARTICLE.sub("", text).casefold().replace("non-", "non")
    return _unify_latex(" ".join(text.split()))


def figures(question: str) -> list[str]:
    """The code of the figures in a question, in order, without white space."""
    return ["".join(found[0].split()) for found in _FIGURE.finditer(question)]


def without_choices(question: str) -> str:
    """The question without the options (A), (B), (C), … at its end; "" if it has none."""
    first, count = 0, 0
    for label in _CHOICE.finditer(question, max(0, len(question) - _LONGEST_CHOICES)):
        if label[1] == "A":
            first, count = label.start(), 1
        elif label[1] == "ABCDE"[count % 5]:
            count += 1
    return question[:first].strip() if count >= _MIN_CHOICES else ""


def normalise_question(question: str) -> str:
    """A question without what editions of one problem differ in: case, spacing, punctuation."""
    text = _INVISIBLE.sub("", question.casefold())
    text = _PUNCTUATION.sub(" ", _COMMA_IN_NUMBER.sub("", text))
    return _AROUND_SIGN.sub(r"\1", " ".join(text.split())).strip()


def question_key(question: str, trace: int = 0) -> bytes:
    """16 bytes that are equal for equal normalised questions and trace numbers."""
    text = f"{trace} {normalise_question(question)}"
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def text_keys(question: str) -> list[str | bytes]:
    """Keys of which one is equal where two questions count as the same text.

    The second looks at letters and digits alone. It also takes a question for another that differs
    in a sign: two rows of 48,000 real ones, little for what editions lose in signs and braces. In
    short texts a sign is too often all that differs, so it is left out there.
    """
    found = letters(question)
    return [question_key(question), *([found] if len(found) >= _MIN_LETTERS else [])]


def letters(question: str) -> str:
    """Letters and digits alone, in lower case."""
    return _NO_LETTER.sub("", question.casefold())


def without_options(question: str) -> str:
    """A question of ARC or GPQA without the lines of its options, which editions order freely."""
    return question.rpartition("\n\nA. ")[0] or question


def _unescape(text: str) -> str:
    """Undo what programs that wrote the text for JSON or for the web left in it."""
    if not text.isprintable():
        text = _CONTROL.sub("", text.replace("\x0crac", "\\frac"))
    if "&" in text:
        # &amp;lt; was escaped twice.
        text = _ENTITY.sub(_character, _ENTITY.sub(_character, text))
    if "<" in text:
        for tag, sign in _SCRIPTS:
            text = text.replace(tag, sign)
        text = _TAG.sub(" ", text)
    if "\\n" in text:
        text = _ESCAPED_BREAK.sub("\n", text)
    if "\\u" in text:
        text = _CODE_POINT.sub(lambda code: chr(int(code[1], 16)), text)
    if "\\\\" in text:
        text = text.replace('\\"', '"')
        runs = _BACKSLASHES.findall(text)
        if _DOUBLED.search(text) and all(len(run) % 2 == 0 for run in runs):
            text = _ESCAPED_BREAK.sub("\n", text.replace("\\\\", "\\"))
    return _DOUBLED.sub(r"\\", text)


def _character(entity: re.Match) -> str:
    return html.unescape(entity[0])


def _one_break(text: str) -> str:
    """The text with one space or line break for many: patterns need not look for more."""
    return "\n".join(line for part in text.split("\n") if (line := " ".join(part.split())))


def _remove_markup(text: str) -> str:
    if any(mark in text for mark in _FIGURE_MARKS):
        text = _FIGURE.sub(" ", text)
    if "](http" in text:
        text = _LINK.sub(r"\1", text)
    if "*" in text:
        text = _EMPHASIS.sub(r"\1", _BOLD.sub("", text))
        if text[:1] == "*" == text[-1:]:
            text = text[1:-1]
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
