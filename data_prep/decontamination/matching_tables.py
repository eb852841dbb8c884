# ruff: noqa: RUF001 - a table of just those characters
"""Tables of `matching`: signs, commands and words that mean the same in a question."""

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

_SAME = {
    "<=": r"\le \leq \leqslant \leqq <=", ">=": r"\ge \geq \geqslant \geqq >=",
    "!=": r"\ne \neq !=", "perpendicular": r"\perp", "l": r"\ell",
    "triangle": r"\vartriangle", "every": "each every",
    "<": r"\lt <", ">": r"\gt >", "*": r"\cdot \times \ast *",
    "/": r"\div /", "|": r"\mid \vert \lvert \rvert \| \lvert \rvert |", "%": r"\% % percent",
    "degree": r"° degree \degree", "sqrt": r"\sqrt √", "phi": r"\varphi \phi phi",
    "epsilon": r"\varepsilon \epsilon", "theta": r"\vartheta \theta", "mod": r"\bmod \pmod \mod",
    "emptyset": r"\varnothing \emptyset", "to": r"\to \rightarrow \longrightarrow to",
    "prime": r"\prime", "(": r"\lparen (", ")": r"\rparen )", "[": r"\lbrack [", "]": r"\rbrack ]",
    "lfloor": r"\lfloor", "iff": r"\iff \leftrightarrow iff",
    "center": "center centre", "meter": "meter metre",
    "color": "color colour", "neighbor": "neighbor neighbour",
    "0": "zero", "2": "two", "3": "three", "4": "four", "5": "five", "6": "six", "7": "seven",
    "8": "eight", "9": "nine", "10": "ten", "11": "eleven", "12": "twelve", "13": "thirteen",
    "14": "fourteen", "15": "fifteen", "16": "sixteen", "17": "seventeen", "18": "eighteen",
    "19": "nineteen", "20": "twenty", "30": "thirty", "40": "forty", "50": "fifty", "60": "sixty",
    "70": "seventy", "80": "eighty", "90": "ninety",
}  # fmt: skip
_NOTHING = (
    r"\left \right \big \bigl \bigr \bigg \biggl \biggr \middle \displaystyle \textstyle",
    r"\scriptstyle \limits \nolimits \quad \qquad \hfill \hline \noindent \newline \par \, \; \!",
    r"\: \( \) \[ \] \{ \} \\ \$ \& \# \_ \ldots \cdots \dots \dotsc \dotsb \dotsm \dotsi \vdots",
    r"\ddots \item \cal \bf \it \em \rm \sf \tt \sc \large \small \tiny \normalsize \centering",
    r"\medskip \bigskip \smallskip \ensuremath \phantom \hphantom \vphantom \strut \break",
    r"\nobreak \boxed \textdollar \pmatrix \cr",
)
# Commands around text or letters that change their looks only.
_LOOKS = (
    r"\text \textrm \textbf \textit \textsf \texttt \textnormal \emph \underline \mbox \hbox",
    r"\mathrm \mathbf \mathit \mathsf \mathbb \mathcal \mathfrak \mathscr \operatorname",
    r"\boldsymbol \bm \overline \vec \overrightarrow \widehat \hat \bar \tilde \overbrace",
    r"\underbrace \overarc \mathop \mathbin \mathrel \substack \stackrel",
)
UNWRAPPED = frozenset(word for words in _LOOKS for word in words.split())
# Commands and signs whose argument belongs together; a numerator has a second one after it, and so
# has the first of a pair.
GROUPED = (
    dict.fromkeys((r"\frac", r"\dfrac", r"\tfrac", r"\cfrac"), "numerator")
    | dict.fromkeys((r"\sqrt", "√", "^"), "argument")
    | dict.fromkeys((r"\binom", r"\dbinom", r"\tbinom"), "pair")
)
# A word, sign or command -> its token; "" for what says nothing.
CANONICAL = (
    {raw: token for token, raws in _SAME.items() for raw in raws.split()}
    | dict.fromkeys((raw for raws in _NOTHING for raw in raws.split()), "")
    | dict.fromkeys((r"\frac", r"\dfrac", r"\tfrac", r"\cfrac"), "")
    | {
        "^": "^",
        r"\not=": "!=",
        r"\not =": "!=",
        r"\dbinom": "binom",
        r"\tbinom": "binom",
        r"\ ": "",
    }
)
# Words that come and go with the wording of one question.
HARMLESS = frozenset(
    word
    for words in (
        "an the is are be was were been being it its this that these those there here of for in on",
        "as and so then thus we us our you your let suppose assume given consider define",
        "denote call if such which who whom whose what how where when while will would can",
        "could may do does did has have had find compute calculate determine evaluate solve",
        "simplify obtain give show please value following expression result question",
        "problem answer also just now exactly to with at many number satisfy satisfies",
        "satisfying hold equation condition express expressed note",
        " ".join("的为是求则若已知设请给出原始答案形式格最终值并以在其中多少"),
    )
    for word in words.split()
)
