"""The report's tables, sentences, warnings and published figures; see report.html.jinja.

Sentences and tables are made of the numbers of `numbers.summarise` by the same functions, so that
they cannot differ. Scores are in per cent, changes in points; an interval is a 95 % one.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from eval.harness.metrics import unseen_share
from eval.report import plots
from eval.report.decomposition import MIN_READABLE, PARTS
from eval.report.numbers import headline_mode, is_official
from eval.report.render import Table, flatten, render
from pipeline import manifest, strict_yaml
from pipeline.figures import percent, points

REFERENCES = Path(__file__).with_name("references.yaml")
COUNTS = ("rows_in", "rows_out", "dropped", "wall_time_s")  # of a stage, besides its own
MIN_PROBLEMS = 100
MAX_NAMED = 6  # of the places that a warning is about
# Above these shares a score says more about the evaluation than about the model.
MAX_SHARE = 0.1
CUT_PROMPTS = (
    "Official prompts exceeded the model's context and lost their beginning, so the score is not "
    "the benchmark's"
)
UNREAD = (
    "An official parser misses correct answers, so its score says less about the model than about "
    "the parser"
)
CUT_OFF = (
    "Completions were cut off at `max_new_tokens`, official ones at their task's own limit; a "
    "higher one may find more correct answers"
)
NO_THOUGHT = (
    "Completions ended without exactly one closed thought (no `</think>`, or several), so no "
    "answer was read"
)
# Columns of a table: head, and key of its value.
OUTCOMES = {
    "correct": "right",
    "incorrect": "wrong",
    "correct answer elsewhere": "unread",
    "thought not closed": "unclosed",
    "no answer": "no answer",
    "cut off": "cut off",
}
SHAPE = {
    "correct by a lenient reader": "answer_right",
    "correct by our grader": "ours_right",
    "in the form asked for": "well_formed",
    "mean length in tokens": "num_tokens",
    "correct answer before the cut": "cut_off_right",
}
COSTS = {"completions": "num_completions", "tokens": "num_tokens", "seconds": "wall_time_s"}


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
        "levels": tables_by(report, "level"),
        "sources": tables_by(report, "source"),
        "references": reference_table(report),
        "stages": {
            name: flatten(found["counts"] | {key: found[key] for key in COUNTS if found.get(key)})
            for name, found in report["stages"].items()
        },
        "checkpoints": checkpoint_table(report),
    }
    outcomes = {outcome: head for head, outcome in OUTCOMES.items()}
    values = {"outcomes": outcomes, "min_readable": MIN_READABLE}
    return render("report", report=report, figures=figures, tables=tables, **values)


# What a reader sees of one number.


def score_text(score: dict) -> str:
    """`{"value": 0.123, "stderr": 0.01}` as "12.3 ± 1.0", all correct as "100.0 (≥ 90.5)".

    That is the one-sided 95 % bound.
    """
    text = percent(score["value"])
    if score["value"] in (0, 1):
        bound = abs(score["value"] - unseen_share(score["n"]))
        return f"{text} ({'≥' if score['value'] else '≤'} {percent(bound)})"
    return text if score["stderr"] is None else f"{text} ± {percent(score['stderr'])}"


def change_text(score: dict) -> str:
    """A difference in points and its interval, if it has one: "+12.3 [10.0, 14.6]"."""
    text = points(score["value"])
    return text if score["low"] is None else f"{text} {interval_text(score)}"


def interval_text(score: dict) -> str:
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


def main_score(report: dict, name: str, task: str, mode: str) -> dict:
    """The main metric of a checkpoint, of `mean_interval`."""
    found = report["scores"][name][task][mode]
    return found["metrics"][found["main"]]


def problems(report: dict) -> list[tuple[str, int]]:
    """(task, its number of problems) of every task."""
    first = next(iter(report["scores"].values()))
    return [(task, next(iter(modes.values()))["num_problems"]) for task, modes in first.items()]


# The first screen.


def result(report: dict[str, Any]) -> str:
    """One sentence: the last checkpoint's score of the first task, and its last change."""
    return describe_score(report, next(iter(report["changes"])))


def summary(report: dict[str, Any]) -> str:
    """A line for each task: the score, the last change and its parts, the change from the first."""
    lines = []
    for task in report["changes"]:
        sentences = [describe_score(report, task)]
        changes = last_changes(report, task)
        for one in changes[:1]:
            parts = ", ".join(f"{part} {points(one[part]['value'])}" for part in PARTS)
            sentences.append(f"Parts: {parts}.")
        sentences += [f"Since {one['from']}: {change_text(one['score'])}." for one in changes[1:]]
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
    *_, name = report["scores"]
    mode = headline_mode(report["changes"][task])
    value = percent(main_score(report, name, task, mode)["value"])
    metric = metric_name(mode, report["scores"][name][task][mode]["main"])
    text = f"{name} scores {value} % on {task} ({metric})"
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


def headline(report: dict[str, Any]) -> list[dict[str, str]]:
    """The numbers of the first screen, three at most: `{"value", "name", "note"}` of each.

    First the last checkpoint's score of the first task, and its last change. Then the next task's
    score or, with one task, the change from the first checkpoint.
    """
    *_, name = report["scores"]

    def score(task: str, count: int) -> dict[str, str]:
        mode = headline_mode(report["changes"][task])
        found = main_score(report, name, task, mode)
        note = (
            f"{metric_name(mode, report['scores'][name][task][mode]['main'])}, {count:,} problems"
        )
        if found["low"] is not None:
            note = f"95 % {interval_text(found)}; {note}"
        return {"value": f"{percent(found['value'])} %", "name": f"{name} on {task}", "note": note}

    def step(one: dict) -> dict[str, str]:
        found, note = one["score"], ""
        if found["low"] is not None:
            note = f"95 % {interval_text(found)}{', may be chance' * may_be_chance(found)}"
        value = f"{points(found['value'])} points"
        return {
            "value": value,
            "name": f"from {one['from']} to {one['to']} on {task}",
            "note": note,
        }

    (task, count), *others = problems(report)
    changes = [step(one) for one in last_changes(report, task)]
    return [score(task, count), *changes[:1], *(score(*one) for one in others), *changes[1:]][:3]


def steps(report: dict[str, Any]) -> dict[str, dict]:
    """`{"sft to grpo": change}` for `plots.draw_parts`: the first task's, in its headline mode."""
    modes = next(iter(report["changes"].values()))
    return {f"{one['from']} to {one['to']}": one for one in modes[headline_mode(modes)]}


def bars(report: dict[str, Any], names: list[str]) -> dict[str, dict[str, tuple]]:
    """Every task's outcomes and score, in its headline mode, for `plots.draw_outcomes`."""
    found = {}
    for task, count in problems(report):
        mode = headline_mode(report["outcomes"][task])
        found[f"{task}: {row_name(report, task, mode)}, {count:,} problems"] = {
            name: (report["outcomes"][task][mode][name], main_score(report, name, task, mode))
            for name in names
        }
    return found


# Notes and warnings.


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
    found = []
    if num_first := report["settings"].get("limit"):
        found.append(
            f"`limit`: only the first {num_first:,} problems of each task were scored; published "
            "figures are of all of them."
        )
    places: dict[str, list[str]] = {CUT_PROMPTS: [], UNREAD: [], CUT_OFF: [], NO_THOUGHT: []}
    trained = [name for name in report["scores"] if not is_untrained(report, name)]
    for name in reversed(trained):  # the last checkpoint is the result
        for task, modes in report["scores"][name].items():
            for mode, score in modes.items():
                place = f"{name} {task} {mode}"
                if cut := score.get("num_cut_prompts"):
                    places[CUT_PROMPTS].append(f"{place} {cut:,} of {score['num_problems']:,}")
                for sentence, share in doubtful_shares(report, name, task, mode).items():
                    if share > MAX_SHARE:
                        places[sentence].append(f"{place} {percent(share, 0)} %")
    for sentence, named in places.items():
        if len(named) > MAX_NAMED:
            named[MAX_NAMED:] = [f"{len(named) - MAX_NAMED} more"]
        if named:
            found.append(f"{sentence}: {', '.join(named)}.")
    few = [f"{task} has {count}" for task, count in problems(report) if count < MIN_PROBLEMS]
    if few:
        found.append(f"Fewer than {MIN_PROBLEMS} problems, so wide intervals: {', '.join(few)}.")
    return found


def doubtful_shares(report: dict[str, Any], name: str, task: str, mode: str) -> dict[str, float]:
    """By warning the share of completions that it is about, in [0, 1]."""
    found = {CUT_OFF: report["cut_off"][task][mode][name]}
    if is_official(mode):
        outcomes = report["outcomes"][task][mode][name]
        found[UNREAD] = outcomes["unread"] / ((outcomes["right"] + outcomes["unread"]) or 1)
    else:  # official prompts ask for no thought
        found[NO_THOUGHT] = report["no_thought"][task][mode][name]
    return found


# Tables.


def table(corner: str, rows: Mapping[str, Mapping[str, str]]) -> Table:
    """A table of `{label: {head: cell}}` rows; a cell that a row lacks is "-"."""
    heads = dict.fromkeys(head for row in rows.values() for head in row)
    body = [[label, *(row.get(head, "-") for head in heads)] for label, row in rows.items()]
    return [corner, *heads], body


def score_table(report: dict, task: str, only_main: bool = False) -> Table:
    """One row per checkpoint, in per cent ± one standard error.

    Columns are each mode's main metric and, but for `only_main`, pass@k, maj@k, the official ones.
    """
    rows: dict[str, dict[str, str]] = {}
    for name in report["scores"]:
        rows[name] = {}
        for mode, found in report["scores"][name][task].items():
            others = [] if only_main else [m for m in found["metrics"] if "@" in m or "," in m]
            for metric in (found["main"], *others):
                rows[name][metric_name(mode, metric)] = score_text(found["metrics"][metric])
    return table("checkpoint", rows)


def split_table(report: dict, task: str) -> Table:
    """One row per mode and change: the score's change and its parts, in points with intervals."""
    rows = {
        f"{one['from']} → {one['to']}, {row_name(report, task, mode)}": {
            part: change_text(one[part]) for part in ("score", *PARTS)
        }
        for mode, found in report["changes"][task].items()
        for one in found
    }
    return table("change in points", rows)


def rows_of(report: dict, task: str) -> Iterator[tuple[str, str, str]]:
    """(label, mode, checkpoint) of the rows of a task: "grpo, avg@4"."""
    for mode, found in report["rates"][task].items():
        for name in found:
            yield f"{name}, {row_name(report, task, mode)}", mode, name


def rate_table(report: dict, task: str) -> Table:
    """One row per mode and checkpoint: the score and its three factors, in per cent."""
    rows = {}
    for label, mode, name in rows_of(report, task):
        score = {"score": main_score(report, name, task, mode)["value"]}
        rates = score | report["rates"][task][mode][name]
        rows[label] = {part: "-" if rate is None else percent(rate) for part, rate in rates.items()}
    return table("score and its factors, %", rows)


def outcome_table(report: dict, task: str) -> Table:
    """One row per mode and checkpoint: shares in per cent, mean length; no empty columns."""
    rows = {}
    for label, mode, name in rows_of(report, task):
        found = report["outcomes"][task][mode][name] | report["shapes"][task][mode][name]
        rows[label] = {
            head: f"{found[key]:.0f}" if key == "num_tokens" else percent(found[key])
            for head, key in (OUTCOMES | SHAPE).items()
            if found[key] is not None
        }
    return table("completions, %", rows)


def tables_by(report: dict, kind: str) -> dict[str, Table]:
    """`{title: table}` of scores by "level" or "source", of each task and mode that has any."""
    found = {}
    for task, modes in report[f"{kind}s"].items():
        for mode, groups in modes.items():
            rows = {
                value: {"problems": f"{one['n']:,}"}
                | {name: score_text(scores[value]) for name, scores in groups.items()}
                for value, one in next(iter(groups.values())).items()
            }
            if rows:
                found[f"{task}, {row_name(report, task, mode)}"] = table(kind, rows)
    return found


def terminal_tables(report: dict[str, Any]) -> dict[str, Table]:
    """`{title: table}` of the terminal: scores of every task."""
    return {
        f"{task}: correct (%), {count:,} problems": score_table(report, task, only_main=True)
        for task, count in problems(report)
    }


def checkpoint_table(report: dict) -> Table:
    """Each checkpoint's path and hash, and the cost of its evaluation."""
    rows = {}
    for name, path in report["checkpoints"].items():
        costs = {head: report["costs"][name][key] for head, key in COSTS.items()}
        rows[name] = {head: "-" if cost is None else f"{cost:,.0f}" for head, cost in costs.items()}
        rows[name] |= {"path": path, "hash": report["fingerprints"][name]["checkpoint"]}
    return table("checkpoint", rows)


# Published figures.


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
    names, rows = [*report["scores"]], []
    first = report["scores"][names[0]]
    groups = dict.fromkeys(tuple(found["tasks"]) for found in report["references"])
    for group in sorted(groups, key=len):
        for mode in first[group[0]]:
            if all(mode in first[task] for task in group):
                means = [
                    percent(fmean(main_score(report, name, task, mode)["value"] for task in group))
                    for name in names
                ]
                ours = f"ours, {row_name(report, group[0], mode)}"
                shown = f"{' → '.join(means)} ({' → '.join(names)})"
                rows.append([", ".join(group), report["base_model"], ours, shown])
        for found in report["references"]:
            if tuple(found["tasks"]) == group:
                theirs = f"theirs, {found['measured_as']}: {found['source']}"
                rows.append([found["title"], found["base_model"], theirs, show_published(found)])
    return ["task", "base model", "whose", "scores (%)"], rows


def show_published(reference: dict[str, Any]) -> str:
    """The scores of a published row: of one model's stages, or each with the model's name."""
    scores = [f"{score:.2f}" for score in reference["scores"]]
    if models := reference.get("models"):
        return ", ".join(map(" ".join, zip(scores, models, strict=True)))
    return f"{' → '.join(scores)} ({reference['stages']})"
