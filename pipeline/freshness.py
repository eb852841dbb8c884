"""What is up to date: by manifests and hashes, never by the times of files."""

import hashlib
import itertools
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipeline import json_files, keys, manifest, strict_yaml
from pipeline.errors import UserError
from pipeline.folders import next_of
from pipeline.paths import is_same_place, plain
from pipeline.request import Request
from pipeline.stages import ROOT, STAGES, TRAINED, load


def looks_current(request: Request, stage: str, words: Sequence[str]) -> bool:
    """Whether the result of a stage that others need is that of its command line."""
    if stage == "eval" and request["data_root"]:  # which may hold other problems than before
        return False
    code, folder = [ROOT / place for place in STAGES[stage].code], Path(request.run, stage)
    if not matches_command(folder, words, code):
        return False
    made = manifest.read(folder) or {}
    config = made.get("config", {})
    if not has_variables(config, words) or finds_more(stage, config, made.get("inputs", {})):
        return False
    if stage == "audit":  # which reads all files with the keys over them
        return config.get("keys", []) == keys.as_entries(request.keys)
    return keys.agree(request.keys, stage, config)


def matches_command(folder: Path, words: Sequence[str], code: Sequence[Path] = ()) -> bool:
    """Whether a result is that of a command line, by its manifest and by hashes alone.

    This is for stages that others need. `manifest.is_current`, which the stage calls, is more exact
    and takes seconds. Inputs that no longer exist cannot be read again and count as unchanged.

    Args:
        words: the stage's command line; its recipe's files must say what they said then.
        code: files and folders that also decide the result; the manifest's `code` has their hash.
    """
    made = manifest.read(folder)
    if made is None or made["stage"] != folder.name:
        return False
    if "request" not in made:  # of an earlier version
        if not config_matches(made["config"], words):
            return False
    elif manifest.hash_request(words) != made["request"]:
        return False
    # Of eval: this hash, and the versions of the libraries that score.
    if code and manifest.hash_code(*code) not in str(made.get("code")):
        return False
    inputs = {Path(path): digest for path, digest in made["inputs"].items() if digest != "hub"}
    return all(known_sha256(path) == inputs[path] for path in inputs if path.exists())


def config_matches(config: dict[str, Any], words: Sequence[str]) -> bool:
    """Whether every key of the YAML that a command line names is in a stage's configuration."""
    flags = dict(itertools.pairwise(words))
    path = Path(flags.get("--config", ""))
    if "--overlay" in flags or not path.is_file():
        return False
    try:
        said = strict_yaml.read(path, flags.get("--run_dir"))
        if not isinstance(said, dict):
            return False
        return all(config.get(key) == plain(str(key), said[key], str(path)) for key in said)
    except UserError:  # the stage names the line
        return False


def known_sha256(path: Path) -> str:
    """The hash of a stage's result by the manifest that lists it; of anything else its own.

    Reading a manifest is cheaper than hashing weights.
    """
    for folder, made in manifest.manifests_over(path):
        files = {folder / name: digest for name, digest in made["files"].items()}
        if path in files:
            return files[path]
        weights = {file: digest for file, digest in files.items() if file.parent == path}
        if weights:
            text = "".join(f"{file.name} {weights[file]}\n" for file in sorted(weights))
            return hashlib.sha256(text.encode()).hexdigest()
    return manifest.sha256(path)


def has_variables(config: Mapping[str, Any], words: Sequence[str]) -> bool:
    """Whether a result was made with the variables of a command line, as far as it names them."""
    given = dict(itertools.pairwise(words))
    for name in ("seed", "data_root", "model", "tokenizer"):
        flag = f"--{name}"
        is_read = flag in given and name in config
        if is_read and not is_same_place(str(config[name]), given[flag]):
            return False
    return True


def finds_more(stage: str, config: dict[str, Any], inputs: Mapping[str, str]) -> bool:
    """Whether a stage would now read a file that was not there when its result was made."""
    if not STAGES[stage].list_inputs:
        return False
    try:
        found = load(STAGES[stage].list_inputs)(config)
    except UserError:  # inputs that no longer exist count as unchanged
        return False
    return not {*map(str, found)} <= inputs.keys()


def check_finished(folder: Path, words: Sequence[str], since: float) -> None:
    """Raise if a stage exited with code 0 but wrote no manifest.

    Args:
        folder: of its result; beside it, as `<folder>.next`, is a run with other settings.
        since: when the stage was started, as seconds of `time.time()`.
    """
    # An audit that only looks leaves none, and another folder is not looked for.
    if {"-h", "--help", "--opens_gate", "--completions", "--output_dir"} & {*words}:
        return
    following = next_of(folder)
    is_started = folder.is_dir() and not (folder / manifest.NAME).is_file()
    is_replacing = started_at(following) >= since and not (following / manifest.NAME).is_file()
    if is_started or is_replacing:
        place = following if is_replacing else folder
        fault = "ended with exit code 0 before it was finished: its process was ended from inside"
        remedy = "look for sys.exit or os._exit in your own code, then run the same command again"
        raise UserError(f"{place}: no {manifest.NAME}; the stage {fault}; {remedy}")


def started_at(folder: Path) -> float:
    """When the training run in a folder was started last; 0 where there is none."""
    with suppress(OSError, ValueError):
        return json_files.read(folder / "run.json", {"started": float}, "")["started"]
    return 0.0


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
