"""What is up to date, as far as a second tells: by manifests and hashes, not by the times of files.

A stage that is started looks again, with all defaults (`pipeline.manifest`).
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline import manifest
from pipeline.errors import UserError
from pipeline.folders import place_of, runs_of, time_of
from pipeline.recipe_files import files_of
from pipeline.request import Request
from pipeline.settings import Settings, read_settings
from pipeline.stages import ROOT, STAGES, TRAINED, load, load_keys

AUDIT = "eval.audit.__main__:AuditArguments"


def looks_current(request: Request, stage: str, words: Sequence[str]) -> bool:
    """Whether the result of a stage that others need is that of its command line.

    The recipe's files must say what they said then, and the result must have what is typed now.
    What was typed earlier does not count, but to the audit: its result is of another recipe.
    """
    made = manifest.read(Path(request.run, stage))
    if made is None or made["stage"] != stage:
        return False
    # A folder of data may hold other problems than before; another folder has other results.
    if stage == "eval" and (request["data_root"] or "--output_dir" in words):
        return False
    # Of eval `code` is this hash, and the versions of the libraries that score.
    code = [ROOT / place for place in STAGES[stage].code]
    if code and manifest.hash_code(*code) not in str(made.get("code")):
        return False
    try:
        settings = settings_of(stage, words)
    except UserError:  # the stage names the line
        return False
    known = settings.keys() & made["config"].keys()
    if settings.typed - known - manifest.NOT_COMPARED:  # such as null: the default
        return False
    typed = {key: settings[key] for key in settings.typed & known}
    if stage == "audit":
        typed = asdict(load(AUDIT)(**settings))
    now = {"config": typed, "inputs": manifest.inputs_now(made["inputs"])}
    return (
        not manifest.difference(made, now)
        and says_the_same(made.get("request", {}), settings)
        and not finds_more(stage, made["config"], made["inputs"])
    )


def settings_of(stage: str, words: Sequence[str]) -> Settings:
    """The settings that a stage reads from the words of its command; the report has eval's keys."""
    argv = list(words[words.index(STAGES[stage].module) + 1 :])
    if stage == "audit":
        return read_settings(load(AUDIT), (), argv)
    own, hf, _ = load_keys("eval" if stage == "report" else stage)
    return read_settings(own, hf, argv)


def says_the_same(request: Mapping[str, Any], settings: Settings) -> bool:
    """Whether files say what they said at a request, but for keys that were typed then or are now.

    Args:
        request: of a manifest, as `manifest.as_request` has made it; an older version's has none.
    """
    now = manifest.as_request(settings, settings.typed)
    typed = {*now["typed"], *request.get("typed", ())}
    then, said = request.get("written"), now["written"]
    return then is not None and not any(
        then.get(key) != said.get(key) for key in (then.keys() | said.keys()) - typed
    )


def finds_more(stage: str, config: dict[str, Any], inputs: Mapping[str, str]) -> bool:
    """Whether a stage would now read a file that was not there when its result was made."""
    found: Iterable[str | Path] = ()
    try:
        if stage == "audit":
            found = files_of(config["recipe"])
        elif STAGES[stage].list_inputs:
            found = load(STAGES[stage].list_inputs)(config)
    except UserError:  # inputs that no longer exist count as unchanged
        return False
    return not {*map(str, found)} <= inputs.keys()


def check_finished(folder: Path, words: Sequence[str], since: float) -> None:
    """Raise if a stage exited with code 0 but wrote no manifest.

    Args:
        folder: of its result.
        since: when the stage was started, as seconds of `time.time()`.
    """
    # An audit that only looks leaves none, nor does a part of an evaluation.
    leave_none = {"-h", "--help", "--opens_gate", "--completions", "--only_checkpoints"}
    if {*leave_none, "--output_dir"} & {*words}:  # another folder is not looked for
        return
    started = [run for run in runs_of(place_of(folder)) if time_of(run, "started") >= since]
    for place in (folder, *started):
        if place.is_dir() and not (place / manifest.NAME).is_file():
            raise UserError(
                f"{place}: no {manifest.NAME}; the stage ended with exit code 0 before it was "
                "finished: its process was ended from inside; look for sys.exit or os._exit in "
                "your own code, then run the same command again"
            )


def check_same_run(request: Request) -> None:
    """Refuse a run that was trained from another model, or with another seed, than given now."""
    model, seed, run = request["model"], str(request["seed"]), os.path.realpath(request.run)
    for stage in TRAINED:
        config = trained_with(Path(request.run, stage))
        start, old_seed = str(config.get("model_name_or_path") or ""), config.get("seed")
        is_own = os.path.realpath(start).startswith(f"{run}/")  # GRPO starts from the run's SFT
        is_other = os.path.realpath(start) != os.path.realpath(model)
        if model and start and not is_own and is_other:
            raise UserError(
                f"{request.run} was trained from {start}; choose another RUN for MODEL={model}"
            )
        if seed and old_seed is not None and str(old_seed) != seed:
            fault = f"was trained with seed {old_seed}"
            raise UserError(f"{request.run} {fault}; choose another RUN for SEED={seed}")


def trained_with(folder: Path) -> dict[str, Any]:
    """The configuration that a stage was trained with; {} where no manifest says it."""
    with suppress(OSError, UserError):
        return (manifest.read(folder) or {}).get("config", {})
    return {}
