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

Every run is a stage of its own in `<recipe_run>/study/<arm>-<seed>/`. A study that is started again
keeps finished runs and resumes a killed one from its last checkpoint.
"""

import math
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

from benchmarks import study_page, table
from benchmarks.study_page import ARMS, REWARDS
from pipeline import json_files
from pipeline.errors import UserError, run_cli
from pipeline.settings import parse, setting
from stages import sweep

UNLIKE = Path(__file__).with_name("study_unlike.jsonl")


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
    control_seeds: list[int] | None = setting(None, "of all arms but GRPO; by default `seeds`")
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
        self.control_seeds = self.seeds if self.control_seeds is None else self.control_seeds
        if not self.control_seeds or not {*self.control_seeds} <= {*self.seeds}:
            raise UserError(
                f"control_seeds: {self.control_seeds} are not all among the seeds {self.seeds}, "
                "and are compared with GRPO of their seed; name some of those"
            )

    def seeds_of(self, arm: str) -> list[int]:
        """The seeds of an arm."""
        return self.seeds if arm == "own" else self.control_seeds or []


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

    def start(self, seed: int) -> Path:
        """The SFT model that the runs of a seed start from."""
        own = self.root / f"start-{seed}/sft"
        return own if self.args.own_starts else self.run / "sft"

    def start_answers(self, seed: int) -> Path:
        """Where the answers of `start` are."""
        return self.root / (f"start-{seed}" if self.args.own_starts else "start")

    def begin(self, seed: int) -> None:
        """Train the SFT model of a seed, where it has its own; let it answer."""
        model = self.start(seed)
        if self.args.own_starts:
            keys = {
                "config": self.recipe / "sft.yaml", "run_dir": self.run, "output_dir": model,
                "seed": seed,
            }  # fmt: skip
            if self.args.max_steps:
                keys["max_steps"] = self.args.max_steps
            self.runner.run("stages.sft", model.with_suffix(".log"), keys)
        self.evaluate(model, self.start_answers(seed))
        table.tell(f"study: SFT, seed {seed}, done")

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
                "model_name_or_path": self.start(seed),
                "seed": seed + 1,
                "max_steps": self.args.max_steps or self.sft_steps(),
            }
            self.runner.run("stages.sft", log, keys)
            return
        own = sweep.SweepArguments(
            grpo_config=self.args.grpo_config, run=str(self.run), sweep=[], folder="study"
        )
        values = {"seed": str(seed), "rewards": arm}
        if self.args.own_starts:
            values["model_name_or_path"] = str(self.start(seed))
        if self.args.max_steps:
            values["max_steps"] = str(self.args.max_steps)
        line = dict(sweep.commands(own, model.parent.name, values))["grpo"]
        self.runner.run("stages.grpo", log, {}, line)

    def sft_steps(self) -> int:
        """Steps of SFT in the seconds that GRPO takes; the median, as one may have been resumed."""
        times = [last_log(self.model("own", seed))[0] for seed in self.args.seeds]
        seconds = statistics.median([time for time in times if not math.isnan(time)] or [math.nan])
        known, steps = last_log(self.start(self.args.seeds[0]))
        if math.isnan(seconds / known):
            raise UserError(
                f"{self.run}: SFT or GRPO was killed after its last step, so that nothing says "
                "how long it takes; train it again (FORCE=1)"
            )
        return round(seconds * steps / known)

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

    def do(self, arm: str, seed: int) -> None:
        """One run: train, and answer."""
        self.train(arm, seed)
        self.evaluate(self.model(arm, seed), self.model(arm, seed).parent)
        table.tell(f"study: {ARMS[arm]}, seed {seed}, done")

    def do_all(self) -> None:
        """Everything; SFT last, as GRPO says for how long."""
        own, controls = self.args.seeds, self.args.seeds_of("sft")
        starts = own if self.args.own_starts else own[:1]
        self.runner.run_all(self.begin, [(seed,) for seed in starts])
        runs = [("own", seed) for seed in own]
        runs += [(arm, seed) for seed in controls for arm in REWARDS if arm != "own"]
        self.runner.run_all(self.do, runs)
        self.runner.run_all(self.do, [("sft", seed) for seed in controls])


def last_log(folder: Path) -> tuple[float, int]:
    """Seconds and steps of a finished training; NaN seconds if it was killed after the last."""
    logs = json_files.read_log(folder / "trainer_state.json")
    return logs[-1].get("train_runtime", math.nan), logs[-1]["step"]


def main() -> None:
    """Run what is missing; write the page, its figures and its picture."""
    (args,) = parse(__doc__, StudyArguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the runs, too
    study = Study(args)
    study.do_all()
    first = args.seeds[0]
    study_page.write(
        Path(args.out),
        study_page.About(
            recipe=study.recipe.name,
            steps=last_log(study.model("own", first))[1],
            sft_steps=last_log(study.model("sft", args.seeds_of("sft")[0]))[1],
            num_samples=args.num_samples,
            own_starts=args.own_starts,
            jobs=args.jobs,
        ),
        starts={seed: study.start_answers(seed) for seed in args.seeds},
        models={arm: {seed: study.model(arm, seed) for seed in args.seeds_of(arm)} for arm in ARMS},
    )


if __name__ == "__main__":
    run_cli(main)
