"""The guards' benchmark: the demo's GRPO broken in several ways, and healthy.

    make bench-guards

Every run is a process of its own and starts from the recipe's SFT checkpoint; a run that is there
already is not made again, so it goes on where it was stopped. The page says which guard fired at
which step, what the run was worth in the end, and how near the healthy runs came to the limits.
"""

import json
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from data_prep import manifest
from data_prep.config import UserError, parse, run_cli
from stages.trainer.guards import GUARDS, LEVELS, GuardSettings

# Two steps share a generation, or TRL has no log-probs of its own to compare the engine's with.
ENGINE = {"per_device_train_batch_size": 64, "steps_per_generation": 2, "max_steps": 30}
REPETITION = {"reward_funcs": ["correctness_reward", "repetition_penalty"]}
TOO_FAST = {"learning_rate": 2e-2, "max_steps": 40}
# Name -> what is changed in the recipe, in words and as keys.
BROKEN: dict[str, tuple[str, dict[str, Any]]] = {
    "pays-for-repetition": (
        "`repetition_penalty` with weight -1, nothing for right answers, learning rate x 5",
        REPETITION | {"reward_weights": [0, -1], "learning_rate": 1e-3, "max_steps": 60},
    ),
    "learning-rate-x100": ("learning rate x 100", TOO_FAST),
    "the same, rolled back": (
        "and eos and length on `rollback`, `guard_rollback_lr_factor: 0.1`, `save_steps: 5`",
        TOO_FAST
        | {"guard_eos": "rollback", "guard_length": "rollback", "guard_rollback_lr_factor": 0.1}
        | {"save_strategy": "steps", "save_steps": 5, "save_total_limit": 4},
    ),
    "stale-engine": ("completions from an engine that keeps the first weights", ENGINE),
    "bf16-weights": (
        "`dtype: bfloat16`, learning rate 5e-7",
        {"dtype": "bfloat16", "learning_rate": 5e-7, "max_steps": 10},
    ),
}
HEALTHY: dict[str, tuple[str, dict[str, Any]]] = {
    f"healthy-{seed}": (f"nothing, seed {seed}", {"seed": seed}) for seed in range(3)
} | {
    "fresh-engine": ("completions from an engine that gets the weights", ENGINE),
    "float32-weights": ("learning rate 5e-7", {"learning_rate": 5e-7, "max_steps": 10}),
}
ENGINES = {"stale-engine": [], "fresh-engine": ["--fresh"]}  # flags of `benchmarks.bench_engine`
DONE = "bench.json"


@dataclass
class BenchArguments:
    """Keys of the command line; there is no YAML for this one."""

    grpo_config: str = field(metadata={"help": "grpo.yaml of the recipe"})
    recipe_run: str = field(metadata={"help": "run folder with the recipe's sft and difficulty"})
    out: str = field(metadata={"help": "page to write"})


def run_one(args: BenchArguments, name: str) -> dict[str, Any]:
    """The result of one run, made now if it is not there yet."""
    _, changes = (BROKEN | HEALTHY)[name]
    folder = Path(args.recipe_run) / "bench-guards" / name.replace(", ", "-").replace(" ", "-")
    settings = {"save_strategy": "no", "report_to": "none"} | changes
    settings["output_dir"] = str(folder)
    command = ["-m", "benchmarks.bench_engine" if name in ENGINES else "stages.grpo"]
    command += ["--config", args.grpo_config, "--run_dir", args.recipe_run]
    for key, value in settings.items():
        command += [f"--{key}", *map(str, value if isinstance(value, list) else [value])]
    command += ENGINES.get(name, [])
    files = [args.grpo_config, f"{args.recipe_run}/sft", f"{args.recipe_run}/difficulty"]
    key = {"settings": settings, "guards": asdict(GuardSettings())}
    key["inputs"] = manifest.hash_inputs(files)
    done = folder / DONE
    if done.is_file() and json.loads(done.read_text(encoding="utf-8")) == key:
        return read_run(folder)
    log = folder.with_suffix(".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as file:
        code = subprocess.run([sys.executable, *command], stdout=file, stderr=file, check=False)
    if code.returncode:
        raise UserError(f"{log}: the run ended with exit code {code.returncode}; see its last line")
    manifest.write_json(done, key)
    return read_run(folder)


def read_run(folder: Path) -> dict[str, Any]:
    """What a finished run shows.

    Returns:
        `steps`, `seconds`, `commit`, `right` (share of the right completions, mean of the last five
        steps that have one), `fired` (the first event of each guard) and `nearest` (of each guard
        that was judged, the value nearest to its limit or furthest behind it).
    """
    written = manifest.read(folder)
    events = folder / "events.jsonl"
    fired: dict[str, dict[str, Any]] = {}
    for line in events.read_text(encoding="utf-8").splitlines() if events.is_file() else ():
        event = json.loads(line)
        fired.setdefault(event["guard"], event)
    history = json.loads((folder / "trainer_state.json").read_text(encoding="utf-8"))["log_history"]
    nearest = {}
    for name in GUARDS:
        values = [log[key] for log in history if log.get(key := f"guard/{name}") is not None]
        if values:
            nearest[name] = max(values) if more_is_worse(name) else min(values)
    right = [log["rollout/correctness"] for log in history if "rollout/correctness" in log][-5:]
    return {
        "steps": written["counts"]["steps"],
        "seconds": written["wall_time_s"],
        "commit": written["git_commit"],
        "right": sum(right) / len(right),
        "fired": fired,
        "nearest": nearest,
    }


def more_is_worse(guard: str) -> bool:
    """Whether a guard's limit is an upper one."""
    return LEVELS[guard][2] if guard in LEVELS else True


def limit_of(guard: str) -> float:
    """A guard's limit by default."""
    names = {"eos": "cut_off_rise", "length": "max_length_growth"}
    return getattr(GuardSettings, names[guard] if guard in names else LEVELS[guard][1])


def say_fired(fired: dict[str, dict[str, Any]]) -> str:
    """The guards in the order in which they fired, with step and value."""
    events = sorted(fired.values(), key=lambda event: event["step"])
    words = {"warn": "", "rollback": ", rolled back"}
    found = [f"{e['guard']} at {e['step']} ({e['value']:.3g}){words[e['action']]}" for e in events]
    return ", ".join(found) or "silent"


def write_page(runs: dict[str, dict[str, Any]]) -> str:
    """The page as Markdown."""
    lines = [
        "# Guards, measured",
        "",
        "`make bench-guards`: GRPO of the demo (`tiny-cpu`) from one SFT checkpoint, every guard "
        f"on `warn` with the default limits: {GuardSettings.patience} violating steps in a row "
        "fire. Steps count from 0, as in `events.jsonl`; in brackets the guard's value. Right: "
        "sampled completions of the last five steps.",
        "",
        "| run | changed in the recipe | steps | right, % | fired, at its first time |",
        "| --- | --- | ---: | ---: | --- |",
    ]
    for name, (words, _) in (BROKEN | HEALTHY).items():
        fired = say_fired(runs[name]["fired"])
        steps, right = runs[name]["steps"], 100 * runs[name]["right"]
        lines.append(f"| {name} | {words} | {steps} | {right:.1f} | {fired} |")
    lines += [
        "",
        "How near the runs without a fault came to the limits: the worst value of all steps. "
        "`alignment` needs an engine that reports log-probs. `entropy` fires in none of these "
        "runs; `tests/integration/test_guard_fires.py` has one of a smaller model where it does.",
        "",
        f"| guard | limit | {' | '.join(HEALTHY)} |",
        f"| --- | ---: |{' ---: |' * len(HEALTHY)}",
    ]
    for guard in GUARDS:
        cells = [runs[name]["nearest"].get(guard) for name in HEALTHY]
        values = ["" if cell is None else f"{cell:.4g}" for cell in cells]
        sign = "<=" if more_is_worse(guard) else ">="
        lines.append(f"| {guard} | {sign} {limit_of(guard):g} | {' | '.join(values)} |")
    versions = ", ".join(f"{name} {version}" for name, version in manifest.versions().items())
    commits = ", ".join(sorted({str(run["commit"]) for run in runs.values()}))
    return "\n".join([*lines, "", f"Commit {commits}. Versions: {versions}.", ""])


def main() -> None:
    """Make the runs that are missing, then write the page."""
    (args,) = parse(__doc__, BenchArguments)
    runs = {}
    for name in BROKEN | HEALTHY:
        runs[name] = run = run_one(args, name)
        fired = say_fired(run["fired"])
        sys.stdout.write(f"bench: {name}: {fired}; {run['steps']} steps, {run['seconds']:.0f} s\n")
        sys.stdout.flush()
    Path(args.out).write_text(write_page(runs), encoding="utf-8")
    sys.stdout.write(f"bench: {len(runs)} runs -> {args.out}\n")


if __name__ == "__main__":
    run_cli(main)
