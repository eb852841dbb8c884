"""What the report says, block by block; how it looks is `eval.report.html_page`'s and
`eval.report.markdown_page`'s concern. `eval.report.terminal` shows some of the same tables.
"""

from typing import Any

from eval.report.blocks import Figure, Folded, Heading, Page, Section, Table, Text, Warnings
from eval.report.compare import official_modes, pairs
from eval.report.flips import flip_blocks
from eval.report.references import reference_rows
from eval.report.text import change, flatten, metric_name, mode_name, percent

PARTS = ("score", "ability", "format", "truncation")
SHAPE = {  # what stands beside the outcomes: key of `eval.report.compare.shape`, scale and digits
    "answer right": ("answer_right", 100, 1),
    "ours right": ("ours_right", 100, 1),
    "well formed": ("well_formed", 100, 1),
    "tokens": ("num_tokens", 1, 0),
    "cut off, but right": ("cut_off_right", 100, 1),
}
WORDS = (
    "Every completion has one outcome. `right`: the score counts it. `wrong`: it gives another "
    "answer; that is ability. `unread` (the right answer, but not where the parser looks for it), "
    "`unclosed` (the right answer, but no closed thought) and `no answer` are format. `cut off`: "
    "the token limit came before an answer was counted; that is truncation. A part is positive "
    "where fewer completions are lost to it; the three sum to the change of the score. Ability is "
    "counted among completions that ended: where a model was cut off before, its failures stand "
    "under truncation, so that ability may look negative when truncation goes away. Official "
    "completions are counted by the official parser: `unread` ones are right, but not for it; "
    "`ours right` is what our grader says of the same completions. `answer right` is what a "
    "patient reader would count, whatever its form; `cut off, but right` the share of the cut off "
    "completions in which the right answer stood already."
)


def build_page(report: dict[str, Any], figures: dict[str, Any]) -> Page:
    """The whole report.

    Args:
        report: the content of `report.json`.
        figures: `{"scores": Figure, "changes": Figure or None, "curves": [Figure]}`.
    """
    settings, names = report["settings"], list(report["checkpoints"])
    opening: list = [Text(report["summary"], lead=True)]
    if report["warnings"]:
        opening.append(Warnings(report["warnings"]))
    subtitle = (
        f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
    ) + f" on {', '.join(report['scores'][names[0]])}"
    sections = [
        Section("scores", "Scores", _scores(report, figures["scores"])),
        Section("changes", "Where the change comes from", _changes(report, figures["changes"])),
        Section("levels", "By level", _levels(report)),
        Section("training", "Training", figures["curves"]),
        Section("flips", "Side by side", flip_blocks(report)),
        Section("references", "Beside published figures", _references(report)),
        Section("stages", "Stages", _stages(report["stages"])),
        Section("provenance", "Provenance", _provenance(report, settings)),
    ]
    return Page(report["title"], subtitle, opening, [found for found in sections if found.blocks])


def score_columns(modes: dict[str, dict], is_short: bool = False) -> list[tuple[str, str]]:
    """`(mode, metric)` of the columns: what ranks, pass@k and maj@k, the official metrics.

    Args:
        modes: `{mode: {"main", "metrics"}}` of one task.
        is_short: of pass@k only the largest k, of an official task only its main metric.
    """
    columns = []
    for mode, found in modes.items():
        metrics = [name for name in found["metrics"] if "@" in name or "," in name]
        if is_short and mode in official_modes(modes):
            metrics = []
        elif is_short:
            passes = [name for name in metrics if name.startswith("pass@")]
            metrics = [name for name in metrics if name not in passes[:-1]]
        columns += [(mode, name) for name in dict.fromkeys([found["main"], *metrics])]
    return columns


def score_table(report: dict, task: str, is_short: bool = False) -> Table:
    """One row per checkpoint, in per cent ± one standard error."""
    tasks = {name: tasks[task] for name, tasks in report["scores"].items()}
    first = next(iter(tasks.values()))
    columns = score_columns(first, is_short)
    rows = [
        [name, *(percent(modes[mode]["metrics"].get(metric)) for mode, metric in columns)]
        for name, modes in tasks.items()
    ]
    name = mode_name if is_short else metric_name
    header = [
        (name if metric == first[mode]["main"] else metric_name)(mode, metric, task)
        for mode, metric in columns
    ]
    return Table(["checkpoint", *header], rows)


def difference_table(report: dict, task: str) -> Table:
    """One row per pair of checkpoints, one column per mode's main metric: points and interval."""
    modes = report["changes"][task]
    first = next(iter(report["scores"].values()))[task]
    rows = [
        [f"{before} → {after}", *(change(found[number]["score"]) for found in modes.values())]
        for number, (before, after) in enumerate(pairs(list(report["checkpoints"])))
    ]
    return Table(
        ["change", *(metric_name(mode, first[mode]["main"], task) for mode in modes)], rows
    )


def split_table(report: dict, task: str, only_last: bool = False) -> Table:
    """One row per mode and change: the score's change and its parts, points and intervals.

    `only_last`: rows of the last stage's change, which they then do not name.
    """
    first = next(iter(report["scores"].values()))[task]
    last = len(report["checkpoints"]) - 2
    rows = []
    for mode, found in report["changes"][task].items():
        label = mode_name(mode, first[mode]["main"], task)
        for number, one in enumerate(found):
            if only_last and number != last:
                continue
            name = label if only_last else f"{one['from']} → {one['to']}, {label}"
            rows.append([name, *(change(one[part]) for part in PARTS)])
    return Table(["change", *PARTS], rows)


def outcome_table(report: dict, task: str) -> Table:
    """One row per mode and checkpoint: shares in per cent, and mean length.

    Columns that have nothing to say for any row are left out; `ours right` says something for
    official rows only.
    """
    modes = report["outcomes"][task]
    outcomes = list(next(iter(next(iter(modes.values())).values())))
    rows = []
    for mode, rates in modes.items():
        for name, found in rates.items():
            shape = report["shapes"][task][mode][name]
            if not official_modes([mode]):
                shape = shape | {"ours_right": None}  # `right`, once more
            main = report["scores"][name][task][mode]["main"]
            row = [f"{name}, {mode_name(mode, main, task)}"]
            row += [f"{100 * found[outcome]:.1f}" for outcome in outcomes]
            for key, scale, digits in SHAPE.values():
                value = shape[key]
                row.append("-" if value is None else f"{scale * value:.{digits}f}")
            rows.append(row)
    header = ["completions", *outcomes, *SHAPE]
    kept = [i for i in range(len(header)) if any(row[i] != "-" for row in rows)]
    return Table([header[i] for i in kept], [[row[i] for i in kept] for row in rows])


def level_table(report: dict, task: str, mode: str) -> Table | None:
    """One row per level; None where the problems carry none."""
    levels = report["levels"][task][mode]
    first = next(iter(levels.values()))
    if not first:
        return None
    rows = [
        [str(level), str(first[level]["n"]), *(percent(found[level]) for found in levels.values())]
        for level in first
    ]
    return Table(["level", "problems", *levels], rows)


def _scores(report: dict, figure: Figure) -> list:
    settings = report["settings"]
    k = settings["num_samples"]
    names = list(report["checkpoints"])
    blocks: list = [
        Text(
            f"Scores in per cent ± one standard error over problems. avg@{k} is the mean "
            f"correctness of {k} samples a problem at temperature {settings['temperature']}, top-p "
            f"{settings['top_p']}; pass@j that at least one of j is right, maj@{k} that "
            "the most frequent answer is. Official: the harness's own task, prompt and parser."
        ),
        figure,
    ]
    if len(names) > 1:
        blocks.append(
            Text(
                "Changes are in points, paired over the same problems, with 95 % bootstrap "
                "intervals over problems: an interval without 0 is more than chance."
            )
        )
    for task, modes in report["scores"][names[0]].items():
        count = next(iter(modes.values()))["num_problems"]
        blocks += [Heading(f"{task} ({count:,} problems)"), score_table(report, task)]
        if len(names) > 1:
            blocks.append(difference_table(report, task))
    return blocks


def _changes(report: dict, figure: Figure | None) -> list:
    blocks: list = [Text(WORDS)]
    if figure:
        blocks.append(figure)
    for task in report["outcomes"]:
        blocks.append(Heading(task))
        if len(report["checkpoints"]) > 1:
            blocks.append(split_table(report, task))
        blocks.append(outcome_table(report, task))
    return blocks


def _levels(report: dict) -> list:
    blocks: list = []
    for task, modes in report["levels"].items():
        for mode in modes:
            if table := level_table(report, task, mode):
                metric = next(iter(report["scores"].values()))[task][mode]["main"]
                blocks += [Heading(f"{task}, {metric_name(mode, metric, task)}"), table]
    return blocks


def _references(report: dict) -> list:
    rows, notes = reference_rows(report["references"], report["scores"])
    if not rows:
        return []
    text = (
        "Published figures stand here as a scale only: other models, other sizes, other prompts. "
        "They cannot be compared with ours digit by digit."
    )
    return [
        Text(" ".join([text, *notes])),
        Table(["task", "whose", "scores (%)"], rows, facts=True),
    ]


def _stages(stages: dict[str, dict]) -> list:
    """Counts of every stage that left a manifest, and its configuration, folded away."""
    blocks: list = []
    for name, found in stages.items():
        kept = ("rows_in", "rows_out", "dropped", "wall_time_s")
        rows = flatten(found["counts"] | {key: found[key] for key in kept if found.get(key)})
        blocks += [Heading(name), Table(["count", "value"], rows)]
        config = Table(["key", "value"], flatten(found["config"]), facts=True)
        blocks.append(Folded(f"configuration of {name}", {"configuration": config}))
    return blocks


def _provenance(report: dict, settings: dict) -> list:
    rows = [["commit", report["git_commit"] or "not in a git checkout"]]
    if report["report_commit"] != report["git_commit"]:
        rows.append(["commit of this report", report["report_commit"] or "not in a git checkout"])
    for name, path in report["checkpoints"].items():
        digest = (report["fingerprints"][name] or {}).get("checkpoint")
        rows += [[f"{name}: path", path]] + ([[f"{name}: hash", digest]] if digest else [])
    seeds = {"evaluation": settings.get("seed")}
    seeds |= {name: found["config"].get("seed") for name, found in report["stages"].items()}
    seeds = {name: seed for name, seed in seeds.items() if seed is not None}
    rows.append(["seeds", ", ".join(f"{name} {seed}" for name, seed in seeds.items())])
    rows.append(["versions", ", ".join(f"{k} {v}" for k, v in report["versions"].items())])
    costs = [
        [name, *(_number(cost[key]) for key in ("num_completions", "num_tokens", "wall_time_s"))]
        for name, cost in report["costs"].items()
    ]
    config = {
        "settings that all checkpoints share": flatten(settings),
        "the whole evaluation": flatten(report["evaluation_config"]),
    }
    tables = {title: Table(["key", "value"], rows, facts=True) for title, rows in config.items()}
    return [
        Table(["what", "value"], rows, facts=True),
        Table(["evaluation of", "completions", "tokens", "seconds"], costs),
        Folded("evaluation settings", tables),
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"
