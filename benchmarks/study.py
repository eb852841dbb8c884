"""What did GRPO teach? A recipe's GRPO beside what else its compute would have bought.

    make study                      # of tiny-cpu
    make study RECIPE=smollm2-135m  # keys: benchmarks/study-smollm2-135m.yaml

For several seeds: GRPO, its control runs, and SFT continued for as many seconds. The reward of a
control run is random, or looks at the form of an answer alone. All start from the recipe's SFT
model. With `own_starts` each seed trains its own SFT model, and all runs of that seed start from
it. The SFT model itself writes n samples a problem. The page has the best of them, as if an oracle
chose, and the majority.

All of them answer the recipe's `test_file` and its `transfer_file` (in tiny-cpu longer problems
than GRPO's).

Every run is a stage of its own in `<recipe_run>/study/<arm>-<seed>/`, and leaves a small record
(`benchmarks/study_record.py`). A study that is started again keeps recorded runs, also where their
models are gone, and resumes a killed one from its last checkpoint.
"""

import hashlib
import json
import signal
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import study_page, study_record, table
from benchmarks.study_page import ARMS
from benchmarks.study_record import Record
from pipeline import manifest
from pipeline.errors import UserError, run_cli
from pipeline.recipe_files import read_yaml
from pipeline.settings import parse, setting
from pipeline.side_by_side import Runner
from pipeline.values import Count
from stages import sweep

# Keys of a recipe that name files of problems.
FILES = ("train_file", "eval_file", "test_file", "transfer_file")


@dataclass(kw_only=True)
class StudyArguments:
    """Keys of the study, by flag or `--config FILE.yaml`."""

    grpo_config: str = field(metadata={"help": "the recipe's grpo.yaml"})
    recipe_run: str = field(metadata={"help": "its run: data, SFT model, pass rates"})
    out: str = setting(
        "docs/results/study.md",
        "the page to write, with figures (.json) and picture (.png) beside it",
    )
    seeds: list[int] = setting([0, 1, 2, 3, 4], "of GRPO, and of the rest")
    control_seeds: list[int] | None = setting(
        None, "seeds of the control runs and of SFT continued; by default those of GRPO; []: none"
    )
    records: str | None = setting(None, "folder of the records; by default among the runs")
    own_starts: bool = setting(False, "true: each seed trains an SFT model of its own")
    num_samples: Count = setting(8, "completions a problem: n of best-of-n and of the majority")
    max_steps: int | None = setting(None, "of every training; by default the recipe's")
    limit: Count | None = setting(None, "problems of each task, for a try")
    jobs: Count = setting(2, "runs at a time")

    def __post_init__(self) -> None:
        if len({*self.seeds}) < len(self.seeds):
            raise UserError(f"seeds: {self.seeds} name one twice; name each once")

    def seeds_of(self, arm: str) -> list[int]:
        """The seeds of an arm; "start": all of them."""
        controls = self.seeds if self.control_seeds is None else self.control_seeds
        if arm == "start":
            return list(dict.fromkeys([*self.seeds, *controls]))
        return self.seeds if arm == "own" else controls


class Study:
    """The runs: where each is, and what it is started with. "start" is the SFT model of a seed."""

    def __init__(self, args: StudyArguments) -> None:
        self.args, self.recipe_run, self.runner = args, Path(args.recipe_run), Runner(args.jobs)
        self.root, self.recipe = self.recipe_run / "study", Path(args.grpo_config).parent
        self.settings = hash_settings(args, self.recipe)

    def folder(self, arm: str, seed: int) -> Path:
        """The folder of a run: its model, its answers, its logs."""
        is_shared = arm == "start" and not self.args.own_starts
        return self.root / ("start" if is_shared else f"{arm}-{seed}")

    def model(self, arm: str, seed: int) -> Path:
        """The checkpoint of one arm and seed."""
        if arm == "start" and not self.args.own_starts:
            return self.recipe_run / "sft"
        return self.folder(arm, seed) / ("sft" if arm in ("start", "sft") else "grpo")

    def arms(self, seed: int) -> list[str]:
        """Those of a seed, but for its start."""
        return [arm for arm in ARMS if seed in self.args.seeds_of(arm)]

    def record_file(self, arm: str, seed: int) -> Path:
        """Where the record of a run is."""
        folder = self.folder(arm, seed)
        return Path(self.args.records or folder.parent, f"{folder.name}.json")

    def record(self, arm: str, seed: int) -> Record | None:
        """The record of a finished run."""
        return study_record.read(self.record_file(arm, seed))

    def check(self) -> None:
        """Refuse records that do not belong together; nothing of them is removed or replaced.

        Raises:
            UserError: one is of other settings or data, or started from other weights; or the SFT
                model of a seed is gone, and other runs are yet to start from it.
        """
        for seed in self.args.seeds_of("start"):
            files = {arm: self.record_file(arm, seed) for arm in ("start", *self.arms(seed))}
            found = {arm: study_record.read(path) for arm, path in files.items()}
            for arm, record in found.items():
                if record and record["settings"] != self.settings:
                    fault = "is of other settings or data; remove it, or give another --records"
                    raise UserError(f"{files[arm]}: {fault}")
            is_whole, start = all(found.values()), found.pop("start")
            if not start:
                continue
            for arm, record in found.items():
                if record and record["base"] not in ("", start["weights"]):
                    fault = f"did not start from the model of {files['start']}; remove it"
                    raise UserError(f"{files[arm]}: {fault}: the study makes it again")
            model = self.model("start", seed)
            if not is_whole and (not model.is_dir() or manifest.sha256(model) != start["weights"]):
                fault = f"its model is not in {model}, where runs of seed {seed} are to start from"
                remedy = "put it there, or remove all records of the seed"
                raise UserError(f"{files['start']}: {fault}; {remedy}")

    def do(self, arm: str, seed: int) -> None:
        """One run: train, answer, and keep the record."""
        if self.record(arm, seed):
            return
        folder, model = self.folder(arm, seed), self.model(arm, seed)
        self.train(arm, seed)
        self.evaluate(model, folder)
        study_record.write(self.record_file(arm, seed), model, folder, self.settings)
        table.tell(f"study: {ARMS.get(arm, 'SFT')}, seed {seed}, done")

    def train(self, arm: str, seed: int) -> None:
        """SFT, GRPO with one of the rewards, or SFT on the same rows in another order."""
        model, steps = self.model(arm, seed), self.args.max_steps
        if arm in ("start", "sft"):
            keys: dict[str, Any] = {
                "config": self.recipe / "sft.yaml",
                "run_dir": self.recipe_run,
                "output_dir": model,
            }
            if arm == "sft":
                keys |= {"model_name_or_path": self.model("start", seed), "seed": seed + 1}
                steps = steps or self.sft_steps()
            elif self.args.own_starts:
                keys["seed"] = seed
            else:
                return  # the pipeline made it
            if steps:
                keys["max_steps"] = steps
            self.run("stages.sft", model.with_suffix(".log"), keys)
            return
        own = sweep.SweepArguments(
            grpo_config=self.args.grpo_config, run=str(self.recipe_run), sweep=[], folder="study"
        )
        values = {"seed": str(seed), "rewards": arm}
        if self.args.own_starts:
            values["model_name_or_path"] = str(self.model("start", seed))
        if steps:
            values["max_steps"] = str(steps)
        line = dict(sweep.commands(own, model.parent.name, values))["grpo"]
        self.run("stages.grpo", model.with_suffix(".log"), {}, line)

    def run(self, stage: str, log: Path, keys: dict[str, Any], line: Sequence[str] = ()) -> None:
        """Run `python -m stage` to its end, its output in `log`; raises `UserError`."""
        flags = [part for key, value in keys.items() for part in (f"--{key}", str(value))]
        table.run(self.runner, ["-m", stage, *line, *flags], log)

    def sft_steps(self) -> int:
        """Steps of SFT in the seconds that GRPO takes: medians of runs that were not resumed."""
        own, start = ([*self.records(arm).values()] for arm in ("own", "start"))
        times = [one["seconds"] for one in own if one["seconds"]]
        step_times = [one["seconds"] / one["steps"] for one in start if one["seconds"]]
        if times and step_times:
            return round(statistics.median(times) / statistics.median(step_times))
        arm, seed = "start" if times else "own", self.args.seeds[0]
        raise UserError(
            f"{self.record_file(arm, seed)}: the training was resumed, so that nothing says how "
            f"long it takes; remove this file and {self.model(arm, seed)}, and start again"
        )

    def evaluate(self, model: Path, folder: Path) -> None:
        """Let a model answer all sets."""
        said = read_yaml(str(self.recipe / "eval.yaml"), self.args.recipe_run)
        keys = {
            "config": self.recipe / "eval.yaml", "run_dir": self.recipe_run,
            "checkpoints": f"model={model}", "output_dir": folder / "eval",
            "num_samples": self.args.num_samples,
        }  # fmt: skip
        if self.args.limit:
            keys["limit"] = self.args.limit
        tasks = ["held_out", *(["transfer"] if said.get("transfer_file") else [])]
        self.run("eval.run", folder / "eval.log", keys, ["--tasks", *tasks])

    def do_seed(self, seed: int, arms: Sequence[str]) -> None:
        """Some runs of a seed, one after another."""
        for arm in arms:
            if seed in self.args.seeds_of(arm):
                self.do(arm, seed)

    def do_all(self) -> None:
        """Everything; SFT continued comes last, as it takes as long as GRPO took."""
        self.check()
        controls = self.args.seeds_of("sft")
        if not controls:
            table.tell("study: no control runs")
        seeds = self.args.seeds_of("start")
        first = ["start", *(arm for arm in ARMS if arm != "sft")]
        if not self.args.own_starts:  # they share one
            self.runner.run_all(self.do, [("start", seeds[0])])
        self.runner.run_all(self.do_seed, [(seed, first) for seed in seeds])
        self.runner.run_all(self.do_seed, [(seed, ("sft",)) for seed in controls])
        self.check()

    def records(self, arm: str) -> dict[int, Record]:
        """The records of an arm by seed; a common SFT model is one object."""
        seeds = self.args.seeds_of(arm)
        files = {seed: self.record_file(arm, seed) for seed in seeds}
        read = {path: study_record.read(path) for path in files.values()}
        return {seed: found for seed, path in files.items() if (found := read[path])}


def hash_settings(args: StudyArguments, recipe: Path) -> str:
    """Short hash of what decides the figures: recipe, problems and keys of the study."""
    said: dict[str, str] = {}
    for stage in ("sft", "grpo", "eval"):
        path = recipe / f"{stage}.yaml"
        said[path.name] = table.hash_yaml(path)
        keys = read_yaml(str(path), args.recipe_run)
        files = [Path(str(keys[key])) for key in FILES if keys.get(key)]
        said |= {file.name: manifest.sha256(file) for file in files if file.is_file()}
    for key in ("own_starts", "num_samples", "max_steps", "limit"):
        said[key] = str(getattr(args, key))
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]


def main() -> None:
    """Run what is missing; write the page, its figures and its picture."""
    (args,) = parse(__doc__, StudyArguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the runs, too
    study = Study(args)
    study.do_all()
    arms = {arm: found for arm in ARMS if (found := study.records(arm))}
    study_page.write(args, study.records("start"), arms)


if __name__ == "__main__":
    run_cli(main)
