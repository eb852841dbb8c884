"""What a fresh process has changed after it has imported modules of the product.

    python -m tests.import_effects LIBRARIES MODULES

Both are names with commas between them. The libraries come first: what they change is their own
affair. Prints a JSON list with one line for each change, and for each heavy library that came in.
"""

import importlib
import json
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("pipeline", "grading", "data_prep", "stages", "eval")
HEAVY = ("torch", "transformers", "trl", "accelerate", "peft", "lm_eval", "vllm", "deepspeed")
KEPT: list[Any] = []  # so that no other object gets the `id` of one that was compared


def product_modules() -> list[str]:
    """Every module of the product by its dotted name, commands included."""
    paths = [path for name in PRODUCT for path in sorted((ROOT / name).rglob("*.py"))]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    return [name.removesuffix(".__init__") for name in names]


def describe_logger(logger: logging.Logger) -> tuple[Any, ...]:
    """All that decides what becomes of a record."""
    return (logger.level, logger.disabled, logger.propagate, *logger.filters, *logger.handlers)


def take_state() -> dict[str, Any]:
    """What an import could change, by name; a value that is replaced is another one."""
    loggers = {"": logging.root} | logging.root.manager.loggerDict
    state = {
        f"logger {name}": describe_logger(logger)
        for name, logger in loggers.items()
        if isinstance(logger, logging.Logger)
    }
    state |= {f"signal {number}": signal.getsignal(number) for number in signal.valid_signals()}
    state |= {f"environment {name}": value for name, value in os.environ.items()}
    for name, module in sorted(sys.modules.items()):
        if name.partition(".")[0] in (*PRODUCT, "tests", "__main__"):
            continue
        for key, value in list(vars(module).items()):
            # Also `sys.excepthook`, `threading.excepthook`, `rich.text.strip_control_codes`.
            if callable(value):
                state[f"{name}.{key}"] = id(value)
                KEPT.append(value)
    torch = sys.modules.get("torch.serialization")
    state["torch's places"] = list(torch._package_registry) if torch else None
    state["warnings.filters"] = list(warnings.filters)
    state["logging.disable"] = logging.root.manager.disable
    state["sys.argv"] = list(sys.argv)
    state["sys.path"] = list(sys.path)
    state["recursion limit"] = sys.getrecursionlimit()
    state["start method"] = multiprocessing.get_start_method(allow_none=True)
    state["threads"] = threading.active_count()
    state["folder"] = os.getcwd()
    return state


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The names of what has changed, or is new where nothing may be."""
    untouched = describe_logger(logging.Logger("new"))
    found = [name for name, value in before.items() if name in after and after[name] != value]
    found += [name for name in before if name.startswith("environment ") and name not in after]
    for name in after.keys() - before.keys():
        is_new_logger = name.startswith("logger ") and after[name] != untouched
        if is_new_logger or name.startswith("environment "):
            found.append(name)
    return sorted(found)


def find_changes(libraries: list[str], modules: list[str]) -> list[str]:
    """What a fresh process changes that imports the libraries, then the modules."""
    command = [sys.executable, "-m", "tests.import_effects", ",".join(libraries), ",".join(modules)]
    env = {key: value for key, value in os.environ.items() if key != "LOCAL_RANK"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    libraries, modules = (words.split(",") for words in sys.argv[1:])
    for name in libraries:
        importlib.import_module(name)
    before, known = take_state(), {*sys.modules}
    for name in modules:
        importlib.import_module(name)
    found = changes(before, take_state())
    found += [f"import {name}" for name in HEAVY if name in sys.modules and name not in known]
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
