"""A sweep: SFT and GRPO once for every combination of some keys' values, and one table.

    make sweep RECIPE=perplexity-gsm8k SWEEP="learning_rate=8e-8,1e-7,3e-7,5e-7 beta=0.1,0.01,0.001"
    make sweep SWEEP="sft.learning_rate=1e-3,4e-3 seed=0,1,2"
    make control SEEDS="0 1 2"

Each combination is the recipe's `grpo.yaml` with these keys on the command line. It is a process of
its own in `<run>/sweep/<combination>/grpo`: one after the other, or `PARALLEL=8` at a time, each on
a GPU of its own. `sft.` before a key means that of
`sft.yaml`: each of its values gets an SFT run and GRPO from it. Pass rates stay those of the
recipe's SFT. `sft.data=own,math` trains SFT on other data (`stages.sweep_data`), `data=` GRPO. The
table has means over the values of `seed`. The same command resumes: finished runs are up to date, a
killed one resumes from its last checkpoint. `<run>/sweep` gets `table.md`, `table.json` and
`seeds.json` for programs, and a picture of the curves. Published scores of the same sweep stand
beside ours.
"""

import hashlib
import itertools
import os
import shlex
import signal
import sys
import threading
import urllib.parse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline import json_files, manifest
from pipeline.errors import UserError, run_cli
from pipeline.json_files import is_number
from pipeline.keys import as_flags, yaml_flags
from pipeline.lock import claim
from pipeline.models.card import count_guards
from pipeline.paths import is_same
from pipeline.settings import Settings, build, parse, read_settings, run_check, setting
from pipeline.side_by_side import Runner
from pipeline.stages import STAGES, load_keys
from pipeline.values import Count
from stages import published_sweeps, sweep_data, sweep_page
from stages.arguments import DEFAULTS
from stages.host import check_grpo, check_sft
from stages.rules import READ_BY, check_grpo_keys, check_sft_keys
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


# Not to vary, because the sweep itself sets them or names the runs by them.
OWN = ("config", "output_dir", "run_dir")
Line = tuple[str, list[str]]  # a stage, and its command line


def combinations(sweep: list[str]) -> dict[str, dict[str, str]]:
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


def variants_of(args: SweepArguments) -> sweep_data.Variants:
    """The variants of the recipe's data."""
    recipe = str(Path(args.grpo_config).parent)
    return sweep_data.Variants(recipe, args.run, f"{args.run}/{args.folder}", args.data_root)


def commands(args: SweepArguments, run: str, values: dict[str, str]) -> list[Line]:
    """`(stage, its command line behind the name)` of one run, in their order."""
    root, variants = f"{args.run}/{args.folder}", variants_of(args)
    of_sft = {key: value for key, value in values.items() if key.startswith(SFT_KEY)}
    keys_of: dict[str, dict[str, list[str]]] = {}  # by stage
    grpo_keys: dict[str, list[str]] = {}
    if of_sft and of_sft != {"sft.data": sweep_data.OWN}:  # which is the recipe's SFT
        sft_folder = f"{root}/{name_of(of_sft)}/sft"
        sft_keys = {key.removeprefix(SFT_KEY): [value] for key, value in of_sft.items()}
        sft_keys.pop("data", None)
        keys_of["sft"] = sft_keys | {"output_dir": [sft_folder]}
        grpo_keys["model_name_or_path"] = [sft_folder]
    for key, value in values.items():
        if key not in of_sft and key not in ("rewards", "data"):
            grpo_keys[key] = [value]
    rewards = REWARDS[values.get("rewards", "own")]
    if rewards:
        grpo_keys |= {"reward_funcs": rewards, "reward_weights": ["1", "0"]}
    keys_of["grpo"] = grpo_keys | {"output_dir": [f"{root}/{run}/grpo"]}
    files = {"run_dir": args.run, "overlay": args.overlay, "model": args.model}
    file_flags = as_flags({key: [value] for key, value in files.items() if value})
    lines: list[Line] = []
    for stage, keys in keys_of.items():
        config = args.grpo_config if stage == "grpo" else f"{variants.recipe}/{stage}.yaml"
        variant = values.get(sweep_data.VARIANT_OF[stage], sweep_data.OWN)
        lines += variants.build(variant, stage)
        if variant != sweep_data.OWN:
            keys["train_file"] = [variants.input_of(stage, "train_file", variant)]
        shared = yaml_flags(args.keys, variants.recipe, stage)
        lines.append((stage, ["--config", config, *file_flags, *shared, *as_flags(keys)]))
    return lines


def check_sets(args: SweepArguments, runs: dict[str, dict[str, str]]) -> None:
    """Refuse data sets that are missing, the same, or without the pass rates that GRPO reads."""
    keys = next(iter(runs.values()))
    values = {key: list(dict.fromkeys(one[key] for one in runs.values())) for key in keys}
    sweep_data.check_values(values, variants_of(args))
    for name, one in runs.items():
        if one.get("data", sweep_data.OWN) == sweep_data.OWN:
            continue
        stage, line = commands(args, name, one)[-1]
        own, hf, _ = load_keys(stage)
        settings = read_settings(own, hf, line, DEFAULTS)
        if settings.get("pass_rates") and settings.curriculum in READ_BY["pass_rates"]:
            fault = f"data={one['data']}: its problems have no pass rates"
            raise UserError(f"sweep: {fault}; add curriculum=off to the sweep")


def check_new(key: str, text: str, value: Any, read: dict[str, Any]) -> None:
    """Note a value of a varied key; refuse one that another text has given, as 1e-6 and 0.000001.

    Args:
        value: what a run reads of `text`.
        read: the values of the key so far, by their texts.
    """
    for other, known in read.items():
        if other != text and is_same(key.removeprefix(SFT_KEY), value, known):
            raise UserError(f"sweep: {key}: {other} and {text} are one value; remove one of them")
    read[text] = value


def check_values(args: SweepArguments, runs: dict[str, dict[str, str]]) -> None:
    """Refuse a value that a sweep has in two spellings: it would be trained twice."""
    read: dict[str, dict[str, Any]] = {}  # of each varied key, by its text: the value of a run
    for name, values in runs.items():
        for stage, line in commands(args, name, values):
            own, hf, _ = load_keys(stage)
            if not hf:
                continue
            settings = read_settings(own, hf, line, DEFAULTS)
            for key, text in values.items():
                if key.startswith(SFT_KEY) == (stage == "sft"):
                    value = getattr(settings, key.removeprefix(SFT_KEY), text)
                    check_new(key, text, value, read.setdefault(key, {}))


def check_server(args: SweepArguments, settings: Settings) -> None:
    """Refuse runs at a time that would all send their weights to one vLLM server."""
    if args.parallel > 1 and settings.use_vllm and settings.vllm_mode == "server":
        raise UserError(
            f"parallel: {args.parallel} runs at a time would send their weights to one vLLM server "
            "(vllm_mode: server); set parallel to 1, or use vllm_mode: colocate"
        )


def check(args: SweepArguments, runs: dict[str, dict[str, str]]) -> None:
    """Refuse every mistake before the first run."""
    check_sets(args, runs)
    check_values(args, runs)
    launch = asked_of_launcher([*shlex.split(args.launcher), "stages.grpo"])
    processes = launch.get("num_processes") or 0  # 0: flags of the user's own do not say it
    root = f"{args.run}/{args.folder}/"
    for name, values in runs.items():
        lines = commands(args, name, values)
        for stage, line in lines:
            own, hf, _ = load_keys(stage)
            settings = read_settings(own, hf, line, DEFAULTS if hf else None)
            if stage == "grpo":
                check_server(args, settings)
            if not hf:  # `check_sets` has checked the data
                build(settings, own)
                continue
            if stage == "grpo" and "sft" in dict(lines):  # which is not made yet
                settings = settings.replaced(model_name_or_path="made/later")
            if settings.train_file.startswith(root):  # neither is a variant's file
                check_run = check_sft_keys if stage == "sft" else check_grpo_keys
            else:
                check_run = check_sft if stage == "sft" else check_grpo
            if processes > 0:
                check_run = as_launched(check_run, launch, processes)
            settings = run_check(settings, check_run)
            # Built as for a CPU: the GPU's memory is the runs' own.
            build(settings.replaced(use_cpu=True, bf16=False), own, hf)


def find_published(
    args: SweepArguments, runs: dict[str, dict[str, str]]
) -> published_sweeps.PublishedSweep | None:
    """The published sweep of the recipe that varied the same keys, if there is one."""
    recipe = Path(args.grpo_config).resolve().parent.name
    given = [*next(iter(runs.values()))]
    varied = [key for key in given if len({run[key] for run in runs.values()}) > 1]
    for keys in (given, varied):  # a key with one value may be one that was published with several
        if found := published_sweeps.find(recipe, {*keys} - {"seed"}):
            return found
    return None


def describe_sets(args: SweepArguments, runs: dict[str, dict[str, str]]) -> list[list[str]]:
    """A row of the page for each data set that the sweep varies."""
    variants, found = variants_of(args), []
    for stage, variant in sweep_data.VARIANT_OF.items():
        for key in (variant, sweep_data.FILE_OF[stage]):
            names = dict.fromkeys(values[key] for values in runs.values() if key in values)
            found += [variants.describe(stage, key, name) for name in names]
    return found


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
    fired = count_guards(folder / "events.jsonl")
    return {
        "run": name,
        "steps": logs[-1]["step"] if logs else 0,
        "reward": recent("rollout/rewards"),
        "correct": recent("rollout/correctness"),
        "first avg@k": averages[0] if averages else None,
        "avg@k": averages[-1] if averages else None,
        "best avg@k": max(averages, default=None),
        "guards": ", ".join(f"{guard} {count}" for guard, count in sorted(fired.items())),
        "ended": ended,
        "curve": curve,
    }


class Sweep:
    """The runs of a sweep: what they share runs once, before what needs it."""

    def __init__(self, args: SweepArguments, runs: dict[str, dict[str, str]]) -> None:
        self.args, self.runs, self.root = args, runs, Path(args.run, args.folder)
        self.runner = Runner(args.parallel, args.num_processes)
        self.lines = {name: commands(args, name, values) for name, values in runs.items()}
        self.codes: dict[tuple[str, ...], int] = {}  # of the command lines that have ended
        self.ended: dict[str, dict[str, Any]] = {}  # rows of the table, by run
        self.table = threading.Lock()
        self.title = f"{args.folder.capitalize()} of {args.grpo_config}"
        self.published = find_published(args, runs)

    def start_all(self) -> None:
        """Data first, then a teacher's traces, then SFT, then GRPO; some at a time."""
        for stage in ("data", "distill", "sft"):
            lines = {
                (one, *words): (one, words, each[:at])
                for each in self.lines.values()
                for at, (one, words) in enumerate(each)
                if one == stage
            }
            self.runner.run_all(self.start, lines.values())
        self.runner.run_all(self.start_grpo, [(name,) for name in self.runs])

    def start(self, stage: str, line: list[str], before: list[Line]) -> int:
        """Run a stage, unless what it needs has failed; returns its exit code.

        A stage says itself where it is up to date.
        """
        code = max((self.codes[one, *words] for one, words in before), default=0)
        if not code:
            code = self.run(stage, line)
        self.codes[stage, *line] = code
        return code

    def run(self, stage: str, line: list[str]) -> int:
        """Run a stage to its end; returns its exit code."""
        given = dict(itertools.pairwise(line))
        made = given.get("--output_dir")
        folder = Path(made).parent if made else Path(given["--run_dir"])
        folder.mkdir(parents=True, exist_ok=True)
        row, name = STAGES[stage], f"{self.args.folder}: {stage} of {folder.name}"
        start = shlex.split(self.args.launcher) if row.is_launched else [sys.executable, "-m"]
        # W&B and trackio show the runs of a sweep together.
        group = {"WANDB_RUN_GROUP": os.environ.get("WANDB_RUN_GROUP") or str(self.root)}
        words = [*start, row.module, *line]
        if self.args.parallel == 1:
            tell(name)
            return self.runner.run(words, **group)
        log = folder / f"{stage}.log"
        tell(f"{name}: started, its output goes to {log}")
        with log.open("a", encoding="utf-8") as file:  # of a killed sweep, too
            code = self.runner.run(words, file, **group)
        tell(f"{name}: {f'ended with exit code {code}, see {log}' if code else 'finished'}")
        return code

    def start_grpo(self, name: str) -> None:
        """GRPO of one combination; then the table as far as it is."""
        folder, values = self.root / name, self.runs[name]
        folder.mkdir(parents=True, exist_ok=True)
        *before, (stage, line) = self.lines[name]
        code = self.start(stage, line, before)
        # A run that was ended from inside may have exit code 0, too.
        is_finished = code == 0 and (folder / "grpo" / manifest.NAME).is_file()
        row = read_row(folder / "grpo", name, "finished" if is_finished else f"exit {code}")
        with self.table:
            self.ended[name] = row | {"values": values}
            rows = [self.ended[one] for one in self.runs if one in self.ended]
            sets = describe_sets(self.args, self.runs)
            sweep_page.write(self.root, rows, self.title, sets, self.published)


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
