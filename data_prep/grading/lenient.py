"""Lenient reading: the answer a patient human would take a completion to give, whatever its form.

For diagnosis only, never for a score or a reward: beside the strict verdict it tells whether a
completion failed for its mathematics or for its form (`outcomes`). What it reads is judged by
the one grader, `data_prep.grading.answers.judge_all`.

Exactly one candidate is judged. A text that offers several side by side ("7 or 8", `1 2 3`) is
read as that list, which equals no single gold, so that listing numbers is not read as right.

Every search is linear in the text; statements in prose are looked for in its last
`MAX_STATEMENT` characters only, as an answer stands at the end.
"""

import re
from collections.abc import Iterable

from data_prep.grading.answers import Golds, is_same_value, judge_all
from data_prep.grading.equivalence import is_measure
from data_prep.grading.extraction import MAX_SPELLINGS, MAX_STATEMENT, extract_short, find_boxes
from data_prep.prompts import ANSWER_CLOSE, ANSWER_OPEN, THINK_CLOSE, THINK_OPEN

_GOLD_OPTION = re.compile(r"\s*\$?(?:\\text\s*\{)?\(?[A-J]\)?\}?\$?\s*")
# Options in one breath: "(B)", but also "A or B", which is no choice.
_OPTIONS = re.compile(
    r"(?<![\w'\\])\(?[A-J](?![\w'])\)?"
    r"(?:[*$}]*\s*(?:[,/&]\s*(?:or|and)?|\bor\b|\band\b)\s*[*${]*\(?[A-J](?![\w'])\)?)*"
)
_LEAD = re.compile(r"(?:[\s*_$({:]|\\text|option\b|choice\b|is\b)*", re.IGNORECASE)
_OPTION_WORD = re.compile(r"\b(?:option|choice)(?:\s+is)?(?:[\s*_$({:]|\\text)*\Z", re.IGNORECASE)
_SIDE_BY_SIDE = re.compile(
    r"(?:[\s,;/$&.*]|\\[()\[\]]|\b(?:or|and|maybe|perhaps)\b)*", re.IGNORECASE
)
_UNCLOSED_NUMBER = re.compile(
    r"\\boxed\{\s*((?:[-+]\s?)?(?:\\?\$)?\d[\d,]*(?:\.\d+)?)\s*(?:\Z|\n|\$|\.(?:\s|\Z))"
)
_BROKEN_BOX = re.compile(r"\\boxed\s*\{?")
MAX_UNCLOSED = 80  # characters behind `\boxed{` that the text may have ended within
# A fourth-level heading is no answer, so nothing but a number may stand on the line.
_HASHES = re.compile(
    r"####[ \t]*([-+]?(?:\\?\$)?\d[\d,]*(?:\.\d+)?(?:/\d+)?(?:\\?%)?)[ \t.]*(?=\n|\Z)"
)
_FILLERS = (
    r"(?:(?:approximately|about|roughly|therefore|thus|hence|so|then|simply|indeed|maybe|equal to)"
    r"\b[\s*_:,]*)*"
)
_STATEMENT = re.compile(
    r"(?:\banswer\b[^.:=\n]{0,60}?(?:\b(?:is|equals)\b|[:=])[\s*_:]*|<answer>\s*)" + _FILLERS,
    re.IGNORECASE,
)
_DISPLAY = re.compile(r"\\\[(.+?)\\\]|\$\$(.+?)\$\$", re.DOTALL)
_NEXT_SENTENCE = re.compile(r"[.!?][*$)\]]*\s+(?=\S)")
_EQUALS = re.compile(r"(?<![<>!=])=+>?")
_REOPENED = re.compile(r".\$|\\[(\[]")  # formulas beyond the one that the equals sign is in
# A number and what it counts: "15 liters of the 24", "$800 on ties", but not "15 or 24".
_COUNTED = re.compile(
    r"((?:[-+]\s?)?(?:\\?\$)?\d[\d,]*(?:\.\d+)?(?:/\d+)?)\s+"
    r"(?!and\b|mod\b)(a|an|at|as|by|in|of|on|to|[A-Za-z]{3,})\b(?!.*\bor\b).*"
)
_END = re.compile(r"\\end\{[a-z]{1,12}\*?\}\Z")
_CALCULATION = re.compile(r"<<[^<>\n]*>>")  # GSM8K's own notes: 48/2 = <<48/2=24>>24
_MATHS = re.compile(r"\$[^$]+\$|\\[(\[a-zA-Z]")


def grade_leniently(completions: Iterable[str], golds: Iterable[Golds]) -> list[str | None]:
    """What each completion's lenient reading is worth, in order.

    Args:
        completions: what the model wrote, without the prompts.
        golds: for each, one gold answer or several of which any may match.

    Returns:
        "right", "wrong", or None where nothing readable stands: no candidate, or one that the
        grader calls unparseable. A reading that takes too long to judge is "wrong", as for scores.
    """
    pairs: list[tuple[str, list[str]]] = []
    places: list[int | None] = []
    for completion, gold in zip(completions, golds, strict=True):
        accepted = [gold] if isinstance(gold, str) else list(gold)
        reading = read_leniently(completion, any(map(_GOLD_OPTION.fullmatch, accepted)))
        places.append(None if reading is None else len(pairs))
        if reading is not None:
            pairs.append((reading, accepted))
    verdicts = [verdict for verdict, _ in judge_all(pairs)]
    names = {"right": "right", "unparseable": None}
    return [None if at is None else names.get(verdicts[at], "wrong") for at in places]


def read_leniently(completion: str, is_choice: bool = False) -> str | None:
    """The one answer that a completion gives, or None.

    It is looked for behind the last `</think>` and, where nothing readable stands there (or the
    thought was never closed), in the whole text. The first of these that exists decides:

    1. the last balanced box that is not empty;
    2. the last `<answer>…</answer>`;
    3. a last box that the text ended within, if it holds a plain number: a human takes
       `\\boxed{72` for 72, but half a formula for nothing, nor does he look for another answer;
    4. for a multiple-choice question the last option that stands alone: "(B)", "Answer: B";
    5. GSM8K's `#### 72`;
    6. the last "answer is …", "answer: …" or `<answer>…`, up to the end of its sentence;
    7. "… = x" at the end of the last line;
    8. the last formula or number of the text, unless it is denied ("not 7").

    Args:
        completion: what the model wrote, without the prompt; the tags may be missing.
        is_choice: whether the gold is the letter of an option.
    """
    after = completion.rpartition(THINK_CLOSE)[2]
    for text in (after, completion) if len(after) < len(completion) else (completion,):
        text = text.replace(THINK_OPEN, "\n").replace(THINK_CLOSE, "\n")
        if (answer := _read(text, is_choice)) is not None:
            return answer
    return None


def _read(text: str, is_choice: bool) -> str | None:
    if boxes := [box for box in find_boxes(text) if box.strip()]:
        return _side_by_side_boxes(text, boxes)
    _, opened, inside = text.rpartition(ANSWER_CLOSE)[0].rpartition(ANSWER_OPEN)
    if opened and (answer := _short(inside[-MAX_STATEMENT:], is_choice)):
        return answer
    box = text[text.rfind("\\boxed{") :] if "\\boxed{" in text else ""
    if box and not find_boxes(box):
        if number := _UNCLOSED_NUMBER.match(box):
            return number[1]
        if len(box) <= MAX_UNCLOSED and "\n" not in box.strip():
            return None
    tail = _CALCULATION.sub("", text[-MAX_STATEMENT:])
    if is_choice and (answer := _option(tail)):
        return answer
    if hashes := _HASHES.findall(tail):
        return hashes[-1]
    return _stated(tail, is_choice) or _equated(tail) or _last_value(tail)


def _short(text: str, is_choice: bool = False) -> str | None:
    """The answer in a short piece of text without a box."""
    if is_choice and (answer := _option(text)):
        return answer
    text = _BROKEN_BOX.sub(" ", text.replace(ANSWER_OPEN, "\n").replace(ANSWER_CLOSE, "\n"))
    text = re.sub(r"\A" + _FILLERS, "", text.strip(" \n*_`"), flags=re.IGNORECASE)
    return extract_short(text, is_same_value).prediction


def _joined(answers: list[str]) -> str:
    """One answer if all are the same value, else the list of them."""
    last = answers[-1]
    if all(is_same_value(answer, last) for answer in {*answers} - {last}):
        return last.strip()
    return ", ".join(answer.strip() for answer in answers)


def _side_by_side_boxes(text: str, boxes: list[str]) -> str:
    """The last box, with those before it that only an "or", an "and" or a comma parts from it."""
    run = [boxes[-1]]
    start = text.rfind(f"\\boxed{{{boxes[-1]}}}")
    for box in boxes[-2 : -MAX_SPELLINGS - 2 : -1]:
        written = f"\\boxed{{{box}}}"
        at = text.rfind(written, 0, max(start, 0))
        if at < 0 or not _SIDE_BY_SIDE.fullmatch(text[at + len(written) : start]):
            break
        run.insert(0, box)
        start = at
    return _joined(run)


def _option(tail: str) -> str | None:
    """The option that the last "answer is …" states, else the last that stands alone.

    A capital within prose is no option ("A" is an article): it stands alone in parentheses, after
    "option" or "choice", where it ends the text, or as "B. 12" where it opens the text.
    """
    if statements := list(_STATEMENT.finditer(tail)):
        rest = tail[statements[-1].end() :]
        if (found := _OPTIONS.search(rest)) and _LEAD.fullmatch(rest[: found.start()]):
            return _letters(found[0])
    closing = len(_without_closing(tail).rstrip("}) "))
    alone = [
        found
        for found in _OPTIONS.finditer(tail)
        if re.match(r"\([A-J]\)", found[0])
        or _OPTION_WORD.search(tail[max(0, found.start() - 30) : found.start()])
        or found.end() >= closing
        or re.fullmatch(r"\s*[A-J](?:\)|[.:])", tail[: found.end() + (found[0][-1] != ")")])
    ]
    return _letters(alone[-1][0]) if alone else None


def _letters(options: str) -> str:
    """`A, B` for "(A) or B"."""
    return ", ".join(dict.fromkeys(re.findall(r"[A-J]", options)))


def _stated(tail: str, is_choice: bool) -> str | None:
    """What the last "answer is …" states."""
    statements = list(_STATEMENT.finditer(tail))
    if not statements:
        return None
    rest = tail[statements[-1].end() :].strip()
    if display := _DISPLAY.match(rest):
        return _short(display[1] or display[2], is_choice)
    return _short(_NEXT_SENTENCE.split(rest.partition("\n")[0], maxsplit=1)[0], is_choice)


def _without_closing(text: str) -> str:
    """The text without the print that may follow its last value: `$.`, `\\]`, `**`."""
    while True:
        text = text.rstrip(" \t\r\n$.*_`")
        if text.endswith(("\\]", "\\)")):
            text = text[:-2]
        elif end := _END.search(text, max(0, len(text) - 20)):
            text = text[: end.start()]
        else:
            return text


def _equated(tail: str) -> str | None:
    """The value behind the last equals sign, if the last line ends with it."""
    line = _without_closing(tail).rpartition("\n")[2]
    *sides, value = _EQUALS.split(line)
    value = value.strip()
    if not sides or not value or _NEXT_SENTENCE.search(value) or _REOPENED.search(value):
        return None
    if counted := _COUNTED.fullmatch(value):
        return f"{counted[1]} {counted[2]}" if is_measure(counted[2]) else counted[1]
    return _short(value)


def _last_value(tail: str) -> str | None:
    """The last formula or number; words alone are an answer only where they are stated as one."""
    answer = _short(tail)
    return answer if answer and (re.search(r"\d", answer) or _MATHS.search(tail)) else None
