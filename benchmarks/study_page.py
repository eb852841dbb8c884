"""The page of a study: accuracy of each arm, gains paired by problem, curves.

A model's answers are a table for each set, with a row for each problem (`benchmarks.study_record`).
"""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks import table
from benchmarks.study_record import Record
from eval.harness.metrics import mean_interval
from stages import sweep_page

# Arm -> its name in the table. The first three are values of the sweep's key `rewards`.
ARMS = {
    "own": "GRPO",
    "random": "GRPO, random reward",
    "format": "GRPO, format reward",
    "sft": "SFT continued",
}
REWARDS = ("own", "random", "format")
HOW = """\
`make study RECIPE={recipe}` trains GRPO for {steps} steps from {starts}. Control runs have another
reward. "{sft}" trains on SFT's own rows for about as many seconds as GRPO takes{sft_steps}."""
OTHER_SFT = "SFT of the control runs"  # where GRPO's own runs start from other models
SETS = ("test", "transfer")
CHOICES = ("best", "majority")
COLUMNS = {"never": "hardest"}  # by the names of the figures
MEANING = """\
- Accuracy is in per cent, the mean of {n} samples at the temperature of `eval.yaml`, or greedy.
  ± is half of the 95 % interval over the seeds (Student's t).
- Intervals of gains are over problems, after the mean over the seeds: they hold for these training
  runs.
- `test`, `transfer`: the problems of the recipe's files ({sizes}).
- `hardest`: the test problems that SFT solves in none of {n} samples: {hard}, by SFT model.
- Best of {n}: an oracle chooses among the samples. Majority: the most frequent answer.
- Tokens: mean length of a sample. Seconds: of training, with as many runs beside it as `jobs`
  allows."""
Answers = dict[str, pd.DataFrame]  # by set
Runs = dict[int, Answers]  # by seed
Arms = dict[str, Runs]
Figures = dict[str, dict[str, list[float]]]  # by row and column, a value for each seed


# The tables


def distinct(starts: Runs, seeds: Iterable[int]) -> list[Answers]:
    """The SFT models of some seeds: one for each, or one for all."""
    return [*{id(starts[seed]): starts[seed] for seed in seeds}.values()]


def columns(answers: Answers) -> dict[str, tuple[str, str]]:
    """Name of a column -> set, and column of its table."""
    return {
        f"{name}{words}": (name, column)
        for name in answers
        for words, column in ((", greedy", "greedy"), ("", "sampled"))
    }


def never(start: Answers) -> pd.Index:
    """The test problems that a start solves in none of its samples."""
    scores = start["test"]["sampled"]
    return scores.index[scores == 0]


def compute(starts: Runs, arms: Arms) -> Figures:
    """All figures of the first table but the seconds, in per cent; NaN where there is no problem.

    `starts`: the SFT model of each seed.
    """
    figures: Figures = {}
    first = distinct(starts, arms["own"])
    others = [one for one in distinct(starts, starts) if all(one is not model for model in first)]
    models = {"SFT": [(start, start) for start in first]}
    for arm, runs in arms.items():
        models[ARMS[arm]] = [(run, starts[seed]) for seed, run in runs.items()]
        if arm == "own" and others:
            models[OTHER_SFT] = [(start, start) for start in others]
    for label, found in models.items():
        row = figures[label] = {}
        for column, (name, kind) in columns(found[0][0]).items():
            row[column] = [100 * run[name][kind].mean() for run, _ in found]
        row["never"] = [
            100 * run["test"]["sampled"].loc[never(start)].mean() for run, start in found
        ]
        row["tokens"] = [run["test"]["tokens"].mean() for run, _ in found]
    for label, answers in (("SFT", first), (ARMS["own"], [*arms["own"].values()])):
        best, majority = (figures.setdefault(f"{label}, {one} of n", {}) for one in CHOICES)
        for name in first[0]:
            best[name] = [100 * (one[name]["sampled"] > 0).mean() for one in answers]
            majority[name] = [100 * one[name]["majority"].mean() for one in answers]
    return figures


def gain(pairs: Sequence[tuple[pd.Series, pd.Series]]) -> table.Interval:
    """Mean of after - before in points, and its 95 % interval over problems.

    `pairs`: scores before and after, by problem, for each seed; a problem counts with its mean over
    the seeds.
    """
    changes = pd.concat([after - before for before, after in pairs], axis=1).dropna().mean(axis=1)
    found = mean_interval(changes.tolist(), (-1.0, 1.0))
    value, low, high = found["value"], found["low"], found["high"]
    assert value is not None  # of no problem alone
    if low is None or high is None:  # of one
        return 100 * value, -math.inf, math.inf
    return 100 * value, 100 * low, 100 * high


def gains(starts: Runs, arms: Arms) -> dict[str, dict[str, table.Interval]]:
    """`{comparison: {column: gain}}`: GRPO over SFT by seed and over all, then the controls."""
    own = arms["own"]
    pairs = {f"GRPO - SFT, seed {seed}": [(starts[seed], run)] for seed, run in own.items()}
    pairs["GRPO - SFT, all seeds"] = [(starts[seed], run) for seed, run in own.items()]
    for arm, runs in arms.items():
        if arm != "own":
            pairs[f"{ARMS[arm]} - SFT"] = [(starts[seed], run) for seed, run in runs.items()]
            if both := [(run, own[seed]) for seed, run in runs.items() if seed in own]:
                pairs[f"GRPO - {ARMS[arm]}"] = both
    return {
        label: {
            column: gain([(before[name][kind], after[name][kind]) for before, after in found])
            for column, (name, kind) in columns(found[0][0]).items()
        }
        for label, found in pairs.items()
    }


def show(values: Sequence[float]) -> str:
    """`88.4 ± 1.2`, without the interval for one value; empty where there is none."""
    if not values or any(map(math.isnan, values)):
        return ""
    middle, half = sweep_page.interval(list(values))
    return f"{middle:.1f}" if math.isnan(half) else f"{middle:.1f} ± {half:.1f}"


# Curves


def draw(path: Path, rows: list[dict], starts: Runs, arms: Arms) -> None:
    """Accuracy while training by reward, and in the end by level."""
    from matplotlib.figure import Figure

    picture = Figure((8, 3.4), layout="constrained")
    left, right = picture.subplots(1, 2)
    if any(row["curve"] for row in rows):
        sweep_page.draw_curves(left, rows)
        names = [ARMS[arm] for arm in REWARDS if arm in arms]
        left.legend(labels=names, frameon=False, fontsize=8)
        left.autoscale(axis="y")  # a small model is far from 1
        left.set_ylim(bottom=0)
    left.set_title("Validation", fontsize=10)
    draw_levels(right, starts, arms)
    right.spines[["top", "right"]].set_visible(False)
    picture.savefig(path, dpi=110)


def by_level(answers: Answers) -> pd.Series:
    """Per cent of correct samples by level; a level of both sets is the test set's."""
    found = pd.Series(dtype=float)
    for name in SETS:
        if name in answers:
            means = 100 * answers[name].groupby("levels")["sampled"].mean()
            found = pd.concat([found, means.drop(found.index, errors="ignore")])
    return found.sort_index()


def draw_levels(axis: Any, starts: Runs, arms: Arms) -> None:
    """Accuracy by level, of the test set and of what the transfer set has beyond it."""
    models = {ARMS[arm]: [*runs.values()] for arm, runs in arms.items()} | {
        "SFT": distinct(starts, arms["own"])
    }
    # The colors of the first panel.
    for color, (name, runs) in zip(sweep_page.COLORS, models.items(), strict=False):
        means = pd.concat([by_level(run) for run in runs], axis=1).mean(axis=1)
        if means.empty:  # the sets have no levels
            axis.set_axis_off()
            return
        axis.plot(
            means.index, means, color=color, marker="o", markersize=3, linewidth=2, label=name
        )
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.set(xlabel="level", ylabel="correct, % of samples", ylim=(0, 105))
    axis.set_title("By level", fontsize=10)
    axis.legend(frameon=False, fontsize=8)


def write(args: Any, starts: dict[int, Record], arms: dict[str, dict[int, Record]]) -> None:
    """Write the page, its figures (.json) and its picture (.png).

    Args:
        args: a `StudyArguments`.
        starts: the SFT model of each seed; seeds may share one.
        arms: the runs of each arm, by seed.
    """
    page, recipe = Path(args.out), Path(args.grpo_config).parent.name
    begun: Runs = {seed: record["answers"] for seed, record in starts.items()}
    answers = {
        arm: {seed: record["answers"] for seed, record in runs.items()}
        for arm, runs in arms.items()
    }
    figures, found = compute(begun, answers), gains(begun, answers)
    for arm, runs in arms.items():
        times = [record["seconds"] for record in runs.values()]
        figures[ARMS[arm]]["seconds"] = [time for time in times if time is not None]
    rows = [
        {"curve": record["validation"], "values": {"rewards": arm, "seed": seed}, "avg@k": None}
        for arm in REWARDS
        for seed, record in arms.get(arm, {}).items()
    ]
    page.parent.mkdir(parents=True, exist_ok=True)
    draw(page.with_suffix(".png"), rows, begun, answers)
    picture = f"![Accuracy while training, and by level]({page.with_suffix('.png').name})"
    first = next(iter(arms["own"]))
    hard = [len(never(one)) for one in distinct(begun, arms["own"])]
    meaning = MEANING.format(
        n=args.num_samples, hard=listing(hard),
        sizes=", ".join(str(len(begun[first][name])) for name in begun[first]),
    )  # fmt: skip
    continued = [str(record["steps"]) for record in arms.get("sft", {}).values()]
    how = HOW.format(
        recipe=recipe, steps=arms["own"][first]["steps"], sft=ARMS["sft"],
        starts="each seed's own SFT model" if args.own_starts else "one SFT model",
        sft_steps=f" ({' '.join(continued)} steps)" if continued else "",
    )  # fmt: skip
    data = {"figures": figures, "gains": found, "curves": sweep_page.seed_curves(rows)}
    gained = [
        {"": label} | {column: table.show_interval(one, 1, 1) for column, one in row.items()}
        for label, row in found.items()
    ]
    head = "## Gains in points, paired by problem"
    parts = [picture, head, table.markdown(gained), meaning]
    table.publish(
        str(page), f"What GRPO taught: `{recipe}`", table.wrap(how),
        [
            {"": name.replace("of n", f"of {args.num_samples}"), "seeds": seeds_of(name, arms)}
            | {COLUMNS.get(column, column): show(values) for column, values in row.items()}
            for name, row in figures.items()
        ],
        data, *parts, figures_to=page.with_suffix(".json"), runs=args.records or "study/*.json",
    )  # fmt: skip


def seeds_of(row: str, arms: dict[str, dict[int, Record]]) -> str:
    """The seeds of a row of the first table."""
    if row == OTHER_SFT:
        return listing(next(runs for arm, runs in arms.items() if arm != "own"))
    return listing(next((runs for arm, runs in arms.items() if ARMS[arm] == row), arms["own"]))


def listing(values: Iterable[Any]) -> str:
    """`0 1 2`."""
    return " ".join(map(str, values))
