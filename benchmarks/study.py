"""What did GRPO teach? A recipe's GRPO beside what else its compute would have bought.

    make study                      # of tiny-cpu
    make study RECIPE=smollm2-135m  # keys: benchmarks/study-smollm2-135m.yaml

For several seeds: GRPO, its control runs, and SFT continued for as many seconds. The reward of a
control run is random, or looks at the form of an answer alone. All start from the recipe's SFT
model. With `own_starts` each seed trains its own SFT model, and all runs of that seed start from
it. The SFT model itself writes n samples a problem. The page has the best of them, as if an oracle
chose, and the majority.

All of them answer the recipe's `test_file`, its `transfer_file` (in tiny-cpu longer problems than
GRPO's) and, with `unlike`, `study_unlike.jsonl`, problems of another kind. Those are the first 200
of reasoning-gym 0.1.25's (Apache-2.0) `create_dataset("chain_sum", seed=0, size=4000, min_terms=2,
max_terms=5, min_digits=1, max_digits=1)` that differ and whose totals all stay in 0..20, the
numbers that the demo's model knows.

Every run is a stage of its own in `<recipe_run>/study/<arm>-<seed>/`, seed after seed, and leaves a
small record (`benchmarks/study_record.py`). A study that is started again keeps recorded runs, also
where their models are gone, and resumes a killed one from its last checkpoint.
"""

import hashlib
import json
import signal
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import study_page, study_record, table
from benchmarks.study_page import ARMS
from benchmarks.study_record import Record
from pipeline import manifest
from pipeline.errors import UserError, run_cli
from pipeline.settings import parse, setting
from stages import sweep

UNLIKE = Path(__file__).with_name("study_unlike.jsonl")
DATA = ("sft_train", "grpo_train", "validation", "test", "transfer")  # files of a recipe


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
        default_factory=lambda: [0, 1, 2, 3, 4], metadata={"help": "of GRPO, and of the rest"}
    )
    control_seeds: list[int] | None = setting(
        None, "those of the seeds that have the other arms, too; by default all"
    )
    records: str | None = setting(None, "folder of the records; by default among the runs")
    own_starts: bool = setting(False, "true: each seed trains an SFT model of its own")
    unlike: bool = setting(True, "whether all answer `study_unlike.jsonl`, too")
    num_samples: int = setting(8, "completions a problem: n of best-of-n and of the majority")
    max_steps: int | None = setting(None, "of every training; by default the recipe's")
    limit: int | None = setting(None, "problems of each task, for a try")
    jobs: int = setting(2, "runs at a time")

    def __post_init__(self) -> None:
        for key in ("num_samples", "jobs"):
            if getattr(self, key) < 1:
                raise UserError(f"{key}: {getattr(self, key)} is below 1; give at least 1")
        if len({*self.seeds}) < len(self.seeds):
            raise UserError(f"seeds: {self.seeds} name one twice; name each once")

    def seeds_of(self, arm: str) -> list[int]:
        """The seeds of an arm."""
        given = self.seeds if arm == "own" else self.control_seeds
        return [seed for seed in self.seeds if given is None or seed in given]


class Runner:
    """Runs stages as processes, some at a time, and ends them with this process."""

    def __init__(self, num_jobs: int) -> None:
        self._num_jobs, self._lock, self._is_over = num_jobs, threading.Lock(), False
        self._running: list[subprocess.Popen] = []

    def run(self, stage: str, log: Path, keys: dict[str, Any], line: Sequence[str] = ()) -> None:
        """Run `python -m stage` to its end, its output in `log`; raises `UserError`."""
        flags = [part for key, value in keys.items() for part in (f"--{key}", str(value))]
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8") as file:  # of a killed run, too
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
    """The runs: where each is, and what it is started with. "start" is the SFT model of a seed."""

    def __init__(self, args: StudyArguments) -> None:
        self.args, self.run, self.runner = args, Path(args.recipe_run), Runner(args.jobs)
        self.root, self.recipe = self.run / "study", Path(args.grpo_config).parent
        self.settings = hash_settings(args, self.recipe)

    def folder(self, arm: str, seed: int) -> Path:
        """The folder of a run: its model, its answers, its logs."""
        is_shared = arm == "start" and not self.args.own_starts
        return self.root / ("start" if is_shared else f"{arm}-{seed}")

    def model(self, arm: str, seed: int) -> Path:
        """The checkpoint of one arm and seed."""
        if arm == "start" and not self.args.own_starts:
            return self.run / "sft"
        return self.folder(arm, seed) / ("sft" if arm in ("start", "sft") else "grpo")

    def record_file(self, arm: str, seed: int) -> Path:
        """Where the record of a run is."""
        folder = self.folder(arm, seed)
        return Path(self.args.records or folder.parent, f"{folder.name}.json")

    def record(self, arm: str, seed: int) -> Record | None:
        """The record of a finished run; one of other settings does not count."""
        found = study_record.read(self.record_file(arm, seed))
        return found if found and found.settings == self.settings else None

    def do(self, arm: str, seed: int) -> None:
        """One run: train, answer, and keep the record."""
        if self.record(arm, seed):
            return
        folder, model = self.folder(arm, seed), self.model(arm, seed)
        self.train(arm, seed)
        self.evaluate(model, folder)
        log = model.with_suffix(".log")
        is_whole = not log.is_file() or "resuming from" not in log.read_text(encoding="utf-8")
        found = study_record.make(model, folder, self.settings, is_whole)
        study_record.write(self.record_file(arm, seed), found)
        table.tell(f"study: {ARMS.get(arm, 'SFT')}, seed {seed}, done")

    def train(self, arm: str, seed: int) -> None:
        """SFT, GRPO with one of the rewards, or SFT on the same rows in another order."""
        model, steps = self.model(arm, seed), self.args.max_steps
        if arm in ("start", "sft"):
            keys = {"config": self.recipe / "sft.yaml", "run_dir": self.run, "output_dir": model}
            if arm == "sft":
                keys |= {"model_name_or_path": self.model("start", seed), "seed": seed + 1}
                steps = steps or self.sft_steps(seed)
            elif self.args.own_starts:
                keys["seed"] = seed
            else:
                return  # the pipeline made it
            if steps:
                keys["max_steps"] = steps
            self.runner.run("stages.sft", model.with_suffix(".log"), keys)
            return
        own = sweep.SweepArguments(
            grpo_config=self.args.grpo_config, run=str(self.run), sweep=[], folder="study"
        )
        values = {"seed": str(seed), "rewards": arm}
        if self.args.own_starts:
            values["model_name_or_path"] = str(self.model("start", seed))
        if steps:
            values["max_steps"] = str(steps)
        line = dict(sweep.commands(own, model.parent.name, values))["grpo"]
        self.runner.run("stages.grpo", model.with_suffix(".log"), {}, line)

    def sft_steps(self, seed: int) -> int:
        """Steps of SFT in the seconds that GRPO takes: of the seed, of all if that was resumed."""
        for seeds in ([seed], self.args.seeds):
            own, start = ([self.record(arm, one) for one in seeds] for arm in ("own", "start"))
            times = [one.seconds for one in own if one and one.seconds]
            step_times = [one.seconds / one.steps for one in start if one and one.seconds]
            if times and step_times:
                return round(statistics.median(times) / statistics.median(step_times))
        raise UserError(
            f"{self.record_file('own', seed)}: SFT or GRPO was resumed, so that nothing says how "
            f"long it takes; remove this file and {self.folder('own', seed)}, and start again"
        )

    def evaluate(self, model: Path, folder: Path) -> None:
        """Let a model answer all sets; the rows of `transfer` keep their source."""
        transfer, sets = self.run / "data/transfer.jsonl", folder / "sets.jsonl"
        files = [transfer] if transfer.is_file() else []
        files += [UNLIKE] if self.args.unlike else []
        folder.mkdir(parents=True, exist_ok=True)
        sets.write_bytes(b"".join(path.read_bytes() for path in files))
        keys = {
            "config": self.recipe / "eval.yaml", "run_dir": self.run, "transfer_file": sets,
            "checkpoints": f"model={model}", "output_dir": folder / "eval",
            "num_samples": self.args.num_samples,
        }  # fmt: skip
        if self.args.limit:
            keys["limit"] = self.args.limit
        line = ("--tasks", "held_out", *(["transfer"] if files else []))
        self.runner.run("eval.run", folder / "eval.log", keys, line)

    def do_seed(self, seed: int) -> None:
        """All runs of a seed; SFT last, as GRPO says for how long."""
        arms = [arm for arm in ARMS if seed in self.args.seeds_of(arm)]
        if all(self.record(arm, seed) for arm in ("start", *arms)):
            return
        known = [self.record_file(arm, seed) for arm in ("start", *arms) if self.record(arm, seed)]
        if known and not self.model("start", seed).exists():
            table.tell(
                f"study: the SFT model that seed {seed} started from is gone: all of its runs are "
                "made again"
            )
            for path in known:
                path.unlink()
        for arm in ("start", *arms):
            self.do(arm, seed)

    def do_all(self) -> None:
        """Everything; a common SFT model answers first."""
        if not self.args.own_starts:
            self.do("start", self.args.seeds[0])
        self.runner.run_all(self.do_seed, [(seed,) for seed in self.args.seeds])

    def records(self, arm: str) -> dict[int, Record]:
        """The records of an arm by seed; a common SFT model is one object."""
        seeds = self.args.seeds_of("own" if arm == "start" else arm)
        files = {seed: self.record_file(arm, seed) for seed in seeds}
        read = {path: study_record.read(path) for path in files.values()}
        return {seed: found for seed, path in files.items() if (found := read[path])}


def hash_settings(args: StudyArguments, recipe: Path) -> str:
    """Short hash of what decides the figures: the data, the recipe's files, the study's keys."""
    files = [recipe / f"{stage}.yaml" for stage in ("sft", "grpo", "eval")]
    rows = [Path(args.recipe_run, f"data/{name}.jsonl") for name in DATA]
    keys = ("own_starts", "unlike", "num_samples", "max_steps", "limit")
    said = {path.name: manifest.hash_yaml(path) for path in files if path.is_file()}
    said |= {path.name: manifest.sha256(path) for path in rows if path.is_file()}
    said |= {key: str(getattr(args, key)) for key in keys}
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]


def main() -> None:
    """Run what is missing; write the page, its figures and its picture."""
    (args,) = parse(__doc__, StudyArguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the runs, too
    study = Study(args)
    study.do_all()
    study_page.write(
        Path(args.out),
        study_page.About(
            recipe=study.recipe.name,
            num_samples=args.num_samples,
            own_starts=args.own_starts,
            jobs=args.jobs,
        ),
        starts=study.records("start"),
        arms={arm: found for arm in ARMS if (found := study.records(arm))},
    )


if __name__ == "__main__":
    run_cli(main)
