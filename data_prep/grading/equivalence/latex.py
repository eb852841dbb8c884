# ruff: noqa: RUF001, RUF002 - a table of just those characters
"""Print: one spelling for what Unicode, LaTeX and markdown write in many ways.

`normalise` only removes or renames what carries no value of its own (spacing, fonts, delimiters,
`\\left`, `½`, `×`). It never decides what an answer means: that is `syntax` and `structure`.
Every pattern runs in time linear in the text.
"""

import re
import unicodedata

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
    "∶": ":", "，": ", ", "、": ", ", "。": ".", "＄": r"\$",
}  # fmt: skip
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉ₙ", "0123456789n")
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")


def _to_ascii(text: str) -> str:
    """Unicode mathematics as LaTeX, other compatibility forms (fullwidth) as plain characters."""
    text = _INVISIBLE.sub("", text)
    if text.isascii():
        return text
    text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+", lambda m: "^{" + m[0].translate(_SUPERSCRIPTS) + "}", text)
    text = re.sub("[₀₁₂₃₄₅₆₇₈₉ₙ]+", lambda m: "_{" + m[0].translate(_SUBSCRIPTS) + "}", text)
    pieces = []
    for character in text:
        if character.isascii():
            pieces.append(character)
        elif character in _CHARACTERS:
            pieces.append(_CHARACTERS[character])
        elif unicodedata.decomposition(character).startswith("<fraction>"):
            top, _, bottom = unicodedata.normalize("NFKC", character).partition("⁄")
            pieces.append(rf"\frac{{{top}}}{{{bottom}}}")
        elif unicodedata.decomposition(character).startswith(("<super>", "<sub>")):
            sign = "^" if unicodedata.decomposition(character).startswith("<super>") else "_"
            pieces.append(f"{sign}{{{unicodedata.normalize('NFKC', character)}}}")
        elif unicodedata.category(character) == "Nd":
            pieces.append(str(unicodedata.digit(character)))
        else:
            pieces.append(unicodedata.normalize("NFKC", character))
    return "".join(pieces)


_RENAMES = {
    "dfrac": "frac", "tfrac": "frac", "cfrac": "frac", "dbinom": "binom", "tbinom": "binom",
    "leq": "le", "leqslant": "le", "geq": "ge", "geqslant": "ge", "neq": "ne", "lbrace": "{",
    "rbrace": "}", "dots": "ldots", "cdots": "ldots", "Bbb": "mathbb",
    "varphi": "phi", "varepsilon": "epsilon", "vartheta": "theta", "infin": "infty",
    "deg": "degree", "overrightarrow": "vec", "bar": "overline",
    "arctg": "arctan", "tg": "tan", "ctg": "cot",
    "text": "text", "textbf": "text", "textit": "text", "textrm": "text", "textnormal": "text",
    "mbox": "text", "hbox": "text", "mathrm": "text", "operatorname": "text", "mathsf": "text",
    "mathit": "text", "texttt": "text", "textsf": "text", "emph": "text", "underline": "text",
    "rm": "text", "bm": "mathbf", "boldsymbol": "mathbf", "implies": "to", "Rightarrow": "to",
    "mod": "pmod", "bmod": "pmod",
    "rightarrow": "to", "lor": "vee", "land": "wedge", "sim": "approx", "simeq": "approx",
    "bigcup": "cup", "varnothing": "emptyset",
}  # fmt: skip
_CHARACTER_COMMANDS = {
    "lt": "<", "gt": ">", "ast": "*", "vert": "|", "lvert": "|", "rvert": "|", "mid": "|",
    "lbrack": "[", "rbrack": "]", "lparen": "(", "rparen": ")", "colon": ":", "quad": ";",
    "qquad": ";", "enspace": " ", "thinspace": " ", "space": " ", "dollar": r"\$",
}  # fmt: skip
_DROPPED = re.compile(
    r"\\(?:left|right|middle|[bB]igg?[lrm]?)(?![A-Za-z])\s*\.?"
    r"|\\(?:therefore|because|square|blacksquare|displaystyle|textstyle|scriptstyle|limits|nolimits|boldmath|hfill|par|newline"
    r"|centering)(?![A-Za-z])"
    r"|\\(?:[hv]space|phantom|label|tag)\s*\*?(?:\{[^{}]*\}|[-+\d])"
)
_THOUSANDS = re.compile(r"(?<=\d)(?:\{,\}|,\s?\\!\s?|\\!\s?,|\\[,:;]|\{\\,\}|\\ |~)(?=\d{3}(?!\d))")
_REWRITES = [
    (re.compile(pattern), new)
    for pattern, new in [
        (r"\{([,:])\}", r"\1"),
        (r"\\not\s*=", r"\\ne "),
        (r"\\pmod\s*\{(\w+)\}", r"\\pmod \1"),
        (r"\\cr(?![A-Za-z])", r"\\\\"),
        (r"\\(mathbb|Bbb)\s+([A-Z])", r"\\mathbb{\2}"),
        (r"(?<!\\)\\[,;:> ]|~", " "),
        (r"\\[!/]", ""),
        (r"\\q?quad(?=\s*\\(?:text|mathrm|mbox|mathbf)(?![A-Za-z]))", " "),
        (r"\\mathbf\s*\{([\d.]+)\}", r"\1"),
        (r"\^\s*(?:\\prime|\{\s*\\prime\s*\})", "'"),
        (r"\{([-+])\}", r"\1"),
        (r"\\textcolor\s*\{[^{}]*\}|\\color\s*\{[^{}]*\}", ""),
        (r"\\\\\s*\[[\d.]+\s*(?:pt|em|ex|mm|cm)\]", r"\\\\"),
        (r"\\%", "%"),
        (r"\\([#&_])", r"\1"),
        (r"\^\s*(?:\\circ(?![A-Za-z])|\{\s*\\(?:circ|degree)\s*\})", r"\\degree "),
        (r"(?<=\d)\s*\\circ(?![A-Za-z])", r"\\degree "),
        (r"\\{2,}(?=\s*(?:\]|$))", ""),
    ]
]
_COMMAND = re.compile(r"\\([A-Za-z]+)")


def _rename(match: re.Match) -> str:
    name = match[1]
    if name in _CHARACTER_COMMANDS:
        return _CHARACTER_COMMANDS[name]
    return "\\" + _RENAMES.get(name, name)


def _drop_delimiters(text: str) -> str:
    """Take off `$…$`, `\\(…\\)`, `\\[…\\]` and markdown; a lone `$` before a number is money."""
    text = re.sub(r"(?<!\\)\\[()\[\]]", "", text)
    for mark in ("**", "__", "`", "*"):
        if len(text) > 2 * len(mark) and text.startswith(mark) and text.endswith(mark):
            text = text[len(mark) : -len(mark)].strip()
    bare = re.sub(r"\\\$", "", text).count("$")
    if bare == 0:
        return text
    if bare % 2:
        text = re.sub(r"(?<!\\)\$(?=\s*[\d.])", r"\\$", text, count=1)
    return re.sub(r"(?<!\\)\$", "", text)


# 0.666… with a repetend that stands at least three times.
_REPEATING = re.compile(r"(\d*\.\d{0,9}?)(\d{1,9}?)\2{2,40}(?:\\ldots(?![A-Za-z])|\.{2,3})")


def normalise(text: str) -> str:
    """The text in one spelling: ASCII, no spacing commands, no delimiters, one name a command."""
    text = _drop_delimiters(_to_ascii(text).strip())
    if "\\" in text or "~" in text or "{" in text:
        text = _THOUSANDS.sub("", _DROPPED.sub("", text))
        for pattern, new in _REWRITES:
            text = pattern.sub(new, text)
        text = _COMMAND.sub(_rename, text)
    text = re.sub(r"(?<=\d)\s*[xX]\s*(?=10\^)", r"\\times ", text)  # 3 x 10^5
    text = _REPEATING.sub(r"\1\\overline{\2}", " ".join(text.split()))
    while text and text[-1] in ".,;" and not text.endswith(("..", "\\,", "\\;")):
        text = text[:-1].rstrip()
    return text
