"""Time to the same accuracy: this project's GRPO beside stock TRL, on a real model.

    make bench-time-to-accuracy DATA_ROOT=...    # keys: benchmarks/time_to_accuracy.yaml

All runs start from one SFT model. "stock" is TRL's own `GRPOTrainer` with TRL's own generation,
"ours" is the recipe as it stands. Each of the two first finds its learning rate on the validation
problems, with seeds that serve for nothing else. Then come the seeds. All arms of a seed start from
one SFT model on one machine, and two runs go side by side with a core each. The arms between stock
and ours tell what the curriculum is worth. A few steps with each part tell what that part is worth.

A finished run is a line of the file `cells`. A benchmark that is started again does what is
missing. On another machine the SFT model may be another. There a seed starts afresh, unless all its
runs were done. A line has the hash of the model that its run started from (`start`).
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
from pipeline.settings import parse, setting
from pipeline.side_by_side import Runner

# Arm -> what it changes in the recipe.
ARMS: dict[str, dict[str, Any]] = {
    "stock": {"curriculum": "off"},
    "ours": {},
    "ours, no curriculum": {"curriculum": "off"},
    "ours, offline": {"curriculum": "offline"},
}
PAIR = ("stock", "ours")
# What is added to TRL's trainer one after the other: its generation, its update, its curriculum.
PARTS: dict[str, dict[str, Any]] = {
    "stock": {"curriculum": "off"},
    "generation": {"curriculum": "off", "update_tokens": "null"},
    "packed update": {"curriculum": "off", "every_row_has_gradient": True},
    "rows without advantage left out": {"curriculum": "off"},
    "curriculum": {},
}
LEFT_OUT = ("steps", "final", "mode", "commit")  # of a result: in the line in another form
COLUMNS = ("tokens", "seconds", "generating", "zero_std", "groups")  # of a step

Cell = dict[str, Any]  # a line of the file


class Key(NamedTuple):
    """What a run is: purpose ("rate", "seed" or "part"), arm, seed, learning rate."""

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
    cells: str | None = setting(None, "file of the finished runs; by default beside the page")
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
        default_factory=lambda: [2e-5, 4e-5, 8e-5],
        metadata={"help": "to choose from, for stock and for ours"},
    )
    stock_steps: int = setting(10, "optimizer steps of stock")
    our_steps: int = setting(40, "optimizer steps of the other arms, about as many seconds")
    part_steps: int = setting(3, "optimizer steps of each part")
    num_tests: int = setting(5, "tests after the start")
    test_samples: int = setting(1, "completions a problem, of a test on the way")
    last_samples: int = setting(4, "completions a problem, of the test at the end")
    limit: int | None = setting(None, "problems of each test, for a try")
    jobs: int = setting(2, "runs at a time, with a core each")
    max_cells: int | None = setting(None, "end after so many runs; the next start does the rest")

    def __post_init__(self) -> None:
        for key in (
            "stock_steps",
            "our_steps",
            "part_steps",
            "num_tests",
            "test_samples",
            "last_samples",
            "jobs",
        ):
            if getattr(self, key) < 1:
                raise UserError(f"{key}: {getattr(self, key)} is below 1; give at least 1")
        for key in ("seeds", "tuning_seeds", "learning_rates"):
            values = getattr(self, key)
            if not values or len({*values}) < len(values):
                raise UserError(f"{key}: {values} must be different, and at least one")
        if shared := {*self.tuning_seeds} & {*self.seeds}:
            raise UserError(
                f"tuning_seeds: {sorted(shared)} serve for the result, too; choose others"
            )

    def seeds_of(self, arm: str) -> list[int]:
        """The seeds of an arm."""
        some = self.curriculum_seeds
        return self.seeds if arm in PAIR or some is None else some

    def steps_of(self, key: Key) -> int:
        """Optimizer steps of a run."""
        if key.purpose == "part":
            return self.part_steps
        return self.stock_steps if key.arm == "stock" else self.our_steps


class Benchmark:
    """The runs: which are done, and how one is started."""

    def __init__(self, args: TimeArguments) -> None:
        self.args, self.recipe_run, self.runner = args, Path(args.recipe_run), Runner(args.jobs)
        self.path = Path(args.cells) if args.cells else Path(args.out).with_suffix(".jsonl")
        self.start = manifest.sha256(self.recipe_run / "sft")
        self.settings = hash_settings(args)
        self.about = table.about()  # before this benchmark's own lines change the checkout
        self.cells, self.lock = read(self.path), threading.Lock()
        self.num_left = args.max_cells
        if other := next((one for one in self.cells if one["settings"] != self.settings), None):
            fault = f"holds runs of other settings or data ({other['settings']})"
            raise UserError(f"{self.path}: {fault}; give another --cells, or move it away")

    def find(self, key: Key, start: str | None = None) -> Cell | None:
        """The line of a run; `start`: from this SFT model."""
        for cell in self.cells:
            if key_of(cell) == key and start in (None, cell["start"]):
                return cell
        return None

    def start_of(self, keys: Sequence[Key]) -> str:
        """The SFT model of runs that belong together: one from which all are done, else ours."""
        for cell in self.cells:
            if all(self.find(key, cell["start"]) for key in keys):
                return cell["start"]
        return self.start

    def missing(self, keys: Sequence[Key]) -> list[Key]:
        """Those of runs that belong together which are yet to be done here."""
        start = self.start_of(keys)
        return [key for key in keys if not self.find(key, start)]

    def do(self, key: Key) -> None:
        """One run; its line is kept."""
        result = self.run(key)
        cell = key._asdict() | {
            "start": self.start, "settings": self.settings, "about": self.about,
            **{name: result[name] for name in result if name not in LEFT_OUT},
            "steps": {name: [step[name] for step in result["steps"]] for name in COLUMNS},
            "final": list(result["final"].values()),
        }  # fmt: skip
        cell = rounded(cell)
        with self.lock:
            self.cells.append(cell)
            append(self.path, cell)
        last = cell["steps"]["seconds"][-1]
        accuracy = f"{fmean(cell['final']):.3f}, " if cell["final"] else ""
        table.tell(f"{key.purpose} {key.arm}, {key.rate}, seed {key.seed}: {accuracy}{last:.0f} s")

    def run(self, key: Key) -> dict[str, Any]:
        """Train and test in a process; what it has written."""
        args, is_part = self.args, key.purpose == "part"
        changes = (PARTS if is_part else ARMS)[key.arm]
        tests = "validation" if key.purpose == "rate" else "test"
        num_tests = {"rate": 1, "part": 0}.get(key.purpose, args.num_tests)
        with tempfile.TemporaryDirectory() as folder:
            test_file = Path(folder, "test.jsonl")
            lines = Path(self.recipe_run, f"data/{tests}.jsonl").read_bytes().splitlines(True)
            test_file.write_bytes(b"".join(lines[: args.limit]))
            values = changes | {
                "config": args.grpo_config, "run_dir": args.recipe_run, "output_dir": folder,
                "mode": key.arm, "test_file": test_file, "seed": key.seed,
                "learning_rate": key.rate, "max_steps": args.steps_of(key),
                "num_tests": num_tests, "test_samples": args.test_samples,
                "last_samples": args.last_samples, "save_strategy": "no",
                "eval_strategy": "no", "eval_on_start": False, "eval_file": "null",
                "eval_problems": "null", "report_to": "none", "logging_steps": 1,
            }  # fmt: skip
            if changes.get("curriculum") == "offline":
                values["pass_rates"] = f"{folder}/pass_rates.jsonl"
            flags = [part for name, value in values.items() for part in (f"--{name}", str(value))]
            log = self.recipe_run / "time_to_accuracy" / f"{slug(key)}.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("w", encoding="utf-8") as file:
                words = [sys.executable, "-m", "benchmarks.training_run", *flags]
                code = self.runner.run(words, file)
            if code:
                raise UserError(f"{log}: the run ended with exit code {code}; see its last lines")
            return json_files.read(Path(folder, "result.json"), {str: object}, f"remove {log}")

    def rates(self, arm: str) -> list[float]:
        """The learning rates to try: the given ones, and one beyond if the best is at an edge."""
        rates = sorted(self.args.learning_rates)
        found = self.tuned(arm, rates)
        best = max(found, key=lambda rate: found[rate]) if len(found) == len(rates) > 1 else None
        if best == rates[0]:
            return [rates[0] / 2, *rates]
        return [*rates, 2 * rates[-1]] if best == rates[-1] else rates

    def tuned(self, arm: str, rates: Sequence[float]) -> dict[float, float]:
        """Mean accuracy at the end on the validation problems, of the rates whose runs are done."""
        found = {}
        for rate in rates:
            cells = [self.find(Key("rate", arm, seed, rate)) for seed in self.args.tuning_seeds]
            if all(cells):
                found[rate] = fmean(fmean(cell["final"]) for cell in cells if cell)
        return found

    def all_tuned(self) -> dict[str, dict[float, float]]:
        """The accuracies of `tuned` by arm."""
        return {arm: self.tuned(arm, self.rates(arm)) for arm in PAIR}

    def tuning(self) -> list[Key]:
        """The missing runs that find the learning rates."""
        return [
            key
            for seed in self.args.tuning_seeds
            for arm in PAIR
            for rate in self.rates(arm)
            if not self.find(key := Key("rate", arm, seed, rate))
        ]

    def rate(self, arm: str) -> float:
        """The learning rate of an arm; the arms between the two have that of ours."""
        found = self.all_tuned()["stock" if arm == "stock" else "ours"]
        return max(found, key=lambda rate: found[rate])

    def seed(self, seed: int) -> list[Key]:
        """The runs of a seed, which start from one model; the first arm is not always the same."""
        arms = [arm for arm in ARMS if seed in self.args.seeds_of(arm)]
        turn = self.args.seeds.index(seed) % 2
        return [Key("seed", arm, seed, self.rate(arm)) for arm in arms[turn:] + arms[:turn]]

    def batches(self) -> Iterator[list[Key]]:
        """What is missing, in the order of the benchmark; the runs of a batch are independent."""
        yield self.tuning()
        yield self.tuning()  # beyond the edge, once the others are known
        for seed in self.args.seeds:
            yield self.missing(self.seed(seed))
        for seed in self.args.part_seeds:
            yield self.missing(self.parts(seed))

    def results(self, purpose: str) -> dict[tuple[str, int], dict[str, Any]]:
        """The results by arm and seed, of the seeds whose runs from one model are all done."""
        seeds = self.args.seeds if purpose == "seed" else self.args.part_seeds
        found: dict[tuple[str, int], dict[str, Any]] = {}
        if self.tuning():
            return found
        for seed in seeds:
            keys = self.seed(seed) if purpose == "seed" else self.parts(seed)
            cells = [self.find(key, self.start_of(keys)) for key in keys]
            if all(cells):
                found |= {(cell["arm"], seed): as_result(cell) for cell in cells if cell}
        return found

    def parts(self, seed: int) -> list[Key]:
        """The runs that time the parts, one after the other in their order."""
        return [Key("part", part, seed, self.rate("stock")) for part in PARTS]


def as_result(cell: Cell) -> dict[str, Any]:
    """A line as what `benchmarks.training_run` has written: its steps one by one."""
    columns = (cell["steps"][name] for name in COLUMNS)
    return cell | {
        "steps": [dict(zip(COLUMNS, row, strict=True)) for row in zip(*columns, strict=True)]
    }


def rounded(value: Any) -> Any:
    """JSON with numbers of at most three decimals, learning rates aside."""
    if isinstance(value, dict):
        return {name: one if name == "rate" else rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return round(value, 3) if isinstance(value, float) else value


def key_of(cell: Cell) -> Key:
    """What a line's run is."""
    return Key(*(cell[name] for name in Key._fields))


def slug(key: Key) -> str:
    """A run's name in a file system."""
    return "-".join(map(str, key)).replace(", ", "-").replace(" ", "-")


def hash_settings(args: TimeArguments) -> str:
    """Short hash of what decides the figures, but for the model: recipe, problems, keys."""
    data = Path(args.recipe_run, "data")
    said = {"grpo.yaml": manifest.hash_yaml(Path(args.grpo_config))}
    for name in ("grpo_train", "validation", "test"):
        said[name] = manifest.sha256(data / f"{name}.jsonl")
    for key in (
        "stock_steps",
        "our_steps",
        "part_steps",
        "num_tests",
        "test_samples",
        "last_samples",
        "limit",
    ):
        said[key] = str(getattr(args, key))
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]


def append(path: Path, cell: Cell) -> None:
    """Add a line, whole or not at all: the file is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_text(encoding="utf-8") if path.is_file() else ""
    with manifest.open_whole(path) as file:
        file.write(before + json.dumps(cell) + "\n")


SHAPE: json_files.Shape = {
    "purpose": str, "arm": str, "seed": int, "rate": float, "start": str, "settings": str,
    "about": {"commit": (str, None), "machine": str, "versions": {str: str}},
    "steps": {str: [object]}, "final": [float],
    "tests": [{"tokens": int, "seconds": float, "accuracy": float}],
    "scoring": {"tokens": int, "seconds": float}, "before": float, "problems": int,
    "groups_per_step": int, "num_generations": int,
}  # fmt: skip


def read(path: Path) -> list[Cell]:
    """The lines of the file; none where there is no file.

    Raises:
        UserError: a line is damaged; names it.
    """
    cells = []
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    for number, line in enumerate(lines, 1):
        try:
            cells.append(json_files.parse(line, SHAPE))
        except ValueError as error:
            fault = f"line {number} is damaged ({error})"
            raise UserError(f"{path}: {fault}; remove it: its run is done again") from None
    return cells


def main() -> None:
    """Run what is missing; write the page, its figures and its picture."""
    (args,) = parse(__doc__, TimeArguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the runs, too
    bench = Benchmark(args)
    num_left = args.max_cells
    for missing in bench.batches():
        todo = missing[:num_left]
        bench.runner.run_all(bench.do, [(key,) for key in todo])
        if num_left is not None:
            num_left -= len(todo)
        if len(todo) < len(missing):
            table.tell(f"{len(bench.cells)} runs are done; start again for the rest")
            break
    if runs := bench.results("seed"):
        time_page.write(args, runs, bench.results("part"), bench.all_tuned(), bench.cells)


if __name__ == "__main__":
    run_cli(main)
