"""What did GRPO teach? A recipe's GRPO beside what else its compute would have bought.

    make study

From one SFT model, each for several seeds: GRPO, its control runs, and SFT continued for as many
seconds. The reward of a control run is random, or looks at the form of an answer alone. The SFT
model itself writes n samples a problem. The page has the best of them, as if an oracle chose, and
the majority.

All of them answer the recipe's `test_file`, its `transfer_file` (in tiny-cpu longer problems than
GRPO's) and `study_unlike.jsonl`, problems of another kind. Those are the first 200 of
reasoning-gym 0.1.25's (Apache-2.0) `create_dataset("chain_sum", seed=0, size=4000, min_terms=2,
max_terms=5, min_digits=1, max_digits=1)` that differ and whose totals all stay in 0..20, the
numbers that the model knows.

Every run is a stage of its own in `<recipe_run>/study/<arm>-<seed>/`. A study that is started again
keeps finished runs and resumes a killed one from its last checkpoint.
"""

import math
import signal
import statistics
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import table
from eval.harness.metrics import majority_at_k
from eval.report.numbers import read_result
from pipeline import json_files
from pipeline.errors import UserError, run_cli
from pipeline.settings import parse, setting
from stages import sweep, sweep_page

UNLIKE = Path(__file__).with_name("study_unlike.jsonl")
# Arm -> its name in the table. The first three are values of the sweep's key `rewards`.
ARMS = {
    "own": "GRPO",
    "random": "GRPO, random reward",
    "format": "GRPO, format reward",
    "sft": "SFT continued",
}
REWARDS = ("own", "random", "format")
Scores = dict[Any, float]  # by problem
HOW = """\
`make study` trains GRPO of the recipe `{recipe}` for {steps} steps from one SFT model. Control
runs differ in their reward alone. One more run continues SFT on its own rows for as many seconds
({sft_steps} steps). Seeds: {seeds}."""
COLUMNS = {"never": "hardest"}  # by the names of the figures
MEANING = """\
Accuracy is in per cent, the mean of {n} samples at the temperature of `eval.yaml`, or greedy. ± is
half of the 95 % interval over the seeds (Student's t). It holds for one SFT model and one choice
of problems.

- `test`: {num_test} problems of the kinds that GRPO trains on.
- `transfer`: {num_transfer} problems of the recipe's `transfer_file`.
- `chain_sum`: {num_unlike} problems of another kind, from reasoning-gym 0.1.25.
- `hardest`: the {num_never} test problems that the SFT model answers correctly in none of {n}
  samples.
- Best of {n}: an oracle chooses among the samples. Majority: the most frequent answer counts.
- Tokens: mean length of a sample. Seconds: of training, with two runs at a time."""


@dataclass(kw_only=True)
class StudyArguments:
    """Keys of the study, by flag or `--config FILE.yaml`."""

    grpo_config: str = field(metadata={"help": "the recipe's grpo.yaml"})
    recipe_run: str = field(metadata={"help": "its run: data, SFT model, pass rates"})
    out: str = setting(
        "docs/results/study.md",
        "the page to write, with figures (.json) and picture (.png) beside it",
    )
    seeds: list[int] = field(
        default_factory=lambda: [0, 1, 2, 3, 4], metadata={"help": "of each arm"}
    )
    num_samples: int = setting(8, "completions a problem: n of best-of-n and of the majority")
    max_steps: int | None = setting(None, "of every training; by default the recipe's")
    limit: int | None = setting(None, "problems of each task, for a try")
    jobs: int = setting(2, "runs at a time")


class Runner:
    """Runs stages as processes, some at a time, and ends them with this process."""

    def __init__(self, num_jobs: int) -> None:
        self._num_jobs, self._lock, self._is_over = num_jobs, threading.Lock(), False
        self._running: list[subprocess.Popen] = []

    def run(self, stage: str, log: Path, keys: dict[str, Any], line: Sequence[str] = ()) -> None:
        """Run `python -m stage` to its end, its output in `log`; raises `UserError`."""
        flags = [part for key, value in keys.items() for part in (f"--{key}", str(value))]
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w", encoding="utf-8") as file:
            with self._lock:
                if self._is_over:
                    raise UserError(f"{log}: not started, as another run had failed")
                process = subprocess.Popen(
                    [sys.executable, "-m", stage, *line, *flags], stdout=file, stderr=file
                )
                self._running.append(process)
            code = process.wait()
        if code:
            raise UserError(
                f"{log}: the run ended with exit code {code}; see its last lines, then start the "
                "study again: it resumes"
            )

    def run_all(self, job: Callable[..., None], calls: Iterable[tuple]) -> None:
        """Call `job` with each of the arguments; the first failure ends all, and is raised."""
        with ThreadPoolExecutor(self._num_jobs) as pool:
            futures = [pool.submit(job, *call) for call in calls]
            try:
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                with self._lock:
                    self._is_over = True
                for process in self._running:
                    process.terminate()
                raise


class Study:
    """The runs: where each is, and what it is started with."""

    def __init__(self, args: StudyArguments) -> None:
        self.args, self.run, self.runner = args, Path(args.recipe_run), Runner(args.jobs)
        self.root, self.recipe = self.run / "study", Path(args.grpo_config).parent

    def model(self, arm: str, seed: int) -> Path:
        """The checkpoint of one arm and seed."""
        return self.root / f"{arm}-{seed}" / ("sft" if arm == "sft" else "grpo")

    def train(self, arm: str, seed: int) -> None:
        """GRPO with one of the rewards, or SFT on the same rows in another order."""
        model = self.model(arm, seed)
        log = model.with_suffix(".log")
        if arm == "sft":
            keys = {
                "config": self.recipe / "sft.yaml",
                "run_dir": self.run,
                "output_dir": model,
                "model_name_or_path": self.run / "sft",
                "seed": seed + 1,
                "max_steps": self.args.max_steps or self.sft_steps(),
            }
            self.runner.run("stages.sft", log, keys)
            return
        own = sweep.SweepArguments(
            grpo_config=self.args.grpo_config, run=str(self.run), sweep=[], folder="study"
        )
        values = {"seed": str(seed), "rewards": arm}
        if self.args.max_steps:
            values["max_steps"] = str(self.args.max_steps)
        line = sweep.commands(own, model.parent.name, values)["grpo"]
        self.runner.run("stages.grpo", log, {}, line)

    def sft_steps(self) -> int:
        """Steps of SFT in the seconds that GRPO takes; the median, as one may have been resumed."""
        times = [last_log(self.model("own", seed))[0] for seed in self.args.seeds]
        seconds, (known, steps) = statistics.median(times), last_log(self.run / "sft")
        if math.isnan(seconds / known):
            raise UserError(
                f"{self.run}: SFT or GRPO was killed after its last step, so that nothing says "
                "how long it takes; train it again (FORCE=1)"
            )
        return round(seconds * steps / known)

    def evaluate(self, model: Path, folder: Path) -> None:
        """Let a model answer all sets; the rows of `transfer` keep their source."""
        longer, sets = self.run / "data/transfer.jsonl", folder / "sets.jsonl"
        files = [longer, UNLIKE] if longer.is_file() else [UNLIKE]
        folder.mkdir(parents=True, exist_ok=True)
        sets.write_bytes(b"".join(path.read_bytes() for path in files))
        keys = {
            "config": self.recipe / "eval.yaml", "run_dir": self.run, "transfer_file": sets,
            "checkpoints": f"model={model}", "output_dir": folder / "eval",
            "num_samples": self.args.num_samples,
        }  # fmt: skip
        if self.args.limit:
            keys["limit"] = self.args.limit
        line = ("--tasks", "held_out", "transfer")
        self.runner.run("eval.run", folder / "eval.log", keys, line)

    def do(self, arm: str, seed: int) -> None:
        """One run: train, and answer."""
        self.train(arm, seed)
        self.evaluate(self.model(arm, seed), self.model(arm, seed).parent)
        table.tell(f"study: {ARMS[arm]}, seed {seed}, done")

    def do_all(self) -> None:
        """Everything; SFT last, as GRPO says for how long."""
        self.runner.run_all(self.evaluate, [(self.run / "sft", self.root / "start")])
        self.runner.run_all(self.do, [(arm, seed) for seed in self.args.seeds for arm in REWARDS])
        self.runner.run_all(self.do, [("sft", seed) for seed in self.args.seeds])


def last_log(folder: Path) -> tuple[float, int]:
    """Seconds and steps of a finished training; NaN seconds if it was killed after the last."""
    logs = json_files.read_log(folder / "trainer_state.json")
    return logs[-1].get("train_runtime", math.nan), logs[-1]["step"]


@dataclass
class Answers:
    """What a model made of one set."""

    greedy: Scores  # 0 or 1
    sampled: Scores  # share of the n samples that are correct
    majority: Scores  # is the most frequent answer correct?
    levels: dict[Any, list[float]]  # of `sampled`
    num_tokens: float  # of a sample


def read_answers(folder: Path) -> dict[str, Answers]:
    """`{"test", "transfer" and "chain_sum": answers}` of one model, as far as there are any."""
    rows: dict[str, dict[str, dict[Any, list]]] = defaultdict(lambda: defaultdict(dict))
    for (task, mode), found in read_result(folder / "eval/model").rows.items():
        for row in found:
            name = "test" if task == "held_out" else row["source"]
            name = name if name in ("test", "chain_sum") else "transfer"
            rows[name][mode].setdefault((row["source"], row["id"]), []).append(row)
    answers = {}
    for name, modes in rows.items():
        greedy, sampled = (
            {key: statistics.fmean(row["score"] for row in each) for key, each in modes[m].items()}
            for m in ("greedy", "sampled")
        )
        majority = {key: majority_at_k(each) for key, each in modes["sampled"].items()}
        levels: dict[Any, list[float]] = defaultdict(list)
        for key, each in modes["sampled"].items():
            levels[each[0]["level"]].append(sampled[key])
        tokens = [row["num_tokens"] for each in modes["sampled"].values() for row in each]
        answers[name] = Answers(greedy, sampled, majority, levels, statistics.fmean(tokens))
    return answers


Runs = list[dict[str, Answers]]  # of one arm, one for each seed
Figures = dict[str, dict[str, list[float]]]  # by row and column, a value for each seed


def mean(scores: Scores) -> float:
    """In per cent; NaN where there is no problem."""
    return 100 * statistics.fmean(scores.values()) if scores else math.nan


def compute(start: dict[str, Answers], arms: dict[str, Runs]) -> Figures:
    """All figures of the table but the seconds; `start` is the SFT model."""
    never = [key for key, score in start["test"].sampled.items() if score == 0]
    figures: Figures = {}
    for name, runs in ({"SFT": [start]} | {ARMS[arm]: arms[arm] for arm in arms}).items():
        row = figures[name] = {}
        for each in start:
            if each != "chain_sum":
                row[f"{each}, greedy"] = [mean(run[each].greedy) for run in runs]
            row[each] = [mean(run[each].sampled) for run in runs]
        row["never"] = [mean({key: run["test"].sampled[key] for key in never}) for run in runs]
        row["tokens"] = [run["test"].num_tokens for run in runs]
    best = {name: {k: float(v > 0) for k, v in one.sampled.items()} for name, one in start.items()}
    majority = {name: one.majority for name, one in start.items()}
    for label, sets in (("SFT, best of n", best), ("SFT, majority of n", majority)):
        figures[label] = {name: [mean(scores)] for name, scores in sets.items()}
    return figures


def show(values: Sequence[float]) -> str:
    """`88.4 ± 1.2`, without the interval for one value; empty where there is none."""
    if not values or any(map(math.isnan, values)):
        return ""
    middle, half = sweep_page.interval(list(values))
    return f"{middle:.1f}" if math.isnan(half) else f"{middle:.1f} ± {half:.1f}"


def explain(figures: Figures) -> str:
    """GRPO's accuracy on the test set, and its gain over each other arm, paired by seed."""
    own, gains = figures[ARMS["own"]]["test"], []
    for arm in ("random", "format", "sft"):
        pairs = zip(own, figures[ARMS[arm]]["test"], strict=True)
        gain = table.mean_interval([mine - theirs for mine, theirs in pairs])
        gains.append(table.show_interval(gain, 1, 1))
    start = figures["SFT"]["test"][0]
    return (
        f"GRPO takes accuracy on the test set from {start:.1f} to {show(own)} %. Paired by seed, "
        f"that is {gains[0]} points above the random reward, {gains[1]} above the format reward, "
        f"and {gains[2]} above SFT continued."
    )


def draw(path: Path, curves: list[dict], start: dict[str, Answers], arms: dict[str, Runs]) -> None:
    """Accuracy while training, by reward; and in the end, by level."""
    from matplotlib.figure import Figure

    picture = Figure((10, 4), layout="constrained")
    left, right = picture.subplots(1, 2)
    if any(row["curve"] for row in curves):
        sweep_page.draw_curves(left, curves)
        left.legend(labels=[ARMS[arm] for arm in REWARDS], frameon=False, fontsize=8)
    models = {ARMS[arm]: runs for arm, runs in arms.items()} | {"SFT": [start]}  # colors as left
    for color, (name, runs) in zip(sweep_page.COLORS, models.items(), strict=False):
        found: dict[Any, list[float]] = defaultdict(list)
        for run in runs:
            for level, scores in (
                run["test"].levels | run.get("transfer", run["test"]).levels
            ).items():
                found[level].append(100 * statistics.fmean(scores))
        levels = sorted(found)
        means = [statistics.fmean(found[level]) for level in levels]
        right.plot(levels, means, color=color, marker="o", markersize=3, linewidth=2, label=name)
    if "transfer" in start:
        first = min(start["transfer"].levels)
        right.axvline(first - 0.5, color="#9aa5b1", linestyle=":")
        right.annotate("longer than GRPO's", (first - 0.45, 101), fontsize=8)
    right.set(xlabel="level", ylabel="correct, % of samples", ylim=(0, 105))
    right.spines[["top", "right"]].set_visible(False)
    right.legend(frameon=False, fontsize=8)
    picture.savefig(path, dpi=150)


def main() -> None:
    """Run what is missing; write the page, its figures and its picture."""
    (args,) = parse(__doc__, StudyArguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the runs, too
    study = Study(args)
    study.do_all()
    start = read_answers(study.root / "start")
    arms = {
        arm: [read_answers(study.model(arm, seed).parent) for seed in args.seeds] for arm in ARMS
    }
    figures = compute(start, arms)
    for arm in ARMS:
        times = [last_log(study.model(arm, seed))[0] for seed in args.seeds]
        figures[ARMS[arm]]["seconds"] = [time for time in times if not math.isnan(time)]
    curves = [
        sweep.read_row(study.model(arm, seed), arm, "finished")
        | {"values": {"rewards": arm, "seed": seed}}
        for arm in REWARDS
        for seed in args.seeds
    ]
    page = Path(args.out)
    page.parent.mkdir(parents=True, exist_ok=True)
    draw(page.with_suffix(".png"), curves, start, arms)
    sizes = {name: len(answers.sampled) for name, answers in start.items()}
    how = HOW.format(
        recipe=study.recipe.name, seeds=" ".join(map(str, args.seeds)),
        steps=last_log(study.model("own", args.seeds[0]))[1],
        sft_steps=last_log(study.model("sft", args.seeds[0]))[1],
    )  # fmt: skip
    meaning = MEANING.format(
        n=args.num_samples,
        num_test=sizes["test"], num_transfer=sizes.get("transfer", 0),
        num_unlike=sizes["chain_sum"], num_never=list(start["test"].sampled.values()).count(0),
    )  # fmt: skip
    rows = [
        {"": name.replace("of n", f"of {args.num_samples}")}
        | {COLUMNS.get(column, column): show(values) for column, values in row.items()}
        for name, row in figures.items()
    ]
    picture = f"![Accuracy while training, and by level]({page.with_suffix('.png').name})"
    words = table.wrap(explain(figures))
    data = {"about": table.about(), "figures": figures, "curves": sweep_page.seed_curves(curves)}
    title, beside = "What GRPO taught the demo", page.with_suffix(".json")
    notes = (words, picture, meaning)
    table.publish(args.out, title, how, rows, data, *notes, figures_to=beside)


if __name__ == "__main__":
    run_cli(main)
