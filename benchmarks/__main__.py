"""Run one benchmark: `make bench`, or `python -m benchmarks bench --key value`.

SMALL=1 runs the smallest size, to see that it works: its figures say nothing. SHAPE, SEEDS and
CPU_STANDIN of the environment are keys of the benchmarks that take them; OUT is the page.
`study` and `bench-time` take RECIPE and DATA_ROOT, too; `benchmarks/<module>-<recipe>.yaml` has
their keys.
`python -m benchmarks bench --help` lists the keys of a benchmark.
"""

import importlib
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import UserError, run_cli
from pipeline.names import unknown
from pipeline.recipe_files import read_yaml
from pipeline.settings import parse
from pipeline.words import OF_THE_STACK, VARIABLES, of_make


@dataclass(frozen=True)
class Benchmark:
    """A module of this folder.

    Args:
        module: without `benchmarks.`; page: of docs/results.
        keys: variables of the environment that it takes, as flags.
        recipe: whose SFT model it starts from.
        arguments: the dataclass of its keys.
        takes_recipe: whether RECIPE names another.
    """

    module: str
    page: str
    keys: tuple[str, ...] = ()
    recipe: str = ""
    arguments: str = "BenchArguments"
    takes_recipe: bool = False


BENCHMARKS = {
    "bench": Benchmark("throughput", "throughput", ("shape",)),
    "gpu-check": Benchmark("gpu_check", "gpu", ("cpu_standin",), arguments="CheckArguments"),
    "study": Benchmark("study", "study", ("seeds",), "tiny-cpu", "StudyArguments", True),
    "bench-time": Benchmark(
        "time_to_accuracy", "time-to-accuracy", ("seeds",), "smollm2-135m", "TimeArguments", True
    ),
    "bench-curriculum": Benchmark(
        "time_to_accuracy", "curriculum-levels", ("seeds",), "skewed-cpu", "TimeArguments"
    ),
}


def is_set(name: str) -> bool:
    """Whether a variable of the environment says yes."""
    return os.environ.get(name, "") not in ("", "0")


def command(name: str, words: list[str]) -> tuple[list[str], list[str]]:
    """The command that makes what a benchmark starts from (or []), and the benchmark's own."""
    row, is_small = BENCHMARKS[name], is_set("SMALL")
    recipe = (row.takes_recipe and os.environ.get("RECIPE")) or row.recipe
    keys = Path(__file__).with_name(f"{row.module}-{Path(recipe).name}.yaml")
    if is_small:
        recipe = row.recipe and "skewed-cpu"
        keys = Path(__file__).parent / "small" / f"{row.module}.yaml"
    said = read_yaml(str(keys)) if keys.is_file() else {}
    values = {key: os.environ.get(key.upper(), "") for key in row.keys}
    page = row.page if recipe == row.recipe or is_small else f"{row.page}-{recipe}"
    page += f"-{Path(values['shape']).name}" if values.get("shape") else ""
    folder = "runs/small" if is_small or is_set("CPU_STANDIN") else "docs/results"
    out = os.environ.get("OUT") or said.get("out") or f"{folder}/{page}.md"
    own = ["-m", f"benchmarks.{row.module}", "--out", out]
    for key, value in values.items():
        own += [f"--{key}", *shlex.split(value)] if value else []
    own += ["--config", str(keys)] if said else []
    before: list[str] = []
    if recipe:
        run = f"runs/{'small/' if is_small else ''}{recipe}"
        grpo, files = f"configs/{recipe}/grpo.yaml", f"configs/{recipe}/eval.yaml"
        own += ["--grpo_config", grpo, "--recipe_run", run]
        if row.takes_recipe and not read_yaml(files).get("test_file"):
            raise UserError(f"{files}: has no test_file, whose problems {name} scores; add one")
        goal = "difficulty" if read_yaml(grpo).get("pass_rates") else "sft"
        goal = "data" if said.get("own_starts") else goal
        before = ["-m", "pipeline", goal, f"RECIPE={recipe}", f"RUN={run}"]
        data_root = os.environ.get("DATA_ROOT")
        before += [f"DATA_ROOT={data_root}"] if row.takes_recipe and data_root else []
        before += ["max_steps=300"] if is_small else []
    return before, own + words


def check_variables(name: str) -> None:
    """Refuse a variable of other commands that this benchmark would ignore."""
    row = BENCHMARKS[name]
    taken = {"args", "out", "rehearse", *row.keys}
    taken |= {"recipe", "data_root"} if row.takes_recipe else set()
    for key in VARIABLES:
        if key not in taken and os.environ.get(key.upper()):
            wanted = ", ".join(sorted(taken)).upper()
            raise UserError(f"{key.upper()}: {name} does not take it; unset it (it takes {wanted})")
    for word in of_make(os.environ.get("MAKE_WORDS", "")):
        key = word.partition("=")[0]
        is_variable = key == "ARGS" or (key.isupper() and key.lower() in VARIABLES)
        if not is_variable and not OF_THE_STACK.fullmatch(key):
            raise UserError(f'{word}: {name} does not take it; write keys as ARGS="--key value"')


def check_keys(row: Benchmark, own: list[str]) -> None:
    """Refuse a wrong key of a benchmark; what it starts from takes minutes to make."""
    module = importlib.import_module(f"benchmarks.{row.module}")
    parse(module.__doc__ or "", getattr(module, row.arguments), argv=own[2:])


def main() -> None:
    """Check the benchmark's keys, make what it starts from, then run it."""
    words = sys.argv[1:] + shlex.split(os.environ.get("ARGS", ""))
    name = words[0] if words else "--help"
    if name in ("-h", "--help"):
        sys.stdout.write(f"{__doc__}\nBenchmarks: {', '.join(BENCHMARKS)}\n")
        return
    if name not in BENCHMARKS:
        raise UserError(unknown("benchmark", name, [*BENCHMARKS]))
    check_variables(name)
    left_out = {*map(str.upper, VARIABLES), "MAKE_GOALS", "MAKE_WORDS", "ARGS"}
    env = {key: value for key, value in os.environ.items() if key not in left_out}
    before, own = command(name, words[1:])
    if before:
        check_keys(BENCHMARKS[name], own)
    for part in (before, own):
        if part:
            code = subprocess.run([sys.executable, *part], env=env, check=False).returncode
            if code:
                sys.exit(code)


if __name__ == "__main__":
    run_cli(main, is_first=False)
