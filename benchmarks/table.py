"""What the benchmarks share: runs made once, intervals over pairs, one table and its files."""

import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline import manifest
from pipeline.errors import UserError

Interval = tuple[float, float, float]  # value, low, high


def mean_interval(values: Sequence[float]) -> Interval:
    """Mean of paired differences and its 95 % interval (Student's t), infinite for one value."""
    from scipy import stats  # which a bare host has not

    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, -math.inf, math.inf
    half = float(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values))
    return mean, mean - half, mean + half


def ratio_interval(ratios: Sequence[float]) -> Interval:
    """Geometric mean of paired ratios and its 95 % interval; infinite where a ratio is none."""
    if not all(0 < ratio < math.inf for ratio in ratios):
        return math.inf, 0.0, math.inf
    mean, low, high = mean_interval([math.log(ratio) for ratio in ratios])
    return math.exp(mean), math.exp(low), math.exp(high)


def sum_ratio_interval(above: Sequence[float], below: Sequence[float]) -> Interval:
    """Ratio of two sums with one term a turn, and its 95 % percentile bootstrap over the turns.

    For few and skewed turns, of which one may hold a call of seconds: Student's t gives intervals
    over ten powers of ten there.
    """
    from scipy import stats

    found = stats.bootstrap(
        (above, below),
        lambda a, b, axis: np.sum(a, axis) / np.sum(b, axis),
        paired=True,
        method="percentile",
        n_resamples=4_000,
        rng=0,
    ).confidence_interval
    return sum(above) / sum(below), float(found.low), float(found.high)


def show_interval(interval: Interval, scale: float = 1, digits: int = 2) -> str:
    """`1.90 [1.73, 2.10]`; one turn has no interval; "none" where there is no value."""
    value, low, high = (f"{scale * number:.{digits}f}" for number in interval)
    if not math.isfinite(interval[0]):
        return "none"
    return f"{value} [{low}, {high}]" if math.isfinite(interval[2]) else value


def markdown(rows: Sequence[dict[str, str]]) -> str:
    """A Markdown table; its columns are the rows' keys, a missing cell is empty."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = [columns, *([row.get(column, "") for column in columns] for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    lines.insert(1, ["-" * width for width in widths])
    cells = ([f"{cell:{width}}" for cell, width in zip(x, widths, strict=True)] for x in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def run_once(folder: Path, key: dict[str, Any], command: Sequence[str]) -> None:
    """Run Python with `command`, unless `folder` has a finished run with the same key.

    Raises:
        UserError: it failed; names its log.
    """
    done, log = folder / "bench.json", folder.with_suffix(".log")
    key = json.loads(json.dumps(key, default=str))
    if done.is_file() and json.loads(done.read_text(encoding="utf-8")) == key:
        return
    done.unlink(missing_ok=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as file:
        command = [sys.executable, *command]
        code = subprocess.run(command, stdout=file, stderr=file, check=False).returncode
    if code:
        raise UserError(f"{log}: the run ended with exit code {code}; see its last lines")
    manifest.write_json(done, key)


def tell(line: str) -> None:
    """Print a line now: runs take minutes."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def about() -> dict[str, Any]:
    """What a run was made with: commit, machine, versions."""
    machine = (
        f"{os.cpu_count()} CPU cores, {platform.platform()}, Python {platform.python_version()}"
    )
    return {"commit": manifest.git_commit(), "machine": machine, "versions": manifest.versions()}


def publish(
    out: str, title: str, how: str, rows: Sequence[dict[str, str]], figures: Any, *notes: str
) -> None:
    """Print the table; write it to `out` as Markdown, and the figures to the same name as JSON.

    Args:
        how: the paragraph above the table: what was measured, and how to read it.
        notes: Markdown to follow the table.
    """
    path, made = Path(out), about()
    versions = ", ".join(f"{name} {version}" for name, version in made["versions"].items())
    end = f"Commit {made['commit']}. {made['machine']}, {versions}."
    text = "\n\n".join([markdown(rows), *notes])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"# {title}\n\n{how}\n\n{text}\n\n{end}\n", encoding="utf-8")
    manifest.write_json(path.with_suffix(".json"), manifest.finite(figures))
    sys.stdout.write(f"{text}\n\n{path} and {path.with_suffix('.json')} are written\n")
