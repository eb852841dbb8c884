"""Time to the same accuracy: this project's GRPO beside stock TRL.

    make bench-time                  # smollm2-135m: benchmarks/time_to_accuracy-smollm2-135m.yaml
    make bench-curriculum            # skewed-cpu, with every curriculum

All arms train from one SFT model. "stock" is TRL's own `GRPOTrainer` with TRL's own generation,
"ours" is the recipe as it stands, other arms are ours with another curriculum, or none. Stock and
ours each find a learning rate on the validation problems first, with seeds that serve for nothing
else; the other arms take that of ours. Then each seed trains every arm, two runs at a time with a
core each. Last, a few steps time each part of ours alone.

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
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, NamedTuple

from benchmarks import table, time_page
from pipeline import json_files, manifest
from pipeline.errors import UserError, run_cli
from pipeline.lock import claim
from pipeline.settings import parse, setting
from pipeline.side_by_side import Runner
from pipeline.values import Count, OneOf

# Arm -> what it changes in the recipe.
ARMS: dict[str, dict[str, Any]] = {
    "stock": {"curriculum": "off", "is_stock": True},
    "ours": {},
    "ours, offline": {"curriculum": "offline"},  # samples pass rates, too
    "ours, no curriculum": {"curriculum": "off"},
    "ours, refill": {"curriculum": "refill"},
    "ours, predictive+refill": {"curriculum": "predictive+refill"},
}
PAIR = ("stock", "ours")
# Each adds one part to those above it; "generation" brings this project's trainer with its guards.
PARTS: dict[str, dict[str, Any]] = {
    "stock": {"curriculum": "off", "is_stock": True},
    "generation": {"curriculum": "off", "update_tokens": "null"},
    "packed update": {"curriculum": "off", "every_row_has_gradient": True},
    "no backward pass without advantage": {"curriculum": "off"},
    "curriculum": {},
}

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
    arms: list[Annotated[str, OneOf(tuple(ARMS))]] = setting([*ARMS][:4], "besides stock and ours")
    seeds: list[int] = setting([11, 12, 13, 14, 15], "of stock and ours")
    curriculum_seeds: list[int] | None = setting(
        None, "those of them that the other arms run, too; by default all"
    )
    tuning_seeds: list[int] = setting([101, 102], "that learning rates are tuned on")
    part_seeds: list[int] = setting([201, 202], "that the parts are timed on")
    learning_rates: list[float] = setting(
        [1e-5, 2e-5, 4e-5], "to choose from; add one where the best is at an edge"
    )
    stock_steps: Count = setting(10, "optimizer steps of stock")
    our_steps: Count = setting(40, "optimizer steps of the other arms, for about as many seconds")
    part_steps: Count = setting(3, "optimizer steps of each part")
    stock_tests: list[int] = setting([5], "steps after which stock is tested")
    our_tests: list[int] = setting([5, 10, 15, 25], "the same of the other arms")
    test_samples: Count = setting(2, "completions a problem, of a test on the way")
    last_samples: Count = setting(4, "completions a problem, of the tests at start and end")
    limit: Count | None = setting(None, "test on the first N problems only, for a try")
    jobs: Count = setting(2, "runs at a time, each with one core")

    def __post_init__(self) -> None:
        for key in ("seeds", "learning_rates"):
            values = getattr(self, key)
            if not values or len({*values}) < len(values):
                raise UserError(f"{key}: {values} must be different, and at least one")
        if both := {*self.tuning_seeds} & {*self.seeds}:
            raise UserError(f"tuning_seeds: {sorted(both)} serve for the result, too; name others")
        if not self.tuning_seeds and len(self.learning_rates) > 1:
            raise UserError("tuning_seeds: name some, to choose one of the learning_rates")

    def arms_of(self, seed: int) -> list[str]:
        """The arms of a seed in their order; stock and ours start together, taking turns."""
        some = self.seeds if self.curriculum_seeds is None else self.curriculum_seeds
        others = [arm for arm in self.arms if arm not in PAIR and seed in some]
        return [*PAIR[:: -1 if self.seeds.index(seed) % 2 else 1], *others]


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

    def groups(self, purpose: str) -> list[list[Run]]:
        """The runs of a purpose, those in a list that belong together."""
        args = self.args
        if purpose == "rate":
            return [
                [Run("rate", arm, seed, rate) for rate in self.rates(arm)]
                for seed in args.tuning_seeds
                for arm in PAIR
            ]
        if purpose == "part":
            rate = self.chosen_rate("stock")
            return [[Run("part", part, seed, rate) for part in PARTS] for seed in args.part_seeds]
        start = Run("start", "stock", 0, 0.0)
        return [
            [start, *(Run("seed", arm, seed, self.chosen_rate(arm)) for arm in args.arms_of(seed))]
            for seed in args.seeds
        ]

    def rates(self, arm: str) -> list[float]:
        """The given learning rates, and those that an arm has tried before."""
        tried = {line["rate"] for line in self.lines if run_of(line)[:2] == ("rate", arm)}
        return sorted(tried.union(self.args.learning_rates))

    def found(self, runs: Sequence[Run]) -> list[Line | None]:
        """The lines of runs that belong together: of one SFT model and machine, where all are done.

        If that is nowhere, those of the model and machine that are here; None where one is missing.
        """
        here = self.model, self.about["machine"]
        lines: list[Line | None] = []
        for origin in [*dict.fromkeys(map(origin_of, self.lines)), here]:
            mine = {run_of(line): line for line in self.lines if origin_of(line) == origin}
            lines = [mine.get(run) for run in runs]
            if all(lines):
                break
        return lines

    def missing(self, runs: Sequence[Run]) -> list[Run]:
        """Those of runs that belong together which are yet to be done here."""
        return [run for run, line in zip(runs, self.found(runs), strict=True) if not line]

    def used_lines(self, purpose: str) -> list[Line]:
        """The lines of a purpose that the page rests on: of each group that is done."""
        found = [self.found(runs) for runs in self.groups(purpose)]
        return [line for lines in found if all(lines) for line in lines if line]

    def results(self, purpose: str) -> dict[tuple[str, int], Line]:
        """The results by arm and seed; the SFT model's test comes before those of each run."""
        results, first = {}, []
        for line in self.used_lines(purpose):
            if line["purpose"] == "start":
                first = line["tests"]
                continue
            before = [test | {"seconds": line["seconds_before"]} for test in first]
            results[line["arm"], line["seed"]] = line | {"tests": [*before, *line["tests"]]}
        return results

    def tuned(self) -> dict[str, dict[float, float]]:
        """Mean accuracy at the end on the validation problems, by arm and learning rate."""
        found: dict[str, dict[float, list[float]]] = {arm: {} for arm in PAIR}
        for line in self.used_lines("rate"):
            found[line["arm"]].setdefault(line["rate"], []).append(fmean(line["final"]))
        return {
            arm: {rate: fmean(ends) for rate, ends in rates.items()} for arm, rates in found.items()
        }

    def chosen_rate(self, arm: str) -> float:
        """The learning rate of an arm: the best of stock, or of ours for all others."""
        found = self.tuned()["stock" if arm == "stock" else "ours"]
        return max(found, key=lambda rate: found[rate], default=self.args.learning_rates[0])

    def do_all(self) -> None:
        """Do what is missing: learning rates, then each seed, then the parts, which run alone."""
        self.do_missing(self.groups("rate"), self.args.jobs)
        for runs in self.groups("seed"):
            self.do_missing([runs], self.args.jobs)
        for runs in self.groups("part"):
            self.do_missing([runs], 1)

    def do_missing(self, groups: Sequence[Sequence[Run]], jobs: int) -> None:
        """Do the missing runs of some groups, `jobs` at a time; raises what one has raised."""
        runner = Runner(jobs)
        missing = [run for runs in groups for run in self.missing(runs)]
        runner.run_all(self.do, [(run, runner) for run in missing])
        if self.fault:
            raise self.fault

    def do(self, run: Run, runner: Runner) -> None:
        """One run; its line is kept. One that fails lets its neighbour end, and no other start."""
        if self.fault:
            return
        try:
            result = self.train(run, runner)
        except UserError as error:
            self.fault = error
            return
        said = {"model": self.model, "settings": self.settings, "about": self.about}
        line = rounded(run._asdict() | said | result)
        with self.lock:
            self.lines.append(line)
            text = "".join(json.dumps(one) + "\n" for one in self.lines)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with manifest.open_whole(self.path) as file:
                file.write(text)
        accuracy = f", {100 * fmean(line['final']):.1f} %" if line["final"] else ""
        seconds = line["steps"]["seconds"][-1:] or [0]
        name = f"{run.purpose} {run.arm}, {run.rate:g}, seed {run.seed}"
        table.tell(f"{name}{accuracy}, {seconds[0]:,.0f} s")

    def train(self, run: Run, runner: Runner) -> dict[str, Any]:
        """Train and test in a process of its own; what it has written."""
        args, is_part, is_stock = self.args, run.purpose == "part", run.arm == "stock"
        steps = args.part_steps if is_part else args.stock_steps if is_stock else args.our_steps
        tests = args.stock_tests if is_stock else args.our_tests
        problems = "validation" if run.purpose == "rate" else "test"
        with tempfile.TemporaryDirectory() as folder:
            test_file = Path(folder, "test.jsonl")
            rows = Path(self.recipe_run, f"data/{problems}.jsonl").read_bytes().splitlines(True)
            test_file.write_bytes(b"".join(rows[: args.limit]))
            values = (PARTS if is_part else ARMS)[run.arm] | {
                "config": args.grpo_config, "run_dir": args.recipe_run, "output_dir": folder,
                "test_file": test_file, "seed": run.seed, "max_steps": steps,
                "learning_rate": run.rate or args.learning_rates[0],
                "test_samples": args.test_samples,
                "last_samples": 0 if is_part else args.last_samples,
                "only_test": run.purpose == "start", "save_strategy": "no",
                "eval_strategy": "no", "eval_on_start": False, "eval_file": "null",
                "eval_problems": "null", "report_to": "none", "logging_steps": 1,
            }  # fmt: skip
            if values.get("curriculum") == "offline":
                values["pass_rates"] = f"{folder}/pass_rates.jsonl"
            flags = [part for name, value in values.items() for part in (f"--{name}", str(value))]
            if run.purpose == "seed" and tests:
                flags += ["--test_steps", *map(str, tests)]
            name = "-".join(map(str, run)).replace(", ", "-").replace(" ", "-")
            log = self.logs / f"{name}.log"
            table.run(runner, ["-m", "benchmarks.training_run", *flags], log)
            return json_files.read(Path(folder, "result.json"), {str: object}, f"remove {log}")


def run_of(line: Line) -> Run:
    """What a line's run is."""
    return Run(*(line[name] for name in Run._fields))


def origin_of(line: Line) -> tuple[str, str]:
    """The hash of the SFT model that a line's run started from, and its machine."""
    return line["model"], line["about"]["machine"]


def rounded(value: Any) -> Any:
    """JSON with numbers of at most three decimals, but for the learning rate."""
    if isinstance(value, dict):
        return {name: one if name == "rate" else rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return round(value, 3) if isinstance(value, float) else value


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


SHAPE: json_files.Shape = {
    "purpose": str, "arm": str, "seed": int, "rate": float, "model": str, "settings": str,
    "about": {"commit": (str, None), "machine": str, "versions": {str: str}},
    "steps": {"tokens": [int], "seconds": [float], "generating": [float], "zero_std": [float]},
    "tests": [{"tokens": int, "seconds": float, "accuracy": float, "samples": int}],
    "final": [float], "scoring": {"tokens": int, "seconds": float}, "seconds_before": float,
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
    bench.do_all()
    time_page.write(args, bench)


if __name__ == "__main__":
    run_cli(main)
