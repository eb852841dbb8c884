"""Run one benchmark: `make bench`, or `python -m benchmarks bench --key value`.

SMALL=1 runs the smallest size, to see that it works: its figures say nothing. SHAPE, SEEDS, MODES
and CPU_STANDIN of the environment are keys of the benchmarks that take them; OUT is the page.
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
from pipeline.settings import parse, read_yaml
from pipeline.words import OF_THE_STACK, VARIABLES, of_make


@dataclass(frozen=True)
class Benchmark:
    """A module of this folder.

    Args:
        module: without `benchmarks.`; page: of docs/results, where it has another name.
        keys: variables of the environment that it takes, as flags.
        recipe: whose SFT model it starts from.
        arguments: the dataclass of its keys.
        takes_recipe: whether RECIPE names another; its keys are then in `<module>-<recipe>.yaml`.
        has_page: whether it writes a page of results.
    """

    module: str
    page: str = ""
    keys: tuple[str, ...] = ()
    recipe: str = ""
    arguments: str = "BenchArguments"
    takes_recipe: bool = False
    has_page: bool = True


BENCHMARKS = {
    "bench": Benchmark("throughput", keys=("shape",)),
    "gpu-check": Benchmark("gpu_check", "gpu", ("cpu_standin",), arguments="CheckArguments"),
    "study": Benchmark("study", "", ("seeds",), "tiny-cpu", "StudyArguments", takes_recipe=True),
    "bench-curriculum": Benchmark(
        "curriculum", "curriculum-levels", ("seeds", "modes"), "skewed-cpu"
    ),
    "bench-time": Benchmark(
        "time_to_accuracy", "", ("seeds",), "smollm2-135m", "TimeArguments", takes_recipe=True
    ),
}


def command(name: str, words: list[str]) -> tuple[list[str], list[str]]:
    """The command that makes what a benchmark starts from (or []), and the benchmark's own."""
    row = BENCHMARKS[name]
    is_small = os.environ.get("SMALL", "") not in ("", "0")
    is_small_run = is_small or os.environ.get("CPU_STANDIN", "") not in ("", "0")
    values = {key: os.environ.get(key.upper(), "") for key in row.keys}
    shape = f"-{Path(values['shape']).name}" if values.get("shape") else ""
    recipe = (os.environ.get("RECIPE") if row.takes_recipe else "") or row.recipe
    page = row.page or row.module.replace("_", "-")
    if recipe != row.recipe:
        page = f"{page}-{recipe}"
    folder = "runs/small" if is_small_run else "docs/results"
    out = os.environ.get("OUT") or f"{folder}/{page}{shape}.md"
    own = ["-m", f"benchmarks.{row.module}"]
    for key, value in values.items():
        if value:
            many = shlex.split(value) if key in ("seeds", "modes") else [value]
            own += [f"--{key}", *many]
    keys = Path(__file__).with_name(f"{row.module}-{Path(recipe).name}.yaml")
    names_page = keys.is_file() and not os.environ.get("OUT") and not is_small_run
    if row.has_page and not names_page:
        own += ["--out", out]
    small = Path(__file__).parent / "small" / f"{row.module}.yaml"
    if is_small and small.is_file():
        own += ["--config", str(small)]
    before: list[str] = []
    if row.recipe:
        recipe = "skewed-cpu" if is_small else recipe
        run = f"runs/{'small/' if is_small else ''}{recipe}"
        own += ["--grpo_config", f"configs/{recipe}/grpo.yaml", "--recipe_run", run]
        goal = "difficulty" if recipe == "tiny-cpu" else "sft"
        if keys.is_file() and not is_small:
            own += ["--config", str(keys)]
            seeds = values.get("seeds", "")
            if seeds and row.module == "study":  # control runs of these alone
                listed = map(str, read_yaml(keys).get("control_seeds") or [])
                controls = [seed for seed in listed if seed in shlex.split(seeds)]
                own += ["--control_seeds", *controls] if controls else ["--controls", "false"]
            goal = "data" if read_yaml(keys).get("own_starts") else goal
        files = f"configs/{recipe}/eval.yaml"
        if row.takes_recipe and not read_yaml(files).get("test_file"):
            raise UserError(f"{files}: has no test_file, whose problems {name} scores; add one")
        before = ["-m", "pipeline", goal, f"RECIPE={recipe}", f"RUN={run}"]
        if row.takes_recipe and (data_root := os.environ.get("DATA_ROOT")):
            before.append(f"DATA_ROOT={data_root}")
        before += ["max_steps=300"] if is_small else []
    return before, own + words


def check_variables(name: str) -> None:
    """Refuse a variable of other commands that this benchmark would ignore."""
    row = BENCHMARKS[name]
    taken = {
        "args",
        "out",
        "rehearse",
        *row.keys,
        *(("recipe", "data_root") if row.takes_recipe else ()),
    }
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
    parse(module.__doc__, getattr(module, row.arguments), argv=own[2:])


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
