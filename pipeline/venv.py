"""Whose virtual environment is it? With the standard library alone, before the environment is made.

    python3 -IS pipeline/venv.py .venv

Ends with one line and exit code 2 where CPython is too old, or where the environment belongs to
another clone of the project, whose packages an installation here would replace.
"""

import json
import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def fault(venv: str) -> str:
    """What is wrong with an environment: "" where nothing is, or where there is none yet."""
    pattern = "lib/python3*/site-packages/sft_grpo_math-*.dist-info/direct_url.json"
    for file in sorted(Path(venv).glob(pattern)):
        installed = json.loads(file.read_text(encoding="utf-8"))
        url = installed.get("url", "")
        is_editable = installed.get("dir_info", {}).get("editable", False)
        owner = url.removeprefix("file://")
        if is_editable and owner != str(ROOT) and "%" not in owner:
            return (
                f"{venv} belongs to the clone in {owner}: choose another VENV; "
                f"if this clone was moved or copied from there: rm -r {venv}"
            )
    return ""


if __name__ == "__main__":
    wrong = fault(sys.argv[1])
    if sys.version_info < (3, 11):  # noqa: UP036 - an older one may run this file
        wrong = "CPython 3.11 or newer is needed; set PYTHON=..."
    if not re.fullmatch(r"[\w,-]*", os.environ.get("EXTRAS", "")):
        wrong = f"EXTRAS={os.environ['EXTRAS']} must be names with commas, such as eval,vllm,dev"
    if wrong:
        sys.stderr.write(f"error: {wrong}\n")
        sys.exit(2)
