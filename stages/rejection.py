"""Rejection sampling: which of a teacher's samples are kept as traces, and why others are not."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from data_prep.grading.answers import Grade, is_same_value
from data_prep.prompts import build_completion, wants_answer_tags
from data_prep.sampling.sampled import SampledSet
from data_prep.sampling.samples import Completion, SampleStore
from data_prep.sources.thoughts import thought_of

PREFERENCES = ("first", "shortest")


def choose_traces(
    completions: Sequence[Completion], grades: Sequence[Grade], keep: int, prefer: str
) -> tuple[dict[str, str], Counter[str]]:
    """The traces to keep of one problem's samples, the preferred first, and the others' reasons.

    Args:
        completions: in the order of their numbers.
        grades: theirs; only "right" is kept, and what is right is well-formed too.
        keep: the most that are kept.
        prefer: "first" by number, or "shortest" thought in characters.

    Returns:
        `{thought without tags: the answer after it}`, and how many samples are dropped: cut_off, by
        verdict, duplicate (the same thought again) or not_needed (right, but others are preferred).
    """
    found: dict[str, str] = {}
    dropped: Counter[str] = Counter()
    for completion, grade in zip(completions, grades, strict=True):
        thought = thought_of(str(completion))
        if completion.cut_off:
            dropped["cut_off"] += 1
        elif grade.verdict != "right":
            dropped[grade.verdict] += 1
        elif thought in found:
            dropped["duplicate"] += 1
        else:
            found[thought] = grade.prediction or ""
    ordered = sorted(found, key=len) if prefer == "shortest" else list(found)
    if len(ordered) > keep:
        dropped["not_needed"] += len(ordered) - keep
    return {thought: found[thought] for thought in ordered[:keep]}, dropped


def trace_row(row: dict[str, Any], number: int, thought: str, prediction: str) -> dict[str, Any]:
    """The row of trace `number`, from 0, of a problem with its golds as a list.

    `own_prompt` is the problem's prompt, whatever the teacher was asked.
    """
    # First the gold that the thought arrives at: an SFT row has one answer after its thought.
    golds = sorted(row["answer"], key=lambda gold: not is_same_value(prediction, gold))
    form = "answer_tags" if wants_answer_tags(row["own_prompt"]) else "none"
    return {
        "id": row["id"],
        "source": row.get("source") or "",
        "question": row["question"],
        "answer": golds[0] if len(golds) == 1 else golds,
        "solution": thought,
        "trace": number,
        "level": row.get("level"),
        "subject": row.get("subject") or "",
        "prompt": row["own_prompt"],
        "completion": build_completion(thought, golds[0], form),
    }


def write_traces(
    path: Path, problems: SampledSet, store: SampleStore, keep: int, prefer: str
) -> dict[str, Any]:
    """Write the kept traces.

    Args:
        problems: all of whose samples are in `store`.
        keep, prefer: see `choose_traces`.

    Returns:
        The manifest's numbers: counts, samples_in, samples_out and dropped, which add up.
    """
    dropped: Counter[str] = Counter()
    verdicts: Counter[str] = Counter()
    num_samples = num_kept = num_solved = num_tokens = 0
    partial = path.with_name(path.name + ".partial")
    with partial.open("w", encoding="utf-8") as file:
        for row, completions, grades in problems.grade(store):
            traces, lost = choose_traces(completions, grades, keep, prefer)
            for number, (thought, prediction) in enumerate(traces.items()):
                file.write(json.dumps(trace_row(row, number, thought, prediction)) + "\n")
            dropped += lost
            verdicts += Counter(grade.verdict for grade in grades)
            num_samples += len(completions)
            num_kept += len(traces)
            num_solved += bool(traces)
            num_tokens += sum(one.num_tokens for one in completions)
    store.close()
    partial.replace(path)
    assert num_samples == num_kept + dropped.total()
    return {
        "counts": {
            "problems": len(problems.rows),
            "problems_without_a_trace": len(problems.rows) - num_solved,
            "traces": num_kept,
            "verdicts": dict(verdicts.most_common()),
            "tokens": num_tokens,
        },
        "samples_in": num_samples,
        "samples_out": num_kept,
        "dropped": dict(sorted(dropped.items())),
    }
