"""The stages without a clone: `sft-grpo-math COMMAND …` is `python -m MODULE …`.

A recipe that is no file here is the package's: `--config tiny-cpu/sft.yaml`, `--recipe tiny-cpu`.
Copy its folder to change it.
"""

import os
import sys
from pathlib import Path

COMMANDS = {
    "data": "data_prep.build", "base": "stages.tiny_model", "sft": "stages.sft",
    "difficulty": "stages.difficulty", "distill": "stages.distill", "grpo": "stages.grpo",
    "eval": "eval.run", "report": "eval.report", "preflight": "stages.preflight",
    "audit": "eval.audit", "grade": "grading", "launch": "stages.launch",
}  # fmt: skip
RECIPES = Path(__file__).with_name("recipes")
PATHS = ("--config", "--recipe", "--overlay", "--config_file")


def find_recipe(key: str, word: str) -> str:
    """A word of the command line, behind `key`, or the package's recipe of that name."""
    shipped = RECIPES / word.removeprefix("configs/")
    return str(shipped) if key in PATHS and not Path(word).exists() and shipped.exists() else word


def main() -> None:
    _, command, *words = [*sys.argv, "--help"][: max(2, len(sys.argv))]
    if command in COMMANDS:
        words = list(map(find_recipe, ["", *words], words))
        os.execv(sys.executable, [sys.executable, "-m", COMMANDS[command], *words])
    names = ", ".join(sorted(path.parent.name for path in RECIPES.glob("*/data.yaml")))
    sys.stderr.write(f"{__doc__}\nCOMMAND: one of {', '.join(COMMANDS)} (got {command!r})\n")
    sys.stderr.write(f"Recipes in {RECIPES}: {names}\n")
    sys.exit(0 if command in ("-h", "--help") else 2)
