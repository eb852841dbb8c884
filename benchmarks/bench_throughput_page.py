"""Figures and page of the throughput benchmark, from what its runs have found.

`throughput.json` keeps one entry for each device and shape; a new run of either replaces its parts.
"""

import json
from pathlib import Path
from typing import Any

from benchmarks.table import ratio_interval
from data_prep import manifest
from stages.preflight.flops import training_flops

SHAPES = ("tiny", "0.5B", "1.5B", "7B")
WHY_NOT = "not measured: too much for a CPU, and no GPU was at hand"
TITLES = {
    "sft": "SFT: packed rows beside padded ones",
    "update": "GRPO: the update on given rollouts",
    "uniform": "GRPO: the update where 63 % of the groups are uniform",
    "step": "GRPO: where the time of a step goes",
}


def spent(run: dict[str, Any], part: str) -> float:
    """Seconds of a run that a part's ratio is about; the update has all but its rollouts."""
    if part in ("update", "uniform"):
        return run["parts"]["update"] + run["parts"]["other"]
    return run["seconds"]["step"]


def summarise(
    part: str, found: dict[str, Any], config: Any, peak: float | None
) -> dict[str, dict[str, Any]]:
    """For each trainer tokens per second, MFU, peak memory, and the ratio of its speed.

    Args:
        found: `rows`, `runs` and `difference` of a part.
        config: of the model.
        peak: of the device, FLOP/s; None leaves MFU out.

    Returns:
        By name: `tokens_per_second` (real tokens of prompts and completions), `seconds` (mean of
        the turns), `mfu` (0..1; not where part of the rows is skipped or generated), `memory`
        (bytes, the highest), `ratio` (to the first trainer: value, low, high), `parts`.
    """
    tokens = [sum(map(sum, rows)) for rows in found["rows"]]
    flops = [training_flops(config, [(p + c, c) for p, c in rows]) for rows in found["rows"]]
    first = next(iter(found["runs"].values()))
    figures = {}
    for name, runs in found["runs"].items():
        seconds = [spent(run, part) for run in runs]
        pairs = zip(first, seconds, strict=True)
        figures[name] = {
            "tokens_per_second": sum(tokens) / sum(seconds),
            "seconds": sum(seconds) / len(seconds),
            "mfu": sum(flops) / sum(seconds) / peak if peak and part in ("sft", "update") else None,
            "memory": max(run["memory"] for run in runs),
            "ratio": ratio_interval([spent(theirs, part) / mine for theirs, mine in pairs]),
        }
        if part == "step":
            figures[name]["parts"] = {
                key: sum(run["parts"][key] for run in runs) / len(runs) for key in runs[0]["parts"]
            }
    return figures


def workload(found: dict[str, Any]) -> dict[str, float]:
    """Rows of a turn, their mean tokens, and what a rectangle around all of them would hold."""
    rows = [row for turn in found["rows"] for row in turn]
    boxes = [
        len(turn) * (max(p for p, _ in turn) + max(c for _, c in turn)) for turn in found["rows"]
    ]
    total = sum(map(sum, rows))
    return {
        "turns": len(found["rows"]), "rows": len(found["rows"][0]),
        "mean_prompt": sum(p for p, _ in rows) / len(rows),
        "mean_completion": sum(c for _, c in rows) / len(rows),
        "rectangle": sum(boxes) / total,
    }  # fmt: skip


def add_figures(
    page: Path, about: dict[str, Any], found: dict[str, Any], config: Any
) -> list[dict[str, Any]]:
    """Put a run's figures among those kept beside the page; returns all of them."""
    path = page.with_suffix(".json")
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    peak = about["device"]["peak"].get(about["precision"])
    for part, values in found.items():
        entry = about | {
            "part": part, "workload": workload(values), "difference": values["difference"],
            "figures": summarise(part, values, config, peak),
        }  # fmt: skip
        kept = [other for other in kept if key_of(other) != key_of(entry)] + [entry]
    kept.sort(key=lambda entry: (list(TITLES).index(entry["part"]), *key_of(entry)[1:]))
    manifest.write_json(path, kept)
    return kept


def key_of(entry: dict[str, Any]) -> tuple[str, str, str]:
    """What an entry is about: part, shape, device and precision."""
    device = f"{entry['device']['name']}, {entry['precision']}"
    return entry["part"], entry["arguments"]["shape"], device


def ratio_text(ratio: list[float]) -> str:
    """A ratio with its interval."""
    value, low, high = ratio
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def table(entries: list[dict[str, Any]], part: str) -> list[str]:
    """The part's table: a row for each trainer, and one for each shape without figures."""
    lines = [
        "| shape | trainer | tokens/s | MFU | peak memory, GB | speed, ratio |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    if part == "step":
        lines = [
            "| shape | trainer | seconds | generate | reward | log-probs | update | sync | other "
            "| speed, ratio |",
            "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        ]
    for entry in entries:
        for name, row in entry["figures"].items():
            start = f"| {entry['arguments']['shape']} | {name} | "
            ratio = ratio_text(row["ratio"])
            if part == "step":
                shares = {key: 100 * s / row["seconds"] for key, s in row["parts"].items()}
                parts = ("generate", "reward", "log-probs", "update", None, "other")
                cells = [f"{shares[key]:.1f} %" if key else "none" for key in parts]
                lines.append(f"{start}{row['seconds']:.2f} | {' | '.join(cells)} | {ratio} |")
                continue
            mfu = f"{100 * row['mfu']:.1f} %" if row["mfu"] is not None else "-"
            lines.append(
                f"{start}{row['tokens_per_second']:,.0f} | {mfu} | "
                f"{row['memory'] / 1e9:.2f} | {ratio} |"
            )
    measured = {entry["arguments"]["shape"] for entry in entries}
    empty = " |" * (lines[0].count("|") - 3)
    lines += [f"| {shape} | {WHY_NOT} |{empty}" for shape in SHAPES if shape not in measured]
    return lines


def how(entry: dict[str, Any]) -> str:
    """One line on what an entry was measured with."""
    args, load, device = entry["arguments"], entry["workload"], entry["device"]
    peak = device["peak"].get(entry["precision"])
    kind = "measured in the run" if device["name"].startswith("one core") else "the maker's"
    keys = ["grpo_batch_size", "num_generations", "update_tokens", "beta"]
    if entry["part"] == "sft":
        keys = ["sft_batch_size", "sft_rows_per_step", "sft_max_length"]
    settings = ", ".join(f"`{key}` {args[key]}" for key in [*keys, "gradient_checkpointing"])
    versions = ", ".join(f"{name} {version}" for name, version in entry["versions"].items())
    return (
        f"- **{args['shape']}**: {load['turns']} turns of {load['rows']} rows, on average "
        f"{load['mean_prompt']:.0f} prompt and {load['mean_completion']:.0f} completion tokens, "
        f"{load['rectangle']:.2f} times as many in a rectangle around them; {settings}; weights "
        f"{args['dtype']}, products in {entry['precision']}. {device['name']}"
        + (f", peak {peak / 1e9:,.0f} GFLOP/s ({kind})" if peak else "")
        + f". Greatest relative difference between the trainers {entry['difference']:.1e}. Commit "
        f"{entry['commit']}. {versions}."
    )


def write_page(path: Path, kept: list[dict[str, Any]]) -> str:
    """Write the page; returns its text."""
    lines = [
        "# Throughput beside stock TRL",
        "",
        "`make bench` (`SHAPE=…`). Random weights of the shape, random tokens, real lengths: "
        "GSM8K's for GRPO, GSM8K + NuminaMath-CoT as the 7B recipe mixes them for SFT. Tokens are "
        "those of prompts and completions, never padding. The trainers take turns in one process; "
        "ratios are of speed to the first row's, geometric mean [95 % interval] over the turns, "
        "and are given only where loss and gradient agree. On a CPU time is the process's own, on "
        "one core. MFU: `flops.py`. Memory: GPU allocated, or the process's resident set.",
        "",
    ]
    for part, title in TITLES.items():
        entries = [entry for entry in kept if entry["part"] == part]
        lines += [f"## {title}", "", *table(entries, part), ""]
        lines += [*map(how, entries), ""]
    text = "\n".join(lines)
    path.write_text(text, encoding="utf-8")
    return text
