"""A sweep: SFT and GRPO once for every combination of some keys' values, and one table.

    make sweep RECIPE=perplexity-gsm8k SWEEP="learning_rate=8e-8,1e-7,3e-7,5e-7 beta=0.1,0.01,0.001"
    make sweep SWEEP="sft.learning_rate=1e-3,4e-3 seed=0,1,2"
    make sweep RECIPE=perplexity SWEEP="recipe=perplexity,perplexity-sft-math"
    make control SEEDS="0 1 2"

Each combination is the recipe's `grpo.yaml` with these keys on the command line. It is a process of
its own in `<run>/sweep/<combination>/grpo`: one after the other, or `PARALLEL=8` at a time, each on
a GPU of its own. `sft.` before a key means that of `sft.yaml`: each of its values gets an SFT run
and GRPO from it. Pass rates stay those of the recipe's SFT. `recipe` varies the whole recipe: each
other one makes its data, SFT model and pass rates in `<run>/sweep/recipe=<name>`. The table has
means over the values of `seed`. The same command resumes: finished runs are up to date, a killed
one resumes from its last checkpoint. `<run>/sweep` gets `table.md`, `table.json` and `seeds.json`
for programs, and a picture of the curves. Published scores of the same sweep stand beside ours.
"""

import hashlib
import itertools
import os
import shlex
import signal
import sys
import threading
import urllib.parse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline import json_files, manifest
from pipeline.chain import order
from pipeline.errors import UserError, run_cli
from pipeline.json_files import is_number
from pipeline.keys import as_flags, yaml_flags
from pipeline.lock import claim
from pipeline.models.card import count_guards
from pipeline.recipe_files import find_recipe
from pipeline.settings import Settings, build, parse, read_settings, run_check, setting
from pipeline.side_by_side import Runner
from pipeline.stages import STAGES, has_file, load_keys
from pipeline.values import Count
from stages import published_sweeps, sweep_page
from stages.arguments import DEFAULTS
from stages.host import check_grpo, check_sft
from stages.run.launch import as_launched, asked_of_launcher
from stages.run.removal import checkpoints

RECENT = 10  # logged steps that reward and correctness are the mean of
SFT_KEY = "sft."  # before a key of sft.yaml
# Values of the key `rewards`: the recipe's own, and those of control runs. Correctness
# is logged and earns nothing.
REWARDS = {
    "own": [],
    "random": ["random_reward", "correctness_reward"],
    "format": ["think_format_reward", "correctness_reward"],
}


@dataclass(kw_only=True)
class SweepArguments:
    """Keys of the command line; there is no YAML for this one."""

    grpo_config: str = field(metadata={"help": "the recipe's grpo.yaml"})
    run: str = field(metadata={"help": "the recipe's run folder, such as runs/grpo7b"})
    sweep: list[str] = field(metadata={"help": "key=value,value,... for each key to vary"})
    folder: str = setting("sweep", "within the run folder")
    overlay: str | None = setting(None, "such as configs/lora.yaml")
    model: str | None = setting(None, "folder or hub id to start from, not the recipe's model")
    data_root: str | None = setting(None, "folder of the local data files")
    keys: list[str] = setting([], "of every run, as grpo.top_p=0.8 sft.max_length=1024")
    parallel: Count = setting(1, "runs at a time, each on GPUs of its own")
    num_processes: Count = setting(1, "processes of each run, one for each of its GPUs")
    launcher: str = setting(f"{shlex.quote(sys.executable)} -m", "how a stage's command starts")

    @property
    def recipe(self) -> str:
        """The folder of the recipe."""
        return str(Path(self.grpo_config).parent)

    @property
    def root(self) -> str:
        """The folder of the sweep."""
        return f"{self.run}/{self.folder}"


# Not to vary, because the sweep itself sets them or names the runs by them.
OWN = ("config", "output_dir", "run_dir")
Line = tuple[str, list[str]]  # a stage, and its command line
Runs = dict[str, dict[str, str]]  # by the name of a run, the values of the keys that vary


def combinations(sweep: list[str]) -> Runs:
    """`["beta=0.1,0.01", "seed=0"]` as `{"beta=0.1,seed=0": {"beta": "0.1", "seed": "0"}, ...}`.

    A name is that of the run's folder.

    Raises:
        UserError: an entry that is not key=value,value,... or a key or value that occurs twice.
    """
    choices: dict[str, list[str]] = {}
    for entry in sweep:
        name, equals, values = entry.partition("=")
        found = values.split(",")
        if not equals or not name or not all(found) or "/" in name:
            raise UserError(f"sweep: {entry!r} is not key=value,value, such as beta=0.1,0.01")
        if name in choices or len({*found}) < len(found):
            raise UserError(f"sweep: {entry!r} repeats a key or a value; remove the second one")
        if name.removeprefix(SFT_KEY) in OWN:
            raise UserError(f"sweep: {name} cannot be varied, the sweep sets it; vary another key")
        if name == "rewards" and not {*found} <= REWARDS.keys():
            raise UserError(
                f"sweep: {entry!r} has an unknown value; choose from {', '.join(REWARDS)}"
            )
        choices[name] = found
    if not choices:
        raise UserError("sweep: no key to vary; give key=value,value, such as beta=0.1,0.01")
    if "rewards" in choices and {"reward_funcs", "reward_weights"} & choices.keys():
        raise UserError(
            "sweep: rewards sets reward_funcs and reward_weights; vary only one of them"
        )
    runs = [dict(zip(choices, one, strict=True)) for one in itertools.product(*choices.values())]
    return {name_of(run): run for run in runs}


def name_of(values: dict[str, str]) -> str:
    """The folder of some values, within the sweep's and of no others; at most 255 bytes.

    Values are quoted as in a URL, but for a path's slashes, which become `+`.
    """
    quoted = {
        key: urllib.parse.quote(value, safe="").replace("%2F", "+") for key, value in values.items()
    }
    name = ",".join(map("=".join, quoted.items()))
    short = hashlib.sha256(name.encode()).hexdigest()[:12]
    return name if len(name) <= 200 else f"{name[:187]}~{short}"


def place_of(args: SweepArguments, values: dict[str, str]) -> tuple[str, str]:
    """A run's recipe, and the folder of its data, SFT model and pass rates."""
    if "recipe" not in values:
        return args.recipe, args.run
    recipe = find_recipe(values["recipe"])
    if not has_file("grpo", recipe):
        raise UserError(f"sweep: recipe={values['recipe']}: has no grpo.yaml; name another recipe")
    if Path(recipe).resolve() == Path(args.recipe).resolve():
        return args.recipe, args.run
    return recipe, f"{args.root}/{name_of({'recipe': values['recipe']})}"


def other_recipes(args: SweepArguments, runs: Runs) -> dict[str, str]:
    """The recipes of a sweep beside the one that it is given, by the folders of their data."""
    places = {folder: recipe for recipe, folder in (place_of(args, one) for one in runs.values())}
    return {folder: recipe for folder, recipe in places.items() if folder != args.run}


def preparation(args: SweepArguments, recipe: str, folder: str) -> list[str]:
    """The words of `python -m pipeline` that make all that GRPO of another recipe reads."""
    stages = [one for one in order(("grpo",), recipe, args.model or "") if one != "grpo"]
    if os.environ.get("AUDIT") == "off":
        stages.remove("audit")
    given = {"RECIPE": recipe, "RUN": folder, "MODEL": args.model, "DATA_ROOT": args.data_root}
    given["LORA"] = "1" if args.overlay else None
    _, _, *launch = shlex.split(args.launcher)  # python -m
    given["ACCELERATE"] = shlex.join(launch[1:-1])  # stages.run.launch FLAGS -m
    variables = [f"{name}={value}" for name, value in given.items() if value]
    # The audit reads the keys of all stages.
    keys = [one for one in args.keys if "audit" in stages or one.partition(".")[0] in stages]
    return ["pipeline", *stages, *variables, *keys]


def commands(args: SweepArguments, run: str, values: dict[str, str]) -> list[Line]:
    """`(stage, its command line behind the name)` of one run, in their order."""
    recipe, run_folder = place_of(args, values)
    of_sft = {key: value for key, value in values.items() if key.startswith(SFT_KEY)}
    keys_of: dict[str, dict[str, list[str]]] = {}  # by stage
    grpo_keys: dict[str, list[str]] = {}
    if of_sft:  # else it is the recipe's SFT
        of_recipe = {key: value for key, value in values.items() if key == "recipe"}
        sft_folder = f"{args.root}/{name_of(of_recipe | of_sft)}/sft"
        keys_of["sft"] = {key.removeprefix(SFT_KEY): [value] for key, value in of_sft.items()}
        keys_of["sft"]["output_dir"] = [sft_folder]
        grpo_keys["model_name_or_path"] = [sft_folder]
    for key, value in values.items():
        if key not in of_sft and key not in ("rewards", "recipe"):
            grpo_keys[key] = [value]
    if rewards := REWARDS[values.get("rewards", "own")]:
        grpo_keys |= {"reward_funcs": rewards, "reward_weights": ["1", "0"]}
    keys_of["grpo"] = grpo_keys | {"output_dir": [f"{args.root}/{run}/grpo"]}
    files = {"run_dir": run_folder, "overlay": args.overlay, "model": args.model}
    file_flags = as_flags({key: [value] for key, value in files.items() if value})
    lines: list[Line] = []
    for stage, keys in keys_of.items():
        config = ["--config", f"{recipe}/{stage}.yaml"]
        shared = yaml_flags(args.keys, recipe, stage)
        lines.append((stage, [*config, *file_flags, *shared, *as_flags(keys)]))
    return lines


def check_server(args: SweepArguments, settings: Settings) -> None:
    """Refuse runs at a time that would all send their weights to one vLLM server."""
    if args.parallel > 1 and settings.use_vllm and settings.vllm_mode == "server":
        raise UserError(
            f"parallel: {args.parallel} runs at a time would send their weights to one vLLM server "
            "(vllm_mode: server); set parallel to 1, or use vllm_mode: colocate"
        )


def check(args: SweepArguments, runs: Runs) -> None:
    """Refuse every mistake before the first run."""
    launch = asked_of_launcher([*shlex.split(args.launcher), "stages.grpo"])
    processes = launch.get("num_processes") or 0  # 0: flags of the user's own do not say it
    for name, values in runs.items():
        is_made = place_of(args, values)[1] == args.run  # another recipe's files come later
        for stage, line in commands(args, name, values):
            own, hf, check_keys = load_keys(stage)
            settings = read_settings(own, hf, line, DEFAULTS)
            check_run: Callable[..., Settings] = check_keys
            if is_made:
                check_run = {"sft": check_sft, "grpo": check_grpo}[stage]
            if stage == "grpo":
                check_server(args, settings)
                if any(key.startswith(SFT_KEY) for key in values):  # so does its model
                    settings = settings.replaced(model_name_or_path="made/later")
            if processes > 0:
                check_run = as_launched(check_run, launch, processes)
            settings = run_check(settings, check_run)
            # Built as for a CPU: the GPU's memory is the runs' own.
            build(settings.replaced(use_cpu=True, bf16=False), own, hf)


def find_published(args: SweepArguments, runs: Runs) -> published_sweeps.PublishedSweep | None:
    """The published sweep of the recipe that varied the same keys, if there is one."""
    recipe = Path(args.recipe).resolve().name
    given = [*next(iter(runs.values()))]
    varied = [key for key in given if len({run[key] for run in runs.values()}) > 1]
    for keys in (given, varied):  # a key with one value may be one that was published with several
        if found := published_sweeps.find(recipe, {*keys} - {"seed"}):
            return found
    return None


def read_row(folder: Path, name: str, ended: str) -> dict[str, Any]:
    """One row of the table from what a run has left; a figure that it never had is None."""
    logs: list[dict[str, Any]] = []
    places = [folder, *checkpoints(folder).values()]
    states = [place / "trainer_state.json" for place in places]
    if found := [state for state in states if state.is_file()]:
        newest = max(found, key=lambda path: path.stat().st_mtime)
        logs = json_files.read_log(newest, f"remove {folder}, run the sweep again")

    def recent(metric: str) -> float | None:
        values = [log[metric] for log in logs if is_number(log.get(metric))][-RECENT:]
        return sum(values) / len(values) if values else None

    curve = [
        (log["step"], value)
        for log in logs
        for name, value in log.items()
        if name.startswith("eval_avg@") and not name.endswith("_stderr") and is_number(value)
    ]
    averages = [value for _, value in curve]
    return {
        "run": name,
        "steps": logs[-1]["step"] if logs else 0,
        "reward": recent("rollout/rewards"),
        "correct": recent("rollout/correctness"),
        "first avg@k": averages[0] if averages else None,
        "avg@k": averages[-1] if averages else None,
        "best avg@k": max(averages, default=None),
        "guards": dict(sorted(count_guards(folder / "events.jsonl").items())),
        "ended": ended,
        "curve": curve,
    }


class Sweep:
    """The runs of a sweep: what they share runs once, before what needs it."""

    def __init__(self, args: SweepArguments, runs: Runs) -> None:
        self.args, self.runs, self.root = args, runs, Path(args.root)
        self.runner = Runner(args.parallel, args.num_processes)
        self.lines = {name: commands(args, name, values) for name, values in runs.items()}
        self.codes: dict[str, int] = {}  # of recipes and SFT runs that have ended, by their folders
        self.ended: dict[str, dict[str, Any]] = {}  # rows of the table, by run
        self.table = threading.Lock()
        self.title = f"{args.folder.capitalize()} of {args.grpo_config}"
        self.published = find_published(args, runs)

    def start_all(self) -> None:
        """The other recipes' data and models first, then SFT, then GRPO; some at a time."""
        others = other_recipes(self.args, self.runs)
        self.runner.run_all(self.prepare, [(recipe, place) for place, recipe in others.items()])
        lines = [dict(lines).get("sft") for lines in self.lines.values()]
        starts = {line[-1]: line for line in lines if line}
        self.runner.run_all(self.start_sft, [(line,) for line in starts.values()])
        self.runner.run_all(self.start_grpo, [(name,) for name in self.runs])

    def prepare(self, recipe: str, place: str) -> None:
        """Make what GRPO of another recipe reads."""
        words = [sys.executable, "-m", *preparation(self.args, recipe, place)]
        self.codes[place] = self.run(words, f"what GRPO of {recipe} reads", Path(place), "recipe")

    def start_sft(self, line: list[str]) -> None:
        """Run SFT of some values, unless what it needs has failed."""
        self.codes[line[-1]] = self.failed(line) or self.run_stage("sft", line)

    def failed(self, line: list[str]) -> int:
        """The exit code of what a command line reads: another recipe's stages, an SFT run."""
        return max((self.codes.get(word, 0) for word in line), default=0)

    def run_stage(self, stage: str, line: list[str]) -> int:
        """Run a stage to its end, which says itself where it is up to date; its exit code."""
        folder, row = Path(line[-1]).parent, STAGES[stage]
        words = [*shlex.split(self.args.launcher), row.module, *line]
        return self.run(words, f"{stage} of {folder.name}", folder, stage)

    def run(self, words: Sequence[str], what: str, folder: Path, log_name: str) -> int:
        """Run a command to its end; returns its exit code.

        Some at a time write to `<folder>/<log_name>.log`.
        """
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{self.args.folder}: {what}"
        # W&B and trackio show the runs of a sweep together.
        group = os.environ.get("WANDB_RUN_GROUP") or str(self.root)
        if self.args.parallel == 1:
            tell(name)
            return self.runner.run(words, WANDB_RUN_GROUP=group)
        log = folder / f"{log_name}.log"
        tell(f"{name}: started, its output goes to {log}")
        with log.open("a", encoding="utf-8") as file:  # of a killed sweep, too
            code = self.runner.run(words, file, WANDB_RUN_GROUP=group)
        tell(f"{name}: {f'ended with exit code {code}, see {log}' if code else 'finished'}")
        return code

    def start_grpo(self, name: str) -> None:
        """GRPO of one combination; then the table as far as it is."""
        folder = self.root / name / "grpo"
        line = dict(self.lines[name])["grpo"]
        code = self.failed(line) or self.run_stage("grpo", line)
        # A run that was ended from inside may have exit code 0, too.
        is_finished = code == 0 and (folder / manifest.NAME).is_file()
        row = read_row(folder, name, "finished" if is_finished else f"exit {code}")
        with self.table:
            self.ended[name] = row | {"values": self.runs[name]}
            rows = [self.ended[one] for one in self.runs if one in self.ended]
            sweep_page.write(self.root, rows, self.title, self.published)


def tell(line: str) -> None:
    """Write a line of progress."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Check all combinations, run those that are not finished, write the table."""
    (args,) = parse(__doc__, SweepArguments)
    runs = combinations(args.sweep)
    check(args, runs)
    sweep = Sweep(args, runs)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the runs, too
    claim(sweep.root)
    sweep.start_all()
    sys.stdout.write((sweep.root / "table.md").read_text(encoding="utf-8"))
    tell(f"{args.folder}: {len(runs)} runs -> {sweep.root}/table.md")
    failed = [name for name, row in sweep.ended.items() if row["ended"] != "finished"]
    if failed:
        raise UserError(
            f"sweep: {len(failed)} of {len(runs)} runs did not finish ({'; '.join(failed)}); run "
            "the same command again to resume them"
        )


if __name__ == "__main__":
    run_cli(main)
