"""Functions that the builders of data sets share: columns of many names, prompts, golds, options.

A builder is a function (row, problem_id, where) -> Problem, named in `registry.BUILDERS`;
`problem_id` is `<source>-<split>-<position>`. It raises `UserError` where a column is missing or of
a wrong type, and `Drop` where a row is to be left out. Every set has the reason `unknown_template`,
a prompt in a template that is not known. The builders name their other reasons.
"""

import contextlib
import json
import math
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from data_prep.schema import Problem
from data_prep.sources import templates
from data_prep.sources.choices import list_of_texts, names_option
from grading.boxes import find_answers, find_boxes, last_boxed, plain_words, scan
from grading.compare import is_same_value
from grading.extract import extract_short
from pipeline.errors import UserError
from pipeline.prompts import ANSWER_CLOSE, ANSWER_OPEN, THINK_CLOSE, THINK_OPEN
from pipeline.rows import EXACT, Row, is_conversation

FIX = "fix the row"
MARK = "####"  # precedes the gold, in GSM8K and its kin
Columns = tuple[str, ...]  # names, of which the first that a row has counts
QUESTIONS = ("problem", "question", "Problem", "prompt", "instruction", "input")
GOLDS = (
    "answer",
    "final_answer",
    "Answer",
    "solutions",
    "label",
    "target",
    "reward_model.ground_truth",
    "ground_truth",
)
SOLUTIONS = ("solution", "Solution", "extra_info.solution")
THOUGHTS = ("reasoning_content", "reasoning", "thinking")  # beside the content of a turn
SUBJECTS = ("subject", "type", "extra_info.subject", "extra_info.type")
_BOXED = re.compile(
    r"\$*+\s*+(?:\\\(|\\\[)?+\s*+\\boxed\s*+(\{.*\})\s*+(?:\\\)|\\\])?+\s*+\$*+\.?+", re.DOTALL
)
# What a control character and the rest of a LaTeX command were before a reader took `\f` of `\frac`
# for a form feed. The characters have uses of their own (MATH's figures are indented with tabs, a
# form feed precedes a word in DeepScaleR), so only the rest of a known command counts, and
# only one that is no English word.
_COMMANDS = {
    "\a": ("a", r"lpha|ngle|pprox|rc(?:sin|cos|tan)"),
    "\b": ("b", r"ar|egin|eta|inom|mod|oxed|ullet|oldsymbol|igcup|igcap|igg?[lr]?|f"),
    "\f": ("f", r"rac|orall|rown"),
    "\v": ("v", r"ec|ert|ee|dots|ar(?:phi|epsilon|theta|nothing)"),
    "\t": (
        "t",
        r"imes|riangle(?:left|right)?|heta|au|ilde|frac|binom|o|anh|an(?=[\\^_({])"
        r"|ext(?:bf|it|rm|tt|sf|sc|normal|style)?",
    ),
    "\r": ("r", r"ight|ightarrow|ho|ceil|vert|brace|brack"),
}
_BROKEN = re.compile(
    "|".join(f"{sign}(?=(?:{rests})(?![A-Za-z]))" for sign, (_, rests) in _COMMANDS.items())
)

_LABELLED = re.compile(r"[A-Za-z]+[\s:_-]*(\?|\d+(?:\.\d+)?)")  # Level 3
# What states an answer: "Answer (in cm): 5", "the answer is 5", "#### 5". "If the answer is 0,
# write 0" states nothing.
_STATEMENT = re.compile(
    r"(?:(?<![A-Za-z])(?:answer|ans|result|solution|output)(?![A-Za-z])|(?<!\S)A(?=\s?:)"
    r"|\u7b54\u6848|[\u7b54\u89e3](?=\s?[:\uff1a]))"
    r"(?:\s*\([^()\n]{0,40}\)|\s+(?:to|of|in|for)\s[^.:=?!\n]{0,60}?)?"
    r"[\s*_\]]*(?:[:=\uff1a.)>\u2192\u662f\u4e3a\n]|-\s"
    r"|\b(?:is|was|equals|(?:would|should|must) be)\b)"
    r"[\s*_:]*(?:(?:approximately|about|therefore|thus|simply)\b[\s:]*)?"
    r"|(?<!#)#{4}(?=[ \t]*\S{1,40}[ \t]*(?:\n|$))|<(?:final_)?answer>",
    re.IGNORECASE,
)
_SUPPOSED = re.compile(
    r"\b(?:if|when|whether|suppos\w+|unless|until|e\.g|for (?:example|instance))\b[^?!\n]{0,40}$"
    r"|\b(?:an?|each|every|wrong|incorrect|\w+'s)\s+(?:[\w']+\s+)?$",
    re.IGNORECASE,
)
_STATED_END = re.compile(r"[.;!?](?=\s|$)|\u3002|\s*[)\]\uff09](?=\W*$)|</|\n|[,:]\s|\s[(\[]")
MAX_STATED = 4  # statements of a text, and ways to end one, that are looked at
_TEXT_COMMAND = re.compile(
    r"\\(?:text|textbf|textit|textrm|textsf|mathrm|mathbf|mathsf|bf|rm|mbox|boxed|fbox)"
    r"\s*\{([^{}]*)\}"
)
_OPTION = re.compile(
    r"\(?[A-H]\)?[.:]?"  # C, (C), C.
    r"|\(?[A-H]\s*[).:].*"  # C) 2, (C) 2, C: 2
    r"|[A-H]\s+\d.*"  # C 2
    r"|.*\([A-H]\)"  # 40 (B)
    r"|.*\\\(\(?[A-H][).:].*"  # The final answer is \(C. 0.8\)
    r"|[A-H](?:(?:\s|,|and|or)*[A-H])+",  # ABD; A, E; A and D
    re.DOTALL,
)
# "none" is the one that may be a real answer; there it cannot be told from a missing one.
_SENTINELS = {
    "inf", "-inf", "+inf",  # what a number out of range, such as 1e999, becomes
    "proof", "notfound", "not found", "answer not found", "n/a", "nan", "null", "none",
    "unknown", "see solution", "see the solution", "see above", "see below", "see proof",
    "see the proof", "see figure", "no answer", "no answer found", "no answer provided",
    "no answer available", "not available", "not given", "not provided", "unanswered", "todo",
    "tbd", "proved", "proven", "qed", "q.e.d", "-", "--", "---", "?", "??", "???", "...",
    "\u2026", "_", "__", "___", "*", ".", "/", "\\ldots", "\\dots", "\\cdots", "\\square",
    "\\blacksquare", "\u7565", "\u65e0\u7b54\u6848", "\u89c1\u89e3\u6790", "\u8bc1\u660e",
    "\u8bc1\u660e\u7565",
}  # fmt: skip


@dataclass(unsafe_hash=True)
class Drop(Exception):
    """A row left out on purpose: a named `reason` that is counted, and a `detail` to look at."""

    reason: str
    detail: str = ""


def build_row(
    row: Row,
    problem_id: str,
    where: str,
    source: str,
    *columns: Columns,
    keeps_golds: bool = False,
    gold_remedy: str = FIX,
    **fields: Any,
) -> Problem:
    """A problem from its columns of question, gold and solution; `Drop` without a gold.

    `keeps_golds`: as they stand in the data, for a grader of the user's own. `gold_remedy`: what to
    do about a gold that is no text, for the message.
    """
    questions, golds, solutions = columns or (QUESTIONS, GOLDS, SOLUTIONS)
    question = get_question(row, questions, where)
    values = get_golds(row, golds, where, gold_remedy, keeps_golds)
    if not values:
        raise Drop("no_answer")
    used = {*questions, *golds, *solutions}
    others = {name: value for name, value in row.items() if name not in used}
    option = "" if keeps_golds else names_option(question, values, get_value(row, golds), others)
    if option:
        raise Drop("multiple_choice", f"gold {option[:80]!r} is an option's, which the row lists")
    text = get_solution(row, solutions, values, where)
    if not text:  # the question may be a chat with a reply
        text = find_reply(get_value(row, questions), with_thought=True) or ""
    solution = repair_escapes(text).strip()
    return Problem(problem_id, source, question, tuple(values), solution, **fields)


def find_value(row: Row, columns: Columns) -> tuple[str, Any] | None:
    """(name, value) of the first of `columns` that the row has, or None where it has none.

    `a.b` is the column b of the struct a. A null counts only if no other column has a value:
    parquet files and the hub write it for a missing one. NaN is null: pandas writes it.
    """
    found = None
    for column in columns:
        value: Any = row
        for name in column.split("."):
            if not isinstance(value, dict) or name not in value:
                break
            value = value[name]
        else:
            if value is not None and value == value:
                return column, value
            found = found or (column, None)
    return found


RENAME = "rename the column or choose another source"


def get_value(row: Row, columns: Columns) -> Any:
    """The value of the first of `columns` that the row has, or None; see `find_value`."""
    found = find_value(row, columns)
    return found[1] if found else None


def get_text(
    row: Row, columns: Columns, where: str, default: str | None = None, allows_numbers: bool = False
) -> str:
    """The text of the first of `columns` that the row has, else `default`; see `find_value`.

    Without a default a missing or null column is an error. `allows_numbers`: `27.0` counts as `27`.
    """
    found = find_value(row, columns)
    if default is not None and (found is None or found[1] is None):
        return default
    if found is None:
        raise missing_column(row, columns, where)
    return to_text(found[1], found[0], where, allows_numbers)


def missing_column(row: Row, columns: Columns, where: str, remedy: str = RENAME) -> UserError:
    """The error of a row that has none of `columns`; it lists those that the row has."""
    wanted, there = " or ".join(map(repr, columns)), ", ".join(map(repr, row)) or "none"
    return UserError(f"{where}: missing column {wanted}, found {there}; {remedy}")


def to_text(
    value: Any, column: str, where: str, allows_numbers: bool = False, remedy: str = FIX
) -> str:
    """The text of one value, its lines ended as on Unix; see `get_text`."""
    if allows_numbers and type(value) in (int, float, Decimal):
        value = _write_number(value)
    if not isinstance(value, str):
        raise UserError(f"{where}: {column}: {value!r:.80} is not text; {remedy}")
    return value.replace("\r\n", "\n")


def _write_number(value: int | float | Decimal) -> str:
    """A number as people write it, a whole one without a point."""
    if isinstance(value, Decimal):
        text = f"{value:f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    # Not `int`, which has digits of 1e23 that nobody wrote; -0.0 + 0.0 is 0.0.
    is_whole = isinstance(value, float) and value.is_integer()
    return f"{Decimal(str(value + 0.0)):.0f}" if is_whole else str(value)


def lost_digits(row: Row, golds: Sequence[str]) -> bool:
    """Whether a gold came as a float too large to hold all of its digits."""
    if all(len(gold) < 16 for gold in golds):  # 2^53 has 16 digits
        return False
    texts = {to_text(value, "", "", allows_numbers=True) for value in _large_floats(row)}
    return not texts.isdisjoint(golds)


def _large_floats(value: Any, depth: int = 5) -> Iterator[float]:
    if isinstance(value, dict | list) and depth:
        for one in value.values() if isinstance(value, dict) else value:
            yield from _large_floats(one, depth - 1)
    elif isinstance(value, float) and abs(value) >= EXACT:
        yield value


def get_question(row: Row, columns: Columns, where: str) -> str:
    """The bare question, from text or from a chat prompt of one user turn.

    A chat is a list of {role, content} (verl, DAPO) or {from, value} (ORZ), or the JSON text of
    one; more than one user turn and a reply is an error. Template tokens and instructions on how
    to answer are taken off, see `data_prep.sources.templates`, and broken escapes repaired.
    """
    column, prompt = find_value(row, columns) or ("", None)
    turns = templates.chat_turns(prompt)
    text = get_text(row, columns, where) if turns is None else _user_turn(turns)
    if text is None:
        fault = "has no single user turn of text; write [{role: user, content: the question}]"
        raise UserError(f"{where}: {column}: {turns!r:.80} {fault}")
    try:
        question = templates.bare_question(repair_escapes(text))
    except templates.SeveralTurns as error:
        fault = f"no single question ({error}); write one question without examples or answers"
        raise UserError(f"{where}: {column}: {fault}") from error
    if token := templates.find_foreign_token(question):
        raise Drop("unknown_template", f"{token!r:.60} is left in {column}")
    return question


def _user_turn(turns: list) -> str | None:
    """The text of the one user turn, or None; system turns and what follows it are ignored."""
    users = []
    for turn in turns:
        if not isinstance(turn, dict):
            return None
        role, text = turn.get("role", turn.get("from")), turn.get("content", turn.get("value"))
        if role in ("user", "human"):
            users.append(text)
        elif role in ("system", "developer") or text is None:
            continue
        elif not users or not isinstance(text, str):
            return None
    if len(users) != 1 or not isinstance(users[0], str):
        return None
    return users[0].replace("\r\n", "\n")


def stated_answers(text: str) -> Iterator[str]:
    """What a text may state as its answer: boxes, and what follows "the answer is", "Answer:"."""
    yield from find_boxes(text)[-MAX_STATED:]
    for rest in statements(text):
        rest = rest[:120].strip()
        ends = [end.start() for end in _STATED_END.finditer(rest)][:MAX_STATED]
        yield from dict.fromkeys(rest[:end].strip(" *_.") for end in [*ends, len(rest)])


def statements(text: str) -> Iterator[str]:
    """The text behind each of the last few "the answer is", "Answer:" that state something."""
    for found in deque(_STATEMENT.finditer(text), MAX_STATED):
        before = text[max(0, found.start() - 60) : found.start()]
        is_cut = re.fullmatch(r"\d\.\d", text[found.end() - 2 : found.end() + 1])
        if not is_cut and not _SUPPOSED.search(before):
            yield text[found.end() :]


def find_reply(chat: Any, with_thought: bool = False) -> str | None:
    """What the assistant says last in a chat, "" for a prefill or nothing; None for no chat.

    `with_thought`: with the thought that a turn may have beside its content, in tags before it.
    """
    turns = templates.chat_turns(chat)
    if turns is None or not is_conversation(turns):
        return None
    last = turns[-1]
    text = last.get("content", last.get("value"))
    if last.get("role", last.get("from")) in ("user", "human", "system"):
        return ""
    if not isinstance(text, str) or templates.is_prefill(text):
        return ""
    text = text.replace("\r\n", "\n")
    thoughts = [last[name] for name in THOUGHTS if last.get(name) and isinstance(last[name], str)]
    if thoughts and with_thought:  # two markups, where the content has tags of its own
        return f"{THINK_OPEN}{thoughts[0]}{THINK_CLOSE}{text}"
    return text


def get_solution(row: Row, columns: Columns, golds: Sequence[str], where: str) -> str:
    """The worked solution of a row, "" without one: in a chat the reply.

    Of several solutions it is the first that boxes a gold, else the first.
    """
    column, value = find_value(row, columns) or ("", None)
    reply = find_reply(value, with_thought=True)
    if reply is not None or value is None:
        return reply or ""
    several = list_of_texts(value) if isinstance(value, str) else value
    if not isinstance(several, list):
        return to_text(value, column, where)
    texts = [to_text(one, column, where) for one in several if one]
    right = [text for text in texts if right_reply(text, golds)]
    return next(iter(right or texts), "")


def get_golds(
    row: Row, columns: Columns, where: str, remedy: str = FIX, as_written: bool = False
) -> list[str]:
    """The golds of a row, each once, of which any may match; none where they are null or empty.

    Of a chat it is what the assistant's reply boxes last, or states ("The answer is 5.").
    `as_written`: as they stand there; what is no text as its JSON.
    """
    found = find_value(row, columns)
    if found is None:
        raise missing_column(row, columns, where)
    column, value = found
    reply = None if as_written else find_reply(value)
    if reply is not None:
        value = last_boxed(reply)
        if not value and any(stated_answers(reply)):
            value = extract_short(reply).prediction
    values = [one for one in (value if isinstance(value, list) else [value]) if one is not None]
    if as_written:
        golds = [_as_json(one, f"{where}: {columns[0]}") for one in values]
    else:
        texts = [to_text(one, column, where, True, remedy) for one in values]
        golds = [clean_gold(one) for text in texts for one in list_of_texts(text) or [text]]
    return list(dict.fromkeys(gold for gold in golds if gold.strip()))


def _as_json(value: Any, place: str) -> str:
    """A text as it is, another value as its JSON."""
    try:
        return (
            value if isinstance(value, str) else json.dumps(value, allow_nan=False, default=_plain)
        )
    except (TypeError, ValueError) as error:  # a date, infinity
        raise UserError(f"{place}: {value!r:.80} is no JSON ({error})") from error


def _plain(value: Any) -> str:
    """The text of a decimal number, which JSON has not."""
    if not isinstance(value, Decimal):
        raise TypeError(f"{type(value).__name__} is not text, a number or a list of them")
    return to_text(value, "", "", allows_numbers=True)


def clean_gold(text: str) -> str:
    r"""A gold without broken escapes, the words around it, or a `\boxed{}`.

    Of a text it is what the last box holds, with the sign and the unit that belong to it, or the
    first line behind `####`, or what is between answer tags.
    """
    text = repair_escapes(text).strip()
    if ANSWER_OPEN in text and ANSWER_CLOSE in text:
        text = text.rpartition(ANSWER_OPEN)[2].partition(ANSWER_CLOSE)[0].strip()
    if "\\boxed" not in text:
        return behind_mark(text)
    while found := _BOXED.fullmatch(text):
        boxes = find_boxes("\\boxed" + found[1])
        if len(boxes) != 1 or len(boxes[0]) + 2 != len(found[1]):
            break  # two boxes, one at either end
        text = boxes[0].strip()
    return _answer_of_last_box(text) or text


def _answer_of_last_box(text: str) -> str | None:
    """What the last box of a text says; None where it is a part of a formula or of a list."""
    boxes = scan(text)
    if not boxes:
        return None
    *others, last = boxes
    start = others[-1].end if others else 0
    if others and not plain_words(text[start : last.start]):
        return None  # \boxed{1}, \boxed{2}
    return next(iter(find_answers(text[start:])), "").strip()


def behind_mark(text: str) -> str:
    """The first line behind the last `####` of a text; a text without it as it is."""
    _, mark, tail = text.rpartition(MARK)
    return tail.strip().partition("\n")[0].strip() if mark else text


def without_commands(text: str) -> str:
    """A text without LaTeX's commands for the looks of what they hold."""
    for _ in range(3):  # as deep as they are nested in earnest
        text = _TEXT_COMMAND.sub(r"\1", text)
    return text


def is_option(gold: str) -> bool:
    """Whether a gold is a multiple-choice option: its letter, with or without the value."""
    plain = without_commands(gold).replace("\\ ", " ").strip(" $~")
    return bool(_OPTION.fullmatch(plain))


def is_sentinel(gold: str) -> bool:
    r"""Whether a gold says that there is no answer (`proof`, `notfound`, `N/A`), boxed or not.

    "no solution", "DNE" and `\emptyset` are answers.
    """
    plain = without_commands(gold).replace("\\ ", " ").strip().strip("$()[]\"'`<>{} ")
    plain = re.sub(r"[\s_]+", " ", plain.casefold()) if len(plain) > 3 else plain.casefold()
    return plain in _SENTINELS or plain.rstrip(".!") in _SENTINELS


def get_number(row: Row, columns: Columns, where: str) -> int | float | None:
    """The finite number in the first of `columns` that the row has, or None where it has none.

    Of "Level 3" it is 3, of "Level ?" None.
    """
    column, found = find_value(row, columns) or ("", None)
    if found is None or found == "":
        return None
    value = found
    if isinstance(found, str):
        labelled = _LABELLED.fullmatch(found.strip())
        if labelled and labelled[1] == "?":
            return None
        with contextlib.suppress(ValueError):
            value = float(labelled[1] if labelled else found)
    if isinstance(value, Decimal):
        value = float(value)
    if type(value) not in (int, float) or not math.isfinite(value):
        raise UserError(f"{where}: {column}: {found!r:.80} is not a number; fix the row")
    return value


def repair_escapes(text: str) -> str:
    """Undo what a JSON or Python reader made of LaTeX: form feed + `rac` is `\\frac` again."""
    return _BROKEN.sub(lambda match: "\\" + _COMMANDS[match[0]][0], text)


def own_id(problem_id: str, value: Any) -> str:
    """`problem_id` with the row's own id in place of its position; as it is where there is none."""
    own = "" if value is None else str(value).strip()
    if not own:
        return problem_id
    return f"{problem_id.rpartition('-')[0]}-{own}"


def right_reply(text: str, golds: Sequence[str]) -> str:
    """A completion whose last box behind the thought is one of the golds, else ""."""
    prediction = last_boxed(text.rpartition(THINK_CLOSE)[2])
    if prediction is None or not any(is_same_value(prediction, gold) for gold in golds):
        return ""
    return text
