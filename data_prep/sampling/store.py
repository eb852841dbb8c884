"""Samples: what is asked of a model, what it wrote, and the store that never asks twice.

A sample is one completion (or one log-likelihood). Its key is a hash of everything that decides it:
the checkpoint's files, the sampling code, the prompt, the settings and the sample's number. So a
killed run resumes where it stopped, more samples extend those that are there, and no checkpoint is
served what another one wrote. Verdicts are not stored: grading is repeated.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from data_prep.config import UserError
from data_prep.sampling.processes import Processes

# Requests that an engine is handed at once: their token ids, some 2 KB each, are in memory.
WINDOW = 32_768


class Completion(str):
    """A completion's text that also knows what the text cannot tell.

    The harness passes completions about as plain strings; a subclass of `str` carries the two
    facts of the generation through it to the tasks' `process_results`.

    Args:
        text: the text before the end-of-sequence token or stop string.
        num_tokens: generated tokens, the end-of-sequence token included.
        cut_off: whether the token limit came before an end.
    """

    num_tokens: int
    cut_off: bool

    def __new__(cls, text: str, num_tokens: int, cut_off: bool):
        self = super().__new__(cls, text)
        self.num_tokens = num_tokens
        self.cut_off = cut_off
        return self

    def __getnewargs__(self):
        return str(self), self.num_tokens, self.cut_off


@dataclass(frozen=True, slots=True)
class Settings:
    """How completions are generated; equal settings may share a batch.

    Args:
        max_new_tokens: a longer completion is cut off.
        temperature: 0 is greedy.
        top_p: nucleus of the sampling, in (0, 1].
        until: stop strings, cut from the text; the think-aware tasks have none.
        rendered: the prompt came through a chat template, which wrote its own special tokens, and
            must fit the context; any other prompt gets the tokenizer's and is cut on the left.
        seed: of the sampling.
    """

    max_new_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    until: tuple[str, ...] = ()
    rendered: bool = True
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    """One completion that is wanted: sample number `sample` (from 0) of `prompt`."""

    prompt: str
    settings: Settings
    sample: int = 0

    @property
    def seed(self) -> int:
        """The sample's own seed, below 2**63: equal wherever and whenever it is generated."""
        text = json.dumps([self.settings.seed, self.prompt, self.sample])
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


@dataclass(frozen=True, slots=True)
class Continuation:
    """One log-likelihood that is wanted: that of `continuation` after `prompt`."""

    prompt: str
    continuation: str


class Engine(Protocol):
    """What generates: a checkpoint in transformers or vLLM, or the model of a server."""

    def complete(self, requests: Sequence[Request]) -> Iterator[tuple[int, Completion]]: ...
    def loglikelihood(
        self, pairs: Sequence[Continuation]
    ) -> Iterator[tuple[int, tuple[float, bool]]]: ...
    def close(self) -> None: ...


# Key, text, num_tokens, cut_off; key, log-probability, whether it is greedy.
LINES = ((str, str, int, bool), (str, float, bool))


class SampleStore:
    """Append-only JSON lines of one checkpoint, a file for each process.

    Memory holds where each sample lies and not its text: those of a large set are gigabytes.

    Args:
        folder: where the files lie; all processes' files are read.
        model: hash of the checkpoint and of the engine that runs it, a part of every key.
        rank: this process's number; it writes `samples-<rank>.jsonl`.
    """

    def __init__(self, folder: Path, model: str, rank: int = 0) -> None:
        self.folder, self._model, self._rank = Path(folder), model, rank
        self._places: dict[str, tuple[Path, int]] = {}  # file and byte of each key's line
        self._files: dict[Path, IO[bytes]] = {}
        self._own: IO[bytes] | None = None
        self.was_filled = False

    def __len__(self) -> int:
        return len(self._places)

    def key(self, wanted: Request | Continuation) -> str:
        """The sample's key: a hash of the model and of the whole request."""
        text = json.dumps([self._model, type(wanted).__name__, asdict(wanted)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def load(self) -> None:
        """Look up what every process has written; a line that a kill tore is left out."""
        self._places = {}
        for path in sorted(self.folder.glob("samples-*.jsonl")):
            place = 0
            with path.open("rb") as file:
                for line in file:
                    try:
                        found = json.loads(line)
                    except ValueError:
                        found = None  # torn, and so generated again
                    if isinstance(found, list) and tuple(map(type, found)) in LINES:
                        self._places[found[0]] = path, place
                    place += len(line)

    def missing(self, wanted: Iterable[Request | Continuation]) -> list[Request | Continuation]:
        """Those that are not stored, each once, in order."""
        found: dict[str, Any] = {}
        for one in wanted:
            key = self.key(one)
            if key not in self._places:
                found.setdefault(key, one)
        return list(found.values())

    def add(self, wanted: Request | Continuation, value: Completion | tuple[float, bool]) -> None:
        """Store a finished sample: on disk before anything else is asked for."""
        path = self.folder / f"samples-{self._rank}.jsonl"
        if self._own is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            is_torn = path.is_file() and path.stat().st_size > 0 and not _ends_with_line_end(path)
            self._own = path.open("ab")
            if is_torn:
                self._own.write(b"\n")
        key = self.key(wanted)
        fields = (
            [str(value), value.num_tokens, value.cut_off]
            if isinstance(value, Completion)
            else [float(value[0]), bool(value[1])]
        )
        self._places[key] = path, self._own.tell()
        # Escaped: a model may write halves of surrogate pairs, which UTF-8 lacks.
        self._own.write(json.dumps([key, *fields]).encode() + b"\n")
        self._own.flush()

    def get(self, wanted: Request | Continuation) -> Completion | tuple[float, bool]:
        """The stored sample.

        Raises:
            UserError: it is not there after every process has finished.
        """
        key = self.key(wanted)
        if key not in self._places:
            raise UserError(
                f"{self.folder}: another process's samples are not there; output_dir must lie on "
                "a file system that all hosts share"
            )
        path, place = self._places[key]
        if path not in self._files:
            self._files[path] = path.open("rb")
        self._files[path].seek(place)
        _, *fields = json.loads(self._files[path].readline())
        return Completion(*fields) if isinstance(wanted, Request) else tuple(fields)

    def close(self) -> None:
        """Close the files; what is stored can still be had."""
        for file in (self._own, *self._files.values()):
            if file is not None:
                file.close()
        self._own, self._files = None, {}


def _ends_with_line_end(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read(1) == b"\n"


def fill(
    store: SampleStore,
    wanted: Sequence[Request | Continuation],
    open_engine: Callable[[], AbstractContextManager[Engine]],
    processes: Processes,
    label: str,
    *,
    unit: str = "samples",
    is_logged: bool = False,
) -> None:
    """Generate the samples that the store lacks; each is on disk as soon as it is finished.

    Every process comes here with the same `wanted`, all completions or all log-likelihoods, and
    generates its share. Afterwards the main process can get all of them.

    Args:
        open_engine: called only where this process has something to generate.
        label: shown before what is said, and at the progress bar.
        is_logged: show the bar where stderr is no terminal, too.
    """
    from tqdm import tqdm

    store.load()
    processes.meet()  # all have read the same before the first writes
    missing = store.missing(wanted)
    num_stored = len(set(wanted)) - len(missing)
    if processes.is_main and num_stored and not is_logged:
        sys.stdout.write(f"{label}: {num_stored:,} samples are there already\n")
        sys.stdout.flush()
    if processes.is_main and len(store) and wanted and not (num_stored or store.was_filled):
        sys.stderr.write(
            f"{label}: none of the {len(store):,} samples in {store.folder} fits (another "
            "checkpoint, other settings or another version of this project wrote them); "
            "generating all\n"
        )
    store.was_filled = True
    mine = processes.share(missing)
    bar = tqdm(
        total=len(wanted), initial=len(wanted) - len(missing), desc=label, unit=f" {unit}",
        disable=(False if is_logged else None) if processes.is_main else True,
    )  # fmt: skip
    try:
        with bar, open_engine() if mine else nullcontext() as engine:
            for start in range(0, len(mine), WINDOW):
                window = mine[start : start + WINDOW]
                is_text = isinstance(window[0], Request)
                generate = engine.complete if is_text else engine.loglikelihood
                with closing(generate(window)) as found:
                    for index, value in found:
                        store.add(window[index], value)
                        bar.update(processes.world_size)  # the others keep about the same pace
    finally:
        store.close()
    processes.meet()
    if processes.is_main and processes.world_size > 1:
        store.load()
