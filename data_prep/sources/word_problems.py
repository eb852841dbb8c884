"""SVAMP and MAWPS: school word problems of one or two steps, written by people.

SVAMP (`ChilleD/SVAMP`): the question is in `Body` and `Question`, and a body often ends without a
full stop ("If each pack costs 26 dollars"). `Answer` is 145.0 or "145", `Equation` is
`( 290.0 / 2.0 )`. The hub has 700 training and 300 test problems. Copies of all 1,000 in one file
number them by `idx` in this order, the training problems first.

MAWPS (`MU-NLPC/Calc-mawps`): `question` and `result_float` on the hub, `input` and `target` in the
file of 2,065 problems (AddSub, MultiArith, SingleEq, SingleOp). Its text is partly a tokeniser's,
and some golds are cut off, as in 0.6666666667.
"""

import re
from dataclasses import replace
from fractions import Fraction
from typing import Any

from data_prep.schema import Problem
from data_prep.sources import base
from data_prep.sources.equations import write_thought
from pipeline.rows import Row

NUM_TRAINING = 700  # of SVAMP's 1,000
_ENDED = re.compile(r"[.?!]['\")\]]*$")
_SENTENCE = re.compile(r"(?<=[.?!]) +")
# What tokenisers put spaces around: "Mike 's", "is n't", "now ?", "$ 5".
_SPACED = re.compile(r" (?=(?:n't|'(?:s|re|ve|ll|d|m))\b|[.,?!;:%](?:\s|$))|(?<=\$) (?=\d)")
_SENTENCE_START = re.compile(r"(?:^|(?<=[.?!] ))[a-z]")
_CUT_DECIMALS = re.compile(r"-?\d+\.\d{10,}")
LARGEST_DENOMINATOR = 100


def split_of_svamp(row: Row) -> str | None:
    """The split of a row in a file of all 1,000; None where the row does not say."""
    index = row.get("idx")
    if type(index) is not int:
        return None
    return "train" if index < NUM_TRAINING else "test"


def build_svamp(
    row: dict[str, Any], problem_id: str, where: str, *, thought: str | None = None
) -> Problem:
    """Turn a SVAMP row into a problem; `subject` is the operation.

    `thought: equation` makes the row's equation its solution, and the number of its operations its
    level; `Drop` reasons: those of `equations.write_thought`.
    """
    body = tidy(base.get_text(row, ("Body", "body"), where))
    asked = tidy(base.get_text(row, ("Question", "question"), where))
    name = base.own_id(problem_id, base.get_value(row, ("ID", "id")))
    subject = base.get_text(row, ("Type", "type"), where, default="").strip()
    built = base.build_row(
        row | {"Question": join(body, asked)},
        name,
        where,
        "svamp",
        ("Question",),
        ("Answer", "answer"),
        (),
        subject=subject,
    )
    if thought:
        equation = base.get_text(row, ("Equation", "equation"), where, default="")
        lines = write_thought([equation] if equation else [], built.answers)
        built = replace(built, solution="\n".join(lines), level=len(lines))
    return built


def build_mawps(row: dict[str, Any], problem_id: str, where: str) -> Problem:
    """Turn a MAWPS row into a problem, without a solution; `subject` is its part of the set.

    A gold with cut decimals has its fraction beside it: 0.6666666667 and 2/3.
    """
    name = base.own_id(problem_id, base.get_value(row, ("id",)))
    subject = base.get_text(row, ("type",), where, default="").strip()
    columns = ("input", "question"), ("target", "result_float", "answer"), ()
    built = base.build_row(row, name, where, "mawps", *columns, subject=subject)
    golds = [gold for text in built.answers for gold in (text, read_fraction(text)) if gold]
    return replace(built, question=tidy(built.question), answers=tuple(dict.fromkeys(golds)))


def tidy(text: str) -> str:
    """Text without the spaces of a tokeniser, its sentences with capital letters."""
    text = _SPACED.sub("", " ".join(text.split()))
    return _SENTENCE_START.sub(lambda found: found[0].upper(), text)


def join(body: str, asked: str) -> str:
    """Body and question as sentences: a comma behind "If …", else a full stop where none is."""
    if not body or _ENDED.search(body):
        return f"{body} {asked}".strip()
    if _SENTENCE.split(body)[-1].startswith("If "):
        return f"{body}, {asked[:1].lower()}{asked[1:]}"
    return f"{body}. {asked}"


def read_fraction(gold: str) -> str:
    """The fraction of a small denominator whose decimals a gold cuts off, or ""."""
    if not _CUT_DECIMALS.fullmatch(gold):
        return ""
    fraction = Fraction(gold).limit_denominator(LARGEST_DENOMINATOR)
    is_near = abs(fraction - Fraction(gold)) <= Fraction(1, 10**10)
    return str(fraction) if is_near else ""
