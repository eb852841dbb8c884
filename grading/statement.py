# ruff: noqa: RUF001 - tables of just those characters
"""Statement: the answer that prose ends with, where no box, tag or mark says where it is.

"So she has 12 apples." states 12, "It is 7 or 8." both. The searches run in linear time.
"""

import re

from grading import units
from grading.boxes import plain_words
from grading.compare import MAX_WORDS, is_name, is_parseable
from grading.latex import FUNCTIONS, read_number_words

MAX_STATEMENT = 2_000  # characters of the end of a text in which prose is read

# What states the answer, in the languages that models write.
_MARKER = re.compile(
    r"(?:answer|antwort|r[ée]ponse|respuesta|option|opci[óo]n|choice|solution|答案)"
    r"(?:\s+(?:to|of)\s[^.\n]{0,80}?)?(?:\s+(?:correcta|exacte))?"
    r"[\s*_]*(?:\bis\b|\bist\b|\best\b|\bes\b|是|为|：|:|=|\n)[\s*_:：]*|(?:\\?#){4}\s*",
    re.IGNORECASE,
)
# A sentence that concludes counts before one that only follows it.
_CONCLUSION = re.compile(
    r"\s*(?:so|thus|hence|therefore|then|also|donc|por tanto|所以|因此|故)\b", re.I
)
_SENTENCE = re.compile(
    r"(?<=[.!?])(?<!i\.e\.)(?<!e\.g\.)\s+(?=[A-Z$\\*\u4e00-\u9fff])|[。！？\n]|；"
)
# Words that explain a value that stands before them: 25, which occurs at 5.
_EXPLANATION = re.compile(
    r"[,;]?\s(?:which (?:occurs|happens|is)|when|where|with|because|since|attained|reached"
    r"|[\u2013\u2014])\s"
    r"|\s\((?=\d+ [a-z]|[a-z ]+\))|\uff08"
)
_CASES = re.compile(r"\b(?:otherwise|else)\b|\bif\b.*\bif\b")
_HAS_WORDS = re.compile(
    r"(?<!\\)(?<![A-Za-z])(?!(?:sqrt|sin|cos|tan|log|pi|and|or)\b)[A-Za-z]{2,}|[\u4e00-\u9fff]"
)
_UPRIGHT = re.compile(r"\\[a-zA-Z]+\s*(?:\{[^{}]*\})?|\\\\\[[^\]]*\]")
_DISPLAY = re.compile(r"\$\$(.+?)\$\$|\\\[(.+?)\\\]", re.DOTALL)
_ARROW = re.compile(r"=>|\u2192|\u21d2|\\(?:Rightarrow|implies|rightarrow|to)(?![A-Za-z])")
_NUMBER = (
    r"(?:\\?\$|[€£])?(?:(?:\d+\s?)?[√π]\s?\d*|\d+(?:,\d{3})*(?:[.,]\d+)?)(?:\s?/\s?\d+)?"
    r"(?:\s?\\?%|\s?[万亿°])?(?![\w^])"
)
_BOLD = re.compile(r"(?:\*\*|__)((?:(?!\*\*|__).)+)(?:\*\*|__)([^\d$*_]*)$")
_FORMULA = re.compile(
    r"\$\$(.+?)\$\$|(?<!\\)\$(?!\d[\d.,]*\s+[A-Za-z]{2})([^$]+?)(?<!\\)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]"
    rf"|((?<![\w.^_{{])(?:(?<![\d)\]])[-\u2212]\s?)?{_NUMBER})",
    re.DOTALL,
)
_UNIT = re.compile(
    r"\s?((?:(?:square|cubic|sq|cu)\.?\s)?[A-Za-z]+(?:\s?(?:/|per)\s?[A-Za-z]+)?)(?![A-Za-z])"
)
_JOINT = re.compile(
    r"[\s,;*$()?!|]*(?:\\mid)?(?:(?:or|and|maybe|oder|ou|o|\u6216|\u548c)\b)?[\s,;*$()]*"
)
_COPULA = re.compile(r".*\b(?:is|are|was|were|be|equals|has|it's|:)\s+(.+)", re.DOTALL)
_DENIED = re.compile(
    r"\b(?:not|n't|never|cannot|neither|least|most|than|twice|half|times)\W*(?:\w+\W+){0,2}$"
)
_GIVEN_UP = re.compile(
    r"\b(?:could not|cannot|can't|unable to|not sure|(?:do not|don't) know)\b", re.I
)
MAX_NAME = 40  # characters of a text that is a name, a date or a time as a whole


def final_statement(text: str) -> str | None:
    """What a short text states: after a marker, else in its concluding or last sentence.

    None where it states nothing, or says that it does not know.
    """
    text = text.strip()[-MAX_STATEMENT:].replace("```", " ").strip()
    if not _HAS_WORDS.search(_UPRIGHT.sub("", text)) and not _MARKER.search(text):
        text = text.removeprefix("=").strip()
        return text or None
    if len(text) <= MAX_NAME and not _COPULA.fullmatch(text) and is_name(text):
        return text
    text = _DISPLAY.sub(lambda one: f" ${' '.join((one[1] or one[2]).split())}$ ", text)
    text = re.sub(r"\n[-*\u2022][ \t]+", ", ", text)  # a list of values
    text = re.sub(r"\b(is|are|equals|=)[\s:]*\n[\s>]*", r"\1 ", text)
    marker = max((found.end() for found in _MARKER.finditer(text)), default=0)
    sentences = [one for one in _SENTENCE.split(text[marker:]) if one.strip(" .*_")]
    said = [one for one in sentences if _CONCLUSION.match(one) and _FORMULA.search(one)]
    if not (said or marker) and _GIVEN_UP.search(text):
        return None
    if said or not marker:
        return _stated((said or sentences or [""])[-1])
    return _stated(sentences[0]) if sentences else None


def _stated(sentence: str) -> str | None:
    """The value that a sentence ends with: its last formula or number, or a few words."""
    sentence = sentence.strip(" \t\n>,").rstrip(" .。!").strip()
    if bold := _BOLD.search(sentence):
        sentence = bold[1].strip(" .:")
    begun = _CONCLUSION.match(sentence)
    rest = _ARROW.split(sentence[begun.end() if begun else 0 :])[-1].strip(" ,;:*_")
    if rest and _is_value(rest):
        whole = _FORMULA.fullmatch(rest)
        return whole[whole.lastindex or 0].strip() if whole else rest
    if _CASES.search(sentence):
        return None  # 12 if n is even, 13 otherwise
    sentence = _without_explanation(sentence)
    found = list(_FORMULA.finditer(sentence))
    found = [one for one in found if re.search(r"[\d\\]", one[0])] or found  # no mere letter
    if not found:
        return _in_words(sentence)
    if _DENIED.search(sentence[: found[-1].start()]):
        return None
    first = len(found) - 1
    while first and _JOINT.fullmatch(sentence[found[first - 1].end() : found[first].start()]):
        first -= 1
    values = [_content(one, sentence) for one in found[first:]]
    return ", ".join(values)


def _content(match: re.Match, sentence: str) -> str:
    """The text of a formula, a bold text or a number with its unit."""
    value = match[match.lastindex or 0].strip().rstrip(".")
    words = _UNIT.match(sentence, match.end())
    if words and units.is_measure(words[1].split()[-1].split("/")[0]):
        return rf"{value} \text{{ {words[1]}}}"
    return value


def _is_value(text: str) -> bool:
    """Whether a text is mathematics and nothing else."""
    words = {word for word in plain_words(text) if not units.is_measure(word)}
    return (
        not words - FUNCTIONS - {"sqrt", "pi"}
        and bool(re.search(r"\d|[\\$]", text))
        and is_parseable(text)
    )


def _without_explanation(sentence: str) -> str:
    """The sentence up to the words that explain its value."""
    for cut in _EXPLANATION.finditer(sentence):
        is_said_later = re.search(r"\b(?:is|are|was|equals)\b", sentence[cut.end() :])
        before = sentence[: cut.start()]
        is_inside = before.count("$") % 2 == 1
        if _FORMULA.search(before) and not is_said_later and not is_inside:
            return sentence[: cut.start()]
    return sentence


def _in_words(sentence: str) -> str | None:
    """An answer of a few words, such as that of "The day is Friday"."""
    found = _COPULA.fullmatch(sentence)
    words = (found[1] if found else sentence).strip(" ,;:*_")
    numbers = [word for word in sentence.split() if read_number_words(word) is not None]
    if len(numbers) == 1:
        return numbers[0]  # It takes four days
    if not words or len(words.split()) > MAX_WORDS or _DENIED.search(sentence + " "):
        return None
    return words
