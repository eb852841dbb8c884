"""Open-Reasoner-Zero (`Open-Reasoner-Zero/orz_math_57k_collection` and its kin).

A training row is a bare list of two turns, which `reading` wraps as `conversations`: the
question, and a turn of the assistant without text but with `ground_truth`: the gold as `value`, and
in most rows `pass_at_n`, the share of a model's samples that were right. A row of an evaluation
file has `prompt`, a list of one turn, and `final_answer`. `Drop` reason: `no_answer`.
"""

from typing import Any

from data_prep.config import UserError
from data_prep.schema import Problem
from data_prep.sources.base import Drop, build_row, get_share


def build_problem(row: dict[str, Any], problem_id: str, where: str) -> Problem | Drop:
    """Turn an ORZ row into a problem; `level` stays None, and there is no solution.

    Raises:
        UserError: a missing column, a wrong type, or a list of turns of another kind.
    """
    truth: dict[str, Any] = {}
    if "conversations" in row:
        turns = row["conversations"]
        truths = (
            [
                turn["ground_truth"]
                for turn in turns
                if isinstance(turn, dict) and isinstance(turn.get("ground_truth"), dict)
            ]
            if isinstance(turns, list)
            else []
        )
        if len(truths) != 1:
            raise UserError(
                f"{where}: conversations: {turns!r:.80} has no single turn with a ground_truth; "
                "write [{from: human, value: …}, {from: assistant, ground_truth: {value: …}}]"
            )
        (truth,) = truths
        row = {"prompt": turns, "ground_truth": truth}
    return build_row(
        row,
        problem_id,
        where,
        "orz",
        ("prompt", "problem", "question"),
        ("final_answer", "answer", "ground_truth.value"),
        (),
        pass_rate=get_share(truth, ("pass_at_n",), where),
    )
