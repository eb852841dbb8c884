"""`manifest.json`: what a stage read, did and wrote. It is written last and atomically.

No manifest, no result: `start` removes an old manifest before the work begins, and `write` puts the
new one in place when everything else is on disk. `files` has the hash of every result, so that
`hash_inputs` of a later stage finds changed ones.

One rule says what is up to date, `difference`: a result was made with the keys and from the inputs
that its stage has now. It is asked twice. `pipeline.freshness` compares in a second what was
written; `is_current`, which the stage calls, all values with their defaults.
"""

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import math
import os
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import IO, Any

from pipeline import json_files
from pipeline.console import clean, notice, say
from pipeline.errors import UserError
from pipeline.models.hub import user_cache
from pipeline.paths import WRITTEN_TO, is_same
from pipeline.values import redact

NAME = "manifest.json"
ORIGIN = "origin.json"  # of a converted model's folder: the file that its weights come from
ORIGIN_SHAPE = {"file": str, "source": str, "sha256": str, "quantization": str}
MODEL_FILES = (
    "*.safetensors", "*.bin", "*.index.json", "*config.json", "tokenizer*", "chat_template*",
    "vocab*", "merges.txt", "*.model", "special_tokens_map.json", "added_tokens.json",
    "additional_chat_templates/*.jinja",
)  # fmt: skip
_TEXTS, _OPTIONAL = {str: str}, (str, None)
_ROWS = {"rows_in?": int, "rows_out?": int, "dropped?": {str: object}}
# What later stages, report and card read.
SHAPE: json_files.Shape = {
    "stage": str,
    "config?": {"train_file?": _OPTIONAL, "model_name_or_path?": _OPTIONAL},
    "inputs?": _TEXTS,
    "files?": _TEXTS,
    "counts?": {str: object},
    "origins?": {str: ORIGIN_SHAPE},
    "request?": {"written?": {str: object}, "typed?": [str]},
    "versions?": _TEXTS,
    "git_commit?": _OPTIONAL,
    "wall_time_s?": float,
    "command?": str,
    **_ROWS,
    "outputs?": {str: {**_ROWS, "sources": [{**_ROWS, "name": str, "place?": _OPTIONAL}]}},
    "decontamination?": {str: object},
}
# Another value of these keys gives the same result. They say where it is,
PLACES = (*WRITTEN_TO, "resume_from_checkpoint")
# what is logged, and where a server is: no manifest has them;
NOT_RECORDED = (
    *("hub_token", "logging_dir", "run_name", "project", "report_to", "num_completions_to_print"),
    *("trackio_space_id", "trackio_bucket_id", "trackio_static_space_id", "disable_tqdm"),
    *("vllm_server_base_url", "vllm_server_host", "vllm_server_port", "vllm_server_timeout"),
    *("vllm_group_port", "vllm_call_timeout"),
    "batch_for_gpus",  # what it makes of the batch is compared
)
# how memory is used, and how DDP waits.
MEMORY = (
    *("gradient_checkpointing", "update_tokens", "dataloader_num_workers"),
    *("vllm_gpu_memory_utilization", "vllm_enable_sleep_mode", "vllm_max_model_length"),
    "ddp_find_unused_parameters",
)
NOT_COMPARED = frozenset((*PLACES, *NOT_RECORDED, *MEMORY))
REMEMBERED = 2**24  # bytes from which on a file's hash is kept for later processes
SETTLED = 2.0  # seconds; a file that was just written may change again with the same time
PARTIAL = ".partial"  # the end of a file's name until it is complete
GIT_SECONDS = 20  # a disk of another host may hang
# Programs that the configuration of a repository names: none is needed here.
GIT_FLAGS = (
    *("--no-pager", "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}"),
    *("-c", "diff.external=", "-c", "core.pager=cat"),
)
PACKAGES = (
    "torch", "transformers", "trl", "accelerate", "peft", "datasets", "math-verify", "lm-eval",
)  # fmt: skip


def is_older(path: Path, seconds: float) -> bool:
    """Whether a file or folder was last written so long ago; not where another process took it."""
    try:
        return time.time() - path.stat().st_mtime > seconds
    except FileNotFoundError:
        return False


def put_in_place(work: Path, place: Path) -> None:
    """Rename a folder to its place, unless another process has put the same there meanwhile."""
    try:
        work.rename(place)
    except OSError:
        if not place.is_dir():
            raise


def sha256(path: str | Path) -> str:
    """SHA-256 of a file in hex; of a folder, that of its weights, configuration and tokenizer.

    The hash of a large file is kept in the user's cache, under its path, size, time and inode: the
    next process need not read gigabytes again.
    """
    path = Path(path)
    if path.is_dir():
        names = [(file.relative_to(path).as_posix(), file) for file in model_files(path)]
        text = "".join(f"{name} {sha256(file)}\n" for name, file in names)
        return hashlib.sha256(text.encode()).hexdigest()
    found = path.stat()
    is_settled = time.time() - found.st_mtime > SETTLED
    version = (str(path.absolute()), found.st_mtime_ns, found.st_size, found.st_ino)
    if found.st_size < REMEMBERED or not is_settled:
        return _sha256(*version)
    name = hashlib.sha256(repr(version).encode()).hexdigest()
    known = user_cache() / "sft-grpo-math/hashes" / name
    if known.is_file():
        return known.read_text(encoding="utf-8")
    digest = _sha256(*version)
    with contextlib.suppress(OSError):  # a home folder that cannot be written to
        known.parent.mkdir(parents=True, exist_ok=True)
        with open_whole(known) as file:
            file.write(digest)
    return digest


@functools.lru_cache(maxsize=4096)  # a process asks several times
def _sha256(path: str, *version: int) -> str:
    return read_sha256(path)


def read_sha256(path: str | Path) -> str:
    """SHA-256 of a file's bytes as they are on the disk now."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def model_files(folder: Path) -> list[Path]:
    """The files of a model folder that decide what it writes, by name.

    Python files count where a configuration names classes of the model's own code.
    """
    has_code = any(b'"auto_map"' in file.read_bytes() for file in folder.glob("*config.json"))
    kinds = (*MODEL_FILES, "*.py") if has_code else MODEL_FILES
    found = {file for kind in kinds for file in folder.glob(kind)}
    return sorted(file for file in found if file.name != "training_args.bin")


def hash_inputs(paths: list[str | Path]) -> dict[str, str]:
    """`{path: sha256}` of the paths that exist, "hub" for others; see `check_made` for faults."""
    for path in paths:
        check_made(Path(path))
    return {str(p): sha256(p) if Path(p).exists() else "hub" for p in paths}


def check_made(path: Path) -> None:
    """Refuse a file, or a folder's files, whose hash differs from the one in their manifest."""
    if not path.exists():
        return
    for folder, made in manifests_over(path):
        for name, known in made["files"].items():
            file = folder / name
            if path in (file, *file.parents) and not is_as(file, known):
                stage = made["stage"]
                state = f"has changed since the stage {stage} wrote it"
                if not file.is_file():
                    state = f"is missing, although the stage {stage} wrote it"
                remedy = f"`make {stage}` writes it again"
                if name.startswith("best/"):  # no checkpoint need hold it
                    remedy = f"put it back, or `FORCE=1 make {stage}` trains again"
                raise UserError(
                    f"{file}: {state}; {remedy}; keep a file that you edit in another folder"
                )


def manifests_over(path: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The manifests that may list a path, each with its folder, the nearest one first.

    Three places have to be looked at. A stage's folder has a manifest of its own. A file is one
    folder below it, a file of a training run's `best/` two.
    """
    for folder in (path, *path.parents[:2]):
        made = read(folder)
        if made:
            yield folder, made


def is_as(file: Path, digest: str) -> bool:
    """Whether a file is there and has this hash."""
    return file.is_file() and sha256(file) == digest


def damaged_files(folder: str | Path) -> list[str]:
    """The files of a result that are missing or changed."""
    known = (read(folder) or {}).get("files", {})
    return [name for name in known if not is_as(Path(folder, name), known[name])]


def difference(
    old: Mapping[str, Any], new: Mapping[str, Any], left_out: Iterable[str] = NOT_COMPARED
) -> str:
    """The first key or input in which two results differ; empty where none does.

    A key that names an input counts as that input's hash, so a run may be moved. A key that the
    version that made `old` did not have counts only if this process was given it.

    Args:
        old, new: `config` and `inputs` of each. An `old` without them is no result. Only the keys
            of `new` are compared.
        left_out: keys that do not count.
    """
    if "config" not in old:
        return "no config"
    new = as_written(new)
    for key in sorted(new["config"].keys() - {*left_out}):
        if key not in old["config"]:
            if key in given_keys():
                return f"{key}: not known then, now {new['config'][key]}"
            continue
        one, other = old["config"][key], new["config"][key]
        if not is_same(key, by_hash(one, old["inputs"]), by_hash(other, new["inputs"])):
            return f"{key}: {one} has changed" if one == other else f"{key}: {one}, not {other}"
    if sorted(old["inputs"].values()) != sorted(new["inputs"].values()):
        changed, _ = min(old["inputs"].items() ^ new["inputs"].items())
        return f"{changed}: has changed"
    return ""


def by_hash(value: Any, inputs: Mapping[str, str]) -> Any:
    """A key's value with the hash of an input in place of its path, in lists and mappings too."""
    if isinstance(value, dict):
        return {name: by_hash(one, inputs) for name, one in value.items()}
    if isinstance(value, list):
        return [by_hash(one, inputs) for one in value]
    if not isinstance(value, str):
        return value
    name, equals, path = value.rpartition("=")  # as in `checkpoints`
    digest = inputs.get(path, "hub")
    return value if digest == "hub" else f"{name}{equals}{digest}"


def as_written(value: Any) -> Any:
    """A value as a JSON file gives it back: tuples are lists, URLs have no password."""
    return json.loads(redact(json.dumps(value, default=str)))


def inputs_now(inputs: Mapping[str, str]) -> dict[str, str]:
    """The hashes of inputs as they are now; what is gone cannot be read again and is as it was."""
    return {path: sha256(path) if Path(path).exists() else inputs[path] for path in inputs}


def is_current(
    folder: str | Path, config: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> bool:
    """Whether a folder holds the complete result of these values and of today's inputs.

    With FORCE=1 none is current. If one is, say so and note what is written now.

    Args:
        defaults: of keys that the version that made the result did not have.
    """
    made = read(folder)
    if made is None or is_forced():
        return False
    made["config"] = as_written(defaults or {}) | made["config"]
    now = {"config": config, "inputs": inputs_now(made["inputs"])}
    if difference(made, now) or damaged_files(folder):
        return False
    note_current(folder)
    return True


def defaults_of(args: Any) -> dict[str, Any]:
    """The defaults of a dataclass's fields, without those that have none."""
    found: dict[str, Any] = {}
    for field in fields(args):
        if field.default is not MISSING:
            found[field.name] = field.default
        elif field.default_factory is not MISSING:
            found[field.name] = field.default_factory()
    return found


def is_forced() -> bool:
    """Whether FORCE=1 asks for a run from scratch."""
    return os.environ.get("FORCE", "0") not in ("", "0")


def note_current(folder: str | Path, may_write: bool = True) -> None:
    """Say that a result is up to date, and note in its manifest what is written now."""
    made = read(folder) or {}
    if may_write and _request and made.get("request") != _request:
        write_json(Path(folder, NAME), made | {"request": _request})
    say(
        f"{made['stage']}: up to date in {folder} (same configuration and inputs); FORCE=1 runs it "
        "again"
    )


_request: dict[str, Any] = {}  # of this process


def note_request(given: Mapping[str, Any], typed: Iterable[str]) -> None:
    """Remember what this process was asked for, as it was written, for its manifest.

    The first call counts: the audit reads the keys of other stages, too.
    """
    if not _request:
        _request.update(as_request(given, typed))


def given_keys() -> set[str]:
    """The keys that this process was given, in files or typed."""
    return {*_request.get("written", ()), *_request.get("typed", ())}


def as_request(given: Mapping[str, Any], typed: Iterable[str]) -> dict[str, Any]:
    """What a command asks for: `written`, the keys of its files, and the names of those `typed`.

    Args:
        given: the keys that files or the command line have; typed: those of the command line.
    """
    written = {key: given[key] for key in given if key not in {*typed, *NOT_COMPARED}}
    run = f"{Path(given.get('output_dir', 'none')).parent}/"  # which may be moved
    text = redact(json.dumps({"written": written, "typed": sorted(typed)}, default=str))
    return json.loads(text.replace(run, "{run}/"))


def hash_code(*places: Path) -> str:
    """One SHA-256 over the contents of code and task files; their names do not count."""
    files = [place for place in places if place.is_file()]
    files += [f for place in places for kind in ("*.py", "*.yaml") for f in place.rglob(kind)]
    return hashlib.sha256("".join(sorted(map(sha256, files))).encode()).hexdigest()


def versions(names: tuple[str, ...] = PACKAGES) -> dict[str, str]:
    """Installed versions of packages, by default of those that decide a result."""
    found = {}
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def git_commit() -> str | None:
    """HEAD's hash, with `-dirty` when tracked files differ; None, with a notice, if unknown."""
    folder = str(Path(__file__).parent)
    command = ["git", *GIT_FLAGS, "-C", folder, "describe", "--always", "--abbrev=40", "--dirty"]
    # Another repository may be meant by the environment's GIT_DIR, as in a hook.
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True}
    try:
        done = subprocess.run(command, env=env, timeout=GIT_SECONDS, check=False, **quiet)
    except subprocess.TimeoutExpired:
        why = f"git does not answer within {GIT_SECONDS} s"
    except OSError as error:
        why = f"git: {error.strerror or error}"
    else:
        commit, said = (os.fsdecode(text).strip() for text in (done.stdout, done.stderr))
        if done.returncode == 0 and commit:
            return commit
        why = said.partition("\n")[0] or f"git ends with exit code {done.returncode}"
    _tell_unknown(why)
    return None


@functools.cache  # once a process
def _tell_unknown(why: str) -> None:
    notice(f"the commit of this code is unknown: {why}")


def finite(value: Any) -> Any:
    """The same with null for numbers that JSON does not know (NaN, infinity)."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextlib.contextmanager
def open_whole(path: str | Path, mode: str = "w", keep_partial: bool = False) -> Iterator[IO[Any]]:
    """Open a file for writing so that a reader sees the old one or the new one, never a part.

    It is called `<path>.partial` until the block ends; an error in the block removes it, but for
    `keep_partial`. The mode is "w" (UTF-8) or "wb".
    """
    path = Path(path)
    partial = path.with_name(path.name + PARTIAL)
    try:
        with partial.open(mode, encoding=None if "b" in mode else "utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        if not keep_partial:
            partial.unlink(missing_ok=True)
        raise


def write_json(path: str | Path, value: Any) -> None:
    """Write JSON, indented, by `open_whole`; a URL loses its password."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n"
    with open_whole(path) as file:
        file.write(clean(redact(text)))  # a name may hold bytes that are not UTF-8


def encodable(text: str) -> str:
    """The text with U+FFFD for halves of surrogate pairs, which models write and UTF-8 lacks."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def start(folder: str | Path) -> float:
    """Make the stage's folder, remove its old manifest, and return the start time for `write`."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    (Path(folder) / NAME).unlink(missing_ok=True)
    return time.time()


def write(
    folder: str | Path,
    stage: str,
    config: dict[str, Any],
    inputs: dict[str, str],
    counts: dict[str, Any],
    started: float,
    files: Iterable[str] = (),
    **extra: Any,
) -> Path:
    """Write the folder's manifest.

    Args:
        inputs: of `hash_inputs`; started: of `start`.
        files: names of the results in the folder, whose hashes later stages check.
        counts: whole numbers worth knowing (rows, steps, tokens).
        extra: further keys, such as `rows_in`, `rows_out`, `dropped` of a data build.
    """
    value: dict[str, Any] = {
        "stage": stage,
        "config": config,
        "git_commit": git_commit(),
        "request": dict(_request),
        "inputs": inputs,
    }
    origins = find_origins(inputs)
    if origins:
        value["origins"] = origins
    value |= {
        "counts": counts,
        **extra,
        "files": {name: sha256(Path(folder, name)) for name in files},
        "versions": versions(),
        "wall_time_s": round(time.time() - started, 1),
    }
    path = Path(folder) / NAME
    write_json(path, value)
    return path


def find_origins(paths: Iterable[str]) -> dict[str, dict[str, str]]:
    """The files that converted models among some paths come from, by path."""
    places = {path: Path(path, ORIGIN) for path in paths}
    remedy = "remove its folder, it is converted again"
    return {
        path: json_files.read(place, ORIGIN_SHAPE, remedy)
        for path, place in places.items()
        if place.is_file()
    }


def read(folder: str | Path) -> dict[str, Any] | None:
    """The folder's manifest, or None where the stage has not finished."""
    path = Path(folder) / NAME
    if not path.is_file():
        return None
    remedy = "remove it, run its stage again"
    found = json_files.read(path, object, remedy)
    if not isinstance(found, dict) or "stage" not in found:
        return None  # of another program
    if fault := json_files.mismatch(found, SHAPE):
        raise UserError(f"{path}: is damaged ({fault}); {remedy}")
    return {"config": {}, "inputs": {}, "files": {}, "counts": {}, "versions": {}} | found


def read_made(folder: str | Path, stage: str, shape: json_files.Shape = object) -> dict[str, Any]:
    """The manifest of a folder whose files are as the stage left them; raises `UserError`.

    `shape`: what it must have besides `SHAPE`.
    """
    found = read(folder)
    if not found or found["stage"] != stage:
        raise UserError(f"{folder}/{NAME}: missing; run `make {stage}` to its end")
    if fault := json_files.mismatch(found, shape):
        raise UserError(f"{folder}/{NAME}: is damaged ({fault}); run `make {stage} FORCE=1`")
    check_made(Path(folder))
    return found
