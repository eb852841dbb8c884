"""Scoring: what the think-aware tasks call to grade the completions of a problem.

The verdict is the reward's verdict: `grade_rollouts`. Beside it stands what a
lenient reader would have made of a completion that is not right (`lenient`): it decides
no score, it tells a wrong answer from one that could not be read.
"""

from collections.abc import Sequence
from typing import Any

from data_prep.grading.answers import is_well_formed
from data_prep.grading.lenient import grade_leniently
from data_prep.grading.rollouts import grade_rollouts
from data_prep.prompts import prefills_think
from data_prep.sampling.samples import Completion
from eval.harness.outcomes import outcome


def grade_completions(
    prompt: list[dict[str, str]],
    golds: list[str],
    completions: Sequence[Completion],
    *,
    think_prefilled: bool,
    final_number: bool,
) -> list[dict[str, Any]]:
    """Grade the completions of one problem.

    Args:
        prompt: the chat messages that they answer.
        golds: gold answers of which any may match.
        completions: in the order they were sampled.
        think_prefilled, final_number: see `data_prep.grading.rollouts.grade_rollouts`.

    Returns:
        One record per completion: `completion, verdict, prediction, well_formed, cut_off,
        num_tokens, lenient`.
    """
    texts = [str(completion) for completion in completions]
    grades = grade_rollouts(
        [prompt] * len(texts),
        texts,
        [golds] * len(texts),
        think_prefilled=think_prefilled,
        final_number=final_number,
    )
    failed = [at for at, grade in enumerate(grades) if grade.verdict != "right"]
    lenient = dict.fromkeys(range(len(texts)), "right")
    lenient |= dict(
        zip(
            failed,
            grade_leniently([texts[at] for at in failed], [golds] * len(failed)),
            strict=True,
        )
    )
    return [
        {
            "completion": texts[at],
            "verdict": grade.verdict,
            "prediction": grade.prediction,
            "well_formed": is_well_formed(texts[at], think_prefilled=think_prefilled),
            "cut_off": completions[at].cut_off,
            "num_tokens": completions[at].num_tokens,
            "lenient": lenient[at],
        }
        for at, grade in enumerate(grades)
    ]


def process_completions(doc: dict, results: list[list[Completion]]) -> dict[str, Any]:
    """`process_results` of the think-aware tasks.

    Args:
        doc: a row of `eval.harness.datasets.load_rows`.
        results: one list, the k completions of the problem's one request.

    Returns:
        `score`, the mean correctness of the k completions, and their records as `completions`:
        carried as a metric because the harness hands nothing else back for each problem.
    """
    records = grade_completions(
        doc["prompt"],
        doc["answer"],
        results[0],
        think_prefilled=prefills_think(doc["rendered"]),
        final_number=doc["final_number"],
    )
    for record in records:
        record["score"] = float(record["verdict"] == "right")
        record["outcome"] = outcome(record, is_right=record["verdict"] == "right")
    return {"score": sum(r["score"] for r in records) / len(records), "completions": records}


def count_completions(per_problem: list[list[dict]]) -> int:
    """Aggregation of the `completions` metric: how many there are."""
    return sum(len(records) for records in per_problem)
