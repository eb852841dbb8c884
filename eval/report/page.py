"""What the report says: tables, sentences, warnings, published figures; `render` has how it looks.

Sentences are made of the numbers of `numbers.summarise`, so that none can say what the tables do
not. Per cent and points throughout; an interval is a 95 % one.
"""

from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from eval.report.numbers import headline_mode, is_official
from eval.report.render import Table, html

REFERENCES = Path(__file__).with_name("references.yaml")
PARTS = ("ability", "format", "truncation")
# Above these a score says more about the evaluation than about the model.
MAX_CUT_OFF = MAX_UNCLOSED = MAX_UNREAD = 0.1  # shares
MIN_PROBLEMS = 100
HARNESS_LIMIT = 256  # `eval.harness.cached_lm.HARNESS_MAX_NEW_TOKENS`, which is slow to import
SHAPE = {  # columns after the outcomes: key of `eval.report.numbers.shape`, how it is written
    "answer right": ("answer_right", "{:.1%}"),
    "ours right": ("ours_right", "{:.1%}"),
    "well formed": ("well_formed", "{:.1%}"),
    "tokens": ("num_tokens", "{:.0f}"),
    "cut off, but right": ("cut_off_right", "{:.1%}"),
}
OUTCOMES = (
    "Changes are in points, paired over the same problems, with 95 % bootstrap intervals over "
    "problems: an interval without 0 is more than chance. "
    "Every completion has one outcome. `right`: the score counts it. `wrong`: it gives another "
    "answer; that is ability. `unread` (the right answer, but not where the parser looks for it), "
    "`unclosed` (the right answer, but no closed thought) and `no answer` are format. `cut off`: "
    "the token limit came before an answer was counted; that is truncation. A part is positive "
    "where fewer completions are lost to it; the three sum to the change of the score. Ability is "
    "counted among completions that ended: where a model was cut off before, its failures count as "
    "truncation, so that ability may look negative when truncation goes away. Official completions "
    "are counted by the official parser: `unread` ones are right, but not for it; `ours right` is "
    "what our grader says of the same completions. `answer right` is what a lenient reader would "
    "count, whatever its form; `cut off, but right` the share of the cut off completions that "
    "already contained the right answer."
)
SCALE = (
    "Published figures are a scale only: other models, other sizes, other prompts. They cannot be "
    "compared with ours digit by digit."
)


def build_page(report: dict[str, Any], figures: dict[str, Any]) -> str:
    """The whole report as HTML.

    Args:
        report: the content of `report.json`.
        figures: `{"changes": SVG or None, "curves": {checkpoint: [SVG]}}`.
    """
    names = list(report["checkpoints"])
    listed = f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
    opening = [html.text(report["summary"], lead=True)]
    if report["warnings"]:
        opening.append(html.warnings(report["warnings"]))
    curves = [
        html.figure(f"Training of `{name}`; bold: moving average", svgs)
        for name, svgs in figures["curves"].items()
    ]
    sections = {
        "scores": ("Scores", _scores(report)),
        "changes": ("Where the change comes from", _changes(report, figures["changes"])),
        "levels": ("By level", _levels(report)),
        "training": ("Training", curves),
        "flips": ("Side by side", _examples(report)),
        "references": ("Published figures", _references(report)),
        "stages": ("Stages", _stages(report["stages"])),
        "provenance": ("Provenance", _provenance(report)),
    }
    subtitle = f"{listed} on {', '.join(report['scores'][names[0]])}"
    return html.page(report["title"], subtitle, opening, sections)


def percent(score: dict | None) -> str:
    """`{"value": 0.123, "stderr": 0.01}` as "12.3 ± 1.0"; a hyphen for None."""
    if score is None:
        return "-"
    text = f"{100 * score['value']:.1f}"
    return text if score["stderr"] is None else f"{text} ± {100 * score['stderr']:.1f}"


def points(value: float, sign: str = "+") -> str:
    """A difference of shares in points: 0.123 as "+12.3", 0 as "0.0"."""
    text = f"{100 * value:{sign}.1f}"
    return "0.0" if text.strip("+-") == "0.0" else text


def change(score: dict) -> str:
    """A difference in points and its interval, which one problem has not: "+12.3 [10.0, 14.6]"."""
    text = points(score["value"])
    if score["low"] is None:
        return text
    return f"{text} [{points(score['low'], '-')}, {points(score['high'], '-')}]"


def metric_name(mode: str, metric: str) -> str:
    """A metric as a reader would call it: "greedy accuracy", "avg@4", "official exact_match"."""
    name, _, kind = metric.partition(",")
    kind = f" ({kind})" if kind not in ("", "none") else ""
    return name if mode == "sampled" else f"{mode.replace(':', ' ')} {name}{kind}"


def row_name(report: dict, task: str, mode: str) -> str:
    """A mode as a row names it, by its main metric: "avg@4"; "official minerva_math500"."""
    if is_official(mode):
        return mode.replace(":", " ")
    first = next(iter(report["scores"].values()))
    return metric_name(mode, first[task][mode]["main"])


def flatten(value: dict[str, Any], prefix: str = "") -> list[list[str]]:
    """Nested counts as `[["dropped, too long", "12"], ...]`."""
    rows = []
    for key, item in value.items():
        name = f"{prefix}, {key}" if prefix else str(key)
        rows += flatten(item, name) if isinstance(item, dict) else [[name, str(item)]]
    return rows


def summary(report: dict[str, Any]) -> str:
    """One paragraph: the last change of every task with its parts, and that from the first."""
    scores, sentences = report["scores"], []
    names = list(scores)
    last = names[-1]
    for task, modes in scores[last].items():
        mode = headline_mode(modes)
        main = modes[mode]["main"]
        values = [scores[name][task][mode]["metrics"][main] for name in names]
        text = f"{task}: {metric_name(mode, main)} {percent(values[-1])} %"
        if len(names) > 1:
            changes = report["changes"][task][mode]
            found = changes[len(names) - 2]
            score = found["score"]
            text += f", {change(score)} points from {100 * values[-2]['value']:.1f} %"
            if score["low"] is not None and score["low"] <= 0 <= score["high"]:
                text += " (not to be told from chance)"
            parts = [f"{part} {points(found[part]['value'])}" for part in PARTS]
            text += f", of these {', '.join(parts)}"
        if len(names) > 2:
            text += f"; over {names[0]} {change(changes[-1]['score'])}"
        sentences.append(f"{text}.")
    return f"{last}{f' over {names[-2]}' if len(names) > 1 else ''} on {' On '.join(sentences)}"


def warnings(report: dict[str, Any]) -> list[str]:
    """What a reader should doubt, most serious first; none where all is well."""
    limit = report["settings"].get("max_new_tokens")
    rules = (  # shares, above which one, of official modes, what is said
        (
            _unread_shares(report["outcomes"]), MAX_UNREAD, True,
            "An official parser does not read answers that are right, so that its score says less "
            "about the model than about the parser",
        ),
        (
            report["cut_off"], MAX_CUT_OFF, False,
            f"Completions were cut off at {limit} tokens; a higher `max_new_tokens` may find them "
            "right",
        ),
        (
            report["cut_off"], MAX_CUT_OFF, True,
            f"Completions were cut off at the harness's own limit ({HARNESS_LIMIT} tokens unless "
            "the task sets one); `max_new_tokens` does not change it",
        ),
        (  # of ours only: official prompts ask for no thought
            report["no_thought"], MAX_UNCLOSED, False,
            "Completions ended without one closed thought (no `</think>`, or several), so that no "
            "answer was read",
        ),
    )  # fmt: skip
    found = _twins(report)
    for shares, most, official, text in rules:
        parts = [
            f"{name} {task} {mode} {100 * value:.0f} %"
            for task, modes in shares.items()
            for mode, by_name in modes.items()
            for name, value in by_name.items()
            if value > most and is_official(mode) == official
        ]
        if parts:
            found.append(f"{text}: {', '.join(parts)}.")
    few = [f"{task} has {count}" for task, count in _problems(report) if count < MIN_PROBLEMS]
    if few:
        found.append(f"Fewer than {MIN_PROBLEMS} problems, so wide intervals: {', '.join(few)}.")
    return found


def _unread_shares(outcomes: dict) -> dict:
    """Of the completions with the right answer, the share that the parser did not read."""

    def share(rates: dict) -> float:
        return rates["unread"] / (rates["right"] + rates["unread"]) if rates["unread"] else 0.0

    return {
        task: {mode: {name: share(rates) for name, rates in found.items()}
               for mode, found in modes.items()}
        for task, modes in outcomes.items()
    }  # fmt: skip


def _twins(report: dict) -> list[str]:
    """Consecutive checkpoints that are the same, or score as if they were."""
    found = []
    for before, after in pairwise(report["checkpoints"]):
        one, two = (report["fingerprints"][name] or {} for name in (before, after))
        if one.get("checkpoint") and one.get("checkpoint") == two.get("checkpoint"):
            found.append(f"{before} and {after} are the same checkpoint: their files are equal.")
        elif report["scores"][before] == report["scores"][after]:
            found.append(
                f"{before} and {after} have identical scores in every task; was {after} trained, "
                "and is its path its own?"
            )
    return found


def _problems(report: dict) -> list[tuple[str, int]]:
    """(task, its number of problems) of every task."""
    first = next(iter(report["scores"].values()))
    return [(task, next(iter(modes.values()))["num_problems"]) for task, modes in first.items()]


def score_table(report: dict, task: str, only_main: bool = False) -> Table:
    """One row per checkpoint, in per cent ± one standard error.

    Columns are what ranks, pass@k and maj@k, and the official metrics.

    Args:
        only_main: of each mode its main metric only.
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
    """One row per mode and change: the score's change and its parts, points and intervals."""
    rows = [
        [f"{one['from']} → {one['to']}, {row_name(report, task, mode)}",
         *(change(one[part]) for part in ("score", *PARTS))]
        for mode, found in report["changes"][task].items()
        for one in found
    ]  # fmt: skip
    return ["change", "score", *PARTS], rows


def outcome_table(report: dict, task: str) -> Table:
    """One row per mode and checkpoint: shares in per cent, and mean length.

    Columns that have nothing to say for any row are left out.
    """
    rows = []
    for mode, rates in report["outcomes"][task].items():
        for name, found in rates.items():
            row = {"completions": f"{name}, {row_name(report, task, mode)}"}
            row |= {outcome: f"{100 * rate:.1f}" for outcome, rate in found.items()}
            for column, (key, form) in SHAPE.items():
                value = report["shapes"][task][mode][name][key]
                row[column] = "-" if value is None else form.format(value).rstrip("%")
            rows.append(row)
    header = [column for column in rows[0] if any(row[column] != "-" for row in rows)]
    return header, [[row[column] for column in header] for row in rows]


def terminal_tables(report: dict[str, Any]) -> dict[str, Table]:
    """`{title: table}` of the terminal: scores of every task."""
    return {
        f"{task}: solved (%), {count:,} problems": score_table(report, task, only_main=True)
        for task, count in _problems(report)
    }


def _scores(report: dict) -> list:
    settings = report["settings"]
    k = settings["num_samples"]
    text = (
        f"Scores in per cent ± one standard error over problems. avg@{k} is the mean correctness "
        f"of {k} samples a problem at temperature {settings['temperature']}, top-p "
        f"{settings['top_p']}; pass@j that at least one of j is right, maj@{k} that the most "
        "frequent answer is. Official: the harness's own task, prompt and parser."
    )
    blocks = [html.text(text)]
    for task, count in _problems(report):
        blocks.append(html.heading(f"{task} ({count:,} problems)"))
        blocks.append(html.table(*score_table(report, task)))
    return blocks


def _changes(report: dict, figure: str | None) -> list:
    blocks = [html.text(OUTCOMES)]
    if figure:
        caption = "Each change as the sum of its parts; the diamond is the change of the score"
        blocks.append(html.figure(caption, [figure]))
    for task in report["outcomes"]:
        blocks.append(html.heading(task))
        if len(report["checkpoints"]) > 1:
            blocks.append(html.table(*split_table(report, task)))
        blocks.append(html.table(*outcome_table(report, task)))
    return blocks


def _levels(report: dict) -> list:
    """A table of each task and mode whose problems carry levels, a row per level."""
    blocks = []
    for task, modes in report["levels"].items():
        for mode, levels in modes.items():
            rows = [
                [str(level), str(one["n"]), *(percent(found[level]) for found in levels.values())]
                for level, one in next(iter(levels.values())).items()
            ]
            if rows:
                blocks.append(html.heading(f"{task}, {row_name(report, task, mode)}"))
                blocks.append(html.table(["level", "problems", *levels], rows))
    return blocks


def _examples(report: dict[str, Any]) -> list:
    """What changed, then what an official parser misses."""
    names, blocks = list(report["checkpoints"]), []
    if report["flips"]:
        text = (
            f"Completions on which {names[-2]} and {names[-1]} disagree, drawn by lot in equal "
            "parts from the tasks and from gains and losses: their number says nothing about how "
            "frequent either is."
        )
        blocks = [html.text(text), *map(_example, report["flips"])]
    elif len(names) > 1:
        blocks = [html.text(f"No completion changed from {names[-2]} to {names[-1]}.")]
    if report["unread"]:
        text = (
            f"Drawn by lot from {names[-1]}'s completions of official tasks: right for our grader, "
            "but not read by the official parser."
        )
        blocks += [html.text(text), *map(_example, report["unread"])]
    return blocks


def _example(found: dict) -> str:
    outcomes = " → ".join(side["outcome"] for side in found["sides"])
    title = f"{found['task']}, {found['mode'].replace(':', ' ')}: {outcomes}"
    facts = f"problem {found['id']}, from {found['source']}, sample {found['sample'] + 1}"
    if found["level"] is not None:
        facts += f", level {found['level']}"
    texts = {"Question": found["question"], "Gold": "\n".join(found["gold"])}
    sides = [side | {"facts": _facts(side)} for side in found["sides"]]
    return html.example(title, facts, texts, sides, ends_short=True)


def _facts(side: dict) -> str:
    read = "nothing" if side["prediction"] is None else side["prediction"]
    return f"{side['num_tokens'] or 0:,} tokens, our grader: {side['verdict']}, read: {read}"


def load_references(tasks: list[str]) -> list[dict[str, Any]]:
    """The published rows (`references.yaml`) of the tasks that were run, by our names of them.

    Returns:
        `[{"task", "title", "source", "stages", "measured_as", "scores", "note"}]` in the order of
        `tasks`; scores in per cent.
    """
    sources = yaml.safe_load(REFERENCES.read_text(encoding="utf-8"))
    return [
        {
            "task": task,
            **{key: row[key] for key in ("title", "measured_as", "scores")},
            **{key: source.get(key) for key in ("source", "stages", "note")},
        }
        for task in tasks
        for source in sources
        for row in source["rows"]
        if task in row["tasks"]
    ]


def _references(report: dict) -> list:
    """A table task by task, our scores and the published ones, and the sources' notes."""
    references, scores = report["references"], report["scores"]
    rows = []
    for task in dict.fromkeys(found["task"] for found in references):
        for mode, found in next(iter(scores.values()))[task].items():
            values = [tasks[task][mode]["metrics"][found["main"]] for tasks in scores.values()]
            shown = " → ".join(f"{100 * one['value']:.1f}" for one in values)
            name = row_name(report, task, mode)
            rows.append([task, f"ours, {name}", f"{shown} ({' → '.join(scores)})"])
        for found in references:
            if found["task"] == task:
                shown = " → ".join(f"{score:.2f}" for score in found["scores"])
                whose = f"theirs, {found['measured_as']}: {found['source']}"
                rows.append([found["title"], whose, f"{shown} ({found['stages']})"])
    notes = dict.fromkeys(found["note"] for found in references if found["note"])
    table = html.table(["task", "whose", "scores (%)"], rows, facts=True)
    return [html.text(" ".join([SCALE, *notes])), table] if rows else []


def _stages(stages: dict[str, dict]) -> list:
    """Counts of every stage that left a manifest, and its configuration, folded away."""
    blocks = []
    for name, found in stages.items():
        kept = ("rows_in", "rows_out", "dropped", "wall_time_s")
        rows = flatten(found["counts"] | {key: found[key] for key in kept if found.get(key)})
        blocks += [html.heading(name), html.table(["count", "value"], rows)]
        config = html.table(["key", "value"], flatten(found["config"]), facts=True)
        blocks.append(html.details(f"configuration of {name}", [config]))
    return blocks


def _provenance(report: dict) -> list:
    rows = [
        ["commit of the evaluation", report["git_commit"] or "not in a git checkout"],
        ["commit of this report", report["report_commit"] or "not in a git checkout"],
        ["versions", ", ".join(f"{k} {v}" for k, v in report["versions"].items())],
    ]
    for name, path in report["checkpoints"].items():
        digest = (report["fingerprints"][name] or {}).get("checkpoint") or "-"
        rows += [[f"{name}: path", path], [f"{name}: hash", digest]]
    costs = [
        [name, *("-" if value is None else f"{value:,.0f}" for value in cost.values())]
        for name, cost in report["costs"].items()
    ]
    config = html.table(["key", "value"], flatten(report["evaluation_config"]), facts=True)
    return [
        html.table(["what", "value"], rows, facts=True),
        html.table(["evaluation of", "completions", "tokens", "seconds"], costs),
        html.details("configuration of the evaluation", [config]),
    ]
