# ruff: noqa: RUF001 - a table of just those characters
"""Tokens: a text in one spelling, cut into numbers, words, commands and operators.

What an answer means is decided in `parse` and `readings`. Every pattern runs in linear time.
"""

import functools
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

_GREEK = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho"
_CHARACTERS = {
    **{chr(0x3B1 + n): rf"\{name} " for n, name in enumerate(_GREEK.split())},
    "σ": r"\sigma ", "τ": r"\tau ", "φ": r"\phi ", "ϕ": r"\phi ", "χ": r"\chi ", "ψ": r"\psi ",
    "ω": r"\omega ", "Δ": r"\Delta ", "Ω": r"\Omega ", "Σ": r"\Sigma ",
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "×": r"\times ", "÷": r"\div ",
    "·": r"\cdot ", "⋅": r"\cdot ", "∙": r"\cdot ", "∗": "*", "∞": r"\infty ", "≤": r"\le ",
    "⩽": r"\le ", "≥": r"\ge ", "⩾": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "≡": r"\equiv ",
    "∈": r"\in ", "∪": r"\cup ", "∩": r"\cap ", "∅": r"\emptyset ", "±": r"\pm ", "∓": r"\mp ",
    "°": r"\degree ", "⟨": r"\langle ", "⟩": r"\rangle ", "〈": r"\langle ", "〉": r"\rangle ",
    "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ", "ℝ": r"\mathbb{R}",
    "ℤ": r"\mathbb{Z}", "ℚ": r"\mathbb{Q}", "ℕ": r"\mathbb{N}", "ℂ": r"\mathbb{C}", "∣": "|",
    "…": r"\ldots ", "⋯": r"\ldots ", "′": "'", "’": "'", "∠": r"\angle ", "△": r"\triangle ",
    "√": r"\sqrt ", "∛": r"\sqrt[3]", "→": r"\to ", "⁄": "/", "€": r"\euro ", "£": r"\pounds ",
    "¥": r"\yen ", "￥": r"\yen ", "¢": r"\text{ cents}", "∑": r"\sum ", "∫": r"\int ",
    "‰": r"\text{ per mille}", "∶": ":", "，": ", ", "、": ", ", "。": ".", "＄": r"\$",
}  # fmt: skip
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")


def to_ascii(text: str) -> str:
    """Unicode mathematics as LaTeX, other compatibility forms (fullwidth) as plain characters."""
    text = _INVISIBLE.sub("", text)
    if text.isascii():
        return text
    nfkc = partial(unicodedata.normalize, "NFKC")
    text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+", lambda run: f"^{{{nfkc(run[0])}}}", text)
    text = re.sub("[₀₁₂₃₄₅₆₇₈₉ₙ]+", lambda run: f"_{{{nfkc(run[0])}}}", text)
    pieces = []
    for character in text:
        form = unicodedata.decomposition(character).partition(" ")[0]
        plain = nfkc(character)
        if character in _CHARACTERS:
            plain = _CHARACTERS[character]
        elif form == "<fraction>":
            top, _, bottom = plain.partition("⁄")
            plain = rf"\frac{{{top}}}{{{bottom}}}"
        elif form in ("<super>", "<sub>"):
            mark = "^" if form == "<super>" else "_"
            plain = f"{mark}{{{plain}}}"
        elif unicodedata.category(character) == "Nd":
            plain = str(unicodedata.digit(character))
        pieces.append(plain)
    return "".join(pieces)


_SPELLINGS = {  # of a command
    "frac": "dfrac tfrac cfrac", "binom": "dbinom tbinom", "le": "leq leqslant", "ne": "neq",
    "ge": "geq geqslant", "{": "lbrace", "}": "rbrace", "ldots": "dots cdots", "mathbb": "Bbb",
    "phi": "varphi", "epsilon": "varepsilon", "theta": "vartheta", "infty": "infin",
    "degree": "deg", "vec": "overrightarrow", "overline": "bar", "arctan": "arctg", "tan": "tg",
    "cot": "ctg", "mathbf": "bm boldsymbol", "to": "implies Rightarrow rightarrow",
    "text": "textbf textit textrm textnormal mbox hbox mathrm operatorname mathsf mathit texttt"
    " textsf emph underline rm mathtt", "pmod": "mod bmod", "vee": "lor", "wedge": "land",
    "approx": "sim simeq approxeq", "cup": "bigcup", "emptyset": "varnothing",
}  # fmt: skip
_RENAMES = {old: "\\" + new for new, olds in _SPELLINGS.items() for old in olds.split()}
_RENAMES |= {
    "lt": "<", "gt": ">", "ast": "*", "vert": "|", "lvert": "|", "rvert": "|", "mid": "|",
    "lbrack": "[", "rbrack": "]", "lparen": "(", "rparen": ")", "colon": ":", "quad": ";",
    "qquad": ";", "enspace": " ", "thinspace": " ", "space": " ", "dollar": r"\$",
}  # fmt: skip
_DROPPED = re.compile(
    r"\\(?:left|right|middle|[bB]igg?[lrm]?)(?![A-Za-z])\s*\.?"
    r"|\\(?:bf|it|sf|tt|sl|em|tiny|small|normalsize|large|Large|LARGE|huge|Huge|bfseries|itshape"
    r"|strut|mathstrut|therefore|because|square|blacksquare|displaystyle|textstyle|scriptstyle"
    r"|limits|nolimits|boldmath|hfill|par|newline"
    r"|centering)(?![A-Za-z])"
    r"|\\(?:[hv]space|phantom|label|tag)\s*\*?(?:\{[^{}]*\}|[-+\d])"
)
_THOUSANDS = re.compile(r"(?<=\d)(?:\{,\}|,\s?\\!\s?|\\!\s?,|\\[,:;]|\{\\,\}|\\ |~)(?=\d{3}(?!\d))")
_UNITS = r"\{\s*\\(?:text|mathrm)\s*\{\s*([A-Za-z ]{1,20}?)\s*\}\s*(\^\{?[23]\}?)?\s*\}"
_REWRITES = [
    (r"\{\s*\\(?:rm|text|mathrm)\s+([A-Za-z]+)\s*\}", r"\\text{\1}"),
    (r"(?:\\rm(?![A-Za-z])\s*)+(?=[\d\\-])", ""),
    (r"\\(?:text|mathrm|mbox)\s*\{\s*[.,;:!]?\s*\}\s*\$?\s*$", ""),
    (rf"\\[dt]?frac\s*{_UNITS}\s*{_UNITS}", r"\\text{ \1\2/\3\4}"),
    (r"\{([,:])\}", r"\1"),
    (r"\\not\s*=", r"\\ne "),
    (r"\\pmod\s*\{(\w+)\}", r"\\pmod \1"),
    (r"\\cr(?![A-Za-z])", r"\\\\"),
    (r"\\(mathbb|Bbb)\s+([A-Z])", r"\\mathbb{\2}"),
    (r"(?<!\\)\\[,;:> ]|~", " "),
    (r"\\[!/]", ""),
    (r"\\q?quad(?=\s*\\(?:text|mathrm|mbox|mathbf)(?![A-Za-z]))", " "),
    (r"\\mathbf\s*\{([\d.,]+)\}", r"\1"),
    (r"\^\s*(?:\\prime|\{\s*\\prime\s*\})", "'"),
    (r"\{([-+])\}", r"\1"),
    (r"\{\s*\\?%\s*\}", "%"),
    (r"(?<![A-Za-z}_^])\{([A-Za-z])\}(?=\s*[_^])", r"\1"),
    (
        r"(\\(?:sum|prod|int)(?:\\limits)?|(?<![A-Za-z\\])[A-Za-z])\s*\^\s*"
        r"(\{[^{}]*\}|\\infty|\w)\s*_\s*(\{[^{}]*\}|\w)",
        r"\1_\3^\2",
    ),
    (r"\\(?:text|mathrm|operatorname)\s*\{\s*mod\s*\}", r"\\pmod "),
    (r"\\textsuperscript(?![a-z])", "^"),
    (r"\\(frac|binom)\s*([A-Za-z\d])\s*([A-Za-z\d])", r"\\\1{\2}{\3}"),
    (r"([\^_])\s*\{\s*(\w)\s*\}(?!\s*[\w.])", r"\1\2"),
    (r"\(\s*\\(?:mathrm|text)\s*\{\s*mod\s*\}\s*(\w+)\s*\)", r"\\pmod \1"),
    (r"\bUS\s*(?=\\\$)", ""),
    (
        r"\\\{\s*\\begin\s*\{array\}\s*(?:\{[lcr]*\})?([\s\S]*?)\\end\s*\{array\}(?!\s*\\\})",
        r"\\begin{cases}\1\\end{cases}",
    ),
    (r"\\textcolor\s*\{[^{}]*\}|\\color\s*\{[^{}]*\}", ""),
    (r"\\\\\s*\[[\d.]+\s*(?:pt|em|ex|mm|cm)\]", r"\\\\"),
    (r"\\([%#&_])", r"\1"),
    (r"(?:\^|(?<=\d))\s*\\circ(?![A-Za-z])|\^\s*\{\s*\\(?:circ|degree)\s*\}", r"\\degree "),
    (r"\\{2,}(?=\s*(?:\]|$))", ""),
]
_COMMAND = re.compile(r"\\([A-Za-z]+)")
# The letters of an ordinal, raised or not: 12th, 12^{th}, 12^{\text{th}}; and Swiss thousands.
_ORDINAL = re.compile(
    r"(?<=\d)(?:\s*\^)?\s*(?:(?:\{\s*)?\\text\s*(?:\{\s*)?(?:st|nd|rd|th)(?![A-Za-z])(?:\s*\}){0,2}"
    r"|(?<=\^)\{\s*(?:st|nd|rd|th)\s*\}|(?<!\s)(?:st|nd|rd|th)(?![A-Za-z]))"
)
_MODULUS = re.compile(r"\(\s*mod\s+(\w+)\s*\)|\\text\s*\{\s*\(?mod\s+(\w+)\)?\s*\}")
_DAY_FIRST = re.compile(
    r"\b(\d{1,2})(?:st|nd|rd|th)?\s+((?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*)\b"
)
_REASON = re.compile(r"(?:\\text\s*\{\s*)?(yes|no)\s*[,.;:\u2014](.*)", re.IGNORECASE | re.DOTALL)
# "Yes, there is no remainder" stays a yes; "Yes, or no" and "Yes; no" are both.
_NO = re.compile(r"\b(?:or|maybe|perhaps|actually)\W+not?\b|\bno\b(?!\s*[\w\\(])", re.IGNORECASE)
_YES = re.compile(r"\byes\b", re.IGNORECASE)
_APOSTROPHES = re.compile(r"(?<![\w.'])[1-9]\d{0,2}(?:'\d{3})+(?![\d'])")
_BARE_DOLLAR = re.compile(r"(?<!\\)\$")


def _drop_delimiters(text: str) -> str:
    """Take off `$…$`, `\\(…\\)`, `\\[…\\]` and markdown; a lone `$` before a number is money."""
    text = re.sub(r"(?<!\\)\\[()\[\]]", "", text)
    for mark in ("**", "__", "`", "*"):
        if len(text) > 2 * len(mark) and text.startswith(mark) and text.endswith(mark):
            text = text[len(mark) : -len(mark)].strip()
    if len(_BARE_DOLLAR.findall(text)) % 2:
        text = re.sub(r"(?<!\\)\$(?=\s*[\d.])", r"\\$", text, count=1)
    return _BARE_DOLLAR.sub("", text)


def _without_reason(text: str) -> str:
    """The yes or no before a reason that is not its opposite; any other text as it is."""
    match = _REASON.fullmatch(text)
    if match is None:
        return text
    opposite = _NO if match[1].lower() == "yes" else _YES
    return text if opposite.search(match[2]) else match[1]


# 0.666… with a repetend written at least three times.
_REPEATING = re.compile(r"(\d*\.\d{0,9}?)(\d{1,9}?)\2{2,40}(?:\\ldots(?![A-Za-z])|\.{2,3})")


@functools.lru_cache(maxsize=4096)  # a text has several readings
def normalise(text: str) -> str:
    """The text in one spelling: ASCII, no spacing commands, no delimiters, one name a command."""
    text = _drop_delimiters(to_ascii(text).strip())
    if "\\" in text or "~" in text or "{" in text:
        text = _THOUSANDS.sub("", _DROPPED.sub("", text))
        for pattern, new in _REWRITES:
            text = re.sub(pattern, new, text)
        text = _COMMAND.sub(lambda match: _RENAMES.get(match[1], match[0]), text)
    text = re.sub(r"(?<=\d)\s*[xX]\s*(?=10\^)", r"\\times ", text)  # 3 x 10^5
    if "mod" in text:
        text = _MODULUS.sub(r"\\pmod \1\2", text)
    if "!=" in text:
        text = re.sub(r"(?<=\d)!=", "! =", text)  # 5!=120
    text = _DAY_FIRST.sub(r"\2 \1", _without_reason(text))
    text = re.sub(r"\bper cent(?!s)", "percent", text).removeprefix(r"\approx")
    text = _APOSTROPHES.sub(lambda match: match[0].replace("'", ""), _ORDINAL.sub("", text))
    if "C_1" in text and "C_2" not in text and not re.search(r"C(?!_1)", text):
        text = text.replace("C_1", "C")  # the only constant of a solution
    text = _REPEATING.sub(r"\1\\overline{\2}", " ".join(text.split()))
    while text and text[-1] in ".,;\\" and not text.endswith(("..", "\\,", "\\;", "\\\\")):
        text = text[:-1].rstrip()
    return text


def is_simple(text: str) -> bool:
    """Whether a text is nothing but plain letters and digits."""
    return text.isascii() and text.isalnum()


def word_set(text: str) -> set[str]:
    """A table of words, from its text."""
    return set(text.split())


TRIGONOMETRIC = word_set("sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh")
FUNCTIONS = TRIGONOMETRIC | {"ln", "log", "lg", "exp"}  # of one argument
AGGREGATES = {"gcd", "lcm", "max", "min"}  # of several

_BELOW_TWENTY = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
    " sixteen seventeen eighteen nineteen"
)
_TENS = "ten twenty thirty forty fifty sixty seventy eighty ninety"
_NUMBERS = {word: number for number, word in enumerate(_BELOW_TWENTY.split())}
_NUMBERS |= {word: 10 * number for number, word in enumerate(_TENS.split(), 1)}
_GROUPS = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_PARTS = {"half": 2, "halve": 2, "halves": 2, "third": 3, "quarter": 4, "fifth": 5, "eighth": 8}
_PARTS |= {"ninth": 9, "twelfth": 12, "hundredth": 100}
_REGULAR = {word: n for word, n in (_NUMBERS | _GROUPS).items() if n > 3 and word[-1] in "dnrxy"}
_PARTS |= {re.sub("y$", "ie", word) + "th": n for word, n in _REGULAR.items()}
SCALES = _GROUPS | {word: Fraction(1, n) for word, n in _PARTS.items()}


def read_number_words(text: str) -> Fraction | None:
    """The number that English words spell (`minus three quarters`), None for any other words."""
    words = text.lower().replace("-", " ").split()
    sign = 1
    if words[:1] in (["minus"], ["negative"]):
        sign, words = -1, words[1:]
    bottom = 1
    if len(words) > 1 and (part := _PARTS.get(words[-1]) or _PARTS.get(words[-1][:-1])):
        bottom, words = part, words[:-1]
    number = _cardinal(words)
    if number is None or (bottom > 1 < number and not text.rstrip().endswith("s")):
        return None  # a hundred twentieth is an ordinal
    return sign * Fraction(number, bottom)


def _cardinal(words: list[str]) -> int | None:
    total = group = 0
    last = None  # the size of the word before: words come in falling order within a group
    for word in words:
        if word == "and" and last == 100:
            continue
        number = _NUMBERS.get(word, 0)
        follows_ten = last == 10 and 0 < number < 10  # twenty-one, not twenty twelve
        if word in _NUMBERS and (last in (None, 100, 1000) or follows_ten):
            group, last = group + number, 10 if number > 19 else 1
        elif word == "hundred" and last == 1 and 0 < group < 10:
            group, last = group * 100, 100
        elif word in _GROUPS and 0 < group < 1000 and (not total or total > 1000 * _GROUPS[word]):
            total, group, last = total + group * _GROUPS[word], 0, 1000
        else:
            return None
    return total + group if words else None


MAX_DEPTH = 40  # nested groups read; keeps recursion far from Python's own limit


class Unreadable(ValueError):
    """The text is outside the grammar."""


class TooLarge(Unreadable):
    """The value is too large to compute with; nobody else should try either."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token: kind num, word, text, cmd or op; `spaced`: a space came before it."""

    kind: str
    text: str
    spaced: bool = False


_TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<joined>[1-9]\d{0,2}(?:(?:,\d{3})+|(?: \d{3})+)(?!,?\d)(?!\s*[/_])(?:\.\d+)?)"
    r"|(?P<num>\d*\.\d*(?:\\(?:overline|dot)\s*(?:\{\d+\}|\d)|\(\d+\)(?=\s*$))"  # 0.\overline{3}
    r"|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+(?![\d.]))?)"
    r"|(?P<cmd>\\(?:[A-Za-z]+|.|$))"
    r"|(?P<word>[A-Za-z]+)"
    r"|(?P<text>[\u3041-\u30ff\u4e00-\u9fff\uac00-\ud7a3]+)"
    r"|(?P<op><=|>=|!=|:=|\*\*|.)",
    re.DOTALL,
)
OPENING = {"(", "[", "{", r"\{", r"\langle", r"\lfloor", r"\lceil", r"\begin"}
CLOSING = {")", "]", "}", r"\}", r"\rangle", r"\rfloor", r"\rceil", r"\end"}
_OPERATORS = {"<=": r"\le", ">=": r"\ge", "!=": r"\ne", ":=": "=", "**": "^"}
# sec is a second more often than a secant.
_SPELLED = (FUNCTIONS - {"sec"}) | {"pi", "infty", "sqrt", "theta", "alpha", "beta"}


def tokenise(text: str, thousands: bool = True) -> list[Token]:
    """Tokens of a normalised text; with `thousands`, `1,234` outside brackets is one number."""
    tokens: list[Token] = []
    at, depth, spaced = 0, 0, False
    while at < len(text):
        match = _TOKEN.match(text, at)
        kind, token = match.lastgroup, match[0]
        if kind == "joined" and (not thousands or depth):
            match = re.compile(r"\d+\.?\d*").match(text, at)
            kind, token = "num", match[0]
        elif kind == "joined":
            kind, token = "num", re.sub("[ ,]", "", token)
        at = match.end()
        if kind == "space":
            spaced = True
            continue
        if token in (r"\boxed", r"\fbox"):
            continue  # a frame around a part or the whole
        if token == r"\text":
            content, at = _group_text(text, at)
            tokens += _text_tokens(content, spaced)
        else:
            if kind == "word" and token.lower() in ("infinity", "inf", "oo"):
                kind, token = "cmd", r"\infty"
            elif kind == "word" and token in _SPELLED:
                kind, token = "cmd", "\\" + token
            elif kind == "word" and token.lower() in AGGREGATES and text[at : at + 1] == "(":
                kind, token = "cmd", "\\" + token.lower()
            token = _OPERATORS.get(token, token)
            if token.startswith("\\") and kind == "op":
                kind = "cmd"
            if token in OPENING and token != "{":
                depth += 1
            elif token in CLOSING and token != "}":
                depth -= 1
            tokens.append(Token(kind, token, spaced))
        spaced = False
    return tokens


def _group_text(text: str, at: int) -> tuple[str, int]:
    """Content of the brace group (or the one character) at `at`, and where it ends."""
    at = re.compile(" *").match(text, at).end()
    if not text.startswith("{", at):
        return text[at : at + 1], at + 1
    depth = 0
    for brace in re.finditer(r"\\.|[{}]", text[at:], re.DOTALL):
        if brace[0] == "{":
            depth += 1
        elif brace[0] == "}":
            depth -= 1
        if depth == 0:
            return text[at + 1 : at + brace.start()], at + brace.end()
    return text[at + 1 :], len(text)


def _text_tokens(content: str, spaced: bool) -> list[Token]:
    """Upright text: words stay text, anything with digits or mathematics in it is read as such."""
    content = _BARE_DOLLAR.sub("", content)
    spaced = spaced or content.startswith(" ")
    if content.strip() in FUNCTIONS | AGGREGATES - {"min"}:  # \operatorname{arctan}
        return [Token("cmd", "\\" + content.strip(), spaced)]
    if re.fullmatch(r" [mshglLtNJWVK] ?", content):
        return [Token("text", content.strip(), True)]  # 5\text{ m}
    if re.fullmatch(r"[A-Za-z]|[^\w\s]", content.strip()):
        kind = "word" if content.strip().isalpha() else "op"
        return [Token(kind, content.strip(), spaced)]
    if re.fullmatch(r"[^\d\\(){}^_=<>|+*/\[\],;:]*", content):
        words = []
        for piece in re.split(r" ?\b(and|or)\b ?", " ".join(content.split())):
            if piece:
                kind = "word" if re.fullmatch("[A-Za-z]", piece) else "text"
                words.append(Token(kind, piece, True))
        return words
    inner = tokenise(content)
    for at, token in enumerate(inner):  # words stay words even where they look like a product
        if token.kind == "word" and len(token.text) > 1:
            inner[at] = Token("text", token.text, True)
    if inner and spaced:
        inner[0] = replace(inner[0], spaced=True)
    return inner


_APART = {("num", "num"), ("cmd", "word")}
_WORDY = {(one, other) for one in ("word", "text") for other in ("word", "text")}


def canonical(tokens: list[Token]) -> str:
    """The tokens as one text in which print no longer differs; for comparison as written."""
    pieces: list[str] = []
    before = ""
    for token in tokens:
        kinds = (before, token.kind)
        if kinds in _APART or (token.spaced and kinds in _WORDY):
            pieces.append(" ")
        pieces.append(token.text)
        before = token.kind
    return "".join(pieces)


def _depths(tokens: list[Token]) -> list[int]:
    """How many brackets are open after each token."""
    depths, depth = [], 0
    for token in tokens:
        if token.text in OPENING:
            depth += 1
        elif token.text in CLOSING:
            depth -= 1
        depths.append(depth)
    return depths


def split(tokens: list[Token], is_separator: Callable[[Token], bool]) -> tuple[list, list[str]]:
    """(pieces, separators) of the tokens at the separators outside all brackets."""
    pieces, separators = [[]], []
    for token, depth in zip(tokens, _depths(tokens), strict=True):
        if depth == 0 and token.text not in CLOSING and is_separator(token):
            separators.append(token.text)
            pieces.append([])
        else:
            pieces[-1].append(token)
    return pieces, separators


def wraps(tokens: list[Token]) -> bool:
    """Whether the first token opens a bracket that only the last one closes."""
    depths = _depths(tokens)
    return depths[:1] == [1] and depths[-1] == 0 and 0 not in depths[:-1]


def is_balanced(tokens: list[Token]) -> bool:
    """Whether every brace that opens is closed, in order."""
    depth = 0
    for token in tokens:
        if token.text in ("{", r"\{"):
            depth += 1
        elif token.text in ("}", r"\}"):
            depth -= 1
        if depth < 0:
            return False
    return depth == 0


def nesting(tokens: list[Token]) -> int:
    """How deep the brackets are nested."""
    return max([0, *_depths(tokens)])
