"""The report's tables, sentences, warnings and published figures; see report.html.jinja.

Sentences are made of the numbers of `numbers.summarise`, so that they cannot differ from the
tables. Scores are in per cent, changes in points; an interval is a 95 % one.
"""

from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from eval.harness.metrics import unseen_share
from eval.report import plots
from eval.report.decomposition import MIN_READABLE, PARTS
from eval.report.numbers import headline_mode, is_official
from eval.report.render import Table, flatten, render
from pipeline import manifest, strict_yaml

REFERENCES = Path(__file__).with_name("references.yaml")
COUNTS = ("rows_in", "rows_out", "dropped", "wall_time_s")  # of a stage, besides its own
# Above these a score says more about the evaluation than about the model.
MAX_CUT_OFF = MAX_UNCLOSED = MAX_UNREAD = 0.1  # shares
MIN_PROBLEMS = 100
MAX_NAMED = 6  # of the places that a warning is about
HARNESS_LIMIT = 256  # `eval.harness.cached_lm.HARNESS_MAX_NEW_TOKENS`, which is slow to import
# Heads of columns: an outcome as a reader would call it, and the part that it lowers.
OUTCOMES = {
    "right": "correct",
    "wrong": "incorrect",
    "unread": "correct answer elsewhere",
    "unclosed": "thought not closed",
    "no answer": "no answer",
    "cut off": "cut off",
}
SHAPE = {  # columns after the outcomes: key of `eval.report.numbers.shape`, how it is written
    "correct by a lenient reader": ("answer_right", "{:.1%}"),
    "correct by our grader": ("ours_right", "{:.1%}"),
    "in the form asked for": ("well_formed", "{:.1%}"),
    "mean length in tokens": ("num_tokens", "{:.0f}"),
    "correct answer before the cut": ("cut_off_right", "{:.1%}"),
}


def finish(
    report: dict[str, Any], names: list[str], panels: dict[str, list[plots.Panel]], path: str
) -> None:
    """Add the sentences to a report and write it, as `<path>.html` and `<path>.json`.

    `names` are those of the bars of outcomes, `panels` the training curves by checkpoint.
    """
    report |= {"headline": headline(report), "result": result(report), "summary": summary(report)}
    report |= {"warnings": warnings(report), "notes": notes(report)}
    report["report_commit"] = manifest.git_commit()
    figures = {
        "control": plots.draw_control((report["control"] or {}).get("curves", {})),
        "outcomes": plots.draw_outcomes(bars(report, names)),
        "parts": plots.draw_parts(steps(report)),
        "curves": {name: plots.draw_curves(found, name) for name, found in panels.items()},
    }
    with manifest.open_whole(f"{path}.html") as file:
        file.write(build_page(report, figures))
    manifest.write_json(f"{path}.json", manifest.finite(report))


def build_page(report: dict[str, Any], figures: dict[str, Any]) -> str:
    """The HTML of `report.json` and figures.

    Figures are SVGs: `{"outcomes": SVG, "parts": SVG or "", "curves": {checkpoint: [SVG]}}`.
    """
    tables = {
        "scores": {
            f"{task} ({count:,} problems)": score_table(report, task)
            for task, count in problems(report)
        },
        "changes": {
            task: [split_table(report, task), rate_table(report, task), outcome_table(report, task)]
            for task in report["changes"]
        },
        "levels": level_tables(report),
        "sources": source_tables(report),
        "references": reference_table(report),
        "stages": {
            name: flatten(found["counts"] | {key: found[key] for key in COUNTS if found.get(key)})
            for name, found in report["stages"].items()
        },
        "checkpoints": checkpoint_table(report),
    }
    values = {"outcomes": OUTCOMES, "min_readable": MIN_READABLE}
    return render("report", report=report, figures=figures, tables=tables, **values)


def percent(score: dict | None) -> str:
    """`{"value": 0.123, "stderr": 0.01}` as "12.3 ± 1.0", all correct as "100.0 (≥ 90.5)".

    That is the one-sided 95 % bound. None is "-".
    """
    if score is None:
        return "-"
    text = f"{100 * score['value']:.1f}"
    if score["value"] in (0, 1):
        bound = 100 * abs(score["value"] - unseen_share(score["n"]))
        sign = "≥" if score["value"] else "≤"
        return f"{text} ({sign} {bound:.1f})"
    if score["stderr"] is None:
        return text
    return f"{text} ± {100 * score['stderr']:.1f}"


def points(value: float, sign: str = "+") -> str:
    """A difference of shares in points: 0.123 as "+12.3", 0 as "0.0"."""
    text = f"{100 * value:{sign}.1f}"
    return "0.0" if text.strip("+-") == "0.0" else text


def change(score: dict) -> str:
    """A difference in points and its interval, if it has one: "+12.3 [10.0, 14.6]"."""
    text = points(score["value"])
    if score["low"] is None:
        return text
    return f"{text} {interval(score)}"


def interval(score: dict) -> str:
    """The interval of a change: "[10.0, 14.6]"."""
    return f"[{points(score['low'], '-')}, {points(score['high'], '-')}]"


def may_be_chance(score: dict) -> bool:
    """Whether the interval of a change has 0 in it."""
    return score["low"] is not None and score["low"] <= 0 <= score["high"]


def metric_name(mode: str, metric: str) -> str:
    """A metric as a reader would call it: "greedy accuracy", "avg@4", "official exact_match"."""
    name, _, kind = metric.partition(",")
    if mode == "sampled":
        return name
    name = f"{mode.replace(':', ' ')} {name}"
    return name if kind in ("", "none") else f"{name} ({kind})"


def row_name(report: dict, task: str, mode: str) -> str:
    """A mode as a row names it, by its main metric: "avg@4"; "official minerva_math500"."""
    if is_official(mode):
        return mode.replace(":", " ")
    first = next(iter(report["scores"].values()))
    return metric_name(mode, first[task][mode]["main"])


def result(report: dict[str, Any]) -> str:
    """One sentence: the last checkpoint's score of the first task, and its last change."""
    return describe_score(report, next(iter(report["changes"])))


def summary(report: dict[str, Any]) -> str:
    """A line for each task: the score, the last change and its parts, the change from the first."""
    lines = []
    for task in report["changes"]:
        sentences = [describe_score(report, task)]
        changes = last_changes(report, task)
        sentences += [f"Parts: {list_parts(one)}." for one in changes[:1]]
        sentences += [f"Since {one['from']}: {change(one['score'])}." for one in changes[1:]]
        lines.append(" ".join(sentences))
    return "\n".join(lines)


def last_changes(report: dict[str, Any], task: str) -> list[dict]:
    """The changes that end at the last checkpoint, in the task's headline mode.

    First from the one before it, then from the first. One checkpoint alone has none.
    """
    modes, last = report["changes"][task], [*report["scores"]][-1]
    return [one for one in modes[headline_mode(modes)] if one["to"] == last]


def describe_score(report: dict[str, Any], task: str) -> str:
    """The last checkpoint's score of a task and its last change, as a sentence.

    "grpo scores 75.0 % on held_out (avg@4), 26.1 points more than sft (95 % interval 22 to 30)."
    """
    names, modes = list(report["scores"]), report["changes"][task]
    mode = headline_mode(modes)
    one = report["scores"][names[-1]][task][mode]
    value = 100 * one["metrics"][one["main"]]["value"]
    text = f"{names[-1]} scores {value:.1f} % on {task} ({metric_name(mode, one['main'])})"
    found = last_changes(report, task)
    return f"{text}, {describe_change(found[0])}." if found else f"{text}."


def describe_change(found: dict) -> str:
    """A change in words: "26.1 points more than sft (95 % interval 22.0 to 30.0)"."""
    score, before = found["score"], found["from"]
    amount = points(abs(score["value"]), "-")
    if amount == "0.0":
        text = f"as much as {before}"
    else:
        text = f"{amount} points {'more' if score['value'] > 0 else 'less'} than {before}"
    if score["low"] is not None:
        text += f" (95 % interval {points(score['low'], '-')} to {points(score['high'], '-')})"
    if may_be_chance(score) and amount != "0.0":
        text += ", which may be chance"
    return text


def list_parts(found: dict) -> str:
    """The parts of a change: "finished +10.0, readable +2.3, correct 0.0"."""
    return ", ".join(f"{part} {points(found[part]['value'])}" for part in PARTS)


def headline(report: dict[str, Any]) -> list[dict[str, str]]:
    """The numbers of the first screen, three at most: `{"value", "name", "note"}` of each.

    First the last checkpoint's score of the first task, and its last change. Then the next task's
    score or, with one task, the change from the first checkpoint.
    """
    names, tasks = list(report["scores"]), problems(report)

    def score(task: str, count: int) -> dict[str, str]:
        mode = headline_mode(report["changes"][task])
        one = report["scores"][names[-1]][task][mode]
        found = one["metrics"][one["main"]]
        note = f"{metric_name(mode, one['main'])}, {count:,} problems"
        if found["low"] is not None:
            note = f"95 % {interval(found)}; {note}"
        value = f"{100 * found['value']:.1f} %"
        return {"value": value, "name": f"{names[-1]} on {task}", "note": note}

    def step(task: str, one: dict) -> dict[str, str]:
        found, note = one["score"], ""
        if found["low"] is not None:
            note = f"95 % {interval(found)}"
            if may_be_chance(found):
                note += ", may be chance"
        value = f"{points(found['value'])} points"
        name = f"from {one['from']} to {one['to']} on {task}"
        return {"value": value, "name": name, "note": note}

    (task, count), *others = tasks
    changes = [step(task, one) for one in last_changes(report, task)]
    found = [score(task, count), *changes[:1]]
    for other, number in others:
        found.append(score(other, number))
    found += changes[1:]
    return found[:3]


def steps(report: dict[str, Any]) -> dict[str, dict]:
    """`{"sft to grpo": change}` for `plots.draw_parts`: the first task's, in its headline mode."""
    modes = next(iter(report["changes"].values()))
    return {f"{one['from']} to {one['to']}": one for one in modes[headline_mode(modes)]}


def bars(report: dict[str, Any], names: list[str]) -> dict[str, dict[str, tuple]]:
    """Every task's outcomes and score, in its headline mode, for `plots.draw_outcomes`."""
    found = {}
    for task, count in problems(report):
        mode = headline_mode(report["outcomes"][task])
        scores = {name: report["scores"][name][task][mode] for name in names}
        found[f"{task}: {row_name(report, task, mode)}, {count:,} problems"] = {
            name: (report["outcomes"][task][mode][name], one["metrics"][one["main"]])
            for name, one in scores.items()
        }
    return found


def is_untrained(report: dict[str, Any], name: str) -> bool:
    """Whether a checkpoint has the random weights of `make base`."""
    return report.get("stages", {}).get(name, {}).get("stage") == "base"


def notes(report: dict[str, Any]) -> list[str]:
    """Facts that a reader should know but need not doubt."""
    found = [
        f"{name} has random weights: it is expected to score about 0 and to be cut off."
        for name in report["scores"]
        if is_untrained(report, name)
    ]
    names = {path: name for name, path in report["checkpoints"].items()}
    for path, origin in report.get("origins", {}).items():
        what = f"{names.get(path, path)} was converted from {origin['file']}, {origin['source']}"
        blocks = origin["quantization"]
        found.append(f"{what}: its weights were rounded to {blocks}." if blocks else f"{what}.")
    return found


def warnings(report: dict[str, Any]) -> list[str]:
    """Reasons to doubt the report, most serious first; none where all is well.

    A model with random weights gives none: see `notes`.
    """
    limit = report["settings"].get("max_new_tokens")
    unread, cut_off = _unread_shares(report["outcomes"]), report["cut_off"]
    found = _copies(report) + _unrelated(report)
    if num_first := report["settings"].get("limit"):
        found.append(
            f"`limit`: only the first {num_first:,} problems of each task were scored; published "
            "figures are of all of them."
        )
    if places := _cut_prompts(report):
        found.append(
            "Official prompts exceeded the model's context and lost their beginning, so the score "
            f"is not the benchmark's: {places}."
        )
    if places := _places_above(MAX_UNREAD, unread, report, official=True):
        found.append(
            "An official parser misses correct answers, so its score says less about the model "
            f"than about the parser: {places}."
        )
    if places := _places_above(MAX_CUT_OFF, cut_off, report, official=False):
        found.append(
            f"Completions were cut off at {limit} tokens; a higher `max_new_tokens` may find more "
            f"correct answers: {places}."
        )
    if places := _places_above(MAX_CUT_OFF, cut_off, report, official=True):
        found.append(
            f"Completions were cut off at the harness's own limit ({HARNESS_LIMIT} tokens unless "
            f"the task sets one); `max_new_tokens` does not change it: {places}."
        )
    # Of ours only: official prompts ask for no thought.
    if places := _places_above(MAX_UNCLOSED, report["no_thought"], report, official=False):
        found.append(
            "Completions ended without exactly one closed thought (no `</think>`, or several), so "
            f"no answer was read: {places}."
        )
    few = {task: count for task, count in problems(report) if count < MIN_PROBLEMS}
    if few:
        counts = ", ".join(f"{task} has {count}" for task, count in few.items())
        found.append(f"Fewer than {MIN_PROBLEMS} problems, so wide intervals: {counts}.")
    for task, count in few.items():
        found += _chance_warnings(report, task, count)
    return found


def _places_above(most: float, shares: dict, report: dict, official: bool) -> str:
    """Where a share is above `most`: "grpo held_out greedy 12 %, …"; empty where it is nowhere.

    The last checkpoint comes first, as it is the result.
    """
    return _name_few(
        [
            f"{name} {task} {mode} {100 * by_name[name]:.0f} %"
            for name in reversed(report["scores"])
            if not is_untrained(report, name)
            for task, modes in shares.items()
            for mode, by_name in modes.items()
            if by_name[name] > most and is_official(mode) == official
        ]
    )


def _cut_prompts(report: dict) -> str:
    """Where prompts were cut: "grpo gsm8k official:gsm8k 12 of 1,319, …"; empty if nowhere."""
    return _name_few(
        [
            f"{name} {task} {mode} {num:,} of {one['num_problems']:,}"
            for name in reversed(report["scores"])
            if not is_untrained(report, name)
            for task, modes in report["scores"][name].items()
            for mode, one in modes.items()
            if (num := one.get("num_cut_prompts", 0))
        ]
    )


def _name_few(places: list[str]) -> str:
    """The first places, and how many more there are."""
    num_more = len(places) - MAX_NAMED
    if num_more > 0:
        places = [*places[:MAX_NAMED], f"{num_more} more"]
    return ", ".join(places)


def _chance_warnings(report: dict, task: str, count: int) -> list[str]:
    """Changes of a task with few problems that may be chance."""
    found, changes = [], report["changes"][task]
    for one in changes[headline_mode(changes)]:
        score, seen = one["score"], one["score"]["value"]
        if seen and may_be_chance(score):
            chance = seen - score["low"] if seen > 0 else score["high"] - seen
            found.append(
                f"The {count} problems of {task} cannot tell {one['from']} and {one['to']} apart: "
                f"the change is {points(seen)} points, and up to about "
                f"{points(min(chance, 1), '-')} may be chance."
            )
    return found


def _unread_shares(outcomes: dict) -> dict:
    """Of the completions with the correct answer, the share that the parser did not read."""

    def share(one: dict[str, float]) -> float:
        there = one["right"] + one["unread"]
        return one["unread"] / there if there else 0.0

    return {
        task: {
            mode: {name: share(one) for name, one in found.items()} for mode, found in modes.items()
        }
        for task, modes in outcomes.items()
    }


def _copies(report: dict) -> list[str]:
    """Consecutive checkpoints that are the same, or score as if they were."""
    found = []
    for before, after in pairwise(report["checkpoints"]):
        one, two = (report["fingerprints"][name]["checkpoint"] for name in (before, after))
        if one == two:
            found.append(f"{before} and {after} are the same checkpoint: their files are equal.")
        elif report["scores"][before] == report["scores"][after]:
            found.append(
                f"{before} and {after} have identical scores in every task; was {after} trained, "
                "and is its path its own?"
            )
    return found


def _unrelated(report: dict) -> list[str]:
    """Checkpoints that were not trained from the one before them."""
    found = []
    for (before, path), (after, _) in pairwise(report["checkpoints"].items()):
        config = report.get("stages", {}).get(after, {}).get("config", {})
        start = config.get("model_name_or_path", path)
        if Path(start).absolute() != Path(path).absolute():
            found.append(f"{after} was trained from {start}, not from {before}, which is {path}.")
    return found


def problems(report: dict) -> list[tuple[str, int]]:
    """(task, its number of problems) of every task."""
    first = next(iter(report["scores"].values()))
    return [(task, next(iter(modes.values()))["num_problems"]) for task, modes in first.items()]


def score_table(report: dict, task: str, only_main: bool = False) -> Table:
    """One row per checkpoint, in per cent ± one standard error.

    Columns are each mode's main metric and, but for `only_main`, pass@k, maj@k, the official ones.
    """
    tasks = {name: tasks[task] for name, tasks in report["scores"].items()}
    columns = []
    for mode, found in next(iter(tasks.values())).items():
        others = [] if only_main else [m for m in found["metrics"] if "@" in m or "," in m]
        columns += [(mode, metric) for metric in dict.fromkeys([found["main"], *others])]
    header = ["checkpoint", *(metric_name(mode, metric) for mode, metric in columns)]
    return header, [
        [name, *(percent(modes[mode]["metrics"].get(metric)) for mode, metric in columns)]
        for name, modes in tasks.items()
    ]


def split_table(report: dict, task: str) -> Table:
    """One row per mode and change: the score's change and its parts, in points with intervals."""
    rows = []
    for mode, found in report["changes"][task].items():
        for one in found:
            name = f"{one['from']} → {one['to']}, {row_name(report, task, mode)}"
            rows.append([name, *(change(one[part]) for part in ("score", *PARTS))])
    return ["change in points", "score", *PARTS], rows


def rate_table(report: dict, task: str) -> Table:
    """One row per mode and checkpoint: the score and its three factors, in per cent."""
    rows = []
    for mode, rates in report["rates"][task].items():
        for name, found in rates.items():
            one = report["scores"][name][task][mode]
            value = one["metrics"][one["main"]]["value"]
            shown = ["-" if rate is None else f"{100 * rate:.1f}" for rate in found.values()]
            row = f"{name}, {row_name(report, task, mode)}"
            rows.append([row, f"{100 * value:.1f}", *shown])
    return ["score and its factors, %", "score", *PARTS], rows


def outcome_table(report: dict, task: str) -> Table:
    """One row per mode and checkpoint: shares in per cent, mean length; no empty columns."""
    rows = []
    for mode, rates in report["outcomes"][task].items():
        for name, found in rates.items():
            row = {"completions, %": f"{name}, {row_name(report, task, mode)}"}
            row |= {OUTCOMES[outcome]: f"{100 * rate:.1f}" for outcome, rate in found.items()}
            for column, (key, form) in SHAPE.items():
                value = report["shapes"][task][mode][name][key]
                row[column] = "-" if value is None else form.format(value).rstrip("%")
            rows.append(row)
    header = [column for column in rows[0] if any(row[column] != "-" for row in rows)]
    return header, [[row[column] for column in header] for row in rows]


def terminal_tables(report: dict[str, Any]) -> dict[str, Table]:
    """`{title: table}` of the terminal: scores of every task."""
    return {
        f"{task}: correct (%), {count:,} problems": score_table(report, task, only_main=True)
        for task, count in problems(report)
    }


def level_tables(report: dict) -> dict[str, Table]:
    """`{title: table}` of each task and mode whose problems carry levels, a row per level."""
    return tables_by("level", report, report["levels"])


def source_tables(report: dict) -> dict[str, Table]:
    """`{title: table}` of each task and mode with problems of several sources, a row per source."""
    return tables_by("source", report, report["sources"])


def tables_by(name: str, report: dict, scores: dict) -> dict[str, Table]:
    """`{title: table}` of the scores by task, mode and checkpoint, where there are any."""
    found = {}
    for task, modes in scores.items():
        for mode, groups in modes.items():
            rows = [
                [value, one["n"], *(percent(by_value[value]) for by_value in groups.values())]
                for value, one in next(iter(groups.values())).items()
            ]
            if rows:
                title = f"{task}, {row_name(report, task, mode)}"
                found[title] = [name, "problems", *groups], rows
    return found


def load_references(tasks: list[str]) -> list[dict[str, Any]]:
    """The published rows (`references.yaml`) of the tasks that were run; scores in per cent."""
    sources = strict_yaml.read(REFERENCES)
    return [
        {key: row[key] for key in ("tasks", "title", "measured_as", "scores")}
        | {key: source.get(key) for key in ("source", "base_model", "stages", "models", "note")}
        for source in sources
        for row in source["rows"]
        if {*row["tasks"]} <= {*tasks}
    ]


def reference_table(report: dict) -> Table:
    """Our scores and the published ones: task by task, then averages over tasks."""
    references, scores = report["references"], report["scores"]
    rows = []
    groups = dict.fromkeys(tuple(found["tasks"]) for found in references)
    for group in sorted(groups, key=len):
        modes = next(iter(scores.values()))
        for mode, found in modes[group[0]].items():
            if any(mode not in modes[task] for task in group):
                continue
            means = []
            for tasks in scores.values():
                metrics = [tasks[task][mode]["metrics"][found["main"]] for task in group]
                means.append(f"{100 * fmean(one['value'] for one in metrics):.1f}")
            name = row_name(report, group[0], mode)
            shown = f"{' → '.join(means)} ({' → '.join(scores)})"
            rows.append([", ".join(group), report["base_model"], f"ours, {name}", shown])
        for found in references:
            if tuple(found["tasks"]) == group:
                whose = f"theirs, {found['measured_as']}: {found['source']}"
                shown = show_published(found)
                rows.append([found["title"], found["base_model"], whose, shown])
    return ["task", "base model", "whose", "scores (%)"], rows


def show_published(reference: dict[str, Any]) -> str:
    """The scores of a published row: of one model's stages, or each with the model's name."""
    scores = [f"{score:.2f}" for score in reference["scores"]]
    if models := reference.get("models"):
        return ", ".join(map(" ".join, zip(scores, models, strict=True)))
    return f"{' → '.join(scores)} ({reference['stages']})"


def checkpoint_table(report: dict) -> Table:
    """Each checkpoint's path and hash, and the cost of its evaluation."""
    rows = []
    for name, path in report["checkpoints"].items():
        digest = report["fingerprints"][name]["checkpoint"]
        costs = ("-" if cost is None else f"{cost:,.0f}" for cost in report["costs"][name].values())
        rows.append([name, *costs, path, digest])
    return ["checkpoint", "completions", "tokens", "seconds", "path", "hash"], rows
