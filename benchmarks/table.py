"""What the benchmarks share: runs made once, intervals over pairs, the page of a table."""

import contextlib
import hashlib
import json
import math
import os
import platform
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline import manifest
from pipeline.errors import UserError
from pipeline.recipe_files import read_yaml
from pipeline.side_by_side import Runner

Interval = tuple[float, float, float]  # value, low, high
PAGES = Path("docs/results")
KEPT = "<!-- Written by hand: stays when the benchmark runs again. -->\n"


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


def show_interval(interval: Interval, scale: float = 1, digits: int = 2) -> str:
    """`1.90 [1.73, 2.10]`; one turn has no interval; "none" where there is no value."""
    value, low, high = (f"{scale * number:.{digits}f}" for number in interval)
    if not math.isfinite(interval[0]):
        return "none"
    return f"{value} [{low}, {high}]" if math.isfinite(interval[2]) else value


def markdown(rows: Sequence[dict[str, str]], is_aligned: bool = False) -> str:
    """A Markdown table; its columns are the rows' keys, a missing cell is empty.

    Args:
        is_aligned: padded, to be read in a terminal.
    """
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = [columns, ["---" for _ in columns]]
    lines += [[row.get(column, "") for column in columns] for row in rows]
    if is_aligned:
        widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
        lines = [[f" {x:{width}} " for x, width in zip(one, widths, strict=True)] for one in lines]
    return "\n".join(f"|{'|'.join(line)}|" for line in lines)


def wrap(text: str) -> str:
    """A paragraph, or an item of a list, in lines of at most 100 columns."""
    return textwrap.fill(
        text,
        100,
        subsequent_indent="  " if text.startswith("- ") else "",
        break_on_hyphens=False,
        break_long_words=False,
    )


def run(runner: Runner, words: Sequence[str], log: Path) -> None:
    """Run Python with some words to its end; what it prints is added to the log.

    Raises:
        UserError: it failed; names the log.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file:  # of a killed run, too
        code = runner.run([sys.executable, *words], file)
    if code:
        remedy = "see its last lines, then start the benchmark again: it resumes"
        raise UserError(f"{log}: the run ended with exit code {code}; {remedy}")


def tell(line: str) -> None:
    """Print a line now: runs take minutes."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def hash_yaml(path: Path) -> str:
    """SHA-256 of what a YAML file says; comments and the order of keys do not count."""
    said = read_yaml(str(path), "run")
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()


def about() -> dict[str, Any]:
    """What a run was made with: commit, machine, versions."""
    cores = f"{os.cpu_count()} CPU cores{processor()}"
    machine = f"{cores}, {platform.platform()}, Python {platform.python_version()}"
    return {"commit": manifest.git_commit(), "machine": machine, "versions": manifest.versions()}


def processor() -> str:
    """` (AMD EPYC)`, the processor as Linux names it; "" where nothing does."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return f" ({line.partition(':')[2].strip()})"
    return ""


def figures_file(page: Path) -> Path:
    """Where the figures of a page go: next to it, but for a page of the docs below runs/."""
    name = page.with_suffix(".json")
    return Path("runs/results", name.name) if page.parent == PAGES else name


def publish(
    out: str,
    title: str,
    how: str,
    rows: Sequence[dict[str, str]],
    figures: dict[str, Any],
    *notes: str,
    figures_to: Path | None = None,
    runs: str = "",
) -> None:
    """Print the table; write it to `out` as Markdown, and the figures as JSON.

    The text of an earlier page that follows the line `KEPT` stays.

    Args:
        how: the paragraphs above the table: what was measured, and how to read it.
        notes: Markdown to follow the table.
        figures_to: the JSON file, if not `figures_file(out)`.
        runs: where commit, machine and versions of the runs are, if not all were made here and now.
    """
    path, here = Path(out), about()
    versions = ", ".join(f"{name} {version}" for name, version in here["versions"].items())
    commit = (here["commit"] or "unknown")[:8]
    made_with = f"Commit {commit}. {here['machine']}, {versions}."
    if runs:
        made_with += f" Those of the runs are in `{runs}`."
    earlier = path.read_text(encoding="utf-8") if path.is_file() else ""
    _, mark, by_hand = earlier.partition(KEPT)
    page = "\n\n".join([f"# {title}", how, markdown(rows), *notes, f"{wrap(made_with)}\n"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{page}\n{mark}{by_hand}" if mark else page, encoding="utf-8")
    figures_to = figures_to or figures_file(path)
    figures_to.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_json(figures_to, manifest.finite({"about": here} | figures))
    sys.stdout.write(f"{markdown(rows, is_aligned=True)}\n\n{path} and {figures_to} are written\n")
