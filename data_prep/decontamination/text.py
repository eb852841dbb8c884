"""The text of a question as two editions share it: `plain`, and its words by `tokenise`.

`tokenise` undoes what copyists change without changing the problem: case, spacing, LaTeX or Unicode
signs, figures, enumeration before the text and answer-form instructions after it. Mathematical
signs stay tokens of their own, so that 3-2 is not 3+2 and x^2 is not x_2. `normalise_question` and
`text_keys` are stricter: they keep more of the text. Data
files are untrusted and may hold very long questions, so every pattern here is bounded or linear in
the length of the text.
"""

import hashlib
import html
import re
import unicodedata

from grading.latex import NUMBERS, RENAMES, to_ascii

# Signs that `to_ascii` leaves as they are, and those that say nothing of a question.
_SIGNS = str.maketrans(
    {"\u2014": " ", "\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "。": ". "}
    | {"∆": r"\triangle ", "⊥": r"\perp ", "∥": r"\parallel ", "⊂": r"\subset "}
    | {"⊆": r"\subseteq ", "∉": r"\notin ", "∏": r"\prod ", "≅": r"\cong "}
    | dict.fromkeys("•‰￥€£¥¢", " ")
)

_FIGURE = re.compile(
    r"(?s)\[asy\].*?(?:\[/asy\]|\Z)|< ?asy ?>.*?(?:< ?/ ?asy ?>|\Z)"
    r"|\\begin\{(asy|tikzpicture)\}.*?(?:\\end\{\1\}|\Z)|!\[[^\]]{0,200}\]\([^)]{0,500}\)"
    r"|\\includegraphics\s?(?:\[[^\]]{0,200}\])?\s?\{[^{}]{0,500}\}|<img\b[^>]{0,500}>",
)


def _rules(*rules: tuple) -> list[tuple]:
    return [(mark, re.compile(pattern), new) for mark, pattern, new in rules]


# What a text must hold for a rule to be tried, the rule's pattern, and what takes its place.
# Undo what programs that wrote the text for JSON or for the web left in it.
_UNESCAPE = _rules(
    ("", r"[\x0b\x0c](?=[a-z])", ""),
    # Unlike a < b and c > d: nothing but attributes precedes the bracket that closes.
    ("<", r"(?i)</?(?:p|br|div|span|b|i|u|em|strong|su[bp]|li|ul|ol|h[1-6]|hr|center|font|pre"
          r"|code)(?: [a-z-]{1,20}=(?:\"[^\"<>]{0,200}\"|'[^'<>]{0,200}')){0,9} ?/?>", " "),
    ("\\n", r"(?<!\\)(?:\\r)?\\n(?![a-z])", "\n"),
    ("\\\\", r"(?<!\\)\\{2,}+(?=[A-Za-z])", r"\\"),
)  # fmt: skip
_MARKUP = _rules(
    ("", _FIGURE, " "),
    ("](http", r"\[([^\]]{0,200})\]\(https?:[^)]{0,500}\)", r"\1"),
    # Bold text of any length; 2**3 is a power.
    ("*", r"(?<![\w)])\*\*|\*\*(?![\w(])", ""),
    ("*", r"(?<![\w)])\*{1,2}([A-Za-z][A-Za-z ,.'-]{0,60})\*{1,2}(?!\w)", r"\1"),
)
# "12.", "B-1.3.", "Problem 5.", "(2)", "[6]", "(10 points)", "[2003 AIME I]", "(NET 3 only)".
_ENUMERATION = re.compile(
    r"\A(?>\s*(?:"
    r"\#+\s|>\s|\*\*|[-*]\s(?=\s*[A-Z])"
    r"|(?i:problem|example|exercise|question|task|test|case)\s?[A-Z]?[-\d.]{0,9}\d[-\w.]{0,9}[.:)]?\**"
    r"(?=\s)"
    r"|[A-Z]{0,2}-?\d{1,3}(?:\.\d{1,3}){0,3}[.):](?!\d)"
    r"|[A-Z]{0,2}\d{1,2}\.\d{1,3}\s(?=\s*[A-Z])"
    r"|[A-Z]\d{1,2}\s?(?=\([A-Z]{2,})"
    r"|[(\[]\d{1,2}[)\]]\s(?=\s*[A-Z])"
    r"|[(\[](?=[^)\]$\\]{0,60}(?:(?:19|20)\d\d|\bpoints?\b|\bmarks?\b|\bpts?\b))[^)\]$\\]{1,60}[)\]]"
    r"|\([A-Z]{2,4}(?:\s\d)?[^)$]{0,20}\)(?=\s)"
    r")\s*)++"
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
_LONGEST_ANSWER_FORM = 300
_MOST_ANSWER_FORMS = 3
_BEFORE_CASE = _rules(
    ("\n", r"(?m)^ ?(?:\*\s(?=[A-Za-z$])|-\s(?=[A-Z$])|>\s)", ""),
    # The article, lest it be taken for the variable.
    ("", r"(?<![\w$\\^(=+*/-])(?<![=+*/-]\s)[aA]\s+(?=\$|\\\(|\d|[a-zA-Z]{2})(?!(?i:and|or|is|are"
         r"|be|by|in|if|to|as|at|on|of|with|for|such|so|that|where|has|have|from)\b)", ""),
)  # fmt: skip
# Write in one way what LaTeX can write in several, in lower case, on one line.
_LATEX = _rules(
    # "(in centimeters)", of which another edition has no brackets; unlike "(sin x + 1)".
    ("(", r"(?<!\S)\((?=(?:[a-z]{3,}|in|so|if|we|it|is|as|or|to|at|by|no|of|on|an|be)\s)"
          r"(?!(?:sin|cos|tan|cot|sec|csc|log|exp|gcd|lcm|max|min|deg|det)\b)", " "),
    ("{}", r"[\^_]\{\s?\}", ""),
    ("^", r"\^ ?\{{0,2} ?(?:\\(?:text|textrm|mathrm|rm) ?\{{0,2} ?)?(?=(?:st|nd|rd|th)\b)", " "),
    ("^", r"\^ ?\{? ?\\circ\b ?\}?", "°"),
    ("\\", r"\\(?:begin|end) ?\{[^{}]{0,40}\}(?: ?\{[lcr|@ ]{0,40}\})?", " "),
    ("\\", r"\\(?:[hv]space ?\*?|label|tag|color) ?\{[^{}]{0,80}\}", " "),
    (",", r"(?<![\d.,(\[{])\d{1,3}(?:(?:\{,\}|,\\!|\\,|,)\d{3})+(?![\d)\]}]|,\d)",
     lambda number: re.sub(r"\D", "", number[0])),
    ("", r"(?<![a-z'\\_^])([a-z]) (?=[a-z](?![a-z']))", r"\1"),  # A B = AB
)  # fmt: skip
_MIN_LETTERS = 30
_SINGLE_LETTER = r"(?<![^\W\d_])[A-Za-z\u0370-\u03ff]"
_FOLDED = str.maketrans({"\u2018": "'", "\u2019": "'", "\u2032": "'", "\u2033": "''"})
# Signs that carry mathematics stay (3-2 is not 3+2, 1.5 is not 15); the rest goes. Quotation marks
# go first, lest one behind a letter be taken for a prime.
_PUNCTUATION = _rules(
    ("'", r"(?<![\w)\]}'`$])['`]{1,2}([\w\\(\[{][^'`]{0,80})'{1,2}(?!\w)", r" \1 "),
    # f', AB', P_1', \omega', (fg)'; but not n's, dogs'.
    ("'", rf"((?:{_SINGLE_LETTER}|[A-Z]|_\d|\\[A-Za-z]+|[)\]}}]) ?'+(?![^\W\d_]))|'", r"\1 "),
    # 5!, (n-1)!, 2n!, x != 3; but not Go!
    ("!", rf"((?:{_SINGLE_LETTER}|[\d)\]}}])!+)|!(?!=)", r"\1 "),
    ("", '[,;:?$"`\u201c\u201d\u2026]|\\.(?!\\d)', " "),
)


def _rewrite(text: str, rules: list[tuple]) -> str:
    for mark, pattern, new in rules:
        if mark in text:
            text = pattern.sub(new, text)
    return text


def plain(question: str) -> str:
    """The question in lower case and LaTeX, on one line, without what surrounds it.

    Figures, links, emphasis, articles, numbering before it and answer-form instructions after it
    are removed. Unicode signs become commands, and letters of one name are joined (A B = AB).
    """
    text = html.unescape(question) if "&" in question else question
    text = _rewrite(text, _UNESCAPE)
    # One space or line break for many: patterns need not look for more.
    lines = [" ".join(line.split()) for line in text.split("\n")]
    text = "\n".join(line for line in lines if line)
    text = _rewrite(text, _MARKUP)
    text = _remove_answer_form(_ENUMERATION.sub("", text) or text)
    if not text.isascii():
        text = unicodedata.normalize("NFKD", to_ascii(text.translate(_SIGNS)))
        text = re.sub(r"[\u0300-\u036f]", "", text)
    text = _rewrite(text, _BEFORE_CASE).casefold().replace("non-", "non")
    return _rewrite(" ".join(text.split()), _LATEX)


def _remove_answer_form(text: str) -> str:
    for _ in range(_MOST_ANSWER_FORMS):
        found = _ANSWER_FORM.search(text, max(0, len(text) - _LONGEST_ANSWER_FORM))
        if not found:
            break
        text = text[: found.start() + 1]
    return text


def figures(question: str) -> list[str]:
    """The code of the figures in a question, in order, without white space."""
    return ["".join(found[0].split()) for found in _FIGURE.finditer(question)]


def sentences(question: str) -> list[str]:
    """The sentences and lines of a question, without its figures."""
    return re.split(r"[.?!][^\w\s(\[{\\]{0,9}\s+|\n", _FIGURE.sub(" ", question))


def without_options(question: str) -> str:
    """A question of ARC or GPQA without the lines of its options, which editions order freely."""
    return question.rpartition("\n\nA. ")[0] or question


def normalise_question(question: str) -> str:
    """A question without what editions of one problem differ in: case, spacing, punctuation."""
    text = re.sub(r"[\u200b-\u200d\u2060\ufeff]|(?<=\d),(?=\d{3}\b)", "", question)
    text = _rewrite(text.translate(_FOLDED), _PUNCTUATION).casefold()
    return re.sub(r" ?(!=|[-+*/=<>^(){}\[\]|']) ?", r"\1", " ".join(text.split())).strip()


def question_key(question: str, trace: int = 0) -> bytes:
    """16 bytes that are equal for equal normalised questions and trace numbers."""
    text = f"{trace} {normalise_question(question)}"
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def question_hash(question: str) -> str:
    """SHA-256 in hex of the normalised question: the same for everyone who has the question."""
    return hashlib.sha256(normalise_question(question).encode()).hexdigest()


def text_keys(question: str) -> list[str | bytes]:
    """Keys of which one is equal where two questions count as the same text.

    The second key has letters and digits alone, as editions lose signs and braces. It also matches
    questions that differ in a sign: two of 48,000 real rows. Short texts often differ in one sign
    only, so they have no second key.
    """
    keys: list[str | bytes] = [question_key(question)]
    letters = re.sub(r"[\W_]", "", question.casefold())
    if len(letters) >= _MIN_LETTERS:
        keys.append(letters)
    return keys


# Scripts without spaces between words, one token per character.
_CJK = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
# What comes between the two arguments of \frac and \binom.
_PAIRED = {"numerator": ["/"], "pair": []}
_TOKEN = re.compile(
    r"\\not *=|\\[a-z]+|\\.|\d+(?:\.\d+)?|\.\d+"
    rf"|[{_CJK}]|(?:(?![{_CJK}])[^\W\d_])+(?:'(?:(?![{_CJK}])[^\W\d_])+)?"
    # A hyphen before a word is none, nor is a dash; a bang or a stroke needs something to act on.
    r"|(?<!-)-(?!\s?\$?[a-z]{3}|-)"
    rf"|(?:(?<={_SINGLE_LETTER})|(?<=[\d)\]}}]))!+(?!=)"
    rf"|(?:(?<={_SINGLE_LETTER})|(?<=[)\]}}])|(?<=_\d))'+(?![a-z])"
    r"|[<>!]=|[+*/=<>^(){}\[\]|%°√]"
)
# Token -> how else it is written; a command without its backslash needs no entry.
_SAME = {
    "<=": r"\le \leqq", ">=": r"\ge \geqq", "!=": r"\ne \not=", "*": r"\cdot \times", "/": r"\div",
    "|": r"\|", "%": r"\% percent", "degree": "°", "perpendicular": r"\perp", "l": r"\ell",
    "triangle": r"\vartriangle", "mod": r"\pmod", "to": r"\longrightarrow", "every": "each",
    "center": "centre", "meter": "metre", "color": "colour", "neighbor": "neighbour",
}  # fmt: skip
# Commands that change the looks of a formula, or of the text or letters around which they are.
_NOTHING = (
    r"\frac \left \right \big \bigl \bigr \bigg \middle \displaystyle \textstyle \limits \quad "
    r"\qquad \hline \dotsc \dotsb \dotsm \ldots \vdots \ddots \item \cal \bf \it \em \large "
    r"\smallskip \phantom \hphantom \boxed \textdollar \text \mathbf \mathbb \mathcal \mathscr "
    r"\overline \vec \widehat \hat \tilde \overbrace \underbrace \overarc \mathop "
    r"\substack \stackrel"
)
# Commands and signs whose argument belongs together; a numerator has a second one after it, and so
# has the first of a pair.
_GROUPED = {r"\frac": "numerator", r"\sqrt": "argument", "^": "argument", r"\binom": "pair"}
# A word, sign or command -> its token; "" for what says nothing.
_CANONICAL = (
    {raw: token for token, raws in _SAME.items() for raw in raws.split()}
    | {word: str(number) for word, number in NUMBERS.items() if word != "one"}
    | dict.fromkeys(_NOTHING.split(), "")
    | {r"\not =": "!="}
)
# A command -> the one that it is another spelling of, or its sign.
_RESPELT = {
    f"\\{old}": new
    for old, new in RENAMES.items()
    if new[0] in "\\<>|()[]" and new not in (r"\{", r"\}")
}
# Words that come and go with the wording of one question.
_HARMLESS_WORDS = """
an the is are be was were been being it its this that these those there here of for in on as and
so then thus we us our you your let suppose assume given consider define denote call if such which
who whom whose what how where when while will would can could may do does did has have had find
compute calculate determine evaluate solve simplify obtain give show please value following
expression result question problem answer also just now exactly to with at many number satisfy
satisfies satisfie satisfying hold equation condition express expressed note doe
"""
_HARMLESS_CHARACTERS = "的为是求则若已知设请给出原始答案形式格最终值并以在其中多少"
_HARMLESS = frozenset((*_HARMLESS_WORDS.split(), *_HARMLESS_CHARACTERS))


def tokenise(question: str) -> list[str]:
    """Words, numbers and operators of a question, alike for two editions of one problem, in order.

    Commands lose their backslash and plurals their s. Words of one concept share one token, numbers
    become digits. `\\frac{a}{b}` becomes a / b, and braces around several tokens parentheses. In
    scripts without spaces every character is a token.
    """
    out: list[str] = []
    groups: list[tuple[int, str]] = []
    # What the next item is to its surroundings: "" nothing, else an argument; a "numerator" is
    # followed by the stroke.
    role = ""
    depth = 0
    for written in _TOKEN.findall(plain(question)):
        raw = _RESPELT.get(written, written) if written[0] == "\\" else written
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
        token = _CANONICAL[raw] if raw in _CANONICAL else _name(raw)
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
        if not token:
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
        whole, _, decimals = raw.partition(".")
        whole, decimals = whole or "0", decimals.rstrip("0")
        return f"{whole}.{decimals}" if decimals else whole
    if raw[0] == "'":
        return "prime" * len(raw)
    word = raw.replace("'", "")
    if len(word) > 3 and word[-1] == "s" and word[-2] not in "sui":
        word = word[:-1]  # a plural, or the third person
    return _CANONICAL.get(word, word)


def content(tokens: list[str]) -> list[str]:
    """The tokens that say what is asked; the others come and go with the wording."""
    return [token for token in tokens if token not in _HARMLESS]


def numbers(tokens: list[str]) -> list[str]:
    """The numbers among the tokens, in order."""
    return [token for token in tokens if token[0].isdigit()]
