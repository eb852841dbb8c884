"""What a study keeps of a run: its answers by problem, and its validation curve.

The page is made of these records alone. They are small, so they can go where the weights cannot:
with `records` in the repository, a study goes on on another machine.
"""

import json
import math
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import pandas as pd
from pyarrow import parquet

from benchmarks import table
from eval.harness.metrics import majority_at_k
from eval.report.numbers import COMPLETIONS
from pipeline import json_files, manifest
from pipeline.errors import UserError
from stages import sweep

Record = dict[str, Any]  # of this shape
SHAPE: json_files.Shape = {
    "settings": str,  # hash of what decides it, but for the weights that it starts from
    "base": str,  # hash of those
    "weights": str,  # hash of those that it trained
    "steps": int,
    "seconds": (float, None),  # of training; None where it was resumed: nothing says how long
    "validation": [[float]],  # [step, avg@k]
    "made": {str: object},  # commit, versions, machine
    "answers": {  # by set: "test", "transfer"
        str: {
            "problems": [[object]],  # source and id
            "tokens": float,  # mean length of a sample
            "greedy": [float],  # 0 or 1
            "sampled": [float],  # share of the n samples that are correct
            "majority": [float],  # is the most frequent answer correct?
            "levels": [object],  # None where the set has none
        }
    },
}


def read_answers(folder: Path) -> dict[str, dict[str, Any]]:
    """The answers of one model by set, as in `SHAPE`, as far as there are any."""
    rows: dict[str, dict[str, dict[Any, list]]] = defaultdict(lambda: defaultdict(dict))
    for row in parquet.read_table(folder / "eval/model" / COMPLETIONS).to_pylist():
        name = "test" if row["task"] == "held_out" else "transfer"
        rows[name][row["mode"]].setdefault((row["source"], row["id"]), []).append(row)
    answers = {}
    for name, modes in rows.items():
        problems = [*modes["greedy"]]
        greedy, sampled = ([modes[m][key] for key in problems] for m in ("greedy", "sampled"))
        answers[name] = {
            "problems": problems,
            "tokens": statistics.fmean(row["num_tokens"] for each in sampled for row in each),
            "greedy": [statistics.fmean(row["score"] for row in each) for each in greedy],
            "sampled": [statistics.fmean(row["score"] for row in each) for each in sampled],
            "majority": [majority_at_k(each) for each in sampled],
            "levels": [each[0]["level"] for each in sampled],
        }
    return answers


def write(path: Path, model: Path, folder: Path, settings: str) -> None:
    """Write the record of a model that was trained and has answered, a line for each field.

    Args:
        model: its folder.
        folder: where its answers are.
    """
    made = manifest.read(model) or {}  # none in a model of another origin
    base = made.get("config", {}).get("model_name_or_path", "")
    state = model / "trainer_state.json"
    logs = json_files.read_log(state) if state.is_file() else []
    record = {
        "settings": settings,
        "base": made.get("inputs", {}).get(base, ""),
        "weights": manifest.sha256(model),
        "answers": read_answers(folder),
        "steps": logs[-1]["step"] if logs else 0,
        "seconds": logs[-1].get("train_runtime") if logs and not made.get("resumed") else None,
        "validation": [
            [step, round(value, 4)]
            for step, value in sweep.read_row(model, "", "")["curve"]
            if math.isfinite(value)
        ],
        "made": {
            "commit": made.get("git_commit"), "versions": made.get("versions", {}),
            "machine": table.about()["machine"],
        },
    }  # fmt: skip
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in record.items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    with manifest.open_whole(path) as file:
        file.write(manifest.encodable("{\n" + ",\n".join(lines) + "\n}\n"))


def read(path: Path) -> Record | None:
    """A record, the answers of each set as a table by problem; None where there is none yet.

    Raises:
        UserError: it is damaged.
    """
    if not path.is_file():
        return None
    remedy = "remove it; the study makes it again"
    found = json_files.read(path, SHAPE, remedy)
    for name, columns in found["answers"].items():
        columns["problems"] = [tuple(key) for key in columns["problems"]]
        try:
            found["answers"][name] = pd.DataFrame(columns).set_index("problems")
        except ValueError as error:
            raise UserError(f"{path}: is damaged ({name}: {error}); {remedy}") from None
    return found
