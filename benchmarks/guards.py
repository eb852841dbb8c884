"""The guards' benchmark: the demo's GRPO broken in several ways, and healthy.

    make bench-guards

Every run is a process of its own from the recipe's SFT checkpoint; a finished run is not repeated,
so an interrupted benchmark goes on. The table says which guard fired at which step, what the run
was worth in the end, and how near it came to each guard's limit.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.table import about, markdown, publish, run_once, tell
from pipeline import manifest
from pipeline.errors import run_cli
from pipeline.settings import parse
from stages.trainer.guards import GuardSettings

# Guard -> its limit in `GuardSettings`, and which of two values is nearer to violating it.
LIMITS = {
    "repetition": ("max_repetitive_share", max),
    "eos": ("cut_off_rise", max),
    "entropy": ("min_entropy", min),
    "length": ("max_length_growth", max),
    "alignment": ("max_logp_mismatch", max),
    "weights": ("min_moved_share", min),
    "no_signal": ("min_signal", min),
}
# Two steps share a generation, or TRL has no log-probs of its own to compare the engine's with.
ENGINE = {"per_device_train_batch_size": 64, "steps_per_generation": 2, "max_steps": 30}
TOO_FAST = {"learning_rate": 2e-2, "max_steps": 40}
SMALL = {"per_device_train_batch_size": 64}
FILTER = {
    "curriculum": "offline",
    "pass_rates": "{run}/difficulty/pass_rates.jsonl",
    "max_steps": 20,
}
# Kinds of healthy run: in words, as keys, and how many seeds. Steps of 8 groups are the noisier.
HEALTHY: dict[str, tuple[str, dict[str, Any], int]] = {
    "on-policy": ("`curriculum: off`", {"curriculum": "off", "log_completions": True}, 7),
    "reused": (
        "`curriculum: off`, `num_iterations: 2`, learning rate x 2",
        {"curriculum": "off", "num_iterations": 2, "learning_rate": 4e-4},
        7,
    ),
    "chosen": (
        "`curriculum: predictive+refill`, evaluation every 20 steps",
        {"curriculum": "predictive+refill", "eval_strategy": "steps", "eval_steps": 20}
        | {"eval_problems": 16, "num_generations_eval": 4},
        6,
    ),
}
# Name -> what is changed in the recipe, in words and as keys.
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "pays-for-repetition": (
        "`repetition_penalty` with weight -1, nothing for right answers, learning rate x 5",
        {"reward_funcs": ["correctness_reward", "repetition_penalty"], "reward_weights": [0, -1]}
        | {"learning_rate": 1e-3, "max_steps": 60},
    ),
    "learning-rate-x100": ("learning rate x 100", TOO_FAST),
    "rolled-back": (
        "the same; eos and length on `rollback`, `guard_rollback_lr_factor: 0.1`, `save_steps: 5`",
        TOO_FAST
        | {"guard_eos": "rollback", "guard_length": "rollback", "guard_rollback_lr_factor": 0.1}
        | {"save_strategy": "steps", "save_steps": 5, "save_total_limit": 4},
    ),
    "stale-engine": ("completions from an engine that keeps the first weights", ENGINE),
    "tags-engine": (
        "from step 10 on another 5 % of a step's completions end in `</answer></answer>`",
        SMALL | {"curriculum": "off", "max_steps": 25},
    ),
    "bf16-weights": (
        "`dtype: bfloat16`, learning rate 5e-7",
        {"dtype": "bfloat16", "learning_rate": 5e-7, "max_steps": 10},
    ),
    "cut-off": ("`max_completion_length: 12`", {"max_completion_length": 12, "max_steps": 10}),
    "untrained": (
        "the untrained model, no SFT",
        {"model_name_or_path": "{run}/base", "curriculum": "off", "max_steps": 20},
    ),
    "too-hard": (
        "only problems that the SFT model never solved",
        FILTER | {"min_pass_rate": 0.0, "max_pass_rate": 0.0},
    ),
    "too-easy": (
        "only problems that the SFT model always solved",
        FILTER | {"min_pass_rate": 1.0, "max_pass_rate": 1.0},
    ),
    **{
        f"{kind}-{seed}": (f"{words}, seed {seed}", SMALL | keys | {"seed": seed})
        for kind, (words, keys, num_seeds) in HEALTHY.items()
        for seed in range(num_seeds)
    },
    "fresh-engine": ("completions from an engine that gets the weights", ENGINE),
    "float32-weights": ("learning rate 5e-7", {"learning_rate": 5e-7, "max_steps": 10}),
}
HOW = f"""`make bench-guards`: GRPO of one recipe from one SFT checkpoint, every guard on `warn`
with the default limits: {GuardSettings.patience} violating steps in a row fire. Steps count from
0, as in `events.jsonl`; in brackets the guard's value. Right: sampled completions of the last
five steps. The last columns are the worst value of all steps, with the limit; `alignment` needs an
engine that reports log-probs. `entropy` fires in none of these runs;
`tests/integration/trainer/test_guards.py` has one of a smaller model where it does. The second
table counts, for each kind of healthy run, those in which a guard fired."""


@dataclass
class BenchArguments:
    """Keys of the command line, or of a YAML file."""

    grpo_config: str = field(metadata={"help": "grpo.yaml of the recipe"})
    recipe_run: str = field(metadata={"help": "run folder with the recipe's sft and difficulty"})
    out: str = field(metadata={"help": "Markdown file to write, with .json next to it"})
    runs: list[str] = field(default_factory=lambda: list(RUNS), metadata={"help": "their names"})
    max_steps: int = field(default=80, metadata={"help": "steps of the longest runs"})

    def __post_init__(self) -> None:
        for name in self.runs:
            if name not in RUNS:
                raise ValueError(f"runs: must be some of {', '.join(RUNS)} (got {name!r})")


def run_one(args: BenchArguments, name: str) -> dict[str, Any]:
    """The result of one run, which is started unless it is there already."""
    folder = Path(args.recipe_run) / "bench-guards" / name
    settings = {"save_strategy": "no", "report_to": "none"} | RUNS[name][1]
    settings["max_steps"] = min(settings.get("max_steps", args.max_steps), args.max_steps)
    settings |= {"output_dir": str(folder), "run_dir": args.recipe_run}
    command = ["-m", "benchmarks.engine" if name.endswith("-engine") else "stages.grpo"]
    command += ["--config", args.grpo_config]
    settings = {
        key: value.replace("{run}", args.recipe_run) if isinstance(value, str) else value
        for key, value in settings.items()
    }
    for key, value in settings.items():
        command += [f"--{key}", *map(str, value if isinstance(value, list) else [value])]
    command += {"fresh-engine": ["--fresh"], "tags-engine": ["--tags"]}.get(name, [])
    files = [args.grpo_config, f"{args.recipe_run}/sft", f"{args.recipe_run}/difficulty"]
    key = {"settings": settings, "guards": asdict(GuardSettings())}
    key["inputs"] = manifest.hash_inputs(files)
    run_once(folder, key, command)
    return read_run(folder)


def read_run(folder: Path) -> dict[str, Any]:
    """What a finished run shows: `fired`, each guard's first event, and the columns of `HOW`."""
    written = manifest.read(folder)
    events = folder / "events.jsonl"
    fired: dict[str, dict[str, Any]] = {}
    for line in events.read_text(encoding="utf-8").splitlines() if events.is_file() else ():
        event = json.loads(line)
        fired.setdefault(event["guard"], event)
    history = json.loads((folder / "trainer_state.json").read_text(encoding="utf-8"))["log_history"]
    right = [log["rollout/correctness"] for log in history if "rollout/correctness" in log][-5:]
    values = {
        name: [log[key] for log in history if log.get(key := f"guard/{name}") is not None]
        for name in LIMITS
    }
    return {
        "steps": written["counts"]["steps"],
        "commit": written["git_commit"],
        "right": sum(right) / len(right),
        "fired": fired,
        "worst": {name: LIMITS[name][1](found) for name, found in values.items() if found},
    }


def false_alarms(found: dict[str, dict[str, Any]]) -> list[dict[str, str]]:
    """Of each kind of healthy run, and of all: in how many of them each guard has fired."""
    kinds = {
        kind: [run for name, run in found.items() if name.startswith(kind)] for kind in HEALTHY
    }
    kinds["all"] = [run for runs in kinds.values() for run in runs]
    rows = []
    for kind, runs in kinds.items():
        counts = {name: sum(name in run["fired"] for run in runs) for name in LIMITS}
        row = {"healthy runs": kind, "runs": str(len(runs))}
        row["steps"] = str(sum(run["steps"] for run in runs))
        rows.append(row | {name: str(count) for name, count in counts.items()})
    return rows


def show_fired(fired: dict[str, dict[str, Any]]) -> str:
    """The guards in the order in which they fired, with step and value."""
    events = sorted(fired.values(), key=lambda event: event["step"])
    words = {"warn": "", "rollback": ", rolled back"}
    found = [f"{e['guard']} at {e['step']} ({e['value']:.3g}){words[e['action']]}" for e in events]
    return ", ".join(found) or "silent"


def render(name: str, run: dict[str, Any]) -> dict[str, str]:
    """A run's row of the table."""
    row = {
        "run": name,
        "changed in the recipe": RUNS[name][0],
        "steps": str(run["steps"]),
        "right, %": f"{100 * run['right']:.1f}",
        "fired, at its first time": show_fired(run["fired"]),
    }
    for guard, (limit, worse) in LIMITS.items():
        sign = "<=" if worse is max else ">="
        value = run["worst"].get(guard)
        column = f"{guard} {sign} {getattr(GuardSettings, limit):g}"
        row[column] = "" if value is None else f"{value:.4g}"
    return row


def main() -> None:
    """Make the runs that are missing, then write the table."""
    (args,) = parse(__doc__, BenchArguments)
    found = {}
    for name in args.runs:
        found[name] = run = run_one(args, name)
        tell(f"{name}: {show_fired(run['fired'])}; {run['steps']} steps")
    rows = [render(name, run) for name, run in found.items()]
    alarms = markdown(false_alarms(found))
    publish(args.out, "Guards, measured", HOW, rows, {"about": about(), "runs": found}, alarms)


if __name__ == "__main__":
    run_cli(main)
