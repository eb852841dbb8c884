"""The report as text: Markdown for the file, rich tables for the terminal."""

from eval.compare import HEADLINE, OUTCOMES


def percent(score: dict | None, signed: bool = False) -> str:
    """`{"value": 0.123, "stderr": 0.01}` as "12.3 ± 1.0"; a hyphen for None."""
    if score is None:
        return "-"
    text = f"{100 * score['value']:{'+' if signed else ''}.1f}"
    return text if score["stderr"] is None else f"{text} ± {100 * score['stderr']:.1f}"


def score_table(report: dict) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the main table: one row per checkpoint, in per cent."""
    k = next(iter(report["settings"].values()))["num_samples"]
    header = ["checkpoint", "greedy", "Δ greedy", f"avg@{k}", f"Δ avg@{k}"]
    rows = []
    for name, tasks in report["scores"].items():
        differences = report["differences"].get(name, {})
        row = [name]
        for mode, metric in HEADLINE.items():
            row += [percent(tasks[mode][metric]), percent(differences.get(mode), signed=True)]
        rows.append(row)
    return header, rows


def completion_table(report: dict) -> tuple[list[str], list[list[str]]]:
    """Header and rows of what the samples are like: one row per checkpoint, shares in per cent."""
    rows = []
    for name, tasks in report["scores"].items():
        shares = [*report["outcomes"][name]["sampled"].values()]
        shares.append(tasks["sampled"]["format_rate"]["value"])
        length = tasks["sampled"]["completion_length"]["value"]
        rows.append([name, *(f"{100 * share:.1f}" for share in shares), f"{length:.0f}"])
    return ["checkpoint", *OUTCOMES, "well formed", "tokens"], rows


def level_table(report: dict, mode: str) -> tuple[list[str], list[list[str]]]:
    """Header and rows of scores by level; no rows where the problems carry no level."""
    levels = {name: modes[mode] for name, modes in report["levels"].items()}
    first = next(iter(levels.values()))
    rows = [
        [str(level), str(first[level]["n"]), *(percent(found[level]) for found in levels.values())]
        for level in first
    ]
    return ["level", "problems", *levels], rows


def verdict_table(report: dict) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the grader's verdicts on the samples, in per cent."""
    shares = {name: modes["sampled"] for name, modes in report["verdicts"].items()}
    names = dict.fromkeys(name for found in shares.values() for name in found)
    rows = [[n, *(f"{100 * found.get(n, 0):.1f}" for found in shares.values())] for n in names]
    return ["verdict", *shares], rows


def to_markdown(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table, first column left, the others right."""
    rows = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def flatten(value: dict, prefix: str = "") -> list[list[str]]:
    """Nested counts as `[["dropped, too long", "12"], ...]`."""
    rows = []
    for key, item in value.items():
        name = f"{prefix}, {key}" if prefix else str(key)
        rows += flatten(item, name) if isinstance(item, dict) else [[name, str(item)]]
    return rows


def markdown(report: dict, figures: dict[str, str]) -> str:
    """The whole report; `figures` is `{caption: file name beside report.md}`."""
    settings = next(iter(report["settings"].values()))
    num_problems = next(iter(report["scores"].values()))["greedy"]["accuracy"]["n"]
    parts = [
        f"# {report['title']}",
        to_markdown(*score_table(report)),
        f"{num_problems} held-out problems, scores in per cent ± one standard error over problems. "
        "Δ is the paired difference to the row above, with the standard error of the per-problem "
        f"differences. avg@{settings['num_samples']} is the mean correctness of that many samples "
        f"at temperature {settings['temperature']}, top-p {settings['top_p']}.",
        *(f"![{caption}]({file})\n\n*{caption}*" for caption, file in figures.items()),
    ]
    if level_table(report, "sampled")[1]:
        parts.append("## By level")
        for mode, metric in HEADLINE.items():
            parts += [f"{mode.capitalize()}, {metric}:", to_markdown(*level_table(report, mode))]
    parts += [
        "## Where the completions went",
        "Per cent of the sampled completions; right, wrong, unreadable and cut off sum to 100. "
        "*wrong* is ability, *unreadable* format (no single answer after one thought), *cut off* "
        f"truncation (no end within {settings['max_new_tokens']} tokens). Tokens: mean length.",
        to_markdown(*completion_table(report)),
        "The grader's verdicts on the same completions, cut off or not:",
        to_markdown(*verdict_table(report)),
        *_stage_parts(report["stages"]),
        "## Provenance",
        _provenance(report, settings),
    ]
    return "\n\n".join(parts) + "\n"


def _stage_parts(stages: dict[str, dict]) -> list[str]:
    """Counts of every stage that left a manifest, and its configuration, folded away."""
    parts = ["## Stages"] if stages else []
    for name, found in stages.items():
        kept = ("rows_in", "rows_out", "dropped", "wall_time_s")
        rows = flatten(found["counts"] | {key: found[key] for key in kept if found.get(key)})
        parts += [f"### {name}", to_markdown(["count", "value"], rows)]
        config = to_markdown(["key", "value"], flatten(found["config"]))
        parts.append(f"<details><summary>configuration</summary>\n\n{config}\n\n</details>")
    return parts


def _provenance(report: dict, settings: dict) -> str:
    lines = [f"- commit: `{report['git_commit'] or 'not in a git checkout'}`"]
    lines += [f"- {name}: `{path}`" for name, path in report["checkpoints"].items()]
    lines.append("- evaluation: " + ", ".join(f"{key} {value}" for key, value in settings.items()))
    lines.append("- versions: " + ", ".join(f"{k} {v}" for k, v in report["versions"].items()))
    return "\n".join(lines)


def show(report: dict, path: str) -> None:
    """Print the main table, the outcomes, and where the rest is."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    for title, (header, rows) in (
        (report["title"], score_table(report)),
        ("Sampled completions", completion_table(report)),
    ):
        table = Table(title=f"{title} (%)", title_justify="left", title_style="bold")
        for index, name in enumerate(header):
            table.add_column(name, justify="right" if index else "left", no_wrap=True)
        for row in rows:
            table.add_row(*row)
        console.print(table)
    # Not wrapped: a broken path cannot be clicked or copied.
    note = f"± one standard error; Δ against the row above, paired.\nReport: {path}"
    console.print(note, highlight=False, soft_wrap=True)
