r"""NuminaMath-CoT and 1.5 (`AI-MO/NuminaMath-CoT`, `AI-MO/NuminaMath-1.5`), with solutions.

The gold is `answer` (1.5), or the last `\boxed{…}` of the solution (CoT, whose mirrors name the
columns `instruction` and `response`). Golds such as `proof`, `notfound` or `C` are kept here:
`data_prep.builder.filters` drops them for all sources alike. A problem that 1.5 calls a proof or
multiple choice is dropped here. `text_answer` drops golds in words: no algebra can compare them.
"""

import re
from typing import Any

from data_prep.schema import Problem
from data_prep.sources import base
from grading.boxes import last_boxed
from grading.compare import is_parseable

_ENVIRONMENT = re.compile(r"\\(?:begin|end|operatorname)\{\w+\}")
_TEXT_COMMAND = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")
_WORD = re.compile(r"(?<![\\A-Za-z])(?:[A-Za-z]{4,}|[Yy]es|[Nn]o|[Oo]dd)(?![A-Za-z])")
_KINDS = {"proof": "proof", "mcq": "multiple_choice"}


def is_text(gold: str) -> bool:
    """Whether a gold is words: nothing but `\\text{…}`, or words outside of it."""
    rest = _ENVIRONMENT.sub("", _TEXT_COMMAND.sub(_keep_number, gold))
    return not re.search(r"[^\W_]", re.sub(r"\\[,;: ]", "", rest)) or bool(_WORD.search(rest))


def _keep_number(text: re.Match) -> str:
    """`\\text{3}` is the number 3; other text goes."""
    return text[1] if re.fullmatch(r"\s*[\d.,]+\s*", text[1]) else ""


def build_problem(row: dict[str, Any], problem_id: str, where: str) -> Problem:
    """Turn a NuminaMath row into a problem, or say why not (see the module docstring)."""
    question = base.get_question(row, ("problem", "instruction"), where)
    columns = ("solution", "response")
    default = "" if base.find_value(row, columns) else None
    solution = base.repair_escapes(base.get_text(row, columns, where, default)).strip()
    if not _is_valid(row, "problem_is_valid", where):
        raise base.Drop("invalid_problem", where)
    if base.find_value(row, ("answer",)):
        gold = next(iter(base.get_golds(row, ("answer",), where)), "")
        kind = base.get_text(row, ("question_type",), where, default="").strip().lower()
        if kind in _KINDS and (base.is_sentinel(gold) or not is_parseable(gold)):
            raise base.Drop(_KINDS[kind], f"{gold!r:.80}")
        if not gold:
            raise base.Drop("no_answer")
    else:
        gold = _boxed_gold(solution)
    if is_text(gold) and not base.is_option(gold) and not base.is_sentinel(gold):
        raise base.Drop("text_answer", f"{gold!r:.80}")
    subject = base.get_text(row, ("problem_type", "source"), where, default="").strip()
    if subject.lower() == "unknown":
        subject = ""
    if not _is_valid(row, "solution_is_valid", where):
        solution = ""
    return Problem(problem_id, "numinamath", question, (gold,), solution, subject=subject)


def _is_valid(row: dict[str, Any], column: str, where: str) -> bool:
    """Whether 1.5 says yes, or nothing; it also says No, Incomplete, Problem not solved."""
    return base.get_text(row, (column,), where, default="yes").strip().lower() in ("yes", "")


def _boxed_gold(solution: str) -> str:
    """What a solution boxes last; raises `Drop`."""
    _, box, rest = solution.rpartition("\\boxed{")
    if not box:
        raise base.Drop("no_boxed_answer")
    gold = last_boxed(box + rest)  # an earlier balanced box would be the gold of another part
    if gold is None:
        raise base.Drop("unbalanced_box", f"{box + rest!r:.80}")
    gold = base.clean_gold(gold)
    if not re.sub(r"\\[,;: !]", "", gold).strip():
        raise base.Drop("empty_box")
    return gold
