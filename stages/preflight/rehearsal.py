"""Check the keys of all stages that a command needs, then rehearse those that train.

    python -m stages.preflight.rehearsal --recipe configs/grpo7b --run runs/grpo7b --goal grpo \\
        --trained sft grpo

`python -m pipeline` runs it before the first stage. Names, types and ranges of keys are checked in
a second and without torch. Then each stage that will train is built narrow, with the user's keys,
and takes a step, a save and a resume on a CPU (`stages.preflight.attempts`). All faults of all
stages are shown. A result is kept, outside of the run, by a hash of keys, versions and code.
REHEARSE=off skips the rehearsal. The goal's own flags follow `--`.
"""

import contextlib
import functools
import hashlib
import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from data_prep.sampling import NO_VLLM
from pipeline import manifest
from pipeline.chain import order
from pipeline.console import hide_trackers, one_line, quiet
from pipeline.errors import UserError, run_cli
from pipeline.keys import yaml_flags
from pipeline.models.hub import user_cache
from pipeline.own_code import own_files
from pipeline.recipe_files import files_of
from pipeline.settings import (
    COMMAND_LINE,
    Settings,
    build,
    parse,
    read_settings,
    run_check,
    setting,
    with_types_if_needed,
)
from pipeline.stages import CHECKED_AHEAD, load_keys
from pipeline.values import Count
from stages import sweep as sweeps
from stages.arguments import DEFAULTS
from stages.distill import DistillArguments, check_servers
from stages.host import check_packages
from stages.preflight.attempts import Found, Rehearsal, inspect
from stages.preflight.capacity import LIMITS, build_step, check_host, has_limits
from stages.preflight.inputs import ERROR, load_shape, missing_inputs, stage_flags
from stages.preflight.lengths import find_no_room
from stages.preflight.memory import plan_step
from stages.preflight.narrow import asks_for_raw_prompts, check_model
from stages.run.launch import (
    DATA_PARALLEL,
    as_launched,
    asked_engine,
    is_installed,
    launch_environment,
    read_launch,
)

# A stage that trains on a CPU, its settings, and the model that SFT starts from.
OnCpu = tuple[str, Settings, str | None]
MOST_FAULTS = 8  # lines; the others are the same fault once more as a rule
# Variables by which libraries take a process for one of several, or end a training.
OF_A_LAUNCH = re.compile(
    r"(ACCELERATE|OMPI|PMI|MV2|MPI|SLURM|FSDP|TORCHELASTIC)_|STOP_AT$|PARALLELISM_CONFIG_"
    r"|(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)$|MASTER_(ADDR|PORT)$"
)


def kept_results() -> Path:
    """The folder of the results, of all recipes and runs of this user."""
    return user_cache() / "sft-grpo-math/rehearsals"


@dataclass
class Arguments:
    """Keys of the command line; there is no YAML for this one."""

    recipe: str = field(metadata={"help": "the recipe's folder, such as configs/grpo7b"})
    run: str = field(metadata={"help": "folder of the stages' output"})
    goal: str = field(metadata={"help": f"the last stage, of {', '.join(CHECKED_AHEAD)}"})
    overlay: str | None = setting(None, "YAML over sft.yaml and grpo.yaml, as configs/lora.yaml")
    model: str | None = setting(None, "folder or hub id to start from, not the recipe's model")
    trained: list[str] = setting([], "stages of these that will train, as sft and grpo")
    sweep: list[str] = setting([], "what make sweep is given")
    data_root: str | None = setting(None, "folder of the local data files")
    keys: list[str] = setting([], "of any stage, as grpo.top_p=0.8")
    accelerate: str | None = setting(None, "file of configs/accelerate that starts the stages")
    num_processes: Count | None = setting(None, "in place of the launch file's")
    launch_is_known: bool = setting(True, "false: what depends on it is left to the launch")

    def __post_init__(self) -> None:
        if self.goal not in CHECKED_AHEAD:
            raise UserError(f"goal: {self.goal} is none of {', '.join(CHECKED_AHEAD)}; name one")


def command_lines(args: Arguments) -> list[tuple[str, list[str]]]:
    """`(stage, its command line)` of each stage up to the goal, and of each run of a sweep."""
    found = recipe_lines(args)
    if args.sweep:
        shared = {
            key: getattr(args, key)
            for key in ("run", "sweep", "overlay", "model", "data_root", "keys")
        }
        asked = sweeps.SweepArguments(grpo_config=f"{args.recipe}/grpo.yaml", **shared)
        runs = sweeps.combinations(args.sweep)
        for folder, recipe in sweeps.other_recipes(asked, runs).items():
            other = replace(args, recipe=recipe, run=folder)
            found += recipe_lines(other, ("data", *CHECKED_AHEAD))
        for name, values in runs.items():
            found += sweeps.commands(asked, name, values)
    return found


def recipe_lines(
    args: Arguments, stages: Sequence[str] = CHECKED_AHEAD
) -> list[tuple[str, list[str]]]:
    """`(stage, its command line)` of each of these stages that the goal needs."""
    found = []
    for stage in order((args.goal,), args.recipe, args.model or ""):
        path = Path(args.recipe, f"{stage}.yaml")
        if stage in stages and path.is_file():
            flags = stage_flags(stage, path, args.run, args.overlay, args.model, args.data_root)
            found.append((stage, flags + yaml_flags(args.keys, args.recipe, path.stem)))
    return found


def refuse_too_little_memory(
    args: Arguments, stage: str, settings: Settings, started_from: str | None
) -> None:
    """Refuse a CPU stage for which this machine has too little memory.

    `started_from`: the model of SFT, if GRPO starts from what SFT makes. Rows are as long as the
    recipe allows: one that sets no limit is left to preflight, which measures them.
    """
    name = settings.model_name_or_path
    if name == f"{args.run}/sft":
        name = started_from or name
    try:
        plan = plan_step(build_step(stage, load_shape(str(name)), settings))
    except UserError:  # a stage makes it, or it cannot be planned
        return
    found = check_host(stage, settings, plan)
    if found.level == ERROR:
        raise UserError(
            f"{args.recipe}/{stage}.yaml: too little memory: {found.text}; {found.remedy}"
        )


def first_model(args: Arguments, settings: Settings) -> str | None:
    """The model that a stage starts from, where no stage of the run makes it."""
    name = settings.get("model_name_or_path")
    return None if name is None or str(name).startswith(f"{args.run}/") else str(name)


def refuse_too_long(args: Arguments, stage: str, settings: Settings, model: str) -> None:
    """Refuse samples for which the model has too few positions; its prompts are not known yet."""
    try:
        shape = load_shape(model)
    except UserError:  # its sizes are not known
        shape = {}
    for found in find_no_room(stage, settings, shape):
        raise UserError(f"{args.recipe}/{found.topic}: {found.text}; {found.remedy}")


def refuse_silent_teachers(args: Arguments, values: DistillArguments) -> None:
    """Refuse a teacher whose server does not answer, before data are built for it."""
    try:
        check_servers(values)
    except UserError as error:
        raise UserError(f"{args.recipe}/distill.yaml: {error}") from error


def look(args: Arguments) -> tuple[list[str], dict[str, Settings], list[OnCpu]]:
    """The faults that show without torch, the settings of the recipe's own stages, and those whose
    memory this machine must have."""
    faults: list[str] = []
    found: dict[str, Settings] = {}
    on_cpu: list[OnCpu] = []
    launch = read_launch(args.accelerate, 1)
    started_from: dict[str, list[str]] = {}  # by recipe: the model of the first stage that trains
    read: list[tuple[str, Settings]] = []  # of the stages that will run, by file without .yaml
    written: list[tuple[str, str]] = []  # each stage with its folder
    for stage, line in command_lines(args):
        own, hf, _ = load_keys(stage)
        file, run = (line[line.index(flag) + 1] for flag in ("--config", "--run_dir"))
        args = replace(args, recipe=str(Path(file).parent), run=run)
        try:
            settings = read_settings(own, hf, line, DEFAULTS if hf else None)
            if hf and stage in found:  # a run of a sweep, which is not rehearsed
                settings = settings.as_trl_types()
            models = started_from.setdefault(args.recipe, [])
            check = functools.partial(check_line, args, stage, launch, models, on_cpu)
            settings = with_types_if_needed(settings, check)
            found.setdefault(stage, settings)
            output = settings.get("output_dir") or f"{run}/{stage}"
            written += [(stage, output), ("data", f"{run}/data"), ("base", f"{run}/base")]
            if not Path(output, manifest.NAME).exists():
                read.append((f"{args.recipe}/{stage}", settings))
        except UserError as error:
            for text in error.lines:
                has_place = f"{stage}.yaml" in text or text.startswith(COMMAND_LINE)
                faults.append(text if has_place else f"{file}: {text}")
    if not faults:  # else a stage's folder may be missing here
        for place, missing in missing_inputs(read, written):
            faults += [f"{place}.yaml: {line}" for line in missing.lines]
    return [*dict.fromkeys(faults)], found, on_cpu


def check_line(
    args: Arguments,
    stage: str,
    launch: dict[str, Any],
    started_from: list[str],
    on_cpu: list[OnCpu],
    settings: Settings,
) -> Settings:
    """Refuse one stage's mistakes that show without torch; returns its settings."""
    processes = args.num_processes or launch.get("num_processes", 1)
    own, hf, check = load_keys(stage)
    needs_vllm = settings.get("use_vllm") or settings.get("backend") == "vllm"
    is_made = Path(args.run, stage, manifest.NAME).exists()
    if needs_vllm and not is_made and not is_installed("vllm"):
        raise UserError(f"{args.recipe}/{stage}.yaml: {NO_VLLM}")
    is_alone = args.launch_is_known and not args.accelerate
    is_on_cpu = stage in LIMITS and settings.use_cpu and is_alone
    if is_on_cpu and not is_made and has_limits(stage, settings):
        on_cpu.append((stage, settings, next(iter(started_from), None)))
    if hf and args.accelerate:
        check = as_launched(check, launch, processes)
    if (model := first_model(args, settings)) and not started_from:
        started_from.append(model)
    if stage in ("difficulty", "eval") and not is_made and started_from:
        refuse_too_long(args, stage, settings, started_from[0])
    with contextlib.redirect_stderr(io.StringIO()):  # the stage tells what it leaves out
        if args.launch_is_known or not hf:
            settings = run_check(settings, check)
        (made,) = build(settings, own)
    if hf and not is_made:
        check_packages(settings)
    if stage == "distill" and not Path(made.output_dir, manifest.NAME).exists():
        refuse_silent_teachers(args, made)
    return settings


def origin(found: Mapping[str, Settings], stage: str, run: str) -> str:
    """The model that a stage's weights come from at first."""
    name = str(found[stage].get("model_name_or_path"))
    if any(Path(name, file).is_file() for file in ("config.json", "adapter_config.json")):
        return name
    if stage != "sft" and "sft" in found and name == f"{run}/sft":
        return origin(found, "sft", run)
    return "tiny" if name == f"{run}/base" else name


def rehearse(
    found: Mapping[str, Settings],
    models: Mapping[str, str],
    processes: int = 1,
    engine: str = DATA_PARALLEL,
) -> Found:
    """What a rehearsal of training stages shows, each line with the name of its file.

    Args:
        found: their settings.
        models: what the weights of each come from at first, as `origin` names it.
        processes, engine: of the launch, as `Rehearsal` takes them.

    A second rehearsal of the same settings, versions and code is not made: its result is kept.
    """
    if is_off() or not found:
        return Found()
    state = inputs_of(found, models)
    kept = kept_results() / f"{digest(found, models, processes, engine)}.json"
    if (before := read_kept(kept, state)) is not None:
        return before
    result = Found()
    with on_one_cpu():
        for stage, given in found.items():
            try:
                settings = given.as_trl_types()
            except UserError as error:  # nothing else can be tried
                result.faults += [in_stage(stage, given, line) for line in error.lines]
                continue
            try:
                is_raw = asks_for_raw_prompts(Path(given.path).parent, stage)
                check_model(settings, models[stage], is_raw)
            except UserError as error:  # here, too
                result.faults += [f"{stage}.yaml: {line}" for line in error.lines]
                continue
            with tempfile.TemporaryDirectory(prefix="rehearsal-") as folder:
                typed = frozenset({*settings.typed, *settings._overrides})
                one = inspect(
                    Rehearsal(
                        *(stage, dict(settings), models[stage], Path(folder)),
                        *(typed, processes, engine, is_raw),
                    )
                )
            result.faults += [f"{stage}.yaml: {line}" for line in one.faults]
            result.notes += [f"{stage}.yaml: {line}" for line in one.notes]
    with contextlib.suppress(OSError):  # a home folder that cannot be written: rehearsed again
        kept.parent.mkdir(parents=True, exist_ok=True)
        manifest.write_json(kept, {"inputs": state, **vars(result)})
    return result


def in_stage(stage: str, settings: Settings, line: str) -> str:
    """A refusal with the name of the stage's file in place of the path, where that is its place."""
    is_of_file = line.startswith(f"{settings.path}: ")
    return f"{stage}.yaml: {line.removeprefix(settings.path + ': ')}" if is_of_file else line


def is_off() -> bool:
    """Whether the user has switched rehearsals off."""
    return os.environ.get("REHEARSE") == "off"


def read_kept(path: Path, state: dict[str, Any]) -> Found | None:
    """The result of an earlier rehearsal. Faults hold only while the inputs are as they were."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        if not kept["faults"] or kept["inputs"] == state:
            return Found(kept["faults"], kept["notes"])
    except (OSError, ValueError, KeyError):  # none, or of a process that was killed
        pass
    return None


def inputs_of(found: Mapping[str, Settings], models: Mapping[str, str]) -> dict[str, Any]:
    """Size and time of each file that a rehearsal may read, by its name."""
    names = {*models.values()}
    for settings in found.values():
        names |= {str(settings.get(key)) for key in ("train_file", "eval_file", "pass_rates")}
        names |= {str(settings.get("chat_template_path"))}
        names |= {*files_of(str(Path(settings.path).parent))}
        names |= {*map(str, own_files(code_of(settings)))}
    state = {}
    for name in sorted(names):
        path = Path(name)
        files = manifest.model_files(path) if path.is_dir() else [path]
        for file in (file for file in files if file.is_file()):
            state[str(file)] = [file.stat().st_size, file.stat().st_mtime_ns]
    return state


def code_of(settings: Settings) -> list[str]:
    """Rewards and curriculum as the recipe names them; the user's own are files."""
    return [*(settings.get("reward_funcs") or ()), settings.get("curriculum") or ""]


def digest(
    found: Mapping[str, Settings], models: Mapping[str, str], processes: int, engine: str
) -> str:
    """A hash of all that decides what a rehearsal shows, but for files of data."""
    package = Path(__file__).parents[1]
    code = manifest.hash_code(package, package.parent / "pipeline")
    own = [manifest.sha256(file) for one in found.values() for file in own_files(code_of(one))]
    settings = {stage: [dict(one), sorted(one.typed)] for stage, one in found.items()}
    parts = [settings, dict(models), inputs_of({}, models), manifest.versions(), code, own]
    parts += [processes, engine]
    return hashlib.sha256(json.dumps(parts, default=str, sort_keys=True).encode()).hexdigest()


@contextlib.contextmanager
def on_one_cpu() -> Iterator[None]:
    """Let libraries see one process on a CPU, no hub, no tracker and no end of the time."""
    before = dict(os.environ)
    for name in before:
        if OF_A_LAUNCH.match(name):
            del os.environ[name]
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    hide_trackers([])
    quiet()
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def main() -> None:
    """Check all stages, rehearse those that will train, print every finding."""
    os.environ["HF_HUB_OFFLINE"] = "1"  # read once, when its library is first imported
    (args,) = parse(__doc__, Arguments)
    faults, found, on_cpu = look(args)
    if not faults:
        for one in on_cpu:
            refuse_too_little_memory(args, *one)
        launch = read_launch(args.accelerate, 1)
        processes = args.num_processes or launch.get("num_processes", 1)
        engine = asked_engine(launch_environment(launch, processes))
        trained = {stage: found[stage] for stage in args.trained if stage in found}
        models = {stage: origin(found, stage, args.run) for stage in trained}
        result = rehearse(trained, models, processes, engine)
        sys.stderr.write("".join(f"{args.recipe}/{one_line(line)}\n" for line in result.notes))
        elsewhere = (COMMAND_LINE, args.overlay or COMMAND_LINE)
        faults = [
            line if line.startswith(elsewhere) else f"{args.recipe}/{line}"
            for line in result.faults
        ]
    told = faults[:MOST_FAULTS]
    for line in told[:-1]:
        sys.stderr.write(f"error: {one_line(line)}\n")
    if told:
        raise UserError(told[-1])


if __name__ == "__main__":
    run_cli(main)
