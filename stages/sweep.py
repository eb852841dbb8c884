"""A sweep: SFT and GRPO once for every combination of some keys' values, and one table.

    make sweep RECIPE=perplexity SWEEP="learning_rate=8e-8,1e-7,3e-7,5e-7 beta=0.1,0.01,0.001"
    make sweep SWEEP="sft.learning_rate=1e-3,4e-3 seed=0,1,2"
    make control SEEDS="0 1 2"

Each combination is the recipe's `grpo.yaml` with these keys on the command line. It is a process of
its own, one after the other, in `<run>/sweep/<combination>/grpo`. `sft.` before a key means that of
`sft.yaml`: each of its values gets an SFT run and GRPO from it. Pass rates stay those of the
recipe's SFT. The table has means over the values of `seed`. The same command resumes: finished runs
are up to date, a killed one resumes from its last checkpoint. `<run>/sweep` gets `table.md`,
`table.json` and `seeds.json` for programs, and pictures: the curves, and a heat map of two keys.
"""

import hashlib
import itertools
import shlex
import signal
import subprocess
import sys
import urllib.parse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline import json_files, manifest
from pipeline.card import count_guards
from pipeline.errors import UserError, run_cli
from pipeline.json_files import is_number
from pipeline.lock import claim
from pipeline.settings import build, parse, read_settings, run_check, setting
from pipeline.stages import STAGES, load_keys
from stages import sweep_page
from stages.arguments import DEFAULTS
from stages.checks import check_grpo, check_sft
from stages.removal import checkpoints

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
    launcher: str = setting(f"{shlex.quote(sys.executable)} -m", "how a stage's command starts")


# Not to vary, because the sweep itself sets them or names the runs by them.
OWN = ("config", "output_dir", "run_dir", "train_file")


def combinations(sweep: list[str]) -> dict[str, dict[str, str]]:
    """`["beta=0.1,0.01", "seed=0"]` as `{"beta=0.1,seed=0": {"beta": "0.1", "seed": "0"}, ...}`.

    A name is that of the run's folder: values are quoted as in a URL.

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
    """The folder of some values, within the sweep's and of no others; at most 255 bytes."""
    quoted = {key: urllib.parse.quote(value, safe="+") for key, value in values.items()}
    name = ",".join(map("=".join, quoted.items()))
    short = hashlib.sha256(name.encode()).hexdigest()[:12]
    return name if len(name) <= 200 else f"{name[:187]}~{short}"


def commands(args: SweepArguments, run: str, values: dict[str, str]) -> dict[str, list[str]]:
    """`{stage: its command line behind the name}` of one run, in the order of the stages."""
    root, found = f"{args.run}/{args.folder}", {}
    of_sft = {key: values[key] for key in values if key.startswith(SFT_KEY)}
    changed = {key: [values[key]] for key in values if key not in (*of_sft, "rewards")}
    if funcs := REWARDS[values.get("rewards", "own")]:
        changed |= {"reward_funcs": funcs, "reward_weights": ["1", "0"]}
    if of_sft:
        folder = f"{root}/{name_of(of_sft)}/sft"
        own = {key.removeprefix(SFT_KEY): [value] for key, value in of_sft.items()}
        found["sft"] = own | {"output_dir": [folder]}
        changed = {"model_name_or_path": [folder]} | changed
    found["grpo"] = changed | {"output_dir": [f"{root}/{run}/grpo"]}
    given = {"run_dir": args.run, "overlay": args.overlay, "model": args.model}
    files = [part for key, value in given.items() if value for part in (f"--{key}", value)]
    configs = {"sft": str(Path(args.grpo_config).with_name("sft.yaml")), "grpo": args.grpo_config}
    return {
        stage: ["--config", configs[stage], *files]
        + [part for name, value in keys.items() for part in (f"--{name}", *value)]
        for stage, keys in found.items()
    }


def check(args: SweepArguments, runs: dict[str, dict[str, str]]) -> None:
    """Refuse every mistake before the first run."""
    for name, values in runs.items():
        lines = commands(args, name, values)
        for stage, line in lines.items():
            own, hf, _ = load_keys(stage)
            settings = read_settings(own, hf, line, DEFAULTS)
            if stage == "grpo" and "sft" in lines:  # which is not made yet
                settings = settings.replaced(model_name_or_path="made/later")
            settings = run_check(settings, check_sft if stage == "sft" else check_grpo)
            # Built as for a CPU: the GPU's memory is the runs' own.
            build(settings.replaced(use_cpu=True, bf16=False), own, hf)


def start_run(command: list[str]) -> int:
    """Run the stage to its end, or end it with this process; returns its exit code."""
    process = subprocess.Popen(command)
    try:
        return process.wait()
    finally:
        process.terminate()
        process.wait()


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


def main() -> None:
    """Check all combinations, run those that are not finished, write the table."""
    (args,) = parse(__doc__, SweepArguments)
    runs = combinations(args.sweep)
    check(args, runs)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the run, too
    root = Path(args.run, args.folder)
    claim(root)
    title = f"{args.folder.capitalize()} of {args.grpo_config}"
    rows, failed = [], []
    for number, (name, values) in enumerate(runs.items(), start=1):
        folder = root / name
        folder.mkdir(parents=True, exist_ok=True)
        sys.stdout.write(f"{args.folder}: {number} of {len(runs)}, {name}\n")
        sys.stdout.flush()
        code = 0
        for stage, line in commands(args, name, values).items():
            code = code or start_run([*shlex.split(args.launcher), STAGES[stage].module, *line])
        # A run that was ended from inside may have exit code 0, too.
        is_finished = code == 0 and (folder / "grpo" / manifest.NAME).is_file()
        ended = "finished" if is_finished else f"exit {code}"
        failed += [] if is_finished else [name]
        rows.append(read_row(folder / "grpo", name, ended) | {"values": values})
        sweep_page.write(root, rows, title)
    sys.stdout.write((root / "table.md").read_text(encoding="utf-8"))
    sys.stdout.write(f"{args.folder}: {len(rows)} runs -> {root}/table.md\n")
    if failed:
        raise UserError(
            f"sweep: {len(failed)} of {len(runs)} runs did not finish ({'; '.join(failed)}); run "
            "the same command again to resume them"
        )


if __name__ == "__main__":
    run_cli(main)
