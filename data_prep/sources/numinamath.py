"""NuminaMath-CoT (`AI-MO/NuminaMath-CoT`): competition and school problems with worked solutions.

The gold is the last `\\boxed{…}` of the solution. Mirrors name the columns `instruction` and
`response`. Only problems whose gold one value settles are kept; `Drop` reasons, in this order:

    image               the question points to a picture that is not in the row
    proof               the question asks for a proof: a right final line proves nothing
    no_boxed_answer     the solution boxes nothing
    unbalanced_box      its last box never closes
    empty_box           its last box is empty
    multiple_choice     the gold is an option's letter, with or without the value: a guess is right
                        one time in four, and a right value without the letter would be graded wrong
    text_answer         the gold is words (`\\text{No}`, "True"): no algebra can compare them
    gold_not_parseable  the grader cannot read the gold, or would misread it
"""

import re
from typing import Any

from data_prep.answers import is_parseable, last_boxed
from data_prep.schema import Problem
from data_prep.sources import Drop, get_text

_ENVIRONMENT = re.compile(r"\\(?:begin|end|operatorname)\{\w+\}")
_IMAGE = re.compile(r"!\[|<img|\\includegraphics")
_PROOF = re.compile(r"\bpro(?:ve|of)\b|\bshow(?:ing)? that\b", re.IGNORECASE)
_TEXT_COMMAND = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")
_OPTION = re.compile(
    r"\(?[A-H]\)?[.:]?"  # C, (C), C.
    r"|\(?[A-H]\s*[).:].*"  # C) 2, (C) 2, C: 2
    r"|[A-H]\s+\d.*"  # C 2
    r"|.*\([A-H]\)"  # 40 (B)
    r"|.*\\\(\(?[A-H][).:].*"  # The final answer is \(C. 0.8\)
    r"|[A-H](?:(?:\s|,|and|or)*[A-H])+",  # ABD; A, E; A and D
    re.DOTALL,
)
_WORD = re.compile(r"(?<![\\A-Za-z])(?:[A-Za-z]{4,}|[Yy]es|[Nn]o|[Oo]dd)(?![A-Za-z])")


def is_option(gold: str) -> bool:
    """Whether a gold is a multiple-choice option: its letter, alone or beside the value."""
    return bool(_OPTION.fullmatch(_TEXT_COMMAND.sub(r"\1", gold).replace("\\ ", " ").strip(" $~")))


def is_text(gold: str) -> bool:
    """Whether a gold is words: nothing but `\\text{…}`, or words outside of it."""
    rest = _ENVIRONMENT.sub("", _TEXT_COMMAND.sub(_keep_number, gold))
    return not re.search(r"[^\W_]", re.sub(r"\\[,;: ]", "", rest)) or bool(_WORD.search(rest))


def _keep_number(text: re.Match) -> str:
    """`\\text{3}` is the number 3; other text goes."""
    return text[1] if re.fullmatch(r"\s*[\d.,]+\s*", text[1]) else ""


def build_problem(row: dict[str, Any], problem_id: str, where: str) -> Problem | Drop:
    """Turn a NuminaMath-CoT row into a problem, or say why not (see the module docstring).

    Raises:
        UserError: a missing column, or one that does not hold text.
    """
    question = get_text(row, ("problem", "instruction"), where).strip()
    solution = get_text(row, ("solution", "response"), where).strip()
    if _IMAGE.search(question):
        return Drop("image", where)
    if _PROOF.search(question):
        return Drop("proof", where)
    tail = solution[solution.rfind("\\boxed{") :] if "\\boxed{" in solution else ""
    if not tail:
        return Drop("no_boxed_answer", where)
    gold = last_boxed(tail)  # an earlier balanced box would be the gold of another part
    if gold is None:
        return Drop("unbalanced_box", f"{where}: {tail[:80]!r}")
    gold = gold.strip()
    if not re.sub(r"\\[,;: !]", "", gold).strip():
        return Drop("empty_box", where)
    checks = (
        ("multiple_choice", is_option(gold)),
        ("text_answer", is_text(gold)),
        ("gold_not_parseable", not is_parseable(gold)),
    )
    for reason, is_dropped in checks:
        if is_dropped:
            return Drop(reason, f"{where}: {gold!r}")
    return Problem(problem_id, "numinamath", question, gold, solution)
