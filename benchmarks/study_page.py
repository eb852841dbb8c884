"""The page of a study: accuracy of each arm, gains paired by problem, curves, ten completions."""

import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import table
from benchmarks.study_record import LOGGED, NUM_EXAMPLES, Answers, Record, Scores
from eval.harness.metrics import mean_interval
from eval.report.plots import COLORS, moving_average
from stages import sweep_page

# Arm -> its name in the table. The first three are values of the sweep's key `rewards`.
ARMS = {
    "own": "GRPO",
    "random": "GRPO, random reward",
    "format": "GRPO, format reward",
    "sft": "SFT continued",
}
REWARDS = ("own", "random", "format")
# The title and the unit of each panel of `LOGGED`, which has a line for each seed of GRPO.
PANELS = (
    ("Reward of the rollouts", "mean of a step"),
    ("Length of the rollouts", "tokens"),
    ("Zero-variance groups", "share of a step's groups"),
    ("Time", "seconds a step"),
)
SMOOTHED = 3  # steps on either side
HOW = """\
`make study RECIPE={recipe}` trains GRPO for {steps} steps from {starts}. Seeds: {seeds}."""
CONTROLS = """\
Control runs have another reward. One more run continues SFT on its own rows for {time} ({steps}
steps). Both have {seeds}."""
OTHER_SFT = "SFT of the control runs"  # where GRPO's own runs start from other models
COLUMNS = {"never": "hardest"}  # by the names of the figures
MEANING = """\
Accuracy is in per cent, the mean of {n} samples at the temperature of `eval.yaml`, or greedy. ± is
half of the 95 % interval over the seeds (Student's t). Intervals of gains are over problems, after
the mean over the seeds: they hold for these training runs."""
SETS = {
    "test": "{num} problems of the recipe's `test_file`.",
    "transfer": "{num} problems of the recipe's `transfer_file`.",
    "chain_sum": "{num} problems of another kind, from reasoning-gym 0.1.25.",
}
Runs = dict[int, dict[str, Answers]]  # by seed and set
Arms = dict[str, Runs]
Figures = dict[str, dict[str, list[float]]]  # by row and column, a value for each seed


@dataclass(frozen=True)
class About:
    """The recipe's name, n, whether each seed has its own SFT model, and a limit on all steps."""

    recipe: str
    num_samples: int
    own_starts: bool
    max_steps: int | None


# The tables


def mean(scores: Scores) -> float:
    """In per cent; NaN where there is no problem."""
    return 100 * statistics.fmean(scores.values()) if scores else math.nan


def distinct(starts: Runs, seeds: Iterable[int]) -> list[dict[str, Answers]]:
    """The SFT models of some seeds: one for each, or one for all."""
    return [*{id(starts[seed]): starts[seed] for seed in seeds}.values()]


def never(start: dict[str, Answers]) -> list[Any]:
    """The test problems that a start solves in none of its samples."""
    return [key for key, score in start["test"].sampled.items() if score == 0]


def compute(starts: Runs, arms: Arms) -> Figures:
    """All figures of the first table but the seconds; `starts`: the SFT model of each seed."""
    figures: Figures = {}
    first = distinct(starts, arms["own"])
    others = [one for one in distinct(starts, starts) if all(one is not model for model in first)]
    models: dict[str, list] = {"SFT": [(start, never(start)) for start in first]}
    for arm, runs in arms.items():
        models[ARMS[arm]] = [(run, never(starts[seed])) for seed, run in runs.items()]
        if arm == "own" and others:
            models[OTHER_SFT] = [(start, never(start)) for start in others]
    for name, found in models.items():
        row = figures[name] = {}
        for each in found[0][0]:
            if each != "chain_sum":
                row[f"{each}, greedy"] = [mean(run[each].greedy) for run, _ in found]
            row[each] = [mean(run[each].sampled) for run, _ in found]
        row["never"] = [
            mean({key: run["test"].sampled[key] for key in hard}) for run, hard in found
        ]
        row["tokens"] = [run["test"].num_tokens for run, _ in found]
    for name, answers in (("SFT", first), (ARMS["own"], [*arms["own"].values()])):
        for label in (f"{name}, best of n", f"{name}, majority of n"):
            row = figures[label] = {}
            for each in first[0]:
                row[each] = [mean(choose(one[each], label)) for one in answers]
    return figures


def choose(answers: Answers, label: str) -> Scores:
    """Whether the best of the samples is correct, or the most frequent answer."""
    if "best" in label:
        return {key: float(score > 0) for key, score in answers.sampled.items()}
    return answers.majority


def gain(pairs: Sequence[tuple[Scores, Scores]]) -> table.Interval:
    """Mean of after - before in points, and its 95 % interval over problems.

    `pairs`: scores before and after, by problem, for each seed; a problem counts with its mean over
    the seeds.
    """
    problems = [key for key in pairs[0][0] if all(key in a and key in b for b, a in pairs)]
    changes = [statistics.fmean(after[key] - before[key] for before, after in pairs)
               for key in problems]  # fmt: skip
    found = mean_interval(changes, (-1.0, 1.0))
    if found["high"] is None:  # one problem
        return 100 * found["value"], -math.inf, math.inf
    return 100 * found["value"], 100 * found["low"], 100 * found["high"]


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
            column: gain([(scores(before), scores(after)) for before, after in found])
            for column, scores in columns(found[0][0]).items()
        }
        for label, found in pairs.items()
    }


def columns(answers: dict[str, Answers]) -> dict[str, Any]:
    """`{column: function from a model's answers to their scores}` of the sets there are."""
    found: dict[str, Any] = {}
    for name in answers:
        found[f"{name}, greedy"] = lambda of, name=name: of[name].greedy
        found[name] = lambda of, name=name: of[name].sampled
    return found


def show(values: Sequence[float]) -> str:
    """`88.4 ± 1.2`, without the interval for one value; empty where there is none."""
    if not values or any(map(math.isnan, values)):
        return ""
    middle, half = sweep_page.interval(list(values))
    return f"{middle:.1f}" if math.isnan(half) else f"{middle:.1f} ± {half:.1f}"


def explain(figures: Figures, found: dict[str, dict[str, table.Interval]], arms: Arms) -> str:
    """GRPO's accuracy on the test set, its gain over SFT, and that over each other arm."""
    own, seeds = figures[ARMS["own"]]["test"], listing(arms["own"])
    over = table.show_interval(found["GRPO - SFT, all seeds"]["test"], 1, 1)
    text = (
        f"Seeds {seeds}: GRPO takes accuracy on the test set from "
        f"{show(figures['SFT']['test'])} to {show(own)} %, a gain of {over} points paired by "
        "problem."
    )
    others = [arm for arm in arms if arm != "own"]
    if not others:
        return text
    controls = numbered(arms[others[0]])
    parts = [
        f"{ARMS[arm]} {table.show_interval(found[f'{ARMS[arm]} - SFT']['test'], 1, 1)}"
        for arm in others
    ]
    return f"{text} Gains of the control runs ({controls}): {'; '.join(parts)} points."


# Curves and completions


def draw(path: Path, rows: list[dict], starts: Runs, arms: Arms, logged: dict[str, Any]) -> None:
    """Accuracy while training by reward, and in the end by level; what GRPO logs, by seed."""
    from matplotlib.figure import Figure

    picture = Figure((12, 6.4), layout="constrained")
    axes = picture.subplots(2, 3).flatten()
    if any(row["curve"] for row in rows):
        sweep_page.draw_curves(axes[0], rows)
        names = [ARMS[arm] for arm in REWARDS if arm in arms]
        axes[0].legend(labels=names, frameon=False, fontsize=8)
        axes[0].autoscale(axis="y")  # a small model is far from 1
        axes[0].set_ylim(bottom=0)
    axes[0].set_title("Validation", fontsize=10)
    for axis, key, (title, unit) in zip(axes[1:5], LOGGED, PANELS, strict=True):
        for color, (seed, curves) in zip(COLORS, logged["own"].items(), strict=False):
            if points := curves.get(key):
                steps, values = zip(*points, strict=True)
                smooth = moving_average(list(values), SMOOTHED)
                axis.plot(steps, smooth, color=color, label=f"seed {seed}")
        axis.set(xlabel="optimizer step", ylabel=unit)
        axis.set_ylim(bottom=0)
        axis.set_title(title, fontsize=10)
        if axis.lines:
            axis.legend(frameon=False, fontsize=8)
    draw_levels(axes[5], starts, arms)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    picture.savefig(path, dpi=110)


def draw_levels(axis: Any, starts: Runs, arms: Arms) -> None:
    """Accuracy by level, of the test set and of what the transfer set has beyond it."""
    models = {ARMS[arm]: [*runs.values()] for arm, runs in arms.items()} | {
        "SFT": distinct(starts, arms["own"])
    }
    # The colors of the first panel.
    for color, (name, runs) in zip(sweep_page.COLORS, models.items(), strict=False):
        found: dict[Any, list[float]] = defaultdict(list)
        for run in runs:
            by_level: dict[Any, list[float]] = {}
            for answers in (run["test"], run.get("transfer")):
                seen = {*by_level}  # a level of both is the test set's
                for key, score in answers.sampled.items() if answers else ():
                    if (level := answers.levels[key]) not in seen:
                        by_level.setdefault(level, []).append(score)
            for level, scores in by_level.items():
                found[level].append(100 * statistics.fmean(scores))
        levels = sorted(level for level in found if level is not None)
        if not levels:  # the sets have none
            axis.set_axis_off()
            return
        means = [statistics.fmean(found[level]) for level in levels]
        axis.plot(levels, means, color=color, marker="o", markersize=3, linewidth=2, label=name)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.set(xlabel="level", ylabel="correct, % of samples", ylim=(0, 105))
    axis.set_title("By level", fontsize=10)
    axis.legend(frameon=False, fontsize=8)


def examples(start: Record, run: Record) -> str:
    """The ten completions of both."""
    parts = []
    for before, after in zip(start.examples, run.examples, strict=True):
        gold = before["gold"] if isinstance(before["gold"], list) else [before["gold"]]
        parts.append(f"**{' '.join(before['question'].split())}** (gold: {' or '.join(gold)})")
        parts.append("\n".join([
            "```", f"SFT ({verdict(before)}): {one_line(before['completion'])}",
            f"GRPO ({verdict(after)}): {one_line(after['completion'])}", "```",
        ]))  # fmt: skip
    return "\n\n".join(parts)


def verdict(row: dict[str, Any]) -> str:
    """Of one completion."""
    return "correct" if row["score"] == 1 else "incorrect"


def one_line(text: str) -> str:
    """A completion in one line of at most 300 characters, that no fence can end."""
    line = " ".join(text.split()).replace("`", "'")
    return line if len(line) <= 300 else f"{line[:300]} ..."


def write(
    page: Path, about: About, starts: dict[int, Record], arms: dict[str, dict[int, Record]]
) -> None:
    """Write the page, its figures (.json) and its picture (.png).

    Args:
        starts: the SFT model of each seed; seeds may share one.
        arms: the runs of each arm, by seed.
    """
    begun: Runs = {seed: record.answers for seed, record in starts.items()}
    answers = {
        arm: {seed: record.answers for seed, record in runs.items()} for arm, runs in arms.items()
    }
    figures, found = compute(begun, answers), gains(begun, answers)
    for arm, runs in arms.items():
        times = [record.seconds for record in runs.values()]
        figures[ARMS[arm]]["seconds"] = [time for time in times if time is not None]
    rows = [
        {"curve": record.validation, "values": {"rewards": arm, "seed": seed}, "avg@k": None}
        for arm in REWARDS
        for seed, record in arms.get(arm, {}).items()
    ]
    logged = {
        arm: {str(seed): record.logged for seed, record in runs.items()}
        for arm, runs in arms.items()
        if arm in REWARDS
    }
    page.parent.mkdir(parents=True, exist_ok=True)
    draw(page.with_suffix(".png"), rows, begun, answers, logged)
    picture = f"![Accuracy and the logs of training]({page.with_suffix('.png').name})"
    first = next(iter(arms["own"]))
    data = {
        "about": table.about(), "figures": figures, "gains": found,
        "curves": sweep_page.seed_curves(rows), "logged": logged,
    }  # fmt: skip
    parts = [
        table.wrap(explain(figures, found, answers)), picture,
        "## Gains in points, paired by problem", table.markdown(gain_rows(found)),
        meaning(about, begun, arms["own"]), places(starts, arms),
        f"## Ten test problems before and after GRPO\n\n{table.wrap(rule(begun, first))}",
        examples(starts[first], arms["own"][first]),
    ]  # fmt: skip
    table.publish(
        str(page), f"What GRPO taught: `{about.recipe}`", how(about, arms),
        [
            {"": name.replace("of n", f"of {about.num_samples}"), "seeds": seeds_of(name, arms)}
            | {COLUMNS.get(column, column): show(values) for column, values in row.items()}
            for name, row in figures.items()
        ],
        data, *parts, figures_to=page.with_suffix(".json"),
    )  # fmt: skip


def seeds_of(row: str, arms: dict[str, dict[int, Record]]) -> str:
    """The seeds of a row of the first table."""
    if row == OTHER_SFT:
        return listing(next(runs for arm, runs in arms.items() if arm != "own"))
    return listing(next((runs for arm, runs in arms.items() if ARMS[arm] == row), arms["own"]))


def how(about: About, arms: dict[str, dict[int, Record]]) -> str:
    """The paragraph above the table."""
    own, continued = arms["own"], arms.get("sft", {})
    text = HOW.format(
        recipe=about.recipe,
        steps=next(iter(own.values())).steps,
        starts="each seed's own SFT model" if about.own_starts else "one SFT model",
        seeds=listing(own),
    )
    if continued:
        steps = listing(record.steps for record in continued.values())
        time = "as many steps" if about.max_steps else "as many seconds"
        if not {*continued} <= {*own}:
            time += " as GRPO's other seeds took in the median"
        text += " " + CONTROLS.format(steps=steps, seeds=numbered(continued), time=time)
    return table.wrap(text)


def places(starts: dict[int, Record], arms: dict[str, dict[int, Record]]) -> str:
    """A line for each machine and set of versions: the runs that it made, with their commits."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for arm, runs in {"start": starts, **arms}.items():
        is_shared = arm == "start" and len({*map(id, runs.values())}) < len(runs)
        for seed, record in runs.items():
            versions = " ".join(f"{name} {one}" for name, one in record.made["versions"].items())
            commit, *dirty = str(record.made["commit"]).split("-")
            name = "SFT" if is_shared else f"{ARMS.get(arm, 'SFT')} {seed}"
            said = f"{name} ({'-'.join([commit[:8], *dirty])})"
            found[str(record.made["machine"]), versions].append(said)
    return "\n".join(
        table.wrap(f"- {machine}, {versions}: {'; '.join(dict.fromkeys(names))}.")
        for (machine, versions), names in found.items()
    )


def listing(values: Iterable[Any]) -> str:
    """`0 1 2`."""
    return " ".join(map(str, values))


def numbered(seeds: Collection[int]) -> str:
    """`seed 4`, or `seeds 1 2 3`."""
    return f"seed{'s' * (len(seeds) > 1)} {listing(seeds)}"


def gain_rows(found: dict[str, dict[str, table.Interval]]) -> list[dict[str, str]]:
    """The rows of the table of gains."""
    return [
        {"": label} | {column: table.show_interval(one, 1, 1) for column, one in row.items()}
        for label, row in found.items()
    ]


def meaning(about: About, starts: Runs, seeds: Iterable[int]) -> str:
    """How to read the columns of both tables."""
    start, n = next(iter(starts.values())), about.num_samples
    sets = [
        f"- `{name}`: {SETS[name].format(num=len(answers.sampled))}"
        for name, answers in start.items()
    ]
    hard = listing(len(never(one)) for one in distinct(starts, seeds))
    sets.append(
        f"- `hardest`: the test problems that SFT solves in none of {n} samples: {hard}, by "
        "SFT model."
    )
    sets.append(
        f"- Best of {n}: an oracle chooses among the samples. Majority: the most frequent answer."
    )
    sets.append(
        "- Tokens: mean length of a sample. Seconds: of training, with as many runs beside it as "
        "`jobs` allows."
    )
    return f"{table.wrap(MEANING.format(n=n))}\n\n" + "\n".join(map(table.wrap, sets))


def rule(starts: Runs, seed: int) -> str:
    """How the examples are chosen."""
    every = max(1, len(starts[seed]["test"].greedy) // NUM_EXAMPLES)
    return f"One problem of each {every} in the order of the file, greedy completions, seed {seed}."
