"""The benchmark suite: which tasks there are, and how they are loaded into the harness.

A task is a YAML file in `eval/tasks/`: `<name>.yaml` is think-aware and ours,
`official_<name>.yaml` lists the harness's own on the same problems. A think-aware task is run in
two modes, greedy and sampled; an official one in a mode of its own, `official:<harness's name>`.
"""

import functools
import importlib.util
from pathlib import Path
from typing import Any

import yaml

from data_prep.config import UserError
from data_prep.decontamination.benchmarks import BENCHMARKS

FOLDER = Path(__file__).parents[1] / "tasks"
MODES = ("greedy", "sampled")
# The harness's folders that hold the official tasks: reading all of its folders takes ten seconds.
HARNESS_FOLDERS = ("gsm8k", "minerva_math", "hendrycks_math", "arc", "gpqa")


def _names(prefix: str) -> list[str]:
    found = sorted(path.stem for path in FOLDER.glob("*.yaml") if path.stem != "think_common")
    return [
        name.removeprefix(prefix) for name in found if name.startswith("official_") == bool(prefix)
    ]


THINK_TASKS = _names("")
OFFICIAL_TASKS = _names("official_")


def check_tasks(key: str, names: list[str], known: list[str]) -> None:
    """Refuse an unknown task or one named twice; raises `UserError`."""
    for name in names:
        if name not in known:
            raise UserError(f"{key}: must be of {', '.join(known)} (got {name!r})")
        if names.count(name) > 1:
            raise UserError(f"{key}: {name!r} occurs twice; remove one")


def _read(file: str) -> dict[str, Any]:
    text = (FOLDER / f"{file}.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text.replace("!function ", ""))


def read_metadata(task: str) -> dict[str, Any]:
    """Where a think-aware task's problems come from: `benchmarks` or the recipe."""
    return expand(_read(task)["metadata"])


def expand(metadata: dict[str, Any]) -> dict[str, Any]:
    """A task's `metadata` with its benchmark's place instead of the benchmark's name."""
    rest = dict(metadata)
    benchmark = rest.pop("benchmark", None)
    return rest if benchmark is None else BENCHMARKS[benchmark] | rest


def read_official_metadata(task: str) -> dict[str, dict[str, Any]]:
    """`{the harness's name: metadata}` of the official tasks on a benchmark."""
    return {one["task"]: one["metadata"] for one in _read(f"official_{task}")["task"]}


def load_think_tasks(
    names: list[str], metadata: dict[str, Any], generation: dict[str, Any], num_samples: int
) -> dict[str, Any]:
    """Load think-aware tasks for one mode: `{name: task}`.

    Args:
        metadata: what `eval.harness.datasets.load_rows` needs besides the tasks' own, and
            `final_number`, which the scoring needs.
        generation: `generation_kwargs` of the mode, over those of the YAML.
        num_samples: completions of each problem.
    """
    from lm_eval.tasks import TaskManager

    of_rows = {key: value for key, value in metadata.items() if key != "final_number"}
    manager = TaskManager(include_path=FOLDER, include_defaults=False, metadata=of_rows)
    loaded = manager.load([f"{name}_think" for name in names])["tasks"]
    for task in loaded.values():
        score = functools.partial(
            task.config.process_results, final_number=metadata["final_number"]
        )
        task.set_config("process_results", score)
        task.set_config("generation_kwargs", generation, update=True)
        task.set_config("repeats", num_samples)
    return {name: loaded[f"{name}_think"] for name in names}


def load_official_tasks(names: list[str], metadata: dict[str, Any]) -> dict[str, Any]:
    """Load the harness's own tasks of the benchmarks `names`; returns `{their name: task}`."""
    from lm_eval.defaults import DEFAULT_OTHER_SEED
    from lm_eval.tasks import TaskManager

    spec = importlib.util.find_spec("lm_eval.tasks")
    folders = [Path(spec.origin).parent / name for name in HARNESS_FOLDERS]
    manager = TaskManager(
        include_path=[FOLDER, *folders], include_defaults=False, metadata=metadata
    )
    loaded = manager.load([f"official_{name}" for name in names])["tasks"]
    for task in loaded.values():
        # As the harness's command line does; without it every process draws other examples.
        task.set_fewshot_seed(DEFAULT_OTHER_SEED)
    return loaded
