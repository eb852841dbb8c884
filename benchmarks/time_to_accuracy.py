"""Time to the same accuracy: this project's GRPO beside stock TRL, on a real model.

    make bench-time                  # keys: benchmarks/time_to_accuracy-smollm2-135m.yaml

All arms train from one SFT model. "stock" is TRL's own `GRPOTrainer` with TRL's own generation,
"ours" is the recipe as it stands. Two more arms are ours with another curriculum, or none. Stock
and ours each find a learning rate on the validation problems first, with seeds that serve for
nothing else; the other arms take that of ours. Then each seed trains every arm, two runs at a time
with a core each. Last, a few steps time each part of ours alone.

A finished run is a line of the file `lines`. A restart runs only what is missing there. The runs of
a seed belong to one SFT model and one machine. On another machine a seed that is not finished
starts afresh.
"""

import hashlib
import json
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from benchmarks import table, time_page
from pipeline import json_files, manifest
from pipeline.errors import UserError, run_cli
from pipeline.lock import claim
from pipeline.settings import parse, setting
from pipeline.side_by_side import Runner
from pipeline.values import Count

# Arm -> what it changes in the recipe.
ARMS: dict[str, dict[str, Any]] = {
    "stock": {"curriculum": "off"},
    "ours": {},
    "ours, no curriculum": {"curriculum": "off"},
    "ours, offline": {"curriculum": "offline"},
}
PAIR = ("stock", "ours")
OTHERS = ("ours, offline", "ours, no curriculum")  # the first samples pass rates, too
# Each adds one part to those above it; "generation" brings this project's trainer with its guards.
PARTS: dict[str, dict[str, Any]] = {
    "stock": {"curriculum": "off"},
    "generation": {"curriculum": "off", "update_tokens": "null"},
    "packed update": {"curriculum": "off", "every_row_has_gradient": True},
    "no backward pass without advantage": {"curriculum": "off"},
    "curriculum": {},
}
MAX_FURTHER_RATES = 3  # beyond the given ones, where the best is at an edge
COLUMNS = ("tokens", "seconds", "generating", "zero_std", "groups")  # of a step
STORED_OTHERWISE = ("steps", "final", "mode", "commit")  # keys of a result

Line = dict[str, Any]


class Run(NamedTuple):
    """One run: purpose ("start", "rate", "seed" or "part"), arm or part, seed, learning rate.

    "start" only tests the SFT model.
    """

    purpose: str
    arm: str
    seed: int
    rate: float


@dataclass(kw_only=True)
class TimeArguments:
    """Keys of the benchmark, by flag or `--config FILE.yaml`."""

    grpo_config: str = field(metadata={"help": "the recipe's grpo.yaml"})
    recipe_run: str = field(metadata={"help": "its run: data and SFT model"})
    out: str = setting("docs/results/time-to-accuracy.md", "the page to write, with a picture")
    lines: str | None = setting(None, "file of the finished runs; by default beside the page")
    seeds: list[int] = field(
        default_factory=lambda: [11, 12, 13, 14, 15], metadata={"help": "of stock and ours"}
    )
    curriculum_seeds: list[int] | None = setting(
        None, "those of them that the other arms run, too; by default all"
    )
    tuning_seeds: list[int] = field(
        default_factory=lambda: [101, 102], metadata={"help": "that learning rates are tuned on"}
    )
    part_seeds: list[int] = field(
        default_factory=lambda: [201, 202], metadata={"help": "that the parts are timed on"}
    )
    learning_rates: list[float] = field(
        default_factory=lambda: [1e-5, 2e-5, 4e-5],
        metadata={"help": "to choose from; one beyond is tried while the best is at an edge"},
    )
    stock_steps: Count = setting(10, "optimizer steps of stock")
    our_steps: Count = setting(40, "optimizer steps of the other arms, for about as many seconds")
    part_steps: Count = setting(3, "optimizer steps of each part")
    stock_tests: list[int] = field(
        default_factory=lambda: [5], metadata={"help": "steps after which stock is tested"}
    )
    our_tests: list[int] = field(
        default_factory=lambda: [5, 10, 15, 25], metadata={"help": "the same of the other arms"}
    )
    test_samples: Count = setting(2, "completions a problem, of a test on the way")
    last_samples: Count = setting(4, "completions a problem, of the tests at start and end")
    limit: Count | None = setting(None, "test on the first N problems only, for a try")
    jobs: Count = setting(2, "runs at a time, each with one core")

    def __post_init__(self) -> None:
        for key in ("seeds", "tuning_seeds", "learning_rates"):
            values = getattr(self, key)
            if not values or len({*values}) < len(values):
                raise UserError(f"{key}: {values} must be different, and at least one")
        if both := {*self.tuning_seeds} & {*self.seeds}:
            raise UserError(f"tuning_seeds: {sorted(both)} serve for the result, too; name others")

    def seeds_of(self, arm: str) -> list[int]:
        """The seeds of an arm."""
        some = self.curriculum_seeds
        if arm in PAIR or some is None:
            return self.seeds
        return [seed for seed in self.seeds if seed in some]

    def steps_of(self, run: Run) -> int:
        """Optimizer steps of a run."""
        if run.purpose == "part":
            return self.part_steps
        return self.stock_steps if run.arm == "stock" else self.our_steps

    def tests_of(self, run: Run) -> list[int]:
        """Steps after which a run is tested on its way."""
        if run.purpose != "seed":
            return []
        return self.stock_tests if run.arm == "stock" else self.our_tests


class Benchmark:
    """The runs: which are done, and how one is started."""

    def __init__(self, args: TimeArguments) -> None:
        self.args, self.recipe_run = args, Path(args.recipe_run)
        self.logs = self.recipe_run / "time_to_accuracy"
        self.path = Path(args.lines) if args.lines else Path(args.out).with_suffix(".jsonl")
        self.model = manifest.sha256(self.recipe_run / "sft")
        self.settings = hash_settings(args)
        self.about = table.about()  # before this benchmark's own lines change the checkout
        self.lines, self.lock = read(self.path), threading.Lock()
        self.fault: UserError | None = None  # of a run
        if other := next((one for one in self.lines if one["settings"] != self.settings), None):
            fault = f"holds runs of other settings or data ({other['settings']})"
            raise UserError(f"{self.path}: {fault}; give another --lines, or move it away")

    # What is done

    def find(self, run: Run, origin: tuple[str, str] | None = None) -> Line | None:
        """The line of a run; `origin`: of this SFT model and machine."""
        for line in self.lines:
            if run_of(line) == run and origin in (None, origin_of(line)):
                return line
        return None

    def origin(self, runs: Sequence[Run]) -> tuple[str, str]:
        """SFT model and machine of runs that belong together: where all are done, else here."""
        for line in self.lines:
            if all(self.find(run, origin_of(line)) for run in runs):
                return origin_of(line)
        return self.model, self.about["machine"]

    def missing(self, runs: Sequence[Run]) -> list[Run]:
        """Those of runs that belong together which are yet to be done here."""
        origin = self.origin(runs)
        return [run for run in runs if not self.find(run, origin)]

    def results(self, purpose: str) -> dict[tuple[str, int], dict[str, Any]]:
        """The results by arm and seed, of the seeds whose runs are all done."""
        found: dict[tuple[str, int], dict[str, Any]] = {}
        if self.missing_rate_runs():
            return found
        is_seed = purpose == "seed"
        for seed in self.args.seeds if is_seed else self.args.part_seeds:
            runs = self.seed_runs(seed) if is_seed else self.part_runs(seed)
            if self.missing(runs):
                continue
            lines = [line for run in runs if (line := self.find(run, self.origin(runs)))]
            start = lines.pop(0) if is_seed else None  # the test of the SFT model
            found |= {(line["arm"], seed): as_result(line, start) for line in lines}
        return found

    def used_lines(self) -> list[Line]:
        """The lines that the page rests on: of each seed those of one SFT model and machine."""
        groups = [self.rate_runs(arm, seed) for seed in self.args.tuning_seeds for arm in PAIR]
        groups += [self.seed_runs(seed) for seed in self.args.seeds]
        groups += [self.part_runs(seed) for seed in self.args.part_seeds]
        used = [self.find(run, self.origin(group)) for group in groups for run in group]
        used += [self.find(run) for run in self.further_rate_runs()]
        return [line for line in self.lines if line in used]

    # What is to be done

    def batches(self) -> Iterator[tuple[list[Run], int]]:
        """What is missing, in order, and how many of these runs go at a time."""
        while runs := self.missing_rate_runs():
            yield runs, self.args.jobs
        for seed in self.args.seeds:
            yield self.missing(self.seed_runs(seed)), self.args.jobs
        for seed in self.args.part_seeds:  # alone: they are timed
            yield self.missing(self.part_runs(seed)), 1

    def rate_runs(self, arm: str, seed: int) -> list[Run]:
        """The runs of a tuning seed with the given learning rates, which belong together."""
        return [Run("rate", arm, seed, rate) for rate in sorted(self.args.learning_rates)]

    def missing_rate_runs(self) -> list[Run]:
        """The runs that are missing to choose the learning rates."""
        seeds = self.args.tuning_seeds
        runs = [
            run for seed in seeds for arm in PAIR for run in self.missing(self.rate_runs(arm, seed))
        ]
        if runs:
            return runs
        return [run for run in self.further_rate_runs() if not self.find(run)]

    def further_rate_runs(self) -> list[Run]:
        """The runs with learning rates beyond the given ones."""
        return [
            Run("rate", arm, seed, rate)
            for arm in PAIR
            for rate in self.rates_to_try(arm)
            if rate not in self.args.learning_rates
            for seed in self.args.tuning_seeds
        ]

    def rates_to_try(self, arm: str) -> list[float]:
        """The given learning rates, and further ones while the best is at an edge."""
        rates = sorted(self.args.learning_rates)
        for _ in range(MAX_FURTHER_RATES if len(rates) > 1 else 0):
            found = self.accuracy_by_rate(arm, rates)
            best = max(rates, key=lambda rate: found.get(rate, 0.0))
            if len(found) < len(rates) or best in rates[1:-1]:
                break
            rates = [rates[0] / 2, *rates] if best == rates[0] else [*rates, rates[-1] * 2]
        return rates

    def accuracy_by_rate(self, arm: str, rates: Sequence[float]) -> dict[float, float]:
        """Mean accuracy at the end on the validation problems, of the rates whose runs are done."""
        found = {}
        for rate in rates:
            ends = []
            for seed in self.args.tuning_seeds:
                given = self.rate_runs(arm, seed)
                run = Run("rate", arm, seed, rate)
                ends.append(self.find(run, self.origin(given) if run in given else None))
            if all(ends):
                found[rate] = fmean(fmean(line["final"]) for line in ends if line)
        return found

    def tuned(self) -> dict[str, dict[float, float]]:
        """Accuracies by arm and learning rate."""
        return {arm: self.accuracy_by_rate(arm, self.rates_to_try(arm)) for arm in PAIR}

    def chosen_rate(self, arm: str) -> float:
        """The learning rate of an arm: the best of stock, or of ours for all others."""
        found = self.tuned()["stock" if arm == "stock" else "ours"]
        return max(found, key=lambda rate: found[rate])

    def seed_runs(self, seed: int) -> list[Run]:
        """The test of the SFT model, then the arms; stock and ours start together.

        The longest of the others starts first, so that both cores end at about the same time.
        """
        start = Run("start", "stock", 0, 0.0)
        others = [arm for arm in OTHERS if seed in self.args.seeds_of(arm)]
        turn = self.args.seeds.index(seed) % 2
        arms = [*(PAIR[::-1] if turn else PAIR), *others]
        return [start, *(Run("seed", arm, seed, self.chosen_rate(arm)) for arm in arms)]

    def part_runs(self, seed: int) -> list[Run]:
        """The runs that time the parts."""
        return [Run("part", part, seed, self.chosen_rate("stock")) for part in PARTS]

    # A run

    def do(self, run: Run, runner: Runner) -> None:
        """One run; its line is kept. One that fails lets its neighbour end, and no other start."""
        if self.fault:
            return
        try:
            result = self.train(run, runner)
        except UserError as error:
            self.fault = error
            return
        line = run._asdict() | {
            "model": self.model, "settings": self.settings, "about": self.about,
            **{name: result[name] for name in result if name not in STORED_OTHERWISE},
            "steps": {name: [step[name] for step in result["steps"]] for name in COLUMNS},
            "final": list(result["final"].values()),
        }  # fmt: skip
        line = rounded(line)
        with self.lock:
            self.lines.append(line)
            append(self.path, line)
        accuracy = f", {100 * fmean(line['final']):.1f} %" if line["final"] else ""
        seconds = line["steps"]["seconds"][-1:] or [0]
        name = f"{run.purpose} {run.arm}, {run.rate:g}, seed {run.seed}"
        table.tell(f"{name}{accuracy}, {seconds[0]:,.0f} s")

    def train(self, run: Run, runner: Runner) -> dict[str, Any]:
        """Train and test in a process of its own; what it has written."""
        args, is_part = self.args, run.purpose == "part"
        changes = (PARTS if is_part else ARMS)[run.arm]
        problems = "validation" if run.purpose == "rate" else "test"
        steps = args.steps_of(run)
        with tempfile.TemporaryDirectory() as folder:
            test_file = Path(folder, "test.jsonl")
            rows = Path(self.recipe_run, f"data/{problems}.jsonl").read_bytes().splitlines(True)
            test_file.write_bytes(b"".join(rows[: args.limit]))
            values = changes | {
                "config": args.grpo_config, "run_dir": args.recipe_run, "output_dir": folder,
                "mode": run.arm, "test_file": test_file, "seed": run.seed,
                "learning_rate": run.rate or args.learning_rates[0], "max_steps": steps,
                "test_samples": args.test_samples,
                "last_samples": 0 if is_part else args.last_samples,
                "only_test": run.purpose == "start", "num_threads": 1, "save_strategy": "no",
                "eval_strategy": "no", "eval_on_start": False, "eval_file": "null",
                "eval_problems": "null", "report_to": "none", "logging_steps": 1,
            }  # fmt: skip
            if changes.get("curriculum") == "offline":
                values["pass_rates"] = f"{folder}/pass_rates.jsonl"
            flags = [part for name, value in values.items() for part in (f"--{name}", str(value))]
            flags += ["--test_steps", *map(str, args.tests_of(run) or [steps])]
            log = self.logs / f"{name_of(run)}.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("w", encoding="utf-8") as file:
                words = [sys.executable, "-m", "benchmarks.training_run", *flags]
                code = runner.run(words, file)
            if code:
                raise UserError(f"{log}: the run ended with exit code {code}; see its last lines")
            return json_files.read(Path(folder, "result.json"), {str: object}, f"remove {log}")


# Lines


def run_of(line: Line) -> Run:
    """What a line's run is."""
    return Run(*(line[name] for name in Run._fields))


def origin_of(line: Line) -> tuple[str, str]:
    """The hash of the SFT model that a line's run started from, and its machine."""
    return line["model"], line["about"]["machine"]


def as_result(line: Line, start: Line | None) -> dict[str, Any]:
    """A line as what `benchmarks.training_run` has written, with the SFT model's test before."""
    columns = (line["steps"][name] for name in COLUMNS)
    steps = [dict(zip(COLUMNS, row, strict=True)) for row in zip(*columns, strict=True)]
    first = [one | {"seconds": line["seconds_before"]} for one in start["tests"]] if start else []
    return line | {"steps": steps, "tests": [*first, *line["tests"]]}


def rounded(value: Any) -> Any:
    """JSON with numbers of at most three decimals, but for the learning rate."""
    if isinstance(value, dict):
        return {name: one if name == "rate" else rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return round(value, 3) if isinstance(value, float) else value


def name_of(run: Run) -> str:
    """A run's name in a file system."""
    return "-".join(map(str, run)).replace(", ", "-").replace(" ", "-")


def hash_settings(args: TimeArguments) -> str:
    """Short hash of all that decides the figures, except the model and the code."""
    data = Path(args.recipe_run, "data")
    said = {"grpo.yaml": table.hash_yaml(Path(args.grpo_config))}
    for name in ("grpo_train", "validation", "test"):
        said[name] = manifest.sha256(data / f"{name}.jsonl")
    for key in (
        "stock_steps", "our_steps", "part_steps", "stock_tests", "our_tests", "test_samples",
        "last_samples", "limit", "jobs",
    ):  # fmt: skip
        said[key] = str(getattr(args, key))
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]


def append(path: Path, line: Line) -> None:
    """Add a line, whole or not at all: the file is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_text(encoding="utf-8") if path.is_file() else ""
    with manifest.open_whole(path) as file:
        file.write(before + json.dumps(line) + "\n")


SHAPE: json_files.Shape = {
    "purpose": str, "arm": str, "seed": int, "rate": float, "model": str, "settings": str,
    "about": {"commit": (str, None), "machine": str, "versions": {str: str}},
    "steps": {
        "tokens": [int], "seconds": [float], "generating": [float], "zero_std": [float],
        "groups": [[float]],
    },
    "tests": [{"tokens": int, "seconds": float, "accuracy": float, "samples": int}],
    "final": [float], "scoring": {"tokens": int, "seconds": float}, "seconds_before": float,
    "problems": int, "groups_per_step": int, "num_generations": int,
}  # fmt: skip


def read(path: Path) -> list[Line]:
    """The lines of the file; none where there is no file.

    Raises:
        UserError: a line is damaged; names it.
    """
    lines = []
    texts = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    for number, text in enumerate(texts, 1):
        try:
            lines.append(json_files.parse(text, SHAPE))
        except ValueError as error:
            fault = f"line {number} is damaged ({error})"
            raise UserError(f"{path}: {fault}; remove it: its run is done again") from None
    return lines


def main() -> None:
    """Run what is missing; write the page, its figures and its picture."""
    (args,) = parse(__doc__, TimeArguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the runs, too
    bench = Benchmark(args)
    claim(bench.logs)  # two at once would do the same runs
    for missing, jobs in bench.batches():
        runner = Runner(jobs)
        runner.run_all(bench.do, [(run, runner) for run in missing])
        if bench.fault:
            raise bench.fault
    time_page.write(args, bench)


if __name__ == "__main__":
    run_cli(main)
