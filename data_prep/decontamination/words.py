"""Words of a question as two editions of it share them: what text matching compares.

`tokenise` undoes what copyists change without changing the problem: case, spacing, LaTeX or Unicode
signs, figures, enumeration before the text and answer-form instructions after it. What carries
mathematics stays a token of its own, so that 3-2 is not 3+2 and x^2 is not x_2.
`data_prep.decontamination.index` and `data_prep.build.duplicates` compare the token lists.
"""

import re
from collections import Counter
from itertools import groupby

from rapidfuzz.distance import LCSseq, Levenshtein

from data_prep.decontamination.text import plain

# Scripts without spaces between words, one token per character.
_CJK = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
# What comes between the two arguments of \frac and \binom.
_PAIRED = {"numerator": ["/"], "pair": []}
# Up to so many letters a token may be a name of a formula (x, ABC, sin), which has its place.
_MAX_SYMBOL = 3
# Words of fewer letters are often other words when one letter differs (prime, prize).
_MIN_SPELLING = 6
# More words than that are no slips.
_MAX_MISSPELT = 6
# What a question of few words asks may be all in a figure.
SHORT = 10
_FIGURE_WORDS = frozenset(("diagram", "figure", "shown", "graphed", "picture", "below"))
# A statement that another question has by chance is shorter.
_LONG_RUN = 18
_LONG_FORMULA = 8
_MIN_RETOLD = 0.85  # of the words of the shorter question
_TOKEN = re.compile(
    r"\\not *=|\\[a-z]+|\\.|\d+(?:\.\d+)?|\.\d+"
    rf"|[{_CJK}]|(?:(?![{_CJK}])[^\W\d_])+(?:'(?:(?![{_CJK}])[^\W\d_])+)?"
    # A hyphen before a word is none, nor is a dash; a bang or a stroke needs something to act on.
    r"|(?<!-)-(?!\s?\$?[a-z]{3}|-)|(?<=[\d)])!(?!=)|(?<=\b[a-z])!(?!=)|(?<=\b[a-z])'+(?![a-z])"
    r"|[<>!]=|[+*/=<>^(){}\[\]|%°√]"
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
_UNWRAPPED = frozenset(word for words in _LOOKS for word in words.split())
# Commands and signs whose argument belongs together; a numerator has a second one after it, and so
# has the first of a pair.
_GROUPED = (
    dict.fromkeys((r"\frac", r"\dfrac", r"\tfrac", r"\cfrac"), "numerator")
    | dict.fromkeys((r"\sqrt", "√", "^"), "argument")
    | dict.fromkeys((r"\binom", r"\dbinom", r"\tbinom"), "pair")
)
# A word, sign or command -> its token; "" for what says nothing.
_CANONICAL = (
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
_HARMLESS_WORDS = frozenset(
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


def tokenise(question: str) -> list[str]:
    """Words, numbers and operators of a question, alike for two editions of one problem.

    Args:
        question: any text, LaTeX or plain, of any language.

    Returns:
        Tokens in order. Commands lose their backslash and plurals their s, words of one concept
        share one token, numbers become digits, `\\frac{a}{b}` reads a / b, and what braces hold
        together is put in parentheses. Of the scripts without spaces every character is a token.
    """
    out: list[str] = []
    groups: list[tuple[int, str]] = []
    # What the next item is to its surroundings: "" nothing, else an argument; a "numerator" is
    # followed by the stroke.
    role = ""
    depth = 0
    for raw in _TOKEN.findall(plain(question)):
        if raw == "{":
            groups.append((len(out), role))
            role = ""
            continue
        if raw == "}":
            start, role = groups.pop() if groups else (len(out), "")
            role = _close(out, start, role)
            continue
        if raw in "([":
            depth += 1
        elif raw in ")]":
            depth -= 1
            if depth < 0:
                depth = 0
                continue
        token = _CANONICAL.get(raw)
        if token is None:
            token = _name(raw)
        if raw == "\\over":
            start = groups.pop()[0] if groups else 0
            _close(out, start, "numerator")
            groups.append((len(out), "argument"))
            continue
        if raw in _GROUPED:
            if token:
                out.append(token)
            role = _GROUPED[raw]
            continue
        if not token or raw in _UNWRAPPED:
            continue
        # \frac12 and \frac mn
        if role in _PAIRED and len(token) > 1 and (token.isdigit() or len(raw) == 2 == len(token)):
            out += [token[0], *_PAIRED[role], token[1:]]
            role = ""
        elif token == ")" and len(out) > 1 and out[-2] == "(":
            del out[-2]
        elif token != "*" or out[-1:] != ["*"]:
            out.append(token)
            role = _close(out, len(out) - 1, role) if role else ""
    return out


def _close(out: list[str], start: int, role: str) -> str:
    """End the argument that began at `start`; returns the role of what follows."""
    if role and len(out) - start > 1:
        out.insert(start, "(")
        out.append(")")
    if role and len(out) == start and out and out[-1] == "^":
        out.pop()
    if role in _PAIRED:
        out += _PAIRED[role]
        return "argument"
    return ""


def _name(raw: str) -> str:
    """The token of a command, number or word that has no entry of its own."""
    if raw[0] == "\\":
        return raw[1:] if len(raw) > 2 or raw[1:].isalpha() else ""
    if "." in raw:
        whole, _, part = raw.partition(".")
        part = part.rstrip("0")
        return f"{whole or 0}.{part}" if part else whole or "0"
    if raw[0] == "'":
        return "prime"
    word = _singular(raw.replace("'", ""))
    return _CANONICAL.get(word, word)


def _singular(word: str) -> str:
    """The word without the s of a plural or of the third person."""
    return word[:-1] if len(word) > 3 and word[-1] == "s" and word[-2] not in "sui" else word


_HARMLESS = _HARMLESS_WORDS | {_singular(word) for word in _HARMLESS_WORDS}


def content(tokens: list[str]) -> list[str]:
    """The tokens that say what is asked; the others come and go with the wording."""
    return [token for token in tokens if token not in _HARMLESS]


def same_wording(first: list[str], second: list[str]) -> bool:
    """Whether two lists of content words ask the same.

    Formulas must be the same in the same order: 2x+3 is not 3x+2. Of the words none may be
    exchanged, come or go (minimum and maximum, not, positive), apart from spelling, and one may
    change its place between two numbers: 2 girls and 3 boys are not 2 boys and 3 girls.
    """
    if first == second:
        return True
    if formula(first) != formula(second):
        return False
    second = _respelt(first, second)
    left, extra = _difference(first, second)
    # What is left may be one word that is written in two (side length).
    if sorted("".join(left)) != sorted("".join(extra)):
        return False
    runs = [run for run in LCSseq.opcodes(first, second) if run.tag != "equal"]
    gone = [at for run in runs for at in range(run.src_start, run.src_end)]
    come = [at for run in runs for at in range(run.dest_start, run.dest_end)]
    moved = [(first[at], len(numbers(first[:at]))) for at in gone if first[at] not in left]
    moved_to = [(second[at], len(numbers(second[:at]))) for at in come if second[at] not in extra]
    return moved == moved_to and len(moved) <= 1


def unlike_words(first: list[str], second: list[str]) -> tuple[list[str], list[str]]:
    """Words of either list that the other has not, in any place, apart from spelling."""
    return _difference(first, _respelt(first, second))


def _difference(first: list[str], second: list[str]) -> tuple[list[str], list[str]]:
    mine, theirs = Counter(first), Counter(second)
    return list((mine - theirs).elements()), list((theirs - mine).elements())


def _respelt(first: list[str], second: list[str]) -> list[str]:
    """The second list with the slips and endings of the first."""
    left, extra = _difference(first, second)
    if not left or max(len(left), len(extra)) > _MAX_MISSPELT:
        return second
    spelling = {}
    for other in extra:
        word = next((word for word in left if _is_same_word(word, other)), None)
        if word is not None:
            spelling[other] = word
            left.remove(word)
    return [spelling.get(word, word) for word in second]


def _is_same_word(first: str, second: str) -> bool:
    """Whether two words are one but for a slip or an ending."""
    return (
        min(len(first), len(second)) >= _MIN_SPELLING
        and Levenshtein.distance(first, second, score_cutoff=1) <= 1
    )


def asks_about_figure(words: list[str], limit: int = SHORT) -> bool:
    """Whether fewer content words than `limit` point to a figure, which may be what is asked."""
    return len(words) < limit and not _FIGURE_WORDS.isdisjoint(words)


def is_retold(first: list[str], second: list[str]) -> bool:
    """Whether two lists of content words state one problem and may ask for another form of it.

    A long run of words with a complete formula is the same, little else is in the shorter of the
    two, the numbers of one are among those of the other, and one place at most has other signs.
    """
    num_words = min(len(first), len(second))
    if num_words < _LONG_RUN or any(asks_about_figure(words, 10**9) for words in (first, second)):
        return False
    runs = list(LCSseq.opcodes(first, second))
    same = [first[run.src_start : run.src_end] for run in runs if run.tag == "equal"]
    if not any(len(run) >= _LONG_RUN and _longest_formula(run) >= _LONG_FORMULA for run in same):
        return False
    mine, theirs = Counter(numbers(first)), Counter(numbers(second))
    # The last run may be what the two ask for.
    signs = [
        _has_sign(first[run.src_start : run.src_end])
        + _has_sign(second[run.dest_start : run.dest_end])
        for run in runs[:-1]
        if run.tag != "equal"
    ]
    return (
        sum(map(len, same)) >= _MIN_RETOLD * num_words
        and (mine <= theirs or theirs <= mine)
        and sum(signs) <= 1
    )


def _longest_formula(words: list[str]) -> int:
    groups = groupby(words, lambda word: len(word) <= _MAX_SYMBOL or not word.isalpha())
    return max((len(list(group)) for is_formula, group in groups if is_formula), default=0)


def _has_sign(words: list[str]) -> bool:
    return any(not word[0].isalnum() for word in words)


def formula(tokens: list[str]) -> list[str]:
    """The tokens that have their place: numbers, operators and names as short as x, ABC, sin."""
    return [token for token in tokens if len(token) <= _MAX_SYMBOL or not token.isalpha()]


def numbers(tokens: list[str]) -> list[str]:
    """The numbers among the tokens, in order."""
    return [token for token in tokens if token[0].isdigit()]
