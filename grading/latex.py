# ruff: noqa: RUF001 - tables of just those characters
"""LaTeX: a text in one spelling, and cut into tokens. Every pattern runs in linear time."""

import functools
import re
import unicodedata
from dataclasses import dataclass
from fractions import Fraction

# One spelling

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
_RAISED, _LOWERED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+"), re.compile("[₀₁₂₃₄₅₆₇₈₉ₙ]+")


def to_ascii(text: str) -> str:
    """Unicode mathematics as LaTeX, other compatibility forms (fullwidth) as plain characters."""
    text = _INVISIBLE.sub("", text)
    if text.isascii():
        return text
    text = _RAISED.sub(lambda run: f"^{{{unicodedata.normalize('NFKC', run[0])}}}", text)
    text = _LOWERED.sub(lambda run: f"_{{{unicodedata.normalize('NFKC', run[0])}}}", text)
    return "".join(map(_plain_character, text))


def _plain_character(character: str) -> str:
    if character in _CHARACTERS:
        return _CHARACTERS[character]
    plain = unicodedata.normalize("NFKC", character)
    form = unicodedata.decomposition(character).partition(" ")[0]
    if form == "<fraction>":
        top, _, bottom = plain.partition("⁄")
        return rf"\frac{{{top}}}{{{bottom}}}"
    if form in ("<super>", "<sub>"):
        return f"{'^' if form == '<super>' else '_'}{{{plain}}}"
    return str(unicodedata.digit(character)) if unicodedata.category(character) == "Nd" else plain


_SPELLINGS = {  # of a command
    "frac": "dfrac tfrac cfrac", "binom": "dbinom tbinom", "le": "leq leqslant", "ne": "neq",
    "ge": "geq geqslant", "{": "lbrace", "}": "rbrace", "ldots": "dots cdots", "mathbb": "Bbb",
    "phi": "varphi", "epsilon": "varepsilon", "theta": "vartheta", "infty": "infin",
    "degree": "deg", "vec": "overrightarrow", "overline": "bar", "arctan": "arctg", "tan": "tg",
    "cot": "ctg", "mathbf": "bm boldsymbol", "to": "implies Rightarrow rightarrow",
    "text": "textbf textit textrm textnormal mbox hbox mathrm operatorname mathsf mathit texttt"
    " textsf emph underline rm mathtt", "pmod": "mod bmod", "vee": "lor", "wedge": "land",
    "approx": "sim simeq approxeq", "cup": "bigcup", "emptyset": "varnothing", "cdot": "times ast",
}  # fmt: skip
RENAMES = {old: "\\" + new for new, olds in _SPELLINGS.items() for old in olds.split()}
RENAMES |= {
    "lt": "<", "gt": ">", "vert": "|", "lvert": "|", "rvert": "|", "mid": "|",
    "lbrack": "[", "rbrack": "]", "lparen": "(", "rparen": ")", "colon": ":", "quad": ";",
    "qquad": ";", "enspace": " ", "thinspace": " ", "space": " ", "dollar": r"\$",
}  # fmt: skip
_DROPPED = re.compile(
    r"\\(?:left|right|middle|[bB]igg?[lrm]?)(?![A-Za-z])\s*\.?"
    r"|\\(?:bf|it|sf|tt|sl|em|small|large|Large|huge|displaystyle|textstyle|scriptstyle"
    r"|limits|nolimits|boldmath|centering|therefore|because|square|hfill|par|newline)(?![A-Za-z])"
    r"|\\[hv]space\s*\*?(?:\{[^{}]*\}|[-+\d])"
    r"|\\(?:text)?color\s*\{[^{}]*\}"
)
_THOUSANDS = re.compile(r"(?<=\d)(?:\{,\}|,\s?\\!\s?|\\!\s?,|\\[,:;]|\{\\,\}|\\ |~)(?=\d{3}(?!\d))")
_UNIT = r"\{\s*\\(?:text|mathrm)\s*\{\s*([A-Za-z ]{1,20}?)\s*\}\s*(\^\{?[23]\}?)?\s*\}"
_REWRITES = [
    (re.compile(old), new)
    for old, new in (
        (r"\{\s*\\(?:rm|text|mathrm)\s+([A-Za-z]+)\s*\}", r"\\text{\1}"),
        (r"(?:\\rm(?![A-Za-z])\s*)+(?=[\d\\-])", ""),
        (r"\\(?:text|mathrm|mbox)\s*\{\s*[.,;:!]?\s*\}\s*\$?\s*$", ""),  # an empty end
        (r"\{\s*(\\?%|[,:+-])\s*\}", r"\1"),
        (rf"\\[dt]?frac\s*{_UNIT}\s*{_UNIT}", r"\\text{ \1\2/\3\4}"),
        (r"\\mathbf\s*\{([RZNQC])\}", r"\\mathbb{\1}"),
        (
            r"\\\{\s*\\begin\s*\{array\}\s*(?:\{[lcr]*\})?([\s\S]*?)\\end\s*\{array\}(?!\s*\\\})",
            r"\\begin{cases}\1\\end{cases}",
        ),
        (r"\\not\s*=", r"\\ne "),
        (r"\\(?:text|mathrm|operatorname)\s*\{\s*mod\s*\}", r"\\pmod "),
        (r"\\(mathbb|Bbb)\s+([A-Z])", r"\\mathbb{\2}"),
        (r"(?<!\\)\\[,;:> ]|~", " "),
        (r"\\[!/]", ""),
        (r"\\q?quad(?=\s*\\(?:text|mathrm|mbox|mathbf)(?![A-Za-z]))", " "),
        (r"\\mathbf\s*\{([\d.,]+)\}", r"\1"),
        (r"\^\s*(?:\\prime|\{\s*\\prime\s*\})", "'"),
        (r"(?<![A-Za-z}_^])\{([A-Za-z])\}(?=\s*[_^])", r"\1"),
        (r"\\(frac|binom)\s*([A-Za-z\d])\s*([A-Za-z\d])", r"\\\1{\2}{\3}"),
        (r"\\\\\s*\[[\d.]+\s*(?:pt|em|ex|mm|cm)\]", r"\\\\"),
        (r"\\([%#&_])", r"\1"),
        (r"(?:\^|(?<=\d))\s*\\circ(?![A-Za-z])|\^\s*\{\s*\\(?:circ|degree)\s*\}", r"\\degree "),
        (r"(?<![A-Za-z\\])C_\{?(\w+)\}?\^\{?(\w+)\}?", r"\\binom{\1}{\2}"),
        (r"\\textsuperscript(?![A-Za-z])", "^"),
        (r"\\(sum|prod|int)\s*\^\s*(\{[^{}]*\}|\w)\s*_\s*(\{[^{}]*\}|\w)", r"\\\1_\3^\2"),
    )
]
_COMMAND = re.compile(r"\\([A-Za-z]+)")
# The letters of an ordinal, raised or not: 12th, 12^{th}, 12^{\text{th}}.
_ORDINAL = re.compile(
    r"(?<=\d)(?:\s*\^)?\s*(?:(?:\{\s*)?\\text\s*(?:\{\s*)?(?:st|nd|rd|th)(?![A-Za-z])(?:\s*\}){0,2}"
    r"|(?<=\^)\{\s*(?:st|nd|rd|th)\s*\}|(?<!\s)(?:st|nd|rd|th)(?![A-Za-z]))"
    r"(?!\W*(?:(?:text|mathrm)\W*)?[a-z]{3})"  # the 33rd derivative is not 33
)
_DAY_FIRST = re.compile(
    r"\b(\d{1,2})(?:st|nd|rd|th)?\s+((?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*)\b"
)
# What a number counts, in brackets behind it: 12 (red marbles).
_BRACED = re.compile(r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*(?<!\\)\}")
_TEXT_OR_NOT = r"\s*(?:\\text\s*\{)?\s*"
_NOTE = re.compile(
    rf"(?:(?<=[\d}}])|(?<=\\degree)){_TEXT_OR_NOT}\({_TEXT_OR_NOT}"
    r"([A-Za-z][a-z][a-z -]*)\s*\}?\s*\)\s*\}?$"
)
_MODULUS = re.compile(r"\(\s*(?:\\p)?mod\s+(\w+)\s*\)|\\text\s*\{\s*\(?mod\s+(\w+)\)?\s*\}")
# 0.666… with a repetend written at least three times.
_REPEATING = re.compile(r"(\d*\.\d{0,9}?)(\d{1,9}?)\2{2,40}(?:\\ldots(?![A-Za-z])|\.{2,3})")
_DOLLARS = re.compile(r"\bUS\s?(?=\\?\$\s?\d)")  # US$ 5
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


@functools.lru_cache(maxsize=4096)
def normalise(text: str) -> str:
    """The text in one spelling: ASCII, no spacing commands, no delimiters, one name a command."""
    text = _drop_delimiters(_DOLLARS.sub("", to_ascii(text).strip()))
    if "\\" in text or "~" in text or "{" in text:
        text = _THOUSANDS.sub("", _DROPPED.sub("", text))
        for pattern, new in _REWRITES:
            text = pattern.sub(new, text)
        text = _COMMAND.sub(lambda match: RENAMES.get(match[1], match[0]), text)
    text = re.sub(r"(?<=\d)\s*[xX]\s*(?=10\^)", r"\\cdot ", text)  # 3 x 10^5
    text = re.sub(r"(?<=\d)!=", "! =", text)  # 5!=120
    text = re.sub(r"(?<=\d)'(?=\d{3}(?!\d))", "", text)  # 1'234'567
    while _BRACED.fullmatch(text):
        text = text[1:-1].strip()  # {5}
    text = _NOTE.sub(r"\\text{ \1}", text)
    text = _MODULUS.sub(r"\\pmod \1\2", text)
    text = _DAY_FIRST.sub(r"\2 \1", text)
    text = re.sub(r"\bper cent(?!s)", "percent", text).removeprefix(r"\approx")
    text = _ORDINAL.sub("", text)
    text = _REPEATING.sub(r"\1\\overline{\2}", " ".join(text.split()))
    text = text.lstrip("; ")
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

# Numbers in words

_BELOW_TWENTY = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
    " sixteen seventeen eighteen nineteen"
)
_TENS = "ten twenty thirty forty fifty sixty seventy eighty ninety"
NUMBERS = {word: number for number, word in enumerate(_BELOW_TWENTY.split())}
NUMBERS |= {word: 10 * number for number, word in enumerate(_TENS.split(), 1)}
_GROUPS = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_PARTS = {"half": 2, "halve": 2, "third": 3, "quarter": 4, "fifth": 5, "eighth": 8, "ninth": 9}
_PARTS |= {"twelfth": 12, "hundredth": 100}
_REGULAR = {word: n for word, n in (NUMBERS | _GROUPS).items() if n > 3 and word[-1] in "dnrxy"}
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
        number = NUMBERS.get(word, 0)
        follows_ten = last == 10 and 0 < number < 10  # twenty-one, not twenty twelve
        if word in NUMBERS and (last in (None, 100, 1000) or follows_ten):
            group, last = group + number, 10 if number > 19 else 1
        elif word == "hundred" and last == 1 and 0 < group < 10:
            group, last = group * 100, 100
        elif word in _GROUPS and 0 < group < 1000 and (not total or total > 1000 * _GROUPS[word]):
            total, group, last = total + group * _GROUPS[word], 0, 1000
        else:
            return None
    return total + group if words else None


# Tokens


class Unreadable(ValueError):
    """The text is outside the grammar."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token: kind num, word, text, cmd, op or end; `spaced`: a space came before it."""

    kind: str
    text: str
    spaced: bool = False

    @property
    def is_word(self) -> bool:
        """Whether it is letters, upright or not."""
        return self.kind in ("text", "word")


END = Token("end", "")
_GROUPED = r"(?P<joined>[1-9]\d{0,2}(?:(?:,\d{3})+|(?: \d{3})+)(?!,?\d)(?!\s*[/_])(?:\.\d+)?)|"
_ANY = (
    r"(?P<space>\s+)"
    r"|(?P<num>\d*\.\d*(?:\\(?:overline|dot)\s*(?:\{\d+\}|\d)|\(\d+\)(?=\s*$))"  # 0.\overline{3}
    r"|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+(?![\d.]))?)"
    r"|(?P<cmd>\\(?:[A-Za-z]+|.|$))"
    r"|(?P<word>[A-Za-z]+)"
    r"|(?P<text>[\u3041-\u30ff\u4e00-\u9fff\uac00-\ud7a3]+)"
    r"|(?P<op><=|>=|!=|:=|\*\*|.)"
)
_TOKEN, _UNGROUPED = re.compile(_GROUPED + _ANY, re.DOTALL), re.compile(_ANY, re.DOTALL)
OPENING = {"(", "[", r"\{", r"\langle", r"\lfloor", r"\lceil", r"\begin"}
CLOSING = {")", "]", r"\}", r"\rangle", r"\rfloor", r"\rceil", r"\end"}
_OPERATORS = {"<=": r"\le", ">=": r"\ge", "!=": r"\ne", ":=": "=", "**": "^", "*": r"\cdot"}
# sec is a second more often than a secant.
_SPELLED = (FUNCTIONS - {"sec"}) | {"pi", "infty", "sqrt", "theta", "alpha", "beta"}
_INFINITE = {"infinity", "inf", "oo"}


def tokenise(text: str, thousands: bool = True) -> list[Token]:
    """Tokens of a normalised text; with `thousands`, `1,234` outside brackets is one number."""
    tokens: list[Token] = []
    at, depth, spaced = 0, 0, False
    while at < len(text):
        pattern = _TOKEN if thousands and not depth else _UNGROUPED
        kind, token = next(
            (found.lastgroup or "", found[0]) for found in pattern.finditer(text, at)
        )
        at += len(token)
        if kind == "joined":
            kind, token = "num", re.sub("[ ,]", "", token)
        if token in (r"\boxed", r"\fbox"):
            continue  # a frame around a part or the whole
        if token == r"\text":
            content, at = _group_text(text, at)
            tokens += _text_tokens(content, spaced)
        elif kind != "space":
            depth += (token in OPENING) - (token in CLOSING)
            tokens.append(_token(kind, token, spaced, text[at : at + 1]))
        spaced = kind == "space"
    return tokens


def _token(kind: str, token: str, spaced: bool, following: str) -> Token:
    lowered = token.lower()
    if kind == "word" and lowered in _INFINITE:
        return Token("cmd", r"\infty", spaced)
    if kind == "word" and token in _SPELLED:
        return Token("cmd", "\\" + token, spaced)
    if kind == "word" and lowered in AGGREGATES and following == "(":
        return Token("cmd", "\\" + lowered, spaced)
    token = _OPERATORS.get(token, token)
    return Token("cmd" if token.startswith("\\") else kind, token, spaced)


def _group_text(text: str, at: int) -> tuple[str, int]:
    """Content of the brace group (or the one character) at `at`, and where it ends."""
    while text.startswith(" ", at):
        at += 1
    if not text.startswith("{", at):
        return text[at : at + 1], at + 1
    depth = 0
    for brace in re.finditer(r"\\.|[{}]", text[at:], re.DOTALL):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return text[at + 1 : at + brace.start()], at + brace.end()
    return text[at + 1 :], len(text)


def _text_tokens(content: str, spaced: bool) -> list[Token]:
    """Upright text: words stay text, anything with digits or mathematics in it is read as such."""
    content = _BARE_DOLLAR.sub("", content)
    plain, spaced = content.strip(), spaced or content.startswith(" ")
    if plain in FUNCTIONS | AGGREGATES - {"min"}:  # \operatorname{arctan}
        return [Token("cmd", "\\" + plain, spaced)]
    if re.fullmatch(r" [mshglLtNJWVK] ?", content):
        return [Token("text", plain, True)]  # 5\text{ m}
    if re.fullmatch(r"[A-Za-z]|[^\w\s]", plain):
        return [Token("word" if plain.isalpha() else "op", plain, spaced)]
    if re.fullmatch(r"[^\d\\(){}^_=<>|+*/\[\],;:]*", content):
        pieces = [one for one in re.split(r" ?\b(and|or)\b ?", " ".join(content.split())) if one]
        return [
            Token("word" if re.fullmatch("[A-Za-z]", one) else "text", one, True) for one in pieces
        ]
    inner = tokenise(content)
    # Words stay words even where they look like a product.
    return [
        Token(
            "text" if token.kind == "word" and len(token.text) > 1 else token.kind,
            token.text,
            token.spaced or (at == 0 and spaced),
        )
        for at, token in enumerate(inner)
    ]


_APART = {("num", "num"), ("cmd", "word"), ("num", "text")}
_WORDY = {(one, other) for one in ("word", "text") for other in ("word", "text")}


def joined(tokens: list[Token]) -> str:
    """The tokens as one text in which print no longer differs; for comparison as written."""
    pieces: list[str] = []
    before = ""
    for token in tokens:
        kinds = (before, token.kind)
        is_apart = kinds in _WORDY and (token.spaced or "text" in kinds)
        if kinds in _APART or is_apart:
            pieces.append(" ")
        pieces.append(token.text)
        before = token.kind
    return "".join(pieces)
