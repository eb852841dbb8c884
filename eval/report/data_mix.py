"""What the sets are made of, as blocks of the data report: sources, subjects, levels, rates."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from eval.report.blocks import Bars, Heading, Table, Text

MAX_SUBJECTS = 15
MAX_LEVELS = 12
MAX_SAMPLES = 16


def share(part: int, whole: int) -> str:
    """A share in per cent, one digit; a hyphen of nothing."""
    return f"{100 * part / whole:.1f}" if whole else "-"


def mix_blocks(report: dict[str, Any]) -> list:
    """How many rows each source, subject and level of a file has."""
    blocks: list = []
    files = report["files"]
    panels: dict[str, dict] = {"source": {}, "subject": {}, "level": {}}
    for name, file in files.items():
        if len(file["by_source"]) > 1:
            panels["source"][name] = list(file["by_source"].items())
        if file["subjects"]:
            panels["subject"][name] = file["subjects"]
        for source, levels in file["levels"].items():
            panels["level"][f"{name}: {source}"] = group_levels(levels)
    for what, found in panels.items():
        if found:
            blocks += [Heading(f"By {what}"), Bars(what, found)]
    return blocks


def largest(subjects: Mapping[str, int]) -> list[tuple[str, int]]:
    """The largest subjects, then the rest and what has none (""); empty where none is named."""
    named = [(name, n) for name, n in Counter(subjects).most_common() if name]
    rows, rest = named[:MAX_SUBJECTS], named[MAX_SUBJECTS:]
    if rest:
        rows.append((f"{len(rest):,} others", sum(number for _, number in rest)))
    if named and subjects.get(""):
        rows.append(("(none)", subjects[""]))
    return rows


def group_levels(levels: list[list[float]]) -> list[tuple[str, int]]:
    """Levels with their counts, in ranges of one width where they are many.

    Args:
        levels: [level, rows], lowest first.
    """
    if len(levels) <= MAX_LEVELS:
        return [(f"{level:g}", number) for level, number in levels]
    low, high = levels[0][0], levels[-1][0]
    width = (high - low) / MAX_LEVELS
    counts = [0] * MAX_LEVELS
    for level, number in levels:
        counts[min(MAX_LEVELS - 1, int((level - low) / width))] += number
    edges = [f"{low + width * place:.4g}" for place in range(MAX_LEVELS + 1)]
    return [(f"{edges[i]} to {edges[i + 1]}", counts[i]) for i in range(MAX_LEVELS)]


def group_rates(counts: Mapping[int, int], samples: int) -> list[tuple[str, int]]:
    """How many problems have 0, 1, … right samples; in tenths where there are many samples.

    None and all stand alone: groups without variance teach GRPO nothing.

    Args:
        counts: `{right: problems}`.
        samples: of each problem.
    """
    if samples <= MAX_SAMPLES:
        return [(f"{right}", counts.get(right, 0)) for right in range(samples + 1)]
    tenths = [0] * 10
    for right, number in counts.items():
        if 0 < right < samples:
            tenths[10 * right // samples] += number
    middle = [(f"{10 * i} to {10 * i + 10} %", number) for i, number in enumerate(tenths)]
    return [("none", counts.get(0, 0)), *middle, ("all", counts.get(samples, 0))]


def difficulty_blocks(report: dict[str, Any]) -> list:
    """Measured pass rates, and the shares of easy, medium and hard problems."""
    blocks: list = []
    panels = {}
    for name, file in report["files"].items():
        if not file["solved"]:
            continue
        by_samples: dict[int, dict[int, int]] = {}
        for right, samples, number in file["solved"]:
            by_samples.setdefault(samples, {})[right] = number
        for samples, found in by_samples.items():
            panels[f"{name}: right of {samples:,} samples"] = group_rates(found, samples)
    if panels:
        known = {
            name: sum(number for _, _, number in file["solved"])
            for name, file in report["files"].items() if file["solved"]
        }  # fmt: skip
        parts = [
            f"{number:,} of {report['files'][name]['num_rows']:,} problems of {name}"
            for name, number in known.items()
        ]
        words = f"How often a checkpoint solves {', '.join(parts)}, by `{report['pass_rates']}`."
        blocks += [Heading("Pass rates"), Text(words), Bars("right", panels)]
    rows = []
    for name, file in report["files"].items():
        for band in file["shares"]:
            number = file["bands"].get(band, 0)
            wanted = f"{100 * file['shares'][band]:.1f}"
            rows.append([f"{name}, {band}", f"{number:,}", share(number, file["rows_out"]), wanted])
    if rows:
        header = ["difficulty", "problems", "%", "% asked for"]
        blocks += [Heading("Easy, medium, hard"), Table(header, rows)]
    return blocks
