"""Outcomes: what became of each completion, so that a score change splits without a rest.

Every completion has exactly one outcome, and every outcome but "right" one cause: the model could
not do the problem (ability), it could but did not say so in the form that is read (format), or its
tokens ran out (truncation). Pure functions over graded completions; no model, no harness.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from data_prep.prompts import THINK_CLOSE, THINK_OPEN
from eval.harness.bootstrap import paired_difference, problem_means

# "right": the parser at hand scored it. "unread": the right answer stands there after a closed
# thought, but not in the form that is read; "unclosed": it stands there, but no thought was closed.
# "no answer": nothing stands there that even a patient reader could take for one.
OUTCOMES = ("right", "wrong", "unread", "unclosed", "no answer", "cut off")
CAUSES = {
    "ability": ("wrong",),
    "format": ("unread", "unclosed", "no answer"),
    "truncation": ("cut off",),
}


def outcome(record: dict, is_right: bool) -> str:
    """What became of a completion; one of `OUTCOMES`.

    A completion that was cut off after a right answer counts as right where the parser counts it.
    One that our grader calls wrong is wrong, whatever else a patient reader would find in it.

    Args:
        record: a graded completion: `completion, verdict, cut_off, lenient`.
        is_right: whether the parser at hand, ours or an official task's, scored it.
    """
    if is_right:
        return "right"
    if record["cut_off"]:
        return "cut off"
    if record["verdict"] == "wrong":
        return "wrong"
    if not is_answer_right(record):
        return "wrong" if record["lenient"] == "wrong" else "no answer"
    return "unread" if _closes_thought(record["completion"]) else "unclosed"


def is_answer_right(record: dict) -> bool:
    """Whether the right answer stands there, in the asked form or in any other."""
    return record["verdict"] == "right" or record["lenient"] == "right"


def _closes_thought(completion: str) -> bool:
    """Whether the last thought is closed; `<think>` itself may stand in the prompt."""
    return completion.rfind(THINK_CLOSE) > completion.rfind(THINK_OPEN)


def cut_off_right(row: dict) -> bool:
    """Whether a row's outcome is "cut off" although the right answer was there already."""
    return row["outcome"] == "cut off" and is_answer_right(row)


def outcome_rates(rows: Sequence[dict]) -> dict[str, float]:
    """Share of completions per outcome, in [0, 1], in the order of `OUTCOMES`; they sum to 1.

    Raises:
        ValueError: there are no rows.
    """
    if not rows:
        raise ValueError("there are no completions to count; run `make eval` again")
    counts = Counter(row["outcome"] for row in rows)
    return {name: counts[name] / len(rows) for name in OUTCOMES}


def split_change(
    before_rows: Sequence[dict], after_rows: Sequence[dict], seed: int = 0, resamples: int = 10_000
) -> dict[str, dict]:
    """The change of the score from one checkpoint to another, split into the causes.

    The shares of right, ability, format and truncation sum to 1 for each problem, therefore

        score_after - score_before = - sum over causes of (share_after - share_before)

    and a part is positive where fewer completions are lost to its cause. Each part is the mean of
    paired differences over problems, the k samples of a problem averaged first; all four are
    resampled with the same draws, so that they add up in every bootstrap sample too.

    Args:
        before_rows: rows of one task and one mode, of the checkpoint to start from.
        after_rows: rows of the same task, mode and problems, of the other checkpoint.
        seed, resamples: as for `eval.harness.bootstrap.mean_interval`.

    Returns:
        `{"score" | "ability" | "format" | "truncation": {"value", "stderr", "low", "high", "n"}}`;
        the values of the causes sum to that of the score, up to the rounding of floats.

    Raises:
        ValueError: the rows are of several tasks or modes, or of different problems.
    """
    parts = sorted({(row["task"], row["mode"]) for row in (*before_rows, *after_rows)})
    if len(parts) > 1:
        raise ValueError(f"rows of {parts[0]} and {parts[1]} are mixed; compare one at a time")
    found = {}
    for name, outcomes, sign in (
        ("score", ("right",), 1.0),
        *((cause, outcomes, -1.0) for cause, outcomes in CAUSES.items()),
    ):
        before, after = (
            problem_means(_signed(rows, outcomes, sign)) for rows in (before_rows, after_rows)
        )
        found[name] = paired_difference(before, after, seed, resamples)
    return found


def _signed(rows: Sequence[dict], outcomes: Sequence[str], sign: float) -> Iterable[tuple]:
    """(problem, `sign` if the completion has one of the outcomes else 0) of each row."""
    for row in rows:
        yield (row["source"], row["id"]), sign if row["outcome"] in outcomes else 0.0
