"""What a study keeps of a run: its answers by problem, its logs, ten completions.

The page is made of these records alone. They are small, so they can go where the weights cannot:
with `records` in the repository, a study goes on on another machine.
"""

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pyarrow import parquet

from benchmarks import table
from eval.harness.metrics import majority_at_k
from eval.report.numbers import COMPLETIONS
from eval.report.plots import read_curve
from pipeline import json_files, manifest
from pipeline.errors import UserError
from stages import sweep

# Logged keys of training that the page draws.
LOGGED = ("rollout/rewards", "rollout/response_length", "frac_reward_zero_std", "step_time")
NUM_EXAMPLES = 10
Scores = dict[Any, float]  # by problem
Curve = list[list[float]]  # [step, value]


@dataclass
class Answers:
    """What a model made of one set."""

    greedy: Scores  # 0 or 1
    sampled: Scores  # share of the n samples that are correct
    majority: Scores  # is the most frequent answer correct?
    levels: dict[Any, Any]  # of each problem; None where the set has none
    num_tokens: float  # of a sample


@dataclass
class Record:
    """One run of a study.

    Args:
        settings: hash of what decides it, but for the weights that it starts from.
        base: hash of those; weights: of the model that it trained.
        answers: by set: "test", "transfer", "chain_sum".
        steps: of training.
        seconds: of training; None where it was resumed, so that nothing says how long it takes.
        validation: avg@k by step.
        logged: curves of `LOGGED`.
        examples: greedy completions: question, gold, score, completion.
        made: commit, versions, machine.
    """

    settings: str
    base: str
    weights: str
    answers: dict[str, Answers]
    steps: int
    seconds: float | None
    validation: Curve
    logged: dict[str, Curve]
    examples: list[dict[str, Any]]
    made: dict[str, Any]


def read_completions(folder: Path) -> list[dict[str, Any]]:
    """The rows of the model's `completions.parquet`."""
    return parquet.read_table(folder / "eval/model" / COMPLETIONS).to_pylist()


def read_answers(folder: Path) -> dict[str, Answers]:
    """`{"test", "transfer" and "chain_sum": answers}` of one model, as far as there are any."""
    rows: dict[str, dict[str, dict[Any, list]]] = defaultdict(lambda: defaultdict(dict))
    for row in read_completions(folder):
        name = "test" if row["task"] == "held_out" else row["source"]
        name = name if name in ("test", "chain_sum") else "transfer"
        rows[name][row["mode"]].setdefault((row["source"], row["id"]), []).append(row)
    answers = {}
    for name, modes in rows.items():
        greedy, sampled = (
            {key: statistics.fmean(row["score"] for row in each) for key, each in modes[m].items()}
            for m in ("greedy", "sampled")
        )
        majority = {key: majority_at_k(each) for key, each in modes["sampled"].items()}
        levels = {key: each[0]["level"] for key, each in modes["sampled"].items()}
        tokens = [row["num_tokens"] for each in modes["sampled"].values() for row in each]
        answers[name] = Answers(greedy, sampled, majority, levels, statistics.fmean(tokens))
    return answers


def read_examples(folder: Path) -> list[dict[str, Any]]:
    """Greedy completions of every k-th test problem, in the order of the file."""
    kind = "held_out", "greedy"
    rows = [row for row in read_completions(folder) if (row["task"], row["mode"]) == kind]
    rows = rows[:: max(1, len(rows) // NUM_EXAMPLES)][:NUM_EXAMPLES]
    return [{key: row[key] for key in ("gold", "score", "question", "completion")} for row in rows]


def make(model: Path, folder: Path, settings: str) -> Record:
    """The record of a model that was trained and has answered.

    Args:
        model: its folder.
        folder: where its answers are.
    """
    made = manifest.read(model) or {}  # none in a model of another origin
    base = made.get("config", {}).get("model_name_or_path", "")
    state = model / "trainer_state.json"
    logs = json_files.read_log(state) if state.is_file() else []
    seconds = logs[-1].get("train_runtime") if logs and not made.get("resumed") else None
    curves = {key: finite(*read_curve(logs, key)) for key in LOGGED}
    return Record(
        settings=settings,
        base=made.get("inputs", {}).get(base, ""),
        weights=manifest.sha256(model),
        answers=read_answers(folder),
        steps=logs[-1]["step"] if logs else 0,
        seconds=seconds,
        validation=finite(*zip(*sweep.read_row(model, "", "")["curve"], strict=True)),
        logged={key: curve for key, curve in curves.items() if curve},
        examples=read_examples(folder),
        made={
            "commit": made.get("git_commit"), "versions": made.get("versions", {}),
            "machine": table.about()["machine"],
        },
    )  # fmt: skip


def finite(steps: Sequence[int] = (), values: Sequence[float] = ()) -> Curve:
    """A curve without its values that are no numbers, to four digits."""
    both = zip(steps, values, strict=True)
    return [[step, round(value, 4)] for step, value in both if math.isfinite(value)]


def write(path: Path, record: Record) -> None:
    """Write a record, a line for each field and set; problems are columns."""
    answers = {}
    for name, one in record.answers.items():
        keys = [*one.greedy]
        answers[name] = {"problems": keys, "tokens": one.num_tokens} | {
            part: [getattr(one, part)[key] for key in keys]
            for part in ("greedy", "sampled", "majority", "levels")
        }
    whole = vars(record) | {"answers": answers}
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in whole.items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    with manifest.open_whole(path) as file:
        file.write(manifest.encodable("{\n" + ",\n".join(lines) + "\n}\n"))


SHAPE: json_files.Shape = {
    "settings": str, "base": str, "weights": str, "steps": int,
    "seconds": (float, None), "validation": [[float]],
    "logged": {str: [[float]]}, "examples": [{str: object}], "made": {str: object},
    "answers": {
        str: {
            "problems": [[object]], "tokens": float, "greedy": [float], "sampled": [float],
            "majority": [float], "levels": [object],
        }
    },
}  # fmt: skip


def read(path: Path) -> Record | None:
    """A record; None where there is none yet."""
    if not path.is_file():
        return None
    remedy = "remove it; the study makes it again"
    found = json_files.read(path, SHAPE, remedy)
    answers = {}
    for name, one in found["answers"].items():
        keys = [tuple(key) for key in one["problems"]]
        columns = {part: one[part] for part in ("greedy", "sampled", "majority", "levels")}
        if any(len(column) != len(keys) for column in columns.values()):
            raise UserError(f"{path}: is damaged (columns of {name} differ in length); {remedy}")
        parts = {part: dict(zip(keys, column, strict=True)) for part, column in columns.items()}
        answers[name] = Answers(**parts, num_tokens=one["tokens"])
    known = {one.name: found[one.name] for one in fields(Record)}
    return Record(**known | {"answers": answers})
