"""Extract: the one answer that a completion offers.

One `<think>` thought, then the answer. Nothing inside the thought counts. A completion that offers
several values has no answer. The searches run in linear time.
"""

import re
from dataclasses import dataclass

from grading.boxes import find_answers, find_boxes
from grading.compare import is_same_value
from grading.question import find_options, option_letter
from grading.statement import final_statement
from pipeline.prompts import ANSWER_CLOSE, ANSWER_OPEN, BARE_FORMS, THINK_CLOSE, THINK_OPEN

MAX_SPELLINGS = 8  # of one answer in a completion
_BLANK = re.compile("[\\s\u200b-\u200f\u2060\ufeff]*")  # invisible characters are no thought


@dataclass(frozen=True, slots=True)
class Extraction:
    """What a completion offers: status no_think, unclosed_think, no_answer, several_answers, ok."""

    prediction: str | None
    status: str
    several: tuple[str, ...] = ()  # answers, together one where the gold is a list of as many


def _split_thought(
    completion: str, think_prefilled: bool | None, answer_form: str = "box"
) -> tuple[str, str, str]:
    """(status, thought, text after it); status is ok, no_think or unclosed_think.

    With None, or in a form that asks for no thought, a completion that only closes one was
    prefilled, and one without tags has none.
    """
    if think_prefilled is None or (not think_prefilled and answer_form in BARE_FORMS):
        if THINK_OPEN not in completion and THINK_CLOSE not in completion:
            return "ok", "", completion
        think_prefilled = THINK_OPEN not in completion
    text = THINK_OPEN + completion if think_prefilled else completion
    if text.rfind(THINK_OPEN) > text.rfind(THINK_CLOSE):
        return "unclosed_think", "", ""
    if text.count(THINK_OPEN) != 1 or text.count(THINK_CLOSE) != 1:
        return "no_think", "", ""  # absent, doubled or re-opened: no thought that can be told apart
    thought, _, rest = text.partition(THINK_OPEN)[2].partition(THINK_CLOSE)
    return "ok", thought, rest


def is_well_formed(
    completion: str,
    think_prefilled: bool = False,
    answer_form: str = "box",
    final_number: bool = False,
) -> bool:
    """Whether a completion is one thought, then one answer in the form that the prompt asks for.

    The thought is not empty and holds no tags. After it comes one box, or one pair of answer tags
    with at most one box between them, and no other tag.
    """
    status, thought, rest = _split_thought(completion, think_prefilled, answer_form)
    if status != "ok" or (THINK_CLOSE in completion and _BLANK.fullmatch(thought)):
        return False
    num_pairs = 1 if answer_form == "tags" else 0
    tags = [thought.count(tag) for tag in (ANSWER_OPEN, ANSWER_CLOSE)]
    if any(tags) or rest.count(ANSWER_OPEN) != num_pairs or rest.count(ANSWER_CLOSE) != num_pairs:
        return False
    found = find_boxes(rest)
    if find := _FORMS.get(answer_form):
        found = [one for answer in find(rest) for one in find_boxes(answer) or [answer]]
    if not found and final_number and "\\boxed" not in rest:
        return final_statement(rest) is not None
    return len(found) == 1 and not _BLANK.fullmatch(found[0])


def extract(
    text: str,
    think_prefilled: bool | None = False,
    answer_form: str = "box",
    final_number: bool = False,
    question: str = "",
) -> Extraction:
    """Find the answer that follows the thought; the arguments are those of `grade.grade_all`.

    An empty thought is one: models that are asked not to think write `<think></think>`.
    """
    status, _, rest = _split_thought(text, think_prefilled, answer_form)
    if status != "ok":
        return Extraction(None, status)
    find = _FORMS.get(answer_form)
    found = _read_each(find(rest), question) if find else find_answers(rest, question)
    if not found and final_number and "\\boxed" not in rest and ANSWER_OPEN not in rest:
        return _stated(rest)
    return _only_one(found, question)


# What a box may hold and yet say nothing: `\boxed{?}`, `\boxed{\phantom{4}}`.
_NO_ANSWER = re.compile(
    r"(?:[\s?_.$~{}\u2026\u25a1\u2610\u200b-\u200f\u2060\ufeff]"
    r"|\\(?:[,;:! _]|q?quad|[lcd]?dots|[bB]ox|square|underline|text|mathrm|textbf)(?![A-Za-z])"
    r"|\\[hv]?phantom\s*\{[^{}]*\}|\\[hv]space\s*\*?\s*\{[^{}]*\})*"
)


def _only_one(found: list[str], question: str = "") -> Extraction:
    """The last of several answers if all are one value: hedging must not be rewarded.

    Boxes that say nothing, and those of the question, are no answers. A value and the letter that
    the question gives it are one.
    """
    found = [one for one in found if not _NO_ANSWER.fullmatch(one)]
    if len(found) > 1 and "\\boxed" in question:
        copied = set(find_boxes(question))
        found = [one for one in found if one not in copied] or found
    if not found:
        return Extraction(None, "no_answer")
    *parts, last = dict.fromkeys(found)
    if len(parts) > 1 and is_same_value(", ".join(parts), last):
        return Extraction(last.strip(), "ok")  # each, then all in one
    if parts and (letter := _letter_of_all([*parts, last], question)):
        return Extraction(letter, "ok")
    others = {*found} - {found[-1]}
    if len(others) > MAX_SPELLINGS or not all(is_same_value(one, found[-1]) for one in others):
        return Extraction(None, "several_answers", tuple(dict.fromkeys(found)))
    return Extraction(found[-1].strip(), "ok")


def _letter_of_all(found: list[str], question: str) -> str | None:
    """B of the boxes 2 and B, where the question says that B is 2; else None."""
    letters = {option_letter(one) for one in found} - {None}
    values = [one for one in found if option_letter(one) is None]
    letter = letters.pop() if len(letters) == 1 else None
    option = find_options(question).get(letter or "")
    if option is None or not 0 < len(values) <= MAX_SPELLINGS:
        return None
    return letter if all(is_same_value(one, option) for one in values) else None


def _stated(text: str) -> Extraction:
    statement = final_statement(text)
    return Extraction(statement, "no_answer" if statement is None else "ok")


def extract_short(text: str, question: str = "") -> Extraction:
    """Find the answer in a bare value or short text: a box, else the text, else what it states."""
    status, _, text = _split_thought(text, None)
    if status != "ok":
        return Extraction(None, status)
    if find_boxes(text):
        return _only_one(find_answers(text, question), question)
    if "\\boxed{" in text:
        return Extraction(None, "no_answer")  # never closed
    tagged = _tagged(text)
    return _only_one(tagged) if tagged else _stated(text)


# A quoted `"####"` only speaks of one; the next on the same line is another answer.
_ANSWER_LINE = re.compile(r"""(?<![#\\])(?:\\?#){4}(?!\\?#|["'”])\s*((?:(?!(?:\\?#){4}).)*)""")


def _hashed(text: str) -> list[str]:
    """What is behind `####` on its line, or on the next."""
    return [answer.strip("*_` \t").rstrip("*_`. \t") for answer in _ANSWER_LINE.findall(text)]


def _tagged(text: str) -> list[str]:
    """What is between answer tags."""
    closed = [part for part in text.split(ANSWER_OPEN)[1:] if ANSWER_CLOSE in part]
    return [part.partition(ANSWER_CLOSE)[0] for part in closed]


_FORMS = {"tags": _tagged, "hashes": _hashed}


def _read_each(answers: list[str], question: str) -> list[str]:
    """The boxes of each as `find_answers` reads them, else its text; empty for no answer."""
    found: list[str] = []
    has_answer = False
    for answer in answers:
        boxes = find_boxes(answer)
        said = find_answers(answer, question) if boxes else [answer]
        has_answer = has_answer or bool(said)
        found += said or boxes
    return found if has_answer else []
