"""Write both locks: `make lock`; with `--check`, say whether they fit pyproject.toml.

A lock lists every package of an environment with its version and the hashes of its files, for
Linux on x86-64 and ARM, CPython 3.11 to 3.13. `gpu.txt` adds vLLM and CUDA. `cpu.txt` leaves out
torch and what torch's CUDA build needs: the index that has torch for CPUs is the user's choice.
Versions stay until pyproject.toml no longer allows them; `--upgrade` takes the newest. It asks the
package index.
"""

import difflib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
EXTRAS = {
    "cpu": ("eval", "distill", "deepspeed", "dev"),
    "gpu": ("eval", "distill", "deepspeed", "dev", "vllm"),
}
FLAGS = ("--check", "--upgrade")
HEAD = "# Written by `make lock`.\n"
# Of a lock without torch: torch, and the packages of its CUDA build.
OF_TORCH = re.compile(r"(torch|triton|cuda-\w+|nvidia-[\w-]+)==")
# What `tool.uv.environments` adds to every line.
EVERYWHERE = (
    " ; python_full_version < '3.14' and ((platform_machine == 'aarch64' and sys_platform =="
    " 'linux') or (platform_machine == 'x86_64' and sys_platform == 'linux'))"
)


def compile_lock(name: str, folder: Path, flags: list[str]) -> str:
    """The text of a lock; versions of the one that is there stay."""
    made = folder / f"{name}.txt"
    if (HERE / made.name).is_file():
        shutil.copy(HERE / made.name, made)
    words = ["uv", "pip", "compile", "pyproject.toml", "--quiet", "--universal", "--no-annotate"]
    words += ["--python-version", "3.11", "--generate-hashes", "--no-header", "-o", str(made)]
    words += [word for extra in EXTRAS[name] for word in ("--extra", extra)]
    subprocess.run([sys.executable, "-m", *words, *flags], cwd=HERE.parent, check=True)
    entries = re.split(r"\n(?=\S)", made.read_text(encoding="utf-8").rstrip("\n"))
    if name == "cpu":
        entries = [entry for entry in entries if not OF_TORCH.match(entry)]
    return HEAD + "\n".join(entries).replace(EVERYWHERE, "") + "\n"


def main(flags: list[str]) -> int:
    """Write the locks, both or none, or compare them; returns the exit code."""
    if unknown := [flag for flag in flags if flag not in FLAGS]:
        sys.stderr.write(f"error: {unknown[0]}: must be of {', '.join(FLAGS)}\n")
        return 2
    given = [flag for flag in flags if flag != "--check"]
    try:
        with tempfile.TemporaryDirectory() as folder:
            made = {
                HERE / f"{name}.txt": compile_lock(name, Path(folder), given) for name in EXTRAS
            }
    except subprocess.CalledProcessError:  # uv has said why
        sys.stderr.write("error: uv makes no lock; see its lines above\n")
        return 2
    for path, text in made.items():
        if "--check" not in flags:
            path.write_text(text, encoding="utf-8")
            continue
        before = path.read_text(encoding="utf-8")
        if text != before:
            lines = difflib.unified_diff(before.splitlines(), text.splitlines(), n=0)
            sys.stderr.write("\n".join([*lines][:20]) + "\n")
            sys.stderr.write(f"error: {path} is not up to date; run `make lock`\n")
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
