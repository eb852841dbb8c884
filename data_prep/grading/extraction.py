"""Extraction: the one answer that a completion offers, or why it offers none.

Structure first: one `<think>` thought, then the answer; what stands inside the thought never
counts. Nothing here evaluates anything, and every function runs in time linear in the text.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from data_prep.grading.equivalence import is_measure
from data_prep.prompts import ANSWER_CLOSE, ANSWER_OPEN, THINK_CLOSE, THINK_OPEN

_BLANK = re.compile("[\\s\u200b-\u200f\u2060\ufeff]*")  # invisible characters are no thought


@dataclass(frozen=True, slots=True)
class Extraction:
    """What a completion offers: status no_think, unclosed_think, no_answer, several_answers, ok."""

    prediction: str | None
    status: str


def find_boxes(text: str) -> list[str]:
    """Contents of every balanced outermost `\\boxed{…}`, in order; unclosed ones do not count."""
    opened: list[int] = []
    closes: dict[int, int] = {}
    # One pass: matching each box on its own takes quadratic time on "\\boxed{" repeated.
    # An escaped \{ or \} is a printed brace and does not count.
    for token in re.finditer(r"\\.|[{}]", text, re.DOTALL):
        if token[0] == "{":
            opened.append(token.start())
        elif token[0] == "}" and opened:
            closes[opened.pop()] = token.start()
    contents, end = [], 0
    for box in re.finditer(r"\\boxed\s*\{", text):
        close = closes.get(box.end() - 1)
        if close is not None and box.start() >= end:
            contents.append(text[box.end() : close])
            end = close
    return contents


def last_boxed(text: str) -> str | None:
    """Content of the last balanced `\\boxed{…}`, or None where there is none."""
    boxes = find_boxes(text)
    return boxes[-1] if boxes else None


def _split_thought(completion: str, think_prefilled: bool) -> tuple[str, str]:
    """(status, text after the thought); status is ok, no_think or unclosed_think."""
    text = THINK_OPEN + completion if think_prefilled else completion
    if text.rfind(THINK_OPEN) > text.rfind(THINK_CLOSE):
        return "unclosed_think", ""
    if text.count(THINK_OPEN) != 1 or text.count(THINK_CLOSE) != 1:
        return "no_think", ""  # absent, doubled or re-opened: no thought that can be told apart
    thought, _, rest = text.partition(THINK_OPEN)[2].partition(THINK_CLOSE)
    return ("no_think", "") if _BLANK.fullmatch(thought) else ("ok", rest)


def is_well_formed(completion: str, think_prefilled: bool = False) -> bool:
    """Whether the completion is one non-empty `<think>…</think>` followed by non-empty text.

    Args:
        think_prefilled: the prompt already ended with `<think>`, so the completion lacks it.
    """
    status, rest = _split_thought(completion, think_prefilled)
    return status == "ok" and not _BLANK.fullmatch(rest)


def extract(
    completion: str,
    same: Callable[[str, str], bool],
    think_prefilled: bool = False,
    answer_tags: bool = False,
    final_number: bool = False,
) -> Extraction:
    """Find the answer that follows the thought.

    Args:
        same: whether two answers are one value, for a completion that writes its answer twice.
        think_prefilled: the prompt already ended with `<think>`, so the completion lacks it.
        answer_tags: the answer stands between `<answer>` and `</answer>`, not in a box.
        final_number: where there is no box, the number that the text ends with will do.
    """
    status, rest = _split_thought(completion, think_prefilled)
    if status != "ok":
        return Extraction(None, status)
    found = _tagged(rest) if answer_tags else find_boxes(rest)
    if not found and final_number and "\\boxed" not in rest:
        return _final_statement(rest)
    return _only_one(found, same)


MAX_SPELLINGS = 8  # of one answer in a completion


def _only_one(found: list[str], same: Callable[[str, str], bool]) -> Extraction:
    """The last of several answers if all are one value: hedging must not pay."""
    if not any(not _BLANK.fullmatch(answer) for answer in found):
        return Extraction(None, "no_answer")
    others = {*found} - {found[-1]}
    if len(others) > MAX_SPELLINGS or any(not same(answer, found[-1]) for answer in others):
        return Extraction(None, "several_answers")
    return Extraction(found[-1].strip(), "ok")


def extract_short(text: str, same: Callable[[str, str], bool]) -> Extraction:
    """Find the answer in a bare value or a short text: a box, else the text, else what it states.

    Args:
        same: as for `extract`.
    """
    if THINK_OPEN in text or THINK_CLOSE in text:
        status, text = _split_thought(text, think_prefilled=THINK_OPEN not in text)
        if status != "ok":
            return Extraction(None, status)
    if found := find_boxes(text):
        return _only_one(found, same)
    if "\\boxed{" in text:
        return Extraction(None, "no_answer")  # never closed
    tagged = _tagged(text)
    return _only_one(tagged, same) if tagged else _final_statement(text)


def _tagged(text: str) -> list[str]:
    """What stands between answer tags: the boxes there, else the text."""
    closed = [part for part in text.split(ANSWER_OPEN)[1:] if ANSWER_CLOSE in part]
    answers = [part.partition(ANSWER_CLOSE)[0] for part in closed]
    return [value for answer in answers for value in find_boxes(answer) or [answer]]


# A statement of the answer, up to what follows it on its line (or the next, if that is empty).
_MARKER = re.compile(
    r"(?:answer|option|choice|solution)(?:\s+(?:to|of)\s[^.\n]{0,80}?)?[\s*_]*(?:is|:|=|\n)[\s*_:]*"
    r"|(?:\\?#){4}\s*",
    re.IGNORECASE,
)
_POLITE = re.compile(r"[.\s]*I hope (?:it|this) (?:is correct|helps).*", re.IGNORECASE | re.DOTALL)
_MATHS = re.compile(
    r"\$\$(.+?)\$\$|(?<!\\)\$(.+?)(?<!\\)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]|\*\*(.+?)\*\*", re.DOTALL
)
_NUMBER = re.compile(
    r"\b\d{1,2}:\d\d(?:\s?[ap]\.?m\b\.?)?"
    r"|(?<![\w.^_{])(?:(?<![\d)\]])[-\u2212]\s?)?(?:\\?\$|[€£])?\d+(?:,\d{3})*(?:\.\d+)?"
    r"(?:\s?/\s?\d+|\s?\\?%|\s?[π√]\d*|\s(?:[kcm]?m|mi)/(?:h|s|min)\b|\s?mph\b)?(?![\w^])"
    r"|(?<=[$€£])\d+(?:,\d{3})*(?:\.\d+)?"
)
# Words between candidates that offer both; " is " alone defines the second by the first.
_HEDGE = re.compile(
    r"(?:[\s,;/*$&.?!()-]|\b(?:or|and|maybe|perhaps|possibly|probably|either|also|even|rather|wait|no"
    r"|not|actually|could|be|it|is|might|else|if|sure|to|i|think|mean|alternatively)\b)*",
    re.IGNORECASE,
)
_DEFINITION = re.compile(r"\s*(?:is|are|be|equals)[\s:]*", re.IGNORECASE)
# What makes of the number after it something else: "not 5", "at least 5".
_DENIAL = re.compile(
    r"(?:\b(?:can)?not|n't|\bimpossible\s+to\s+\w+|\b(?:never|neither|least|most|than|between|twice|double|triple|half|times"
    r"|third|quarter|root|square|cube|reciprocal|opposite|multiple|factor|divisor|percent)(?:\s+of)?)"
    r"\s+(?:(?:be|the|exactly|equal\s+to)\s+)*$",
    re.IGNORECASE,
)
# What comes after these words explains the answer and is not the answer.
_EXPLANATION = re.compile(
    r"\b(?:attained|achieved|reached|occurs?|when|where|if|since|because|with"
    r"|for (?:every|all|any))\b",
    re.IGNORECASE,
)
_CASES = re.compile(r"\b(?:otherwise|else|unless)\b|\bif\b.*\bif\b", re.IGNORECASE | re.DOTALL)
_CONCLUSION = re.compile(r"\b(?:so|hence|thus|therefore|makes|giving|total)\b", re.IGNORECASE)
_SENTENCE = re.compile(r"[.!?][*\")]*\s+(?=[A-Z*$\\])")
_NAMED = re.compile(r"\b(?:is|are|was|has|have)\s+((?:[A-Za-z]+\s+){0,3}[A-Za-z]+)\W*$")
_UPRIGHT = re.compile(r"\\[a-z]*(?:text|rm|bf|it|name|box)[a-z]*\s*\{[^{}]*\}")
_PLAIN_WORD = re.compile(r"(?<![\\A-Za-z{])(?=[A-Z]*[a-z])[A-Za-z]{2,}")
_VERBS = {"is", "are", "was", "have", "has", "had", "get", "gets", "makes", "need", "needs", "pays"}
MAX_STATEMENT = 2_000  # characters; an answer stands at the end


def _plain_words(text: str) -> list[str]:
    words = _PLAIN_WORD.findall(_UPRIGHT.sub("", text))
    return [word for word in words if word.lower() not in ("or", "and")]


def _is_prose(text: str) -> bool:
    """Whether a text is sentences rather than a value: words beyond a unit or a name or two."""
    outside = _UPRIGHT.sub("", text)
    if _MATHS.search(outside) and _plain_words(_MATHS.sub("", outside)):
        return True
    words = _plain_words(outside)
    digit = re.search(r"\d", outside)
    if not digit:
        return len(words) > 4 or bool(re.search(r"\b(?:is|are|was|has)\b", outside))
    before = _plain_words(outside[: digit.start()])
    return len(words) > 2 or len(before) > 1 or not _VERBS.isdisjoint(before)


def _final_statement(text: str) -> Extraction:
    """What a short text ends by stating: after a marker, else its mathematics, else its number."""
    text = _POLITE.sub("", text.strip()[-MAX_STATEMENT:]).replace("```", " ").strip()
    if (whole := re.fullmatch(r"\\text\s*\{([^{}]*)\}", text)) and _MARKER.search(whole[1]):
        text = whole[1].strip()
    if markers := list(_MARKER.finditer(text)):
        text = text[markers[-1].end() :].strip().rstrip(" .*_").strip() or text
    # "Option C", "Total: 5 apples", "= 5"
    text = re.sub(
        r"^(?:(?:option|choice)\s+|[a-z ]{3,40}:[ \t]+|=)\s*", "", text, flags=re.IGNORECASE
    )
    if not text:
        return Extraction(None, "no_answer")
    if not _is_prose(text):
        return Extraction(text, "ok")
    return _last_candidate(text)


def _last_candidate(text: str) -> Extraction:
    """The last formula or number of some prose; all of those it offers side by side."""
    found = [(match, next(filter(None, match.groups()))) for match in _MATHS.finditer(text)]
    bold = [inside for match, inside in found if match[5] and not re.search(r"\d", inside)]
    found = [(match, inside) for match, inside in found if not _is_worded(match, inside)]
    numbers = [(match, match[0]) for match in _NUMBER.finditer(text)]
    if not found or (numbers and _last_sentence(text, numbers) > found[-1][0].end()):
        found = numbers
    if not found:
        named = _NAMED.search(text)
        answer = bold[-1] if bold else named and named[1]
        return Extraction(answer, "ok") if answer else Extraction(None, "no_answer")
    found = _before_explanation(text, found)
    last = len(found) - 1
    if _CASES.search(text, _last_sentence(text, found)):
        last = 0  # all of them: each in its case
    while last and _is_hedge(text[found[last - 1][0].end() : found[last][0].start()]):
        last -= 1
    if _DENIAL.search(text[: found[last][0].start()]):
        return Extraction(None, "no_answer")
    # Several candidates are one list: right only where the gold is that list.
    answers = [
        inside.strip().rstrip(".") + _unit_after(text, match) for match, inside in found[last:]
    ]
    return Extraction(", ".join(answers), "ok")


def _unit_after(text: str, match: re.Match) -> str:
    """The measured unit that stands behind a candidate in the prose, with a space before it."""
    words = re.match(r"\s+((?:square|cubic|sq)\s+)?([A-Za-z]+)", text[match.end() :])
    return f" {words[1] or ''}{words[2]}" if words and is_measure(words[2]) else ""


def _last_sentence(text: str, found: list) -> int:
    """Where the sentence of the last candidate starts."""
    ends = (end.end() for end in _SENTENCE.finditer(text) if end.end() <= found[-1][0].start())
    return max(ends, default=0)


def _before_explanation(text: str, found: list) -> list:
    """The candidates of the last sentence, up to the words that explain them."""
    start = _last_sentence(text, found)
    found = [(match, inside) for match, inside in found if match.start() >= start]
    if _CASES.search(text, start):
        return found  # 12 if n is even, 13 otherwise
    for cut in _EXPLANATION.finditer(text, start):
        before = [(match, inside) for match, inside in found if match.end() <= cut.start()]
        if before and not _CONCLUSION.search(text, cut.end()):
            return before
    return found


def _is_worded(match: re.Match, inside: str) -> bool:
    """Whether what stands between the signs is words: `$5 and Ann has $`, a bold heading."""
    words = [word for word in _plain_words(inside) if len(word) > 2]
    return bool(words) or bool(match[5] and not re.search(r"\d", inside) and len(inside) > 1)


def _is_hedge(gap: str) -> bool:
    return bool(_HEDGE.fullmatch(gap)) and not _DEFINITION.fullmatch(gap)
