"""Check the keys of all stages that a command needs, before the first of them starts.

    python -m stages.preflight.ahead --recipe configs/grpo7b --run runs/grpo7b --goal grpo

`python -m pipeline` runs it, in a second and without torch. The goal's own flags follow `--`.
"""

import contextlib
import io
import sys
from dataclasses import dataclass, field
from pathlib import Path

from data_prep.sampling import NO_VLLM
from pipeline import manifest
from pipeline.errors import UserError, run_cli
from pipeline.keys import flags as key_flags
from pipeline.settings import Settings, build, parse, read_settings, run_check, setting
from pipeline.stages import CHECKED_AHEAD, load_keys, order
from stages import sweep as sweeps
from stages.arguments import DEFAULTS
from stages.checks.common import check_packages
from stages.distill import DistillArguments, check_servers
from stages.launch import is_installed
from stages.planned_launch import as_launched, read_launch
from stages.preflight.capacity import LIMITS, build_step, check_host, has_limits
from stages.preflight.inputs import ERROR, load_shape, stage_flags
from stages.preflight.lengths import find_no_room
from stages.preflight.memory import Model, plan_step


@dataclass
class AheadArguments:
    """Keys of the command line; there is no YAML for this one."""

    recipe: str = field(metadata={"help": "the recipe's folder, such as configs/grpo7b"})
    run: str = field(metadata={"help": "folder of the stages' output"})
    goal: str = field(metadata={"help": f"the last stage, of {', '.join(CHECKED_AHEAD)}"})
    overlay: str | None = setting(None, "YAML over sft.yaml and grpo.yaml, as configs/lora.yaml")
    model: str | None = setting(None, "folder or hub id to start from, not the recipe's model")
    sweep: list[str] = setting([], "what make sweep is given")
    data_root: str | None = setting(None, "folder of the local data files")
    keys: list[str] = setting([], "of any stage, as grpo.top_p=0.8")
    accelerate: str | None = setting(None, "file of configs/accelerate that starts the stages")
    num_processes: int | None = setting(None, "in place of the launch file's")
    launch_is_known: bool = setting(True, "false: what depends on it is left to the launch")

    def __post_init__(self) -> None:
        if self.goal not in CHECKED_AHEAD:
            raise UserError(f"goal: {self.goal} is none of {', '.join(CHECKED_AHEAD)}; name one")


def command_lines(args: AheadArguments, given: list[str]) -> list[tuple[str, list[str]]]:
    """`(stage, its command line)` of each stage up to the goal, and of each run of a sweep."""
    found = []
    for stage in order((args.goal,), args.recipe, args.model or ""):
        path = Path(args.recipe, f"{stage}.yaml")
        if stage in CHECKED_AHEAD and path.is_file():
            flags = stage_flags(stage, path, args.run, args.overlay, args.model, args.data_root)
            flags += key_flags(args.keys, args.recipe, path.stem)
            found.append((stage, flags + (given if stage == args.goal else [])))
    if args.sweep:
        shared = {
            key: getattr(args, key)
            for key in ("run", "sweep", "overlay", "model", "data_root", "keys")
        }
        asked = sweeps.SweepArguments(grpo_config=f"{args.recipe}/grpo.yaml", **shared)
        runs = sweeps.combinations(args.sweep)
        sweeps.check_sets(asked, runs)
        sweeps.check_values(asked, runs)
        for name, values in runs.items():
            found += [line for line in sweeps.commands(asked, name, values) if line[0] != "data"]
    return found


def refuse_too_little_memory(
    args: AheadArguments, stage: str, settings: Settings, started_from: str | None
) -> str | None:
    """Refuse a CPU stage for which this machine has too little memory; returns its first model.

    `started_from`: that of SFT, if GRPO starts from what SFT makes. Rows are as long as the recipe
    allows: one that sets no limit is left to preflight, which measures them.
    """
    name = settings.model_name_or_path
    if name == f"{args.run}/sft":
        name = started_from or name
    try:
        model = Model(load_shape(str(name)))
    except UserError:  # a stage makes it, or its sizes are not known
        return name
    if has_limits(stage, settings):
        plan = plan_step(build_step(stage, model, settings))
        found = check_host(stage, settings, plan)
        if found.level == ERROR:
            raise UserError(
                f"{args.recipe}/{stage}.yaml: too little memory: {found.text}; {found.remedy}"
            )
    return name


def first_model(args: AheadArguments, settings: Settings) -> str | None:
    """The model that a stage starts from, where no stage of the run makes it."""
    name = settings.get("model_name_or_path")
    return None if name is None or str(name).startswith(f"{args.run}/") else str(name)


def refuse_too_long(args: AheadArguments, stage: str, settings: Settings, model: str) -> None:
    """Refuse samples for which the model has too few positions; its prompts are not known yet."""
    try:
        shape = load_shape(model)
    except UserError:  # its sizes are not known
        shape = {}
    for found in find_no_room(stage, settings, shape):
        raise UserError(f"{args.recipe}/{found.topic}: {found.text}; {found.remedy}")


def refuse_silent_teachers(args: AheadArguments, values: DistillArguments) -> None:
    """Refuse a teacher whose server does not answer, before data are built for it."""
    try:
        check_servers(values)
    except UserError as error:
        raise UserError(f"{args.recipe}/distill.yaml: {error}") from error


def main() -> None:
    given = sys.argv[1:]
    end = given.index("--") if "--" in given else len(given)
    (args,) = parse(__doc__, AheadArguments, argv=given[:end])
    launch = read_launch(args.accelerate, 1)
    processes = args.num_processes or launch.get("num_processes", 1)
    started_from = None
    for stage, line in command_lines(args, given[end + 1 :]):
        own, hf, check = load_keys(stage)
        settings = read_settings(own, hf, line, DEFAULTS if hf else None)
        needs_vllm = settings.get("use_vllm") or settings.get("backend") == "vllm"
        is_made = Path(args.run, stage, manifest.NAME).exists()
        if needs_vllm and not is_made and not is_installed("vllm"):
            raise UserError(f"{args.recipe}/{stage}.yaml: {NO_VLLM}")
        if hf and not is_made:
            check_packages(settings)
        is_alone = args.launch_is_known and not args.accelerate
        if stage in LIMITS and not is_made and settings.use_cpu and is_alone:
            started_from = refuse_too_little_memory(args, stage, settings, started_from)
        if hf and args.accelerate:
            check = as_launched(check, launch, processes)
        started_from = started_from or first_model(args, settings)
        if stage in ("difficulty", "eval") and not is_made and started_from:
            refuse_too_long(args, stage, settings, started_from)
        if check and (args.launch_is_known or not hf):
            with contextlib.redirect_stderr(io.StringIO()):  # the stage tells what it leaves out
                settings = run_check(settings, check)
        if not hf:
            (made,) = build(settings, own)
            if stage == "distill" and not Path(made.output_dir, manifest.NAME).exists():
                refuse_silent_teachers(args, made)


if __name__ == "__main__":
    run_cli(main)
