"""Do the guards see a broken run, and are they silent in a healthy one?

    make bench-guards

Every run is a process of its own from the recipe's SFT checkpoint; a finished run is not repeated,
so an interrupted benchmark resumes. The page says which guard fired at which step, how good the run
was in the end, and how near it came to each guard's limit.
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from benchmarks.table import about, markdown, publish, run_once, tell
from pipeline import json_files, manifest, strict_yaml
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
FILE = Path(__file__).with_suffix(".yaml")


@dataclass(frozen=True)
class Run:
    """A run of the table; `engine` has flags of `benchmarks.engine`, None for no engine."""

    changed: str  # in words
    keys: dict[str, Any]
    kind: str = ""  # of healthy runs with several seeds
    engine: list[str] | None = None


def read_runs() -> dict[str, Run]:
    """The runs of guards.yaml by name; `<kind>-<seed>` where there are several seeds."""
    known = strict_yaml.read(FILE)
    runs = {}
    for name, fields in (known["broken"] | known["healthy"]).items():
        changed, keys = fields["changed"], fields["keys"]
        if "seeds" not in fields:
            runs[name] = Run(changed, keys, engine=fields.get("engine"))
            continue
        for seed in range(fields["seeds"]):
            words = f"{changed}, seed {seed}"
            runs[f"{name}-{seed}"] = Run(words, keys | {"seed": seed}, kind=name)
    return runs


RUNS = read_runs()
HOW = f"""`make bench-guards` breaks GRPO of one recipe in several ways, from one SFT checkpoint.
Healthy runs show false alarms. Every guard is on `warn` with its default limit, and fires after
{GuardSettings.patience} violating steps in a row. "Fired" names the step, counted from 0, and the
guard's value. "Correct" is the share of correct completions in the last five steps."""
WORST = """The worst value of all steps, beside the limit of each guard. `alignment` needs an
engine that reports log-probs. `entropy` fires in none of these runs, but in one of a smaller model
(`tests/integration/trainer/test_guards.py`)."""
ALARMS = "Healthy runs of each kind in which a guard fired:"


@dataclass
class BenchArguments:
    """Keys of the command line, or of a YAML file."""

    grpo_config: str = field(metadata={"help": "grpo.yaml of the recipe"})
    recipe_run: str = field(metadata={"help": "run folder with the recipe's sft and difficulty"})
    out: str = field(metadata={"help": "the page to write"})
    runs: list[Literal[*RUNS]] = field(
        default_factory=lambda: list(RUNS), metadata={"help": "their names"}
    )
    max_steps: int = field(default=80, metadata={"help": "steps of the longest runs"})


def run_one(args: BenchArguments, name: str) -> dict[str, Any]:
    """The result of one run, which is started unless it is there already."""
    folder, run = Path(args.recipe_run) / "bench-guards" / name, RUNS[name]
    settings = {"save_strategy": "no", "report_to": "none"} | run.keys
    settings["max_steps"] = min(settings.get("max_steps", args.max_steps), args.max_steps)
    settings |= {"output_dir": str(folder), "run_dir": args.recipe_run}
    for key, value in settings.items():
        if isinstance(value, str):
            settings[key] = value.replace("{run}", args.recipe_run)
    module = "stages.grpo" if run.engine is None else "benchmarks.engine"
    command = ["-m", module, "--config", args.grpo_config]
    for key, value in settings.items():
        values = value if isinstance(value, list) else [value]
        command += [f"--{key}", *map(str, values)]
    command += run.engine or []
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
    for line in events.read_bytes().splitlines() if events.is_file() else ():
        event = json_files.parse(line, {"guard": str})
        fired.setdefault(event["guard"], event)
    history = json_files.read_log(folder / "trainer_state.json")
    correct = [log["rollout/correctness"] for log in history if "rollout/correctness" in log][-5:]
    values = {
        name: [log[key] for log in history if log.get(key := f"guard/{name}") is not None]
        for name in LIMITS
    }
    return {
        "steps": written["counts"]["steps"],
        "commit": written["git_commit"],
        "correct": sum(correct) / len(correct),
        "fired": fired,
        "worst": {name: LIMITS[name][1](found) for name, found in values.items() if found},
    }


def false_alarms(found: dict[str, dict[str, Any]]) -> list[dict[str, str]]:
    """Of each kind of healthy run, and of all: in how many of them each guard has fired."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for name, run in found.items():
        if RUNS[name].kind:
            kinds.setdefault(RUNS[name].kind, []).append(run)
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
    return {
        "run": name,
        "changed in the recipe": RUNS[name].changed,
        "steps": str(run["steps"]),
        "correct, %": f"{100 * run['correct']:.1f}",
        "fired first": show_fired(run["fired"]),
    }


def render_worst(name: str, run: dict[str, Any]) -> dict[str, str]:
    """A run's row of the table of worst values."""
    row = {"worst value": name}
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
    worst = markdown([render_worst(name, run) for name, run in found.items()])
    alarms = markdown(false_alarms(found))
    figures = {"about": about(), "runs": found}
    publish(args.out, "Guards", HOW, rows, figures, WORST, worst, ALARMS, alarms)


if __name__ == "__main__":
    run_cli(main)
