"""AIME, GPQA and ARC: sets that are scored whole, so that a row that is damaged is an error.

AIME (`HuggingFaceH4/aime_2024`, `Maxwell-Jia/AIME_2024`, `math-ai/aime25`): every answer is an
integer from 0 to 999. Mirrors write it as a number, as `073` or as `336^\\circ`; the gold is `73`.

GPQA (`Idavidrein/gpqa`, config `gpqa_diamond`) is gated. Upstream the correct option has a column
of its own. The four options are put in an order that the question alone decides, so it is the same
in every run and for every copy of the row. AReaL's copy (`ori_question`, `options`, the letter in
`answer`) is read as well. The gold is the letter.

ARC (`allenai/ai2_arc`, config `ARC-Challenge`), three to five options: they keep their order and
are shown as A to E; upstream labels some rows 1 to 5.
"""

import hashlib
import re
from dataclasses import replace
from typing import Any

from data_prep.schema import Problem
from data_prep.sources.base import build_row, get_text, get_value, own_id
from pipeline.errors import UserError

LETTERS = "ABCDE"
INSTRUCTION = "Answer with the letter of the right option."
RIGHT = "Correct Answer"
GPQA_OPTIONS = (RIGHT, "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
_AIME_GOLD = re.compile(
    r"\s*\$?\s*0*(\d{1,3})\s*(?:\^\s*\{?\s*\\circ\s*\}?|\N{DEGREE SIGN})?\s*\$?\s*"
)


def build_aime(row: dict[str, Any], problem_id: str, where: str) -> Problem:
    """Turn an AIME row into a problem. `Drop` reason: `no_answer`."""
    name = own_id(problem_id, get_value(row, ("id", "ID", "extra_info.index")))
    questions = ("problem", "question", "Problem", "prompt")
    golds = ("answer", "final_answer", "Answer", "reward_model.ground_truth")
    built = build_row(row, name, where, "aime", questions, golds, ("solution", "Solution"))
    text = ", ".join(built.answers)
    gold = _AIME_GOLD.fullmatch(text)
    if not gold:
        fault = f"the gold {text!r:.80} is not an integer from 0 to 999"
        raise UserError(f"{where}: answer: {fault}; fix the row")
    return replace(built, answers=(str(int(gold[1])),))


def build_gpqa(row: dict[str, Any], problem_id: str, where: str) -> Problem:
    """Turn a GPQA row into a problem; `solution` is GPQA's explanation."""
    question = get_text(row, ("Question", "ori_question"), where).strip()
    if (options := get_value(row, ("options",))) is not None:
        check_options(options, "options", range(4, 5), where)
        letter = get_text(row, ("answer",), where).strip()
        if len(letter) != 1 or letter not in LETTERS[:4]:
            raise UserError(f"{where}: answer: {letter!r} is none of A, B, C, D; fix the row")
        right = LETTERS.index(letter)
    else:
        options = [get_text(row, (column,), where, allows_numbers=True) for column in GPQA_OPTIONS]
        check_options(options, "the answers", range(4, 5), where)
        right = GPQA_OPTIONS.index(RIGHT)
    order = sorted(range(4), key=lambda at: _draw(question, options[at]))
    name = own_id(problem_id, get_value(row, ("Record ID", "id")))
    shown = show_options(question, [options[at] for at in order])
    gold = LETTERS[order.index(right)]
    explanation = get_text(row, ("Explanation",), where, default="").strip()
    return Problem(name, "gpqa", shown, (gold,), explanation)


def _draw(question: str, option: str) -> bytes:
    """An option's place by lot; a hash, since `random`'s shuffle may change with Python."""
    key = " ".join(question.split()) + "\n" + " ".join(option.split())
    return hashlib.sha256(key.encode()).digest()


def build_arc(row: dict[str, Any], problem_id: str, where: str) -> Problem:
    """Turn an ARC row into a problem, without a solution."""
    question = get_text(row, ("question",), where)
    options, labels = get_value(row, ("choices.text",)), get_value(row, ("choices.label",))
    check_options(options, "choices.text", range(3, 6), where)
    check_options(labels, "choices.label", range(len(options), len(options) + 1), where)
    key = get_text(row, ("answerKey",), where).strip()
    if labels.count(key) != 1:
        fault = f"{key!r} is not one of the labels {', '.join(labels)}"
        raise UserError(f"{where}: answerKey: {fault}; fix the row")
    name = own_id(problem_id, get_value(row, ("id",)))
    gold = LETTERS[labels.index(key)]
    return Problem(name, "arc", show_options(question, options), (gold,))


def check_options(options: Any, column: str, counts: range, where: str) -> None:
    """Raise `UserError` unless the options are as many texts as `counts`."""
    found = options if isinstance(options, list) else []
    if len(found) not in counts or not all(isinstance(o, str) and o.strip() for o in found):
        number = " to ".join(str(n) for n in sorted({counts[0], counts[-1]}))
        raise UserError(f"{where}: {column}: {options!r:.80} is not {number} texts; fix the row")


def show_options(question: str, options: list[str]) -> str:
    """The question, one line `A. …` per option, and what is asked for.

    The system prompt says how to write the answer. The question says that it is a letter, because
    otherwise the option's text would be an answer too.
    """
    lines = [f"{at}. {' '.join(text.split())}" for at, text in zip(LETTERS, options, strict=False)]
    return "\n".join([question.strip(), "", *lines, "", INSTRUCTION])
