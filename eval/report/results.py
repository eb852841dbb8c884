"""What `eval.run` left of each checkpoint, read and checked to be comparable.

`<output_dir>/<name>/scores.json` has the metrics, `completions.parquet` one row per completion.
Texts are long (a thought of 28k tokens is a hundred kilobytes), so that the numbers' columns are
read for all rows and the texts only for the few rows that the report shows.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from data_prep import manifest
from data_prep.config import UserError
from data_prep.sampling.hashes import hash_checkpoint
from eval.harness.arguments import EvalArguments

NUMBERS = (
    "task", "mode", "id", "source", "level", "sample", "gold", "verdict", "prediction",
    "well_formed", "cut_off", "num_tokens", "lenient", "outcome", "score",
)  # fmt: skip
TEXTS = ("question", "completion")
AGAIN = "`make eval` makes it"
TOLERANCE = 1e-6  # between a metric of scores.json and the mean of its rows, both float64


@dataclass
class Result:
    """One checkpoint's results.

    Args:
        folder: where they lie.
        scores: its `scores.json`.
        rows: `{(task, mode): rows}`, each row with the columns of `NUMBERS` and `place`, the row's
            number in the file.
    """

    folder: Path
    scores: dict[str, Any]
    rows: dict[tuple[str, str], list[dict]]


def read_result(folder: Path) -> Result:
    """Read a checkpoint's results.

    Raises:
        UserError: a file is missing, damaged or of another shape, or the two do not agree.
    """
    for name in ("scores.json", "completions.parquet"):
        if not (folder / name).is_file():
            raise UserError(f"{folder / name} is missing; {AGAIN}")
    scores = _read_scores(folder / "scores.json")
    rows: dict[tuple[str, str], list[dict]] = defaultdict(list)
    place = 0
    for batch in _batches(folder / "completions.parquet", NUMBERS):
        for row in batch.to_pylist():
            rows[row["task"], row["mode"]].append(row | {"place": place})
            place += 1
    result = Result(folder, scores, dict(rows))
    _check_agreement(result)
    return result


def read_evaluation(args: EvalArguments) -> dict[str, Any]:
    """The manifest of the evaluation that left the results.

    Raises:
        UserError: there is none, so that the evaluation has not finished, or it is damaged.
    """
    path = Path(args.output_dir) / manifest.NAME
    try:
        found = manifest.read(args.output_dir)
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}); run `make eval` again") from error
    if found is None:
        raise UserError(f"{path} is missing: the evaluation has not finished; run `make eval`")
    return found


def check_current(
    results: dict[str, Result], args: EvalArguments, checkpoints: dict[str, str]
) -> None:
    """Check that the results are of this configuration and of the checkpoints as they are now.

    A checkpoint that is gone, or that the hub has, cannot be looked at and passes.

    Raises:
        UserError: naming the setting and both values, or the checkpoint that has changed.
    """
    for name, result in results.items():
        for key, value in result.scores["settings"].items():
            wanted = getattr(args, key, value)
            if wanted != value:
                raise UserError(
                    f"{key}: {wanted!r} in the configuration but {value!r} when {name} was "
                    "evaluated; run `make eval` again, or set it in eval.yaml"
                )
        path, prints = checkpoints[name], result.scores.get("fingerprint") or {}
        files = (Path(path) / file for file in ("config.json", "adapter_config.json"))
        if not prints.get("checkpoint") or not any(file.is_file() for file in files):
            continue
        try:
            current = hash_checkpoint(path, "checkpoints")
        except UserError:  # an adapter, whose base is gone or on a hub that cannot be asked
            continue
        if current != prints["checkpoint"]:
            raise UserError(f"{name}: {path} has changed since it was evaluated; run `make eval`")


def read_texts(folder: Path, places: set[int]) -> dict[int, dict[str, str]]:
    """`{place: {"question", "completion"}}` of the rows at `places` of `completions.parquet`."""
    found, start = {}, 0
    for batch in _batches(folder / "completions.parquet", TEXTS):
        here = sorted(place for place in places if start <= place < start + batch.num_rows)
        rows = batch.take(pa.array([place - start for place in here], pa.int64())).to_pylist()
        found |= dict(zip(here, rows, strict=True))
        start += batch.num_rows
    return found


def check_comparable(results: dict[str, Result]) -> None:
    """Check that every checkpoint was asked the same, the same way.

    Raises:
        UserError: settings, tasks, problems or golds differ; names what, and both values.
    """
    (first, base), *others = results.items()
    for name, other in others:
        one, two = _conditions(base.scores), _conditions(other.scores)
        for key in one | two:
            if one.get(key) != two.get(key):
                raise _differ(key, first, one.get(key), name, two.get(key))
        for key in sorted(base.rows.keys() | other.rows.keys()):
            label = ", ".join(key)
            if key not in base.rows or key not in other.rows:
                counts = [len(result.rows.get(key, ())) for result in (base, other)]
                raise _differ(f"completions of {label}", first, counts[0], name, counts[1])
            _check_problems(label, first, base.rows[key], name, other.rows[key])


def _conditions(scores: dict[str, Any]) -> dict[str, Any]:
    """What must be the same for all checkpoints: settings, engine, data and grader."""
    prints = scores.get("fingerprint") or {}
    return scores["settings"] | {key: prints.get(key) for key in ("engine", "data", "code")}


def _check_problems(label: str, first: str, before: list[dict], name: str, after: list[dict]):
    golds = [_golds(rows) for rows in (before, after)]
    if len(golds[0]) != len(golds[1]):
        raise _differ(f"completions of {label}", first, len(golds[0]), name, len(golds[1]))
    for key in golds[0].keys() | golds[1].keys():
        one, two = (found.get(key) for found in golds)
        if one != two:
            raise _differ(f"gold of {label}, problem {key[:2]}", first, one, name, two)


def _golds(rows: list[dict]) -> dict[tuple, list[str]]:
    """`{(source, id, sample): gold}`."""
    return {(row["source"], row["id"], row["sample"]): row["gold"] for row in rows}


def _differ(key: str, first: str, one: Any, name: str, two: Any) -> UserError:
    values = [repr(value) if len(repr(value)) < 120 else f"{value!r:.120}…" for value in (one, two)]
    return UserError(
        f"{key}: {values[0]} for {first} but {values[1]} for {name}; checkpoints can only be "
        "compared when scored alike: run `make eval` again"
    )


def _read_scores(path: Path) -> dict[str, Any]:
    try:
        scores = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # cut short, or not text
        raise UserError(f"{path} is damaged ({error}); remove it, {AGAIN}") from error
    if not isinstance(scores, dict) or "tasks" not in scores or "settings" not in scores:
        raise UserError(f"{path} is of an older version; remove it, {AGAIN} anew")
    return scores


def _batches(path: Path, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """The file's rows, some thousands at a time."""
    try:
        with pq.ParquetFile(path) as file:
            missing = set(columns) - set(file.schema_arrow.names)
            if missing:
                raise UserError(f"{path} lacks the column {min(missing)!r}; remove it, {AGAIN}")
            yield from file.iter_batches(batch_size=4096, columns=list(columns))
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path} is damaged ({reason}); remove it, {AGAIN}") from error


def problem_scores(rows: list[dict]) -> dict[tuple[str, str], float]:
    """`{(source, id): mean score of its completions}`."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        found[row["source"], row["id"]].append(row["score"])
    return {problem: sum(scores) / len(scores) for problem, scores in found.items()}


def _check_agreement(result: Result) -> None:
    """The metric that ranks is the mean of the rows' scores: else one file is of another run."""
    for task, modes in result.scores["tasks"].items():
        for mode, found in modes.items():
            rows = result.rows.get((task, mode), [])
            value = found["metrics"][found["main"]]["value"]
            means = problem_scores(rows).values()
            mean = math.fsum(means) / len(means) if means else math.nan
            if not abs(mean - value) <= TOLERANCE:
                raise UserError(
                    f"{result.folder}: scores.json has {found['main']} {value:.6f} for {task}, "
                    f"{mode}, but the rows of completions.parquet give {mean:.6f}; remove both, "
                    f"{AGAIN} anew"
                )
