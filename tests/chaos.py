"""Faults at random over a shortened chain: what is lost, what ends in a traceback, what is left.

    python -m tests.chaos --seed 0 --faults 100 [--only 3,17] [--keep]

The chain runs once undisturbed. Then two lanes run it in folders of their own, and every fault of
the plan hits a stage that is fresh, half done or finished, started by make or as a module, at a
moment of the clock or after a number of file changes. The remedy that the error line names is
applied (a file to remove, a command in backquotes, space, access, waiting), the stage is finished,
and what it left is held against the undisturbed run. Everything random comes from the seed, but for
the machine's speed. Without root nothing can be mounted: the disk's faults are counted as skipped.
"""

import argparse
import contextlib
import json
import os
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import yaml

from pipeline.errors import OUT_OF_MEMORY
from pipeline.stages import STAGES, config_name
from tests.demo import NUM_ROWS, OUTER, ROOT, SHORT, write_recipe
from tests.results import NOT_COMPARED, differences, left_in

TABLES = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
OTHER = TABLES["other"]
PACKAGES = ("pipeline", "grading", "data_prep", "stages", "eval")
MANIFEST, ENDLESS = "manifest.json", 1 << 30
ASIDE = re.compile(r"/(damaged|earlier)-\d+-")
RUN = re.compile(r"(sft|grpo)-[0-9a-f]{6}(-\d+)?")  # of a stage that trains
CRASH = re.compile(r"Traceback|Exception ignored|terminate called|core dumped|Fatal Python|HANGS")
OURS = re.compile(rf'File "[^"]*/({"|".join(PACKAGES)})/')
CLOCK = """
import os, time
real, start, kind = time.time, time.time(), os.environ.get("CHAOS_CLOCK")
calls, shift = iter(range(1 << 62)), {"1970": -start, "2100": 4102444800 - start}
if kind:
    time.time = lambda: real() + shift.get(kind, -3600 if next(calls) > 40 else 0)
fault, _, after = os.environ.get("CHAOS_FAULT", "").partition(":")
if fault:
    import builtins, errno, io
    left, really = iter(range(int(after) + 1)), io.open
    def opened(file, mode="r", *args, **kwargs):
        is_ours = f"{os.sep}runs{os.sep}" in os.path.abspath(os.fsdecode(file)) if isinstance(
            file, (str, bytes, os.PathLike)) else False
        if is_ours and set(mode) & set("wax+") and next(left, None) is None:
            if fault == "MemoryError":
                raise MemoryError()
            raise OSError(getattr(errno, fault), os.strerror(getattr(errno, fault)), str(file))
        return really(file, mode, *args, **kwargs)
    builtins.open = io.open = opened
"""


class Result(NamedTuple):
    """How a command ended: exit code (negative: the signal), printed text, its error lines."""

    code: int
    text: str
    errors: list[str]


def remove(path: Path) -> None:
    is_folder = path.is_dir() and not path.is_symlink()
    shutil.rmtree(path) if is_folder else path.unlink(missing_ok=True)


def mount(*arguments: Any) -> bool:
    """Whether `mount` with these arguments succeeded."""
    done = subprocess.run(["mount", *map(str, arguments)], capture_output=True, check=False)
    return done.returncode == 0


class Lane:
    """One chain in a folder that looks like a checkout, with `runs` on a small disk of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.runs, self.run = folder, folder / "runs", folder / "runs/tiny-cpu"
        write_recipe(folder, NUM_ROWS, {k: v | TABLES["more"].get(k, {}) for k, v in SHORT.items()})
        for name in ("runs", "logs", "tmp", "clock", "configs"):
            (folder / name).mkdir()
        (folder / "tiny-cpu").rename(folder / "configs/tiny-cpu")
        (folder / "venv").rename(folder / ".venv")
        for name in (*PACKAGES, "Makefile", "pyproject.toml", "locks"):
            (folder / name).symlink_to(ROOT / name)
        (folder / ".venv/ready").touch()
        (folder / "clock/sitecustomize.py").write_text(CLOCK)
        disk = ("-t", "tmpfs", "-o", "size=300m", "tmpfs", self.runs)
        self.is_mounted = os.geteuid() == 0 and mount(*disk)

    def start(self, stage: str, how: str = "make", **extra: str) -> subprocess.Popen:
        """Start a stage, or with another `how` the command in `stage`, in a process group."""
        command = stage
        if how == "make":
            command = f"make {stage} PY={sys.executable}"
        elif how == "python":
            config = f"configs/tiny-cpu/{config_name(stage)}.yaml"  # make's order of the flags
            command = f"{sys.executable} -m {STAGES[stage].module} --config {config}"
            command += " --run_dir runs/tiny-cpu"
        env = {k: v for k, v in os.environ.items() if k not in OUTER} | extra
        env |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CHAOS": str(self.folder)}
        env |= {"TMPDIR": f"{self.folder}/tmp", "PYTHONPATH": f"{ROOT}:{self.folder}/clock"}
        log = self.folder / f"logs/{len(os.listdir(self.folder / 'logs')):04}.txt"
        log.write_text(f"$ {extra or ''} {command}\n")
        with log.open("a") as out:
            process = subprocess.Popen(
                shlex.split(command), cwd=self.folder, env=env, stdin=subprocess.DEVNULL,
                stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        process.log = log
        return process

    def end(self, process: subprocess.Popen, number: int = 0) -> Result:
        """Send its group a signal, if any, and wait for a process; one that hangs is killed."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        try:
            code, end = process.wait(180), ""
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            code, end = process.wait(), "HANGS"
        _, *lines = process.log.read_text(errors="replace").replace("\r", "\n").split("\n")
        return Result(code, "\n".join(lines) + end, [x for x in lines if x.startswith("error:")])

    def call(self, stage: str, how: str = "make", **extra: str) -> Result:
        return self.end(self.start(stage, how, **extra))

    def states(self) -> set[tuple[str, int, int]]:
        """Every file of the runs as (path, size, time)."""
        found = set()
        for root, _, names in os.walk(self.runs):
            for path in (os.path.join(root, name) for name in names):
                with contextlib.suppress(OSError):
                    found.add((path, os.stat(path).st_size, os.stat(path).st_mtime_ns))
        return found

    def watch(self, process: subprocess.Popen, seconds: float, changes: int) -> list[str]:
        """Wait for a time, a number of file changes, or the end; the changed paths."""
        seen, paths, until = self.states(), [], time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < until and len(paths) < changes:
            new = self.states() - seen
            seen |= new
            paths += [path for path, *_ in new]
            time.sleep(0.004)
        return paths

    def processes(self) -> list[psutil.Process]:
        """Every process that runs and that this lane started, directly or not."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("CHAOS") == str(self.folder):
                    found += [process] * (process.status() != psutil.STATUS_ZOMBIE)
        return found

    def content(self, stage: str) -> dict[str, Any]:
        """What a stage left, by name."""
        left = left_in(self.run / stage)
        # What was set aside stays until its user frees it.
        names = {f"{stage}/{name}": name for name in left}
        return {name: left[own] for name, own in names.items() if not ASIDE.search(name)}

    def record(self) -> dict[str, Any]:
        """Run the chain undisturbed: by stage its seconds, changes, content, inputs and so on."""
        known: dict[str, Any] = {}
        for stage in OTHER:
            process, begun = self.start(stage), time.monotonic()
            paths = self.watch(process, 600, ENDLESS)
            assert (result := self.end(process)).code == 0, result.text
            inputs = json.loads((self.run / stage / MANIFEST).read_text())["inputs"]
            known[stage] = {
                "seconds": time.monotonic() - begun,
                "changes": len(paths),
                "inputs": [os.path.relpath(path, "runs/tiny-cpu") for path in inputs],
                "bytes": sum(p.stat().st_size for p in (self.run / stage).rglob("*")),
            }
        return {stage: known[stage] | {"content": self.content(stage)} for stage in OTHER}


class Case:
    """One fault: what it is, where it hits, and what came of it."""

    def __init__(self, lane: Lane, number: int, kind: str, stage: str, seed: int) -> None:
        self.lane, self.number, self.kind, self.stage = lane, number, kind, stage
        self.rng = random.Random(f"{seed}/{number}")
        self.how = self.rng.choice(("make", "python"))
        self.notes: list[str] = []
        self.damaged = ""  # a file, relative to the run
        self.found: list[tuple[str, str]] = []  # (kind of finding, first lines)

    def fail(self, column: str, text: str) -> None:
        lines = [line for line in text.splitlines() if line.strip()]
        self.found.append((column, " | ".join(lines[-4:])[-600:]))

    def judge(self, result: Result, *codes: int, is_hit: bool = False) -> Result:
        """Expect no traceback, a code that fits, and with code 2 one error line unless `is_hit`."""
        if found := CRASH.search(result.text):
            text = result.text[found.start() :]
            if "KeyboardInterrupt" not in text or OURS.search(text):
                self.fail("tracebacks", text)
            else:
                self.notes.append("before Python had come to our code")
        elif result.code not in (codes or (0, 2)):
            self.fail("unclear", f"exit code {result.code}\n{result.text}")
        elif len(result.errors) != 1 and result.code == 2 and not is_hit:
            self.fail("unclear", f"{len(result.errors)} error lines\n{result.text}")
        return result

    def prepare(self, *modes: str) -> str:
        """Bring the stage into one of these states: fresh, half done (killed), done."""
        lane, mode = self.lane, self.rng.choice(modes)
        before = [*OTHER][: [*OTHER].index(self.stage) + (mode == "done")]
        if before and not (lane.run / before[-1] / MANIFEST).exists():
            self.finish(before[-1])
        if mode != "done":
            for path in (lane.run / self.stage, *lane.run.glob(f"{self.stage}[.-]*")):
                remove(path)
        if mode == "half":
            changes = int(self.rng.uniform(0.3, 1) * lane.known[self.stage]["changes"])
            lane.watch(process := lane.start(self.stage, "python"), 600, changes)
            lane.end(process, signal.SIGKILL)
            self.quiet()
            if (lane.run / self.stage / MANIFEST).exists():  # the kill came too late
                mode = "done"
        self.notes.append(mode)
        return mode

    def begin(self, **extra: str) -> subprocess.Popen:
        """Start the stage and wait for a moment: of the clock, or a number of file changes."""
        known, share = self.lane.known[self.stage], self.rng.random()
        seconds, changes = 600, 1 + int(share * known["changes"])
        if self.rng.random() < 0.4:
            seconds, changes = share * known["seconds"], ENDLESS
        self.notes.append(f"{self.how} {share:.0%} of {'time' if seconds < 600 else 'changes'}")
        self.lane.watch(process := self.lane.start(self.stage, self.how, **extra), seconds, changes)
        return process

    def quiet(self) -> None:
        """Wait for the lane's processes; what is still there after a minute is left over."""
        until = time.monotonic() + 60
        while (left := self.lane.processes()) and time.monotonic() < until:
            time.sleep(0.2)
        for process in left:
            with contextlib.suppress(psutil.Error):
                self.fail("leftovers", f"process {' '.join(process.cmdline())}")
                process.kill()

    def remedy(self, result: Result) -> None:
        """Do what the error line asks for: a file to remove, then commands in backquotes."""
        line, home = (result.errors or [""])[-1], self.lane.folder.resolve()
        names = re.findall(r"(?:remove|rm -r|delete) ([^\s;,`]+)", line)
        if "it" in names:  # the first file that the line names
            names += re.findall(r"[\w./-]*runs/[\w./-]+\w", line)[:1]
        for path in [(home / name).resolve() for name in names]:
            if path.exists() and path.is_relative_to(home):
                self.notes.append(f"remedy: remove {path.relative_to(home)}")
                remove(path)
        for command in re.findall(r"`((?:[A-Z_]+=\S+ )*(?:make|python3?) [^`]+)`", line):
            self.notes.append(f"remedy `{command}`")
            command = re.sub(r"(?<!\S)python3?(?= )", sys.executable, command, count=1)
            command = re.sub(r"(?<!\S)make(?= )", f"make PY={sys.executable}", command, count=1)
            self.judge(self.lane.call(f"env {command}", "command"))

    def finish(self, stage: str, result: Result | None = None) -> None:
        """Apply remedies and start the stage until it is done."""
        for _ in range(4):
            if result and result.code:
                self.remedy(result)
            self.quiet()
            result = self.judge(self.lane.call(stage))
            if result.code == 0:
                return
        self.fail("lost", f"{stage} does not go on\n{result.text}")

    def compare(self, *stages: str) -> None:
        """Hold what the stages left against the undisturbed run, and look for what is left over."""
        lane, temporary = self.lane, self.lane.folder / "tmp"
        for stage in stages:
            expected, found = lane.known[stage]["content"], lane.content(stage)
            for name in differences(expected, found):
                # Stored samples: an evaluation that is finished does not read them again.
                if "/samples/" not in name or name != self.damaged:
                    self.fail("lost" if name in expected else "leftovers", f"{name} differs")
        known = {"tiny-cpu", "audit", "data.asked", "tensorboard", *OTHER}
        linked = {path.resolve() for path in lane.run.iterdir() if path.is_symlink()}
        for path in [*lane.runs.iterdir(), *lane.run.iterdir(), *temporary.iterdir()]:
            is_kept = path.suffix == ".tokens" or path.name.startswith("torchinductor")
            if path.name not in known and not is_kept and path.resolve() not in linked:
                if not RUN.fullmatch(path.name):  # other runs of a stage are kept
                    self.fail("leftovers", str(path.relative_to(lane.folder)))
                remove(path)

    def files(self, mode: str) -> list[Path]:
        """Files that the stage reads, and, if it has begun, what it goes on from or made."""
        run, own = self.lane.run, self.lane.run / self.stage
        places = [run / name for name in self.lane.known[self.stage]["inputs"]]
        found = [p / MANIFEST if p.is_dir() else p for p in places]
        for folder in [p for p in places if p.is_dir()] + [own] * (mode == "done"):
            found += [folder / n for n in json.loads((folder / MANIFEST).read_text())["files"]]
        if mode == "half":
            saved = sorted(own.glob("checkpoint-*[0-9]"), key=lambda p: int(p.name[11:]))
            for path in saved[-1:]:
                found += [*path.iterdir()] * 3
            found += [*own.glob("*"), *own.rglob("samples*.jsonl")] * 2
        return sorted(p for p in found if p.is_file() and not NOT_COMPARED.search(p.name))


def signalled(case: Case, number: int, is_group: bool) -> Result:
    """Send a signal to one process of the stage, or to the group as a terminal does."""
    extra = {"FORCE": "1"} if case.prepare("fresh", "half", "done") == "done" else {}
    process = case.begin(**extra)
    target = process.pid
    with contextlib.suppress(ProcessLookupError):
        if case.how == "make" and not is_group and case.rng.random() < 0.7:
            target = case.rng.choice([p.pid for p in case.lane.processes()] or [target])
        os.killpg(target, number) if is_group else os.kill(target, number)
    codes = (0, 2, -number, 128 + number) if target == process.pid else (0, 2)
    result = case.judge(case.lane.end(process), *codes, is_hit=True)
    if extra:  # a forced run is gone on with as such
        case.quiet()
        case.judge(case.lane.call(case.stage, "python", **extra))
    return result


def disk(case: Case, is_full: bool) -> Result | None:
    """Fill the disk up, or mount it read-only, before the start or while the stage runs."""
    lane, filler = case.lane, case.lane.runs / "filler"
    if not lane.is_mounted:
        return None
    case.prepare("fresh", "half")
    process = None if case.rng.random() < 0.5 else case.begin()
    left = int(case.rng.random() * lane.known[case.stage]["bytes"] * (0.1 if process else 1))
    if is_full:
        case.notes.append(f"{left} bytes left")
        with contextlib.suppress(OSError), filler.open("wb") as file:
            free = os.statvfs(lane.runs).f_bavail * os.statvfs(lane.runs).f_frsize
            os.posix_fallocate(file.fileno(), 0, max(free - left, 1))
    for _ in range(0 if is_full else 50):  # refused while a file is open for writing
        if mount("-o", "remount,ro", lane.runs) or (process and process.poll() is not None):
            break
        time.sleep(0.01)
    result = case.judge(lane.end(process or lane.start(case.stage, case.how)))
    mount("-o", "remount,rw", lane.runs)
    remove(filler)
    line = "".join(result.errors)
    if result.code and not re.search("free|space|room|read-only|access", line, re.I):
        case.fail("unclear", line)
    return result


def altered(case: Case, change: Callable[..., Any], *arguments: Any) -> Result:
    """Start the stage after a change, which may return more of its environment."""
    if change is change_gold and case.stage in ("data", "report"):
        case.stage = "grpo"
    modes = ("fresh", "half", "half", "done") if change is damage else ("fresh", "half")
    extra = change(case, case.prepare(*modes), *arguments) or {}
    case.notes += [f"{name}={value}" for name, value in extra.items()]
    result = case.lane.call(case.stage, case.how, **extra)
    if result.code == OUT_OF_MEMORY and not CRASH.search(result.text):
        if len(result.errors) != 1 or "memory" not in result.errors[0]:
            case.fail("unclear", result.text)
        return result
    return case.judge(result, *((0,) if change is plant else ()))


def damage(case: Case, mode: str, how: str) -> None:
    """Change a file that the stage reads, resumes from, or made."""
    if found := case.files(mode):
        path = case.rng.choice(found)
        case.damaged = str(path.relative_to(case.lane.run))
        case.notes.append(case.damaged)
        data = bytearray(path.read_bytes())
        place = case.rng.randrange(len(data) or 1)
        if how == "truncated":
            del data[place:]
        data[place : place + 32] = case.rng.randbytes(len(data[place : place + 32]))
        remove(path) if how == "deleted" else path.write_bytes(data)


def change_gold(case: Case, mode: str) -> None:
    """Give a row of the data that the stage reads another answer."""
    names = [n for n in case.lane.known[case.stage]["inputs"] if n.startswith("data/")]
    path = case.lane.run / case.rng.choice(names)
    rows = path.read_text().splitlines(keepends=True)
    number = case.rng.randrange(len(rows))
    rows[number] = re.sub(r"\d+(?=\D*$)", lambda found: str(int(found[0]) + 1), rows[number])
    path.write_text("".join(rows))


def plant(case: Case, mode: str, what: str) -> dict[str, str]:
    """A clock that is wrong, the lock of a dead process, or a file half written."""
    own = case.lane.run / case.stage
    if what == "clock":
        return {"CHAOS_CLOCK": case.rng.choice(("1970", "2100", "back"))}
    if what == "lock":
        (dead := subprocess.Popen(["true"])).wait()
        text = f"process {dead.pid} on {socket.gethostname()} since 2026-01-01 00:00:00\n"
        text = text[: case.rng.choice((0, 20, 200))]  # a full disk cuts it off
        own.with_name(f"{case.stage}.lock").write_text(text)
    elif mode != "done":  # a finished stage has left none
        if own.name not in ("sft", "grpo"):  # their folders are named by a start
            own.mkdir(exist_ok=True)
        elif not own.is_dir():
            own = case.lane.run / "data"
        (own / f"{MANIFEST}.partial").write_bytes(case.rng.randbytes(case.rng.randrange(200)))
    return {}


def inject(case: Case, mode: str, *kinds: str) -> dict[str, str]:
    """An error while a file of the run is opened for writing."""
    return {"CHAOS_FAULT": f"{case.rng.choice(kinds)}:{case.rng.randrange(12)}"}


def changed_config(case: Case) -> Result:
    """Start with a comment more, another value or a wrong one, to the end or killed; then back."""
    case.prepare("fresh", "half", "done")
    other = OTHER[case.stage]
    path = case.lane.folder / f"configs/tiny-cpu/{config_name(case.stage)}.yaml"
    text = path.read_text()
    kinds = {"comment": {}, "other": other, "killed": other, "wrong": {"seed": "none"}}
    kind = case.rng.choice([*kinds])
    case.notes.append(kind)
    path.write_text(yaml.safe_dump(yaml.safe_load(text) | kinds[kind]) + "# a comment\n")
    process = case.begin() if kind == "killed" else case.lane.start(case.stage, case.how)
    result = case.lane.end(process, signal.SIGKILL if kind == "killed" else 0)
    codes = {"killed": (0, 2, -9), "wrong": (2,)}.get(kind, (0, 2))
    case.judge(result, *codes, is_hit=kind == "killed")
    path.write_text(text)
    return result._replace(code=0)


def second_start(case: Case) -> Result:
    """Start the stage, or one before it, again while it runs or at the same moment."""
    case.prepare("fresh", "half")
    other = case.rng.choice([*OTHER][: [*OTHER].index(case.stage) + 1] + [case.stage] * 6)
    together = case.rng.random() < 0.3
    first = case.lane.start(case.stage, case.how) if together else case.begin()
    how = case.rng.choice(("make", "python"))
    case.notes.append(f"second: {how} {other}")
    second = case.judge(case.lane.call(other, how))
    result = case.judge(case.lane.end(first))
    if result.code and second.code:
        case.fail("unclear", f"neither went on\n{result.text}\n{second.text}")
    return result


ERRNOS = (
    "ESTALE", "ENOTCONN", "ETIMEDOUT", "EMFILE", "ENFILE", "EFBIG", "EIO", "EBUSY", "EHOSTDOWN",
    "ENODEV", "ENXIO", "EDQUOT", "ENOSPC",
)  # fmt: skip
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
FAULTS: dict[str, tuple[Any, ...]] = {
    **{f"{number.name}, one process": (signalled, number, False) for number in SIGNALS},
    **{f"{number.name}, group": (signalled, number, True) for number in SIGNALS},
    "full disk": (disk, True),
    "read-only disk": (disk, False),
    "changed config": (changed_config,),
    "second start": (second_start,),
    "truncated file": (altered, damage, "truncated"),
    "overwritten file": (altered, damage, "overwritten"),
    "deleted file": (altered, damage, "deleted"),
    "changed gold": (altered, change_gold),
    "injected clock": (altered, plant, "clock"),
    "stale lock": (altered, plant, "lock"),
    "half-written file": (altered, plant, "file"),
    "out of memory": (altered, inject, "MemoryError"),
    "error of the system": (altered, inject, *ERRNOS),
}


def plan(seed: int, number: int) -> list[tuple[str, str]]:
    """(kind, stage) of every fault: all kinds equally often, and stages, those that train twice."""
    rng, decks = random.Random(seed), ([*FAULTS], [*OTHER, "sft", "grpo"])
    drawn = [[x for _ in range(number) for x in rng.sample(deck, len(deck))] for deck in decks]
    return list(zip(*drawn, strict=False))[:number]


def disturb(lane: Lane, cases: list[Case]) -> None:
    """Let the faults of one lane hit, one after the other; at last finish and compare the chain."""
    for case in cases:
        if case.kind in FAULTS:
            fault, *arguments = FAULTS[case.kind]
            result = fault(case, *arguments)
            if result is None:
                case.kind += " (skipped: no root)"
                continue
            case.finish(case.stage, result)
            case.compare(case.stage)
            if case.found:  # the next fault starts with what the undisturbed run left
                shutil.move(lane.run, lane.folder / f"failed-{case.number}")
                whole = lane.folder.parent / "undisturbed/runs/tiny-cpu"
                shutil.copytree(whole, lane.run, symlinks=True)
        else:
            case.finish("report")
            case.compare(*OTHER)
        bad = "".join(f"\n    {column}: {text}" for column, text in case.found[:4])
        notes = ", ".join(case.notes)
        sys.stdout.write(f"{case.number:3} {case.kind}, {case.stage} ({notes}){bad}\n")
        sys.stdout.flush()


def summary(cases: list[Case]) -> str:
    """How many faults struck, and how many had which finding; each has a line of its own."""
    struck = [case for case in cases if "skipped" not in case.kind]
    survived = sum(not case.found for case in struck)
    found = Counter(column for case in struck for column in {name for name, _ in case.found})
    bad = "".join(f", {column}: {number}" for column, number in sorted(found.items()))
    return f"{len(cases)} faults, {len(struck)} struck, {survived} survived{bad}\n"


def main() -> None:
    """Run the plan on two lanes; the exit code is 1 if any fault was not survived."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--only", help="of the plan, the faults of these numbers: 3,17")
    parser.add_argument("--keep", action="store_true", help="keep the folders, with every log")
    args = parser.parse_args()
    folder, begun = Path(tempfile.mkdtemp(prefix="chaos-")), time.monotonic()
    sys.stdout.write(f"chaos: seed {args.seed}, {args.faults} faults, in {folder}\n")
    lanes = [Lane(folder / name) for name in ("undisturbed", "lane-0", "lane-1")]
    try:
        known, work = lanes[0].record(), ([], [])
        numbers = [int(n) for n in args.only.split(",")] if args.only else range(args.faults)
        planned = plan(args.seed, args.faults)
        for place, number in enumerate(numbers):
            case = Case(lanes[1 + place % 2], number, *planned[number], args.seed)
            work[place % 2].append(case)
        for lane, cases in zip(lanes[1:], work, strict=True):
            lane.known = known
            # Relative paths: the same.
            shutil.copytree(lanes[0].run, lane.run, symlinks=True, dirs_exist_ok=True)
            cases.append(Case(lane, args.faults, "end of the chain", "report", args.seed))
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(disturb, lanes[1:], work))
        cases = [case for cases in work for case in cases]
        sys.stdout.write(summary(cases))
        sys.stdout.write(f"seed {args.seed}: {time.monotonic() - begun:.0f} s\n")
        sys.exit(any(case.found for case in cases))
    finally:
        if not args.keep:
            for lane in lanes:
                subprocess.run(["umount", lane.runs], capture_output=True, check=False)
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
