"""Samples: the requests to a model, its completions, and the store that keeps them.

A sample is one completion (or one log-likelihood). Its key is a hash of everything that decides it:
the checkpoint's files, the sampling code, the prompt, the settings and the sample's number. So a
killed run resumes where it stopped, and more samples extend those that are there. No checkpoint
gets the completions of another one. Verdicts are not stored: grading is repeated.
"""

import hashlib
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, overload

from pipeline import json_files
from pipeline.errors import UserError

# Requests that an engine is handed at once: their token ids, some 2 KB each, are in memory.
WINDOW = 32_768
# One process may have the long completions; a launcher ends the others when one dies.
PATIENCE = timedelta(days=7)
LARGEST = 2**63  # of a number of tokens; a table holds no larger one


class Completion(str):
    """A completion's text, up to its end or stop string, with token count and end.

    A subclass of `str` goes through the harness to the tasks' `process_results`.
    """

    num_tokens: int  # the end-of-sequence token counts
    cut_off: bool  # whether the token limit came before an end

    def __new__(cls, text: str, num_tokens: int, cut_off: bool):
        self = super().__new__(cls, text)
        self.num_tokens, self.cut_off = num_tokens, cut_off
        return self

    def __getnewargs__(self):
        return str(self), self.num_tokens, self.cut_off


@dataclass(frozen=True, slots=True)
class Settings:
    """How completions are generated; equal settings may share a batch.

    A `rendered` prompt came through a chat template, which wrote its own special tokens. It must
    fit the context. Any other prompt gets the tokenizer's special tokens and is cut on the left.
    """

    max_new_tokens: int
    temperature: float = 0.0  # greedy
    top_p: float = 1.0
    until: tuple[str, ...] = ()  # stop strings, cut from the text
    rendered: bool = True
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    """One completion that is wanted: sample number `sample` (from 0) of `prompt`.

    `place` begins the line of an error: the task and the row's id. It decides nothing.
    """

    prompt: str
    settings: Settings
    sample: int = 0
    place: str = field(default="", compare=False)

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
    place: str = field(default="", compare=False)  # as a request's


def may_be_cut(wanted: Request | Continuation) -> bool:
    """Whether a prompt that exceeds the context is cut on the left; a rendered one is refused."""
    return isinstance(wanted, Continuation) or not wanted.settings.rendered


@dataclass
class Processes:
    """This process's place among those of one launch; `local_rank` counts within its host.

    The processes share a key-value store and no process group: an engine may bring its own.
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    _store: Any = field(default=None, repr=False)
    _meetings: int = 0

    @classmethod
    def from_environment(cls) -> "Processes":
        """Read what `accelerate launch` or `torchrun` has set; without, there is one process."""
        if int(os.environ.get("WORLD_SIZE", "1")) == 1:
            return cls()
        import torch.distributed

        store, rank, world_size = next(torch.distributed.rendezvous("env://", timeout=PATIENCE))
        return cls(rank, world_size, int(os.environ.get("LOCAL_RANK", "0")), store)

    @property
    def is_main(self) -> bool:
        """Whether this process prints and writes the results."""
        return self.rank == 0

    def meet(self) -> None:
        """Wait until every process has come here as often as this one."""
        self._meetings += 1
        if self._store is None:
            return
        name = f"meeting-{self._meetings}"
        if self._store.add(name, 1) == self.world_size:
            self._store.set(f"{name}-all", "here")
        self._store.wait([f"{name}-all"], PATIENCE)

    def ask_main(self, make: Callable[[], Any]) -> Any:
        """What `make()` returns in the main process, for all of them; it must be JSON."""
        self._meetings += 1
        if self._store is None:
            return make()
        name = f"answer-{self._meetings}"
        if self.is_main:
            self._store.set(name, json.dumps(make()))
        self._store.wait([name], PATIENCE)
        return json.loads(self._store.get(name))


def _read_line(line: bytes) -> tuple[str, Completion | tuple[float, bool]]:
    """The key and the sample of a stored line; raises `ValueError`."""
    match json_files.parse(line, [object]):
        case [str(key), str(text), int(num_tokens), bool(cut_off)] if 0 <= num_tokens < LARGEST:
            return key, Completion(text, int(num_tokens), cut_off)
        case [str(key), float(total), bool(is_greedy)] if not math.isnan(total):  # it may be -inf
            return key, (total, is_greedy)
    raise ValueError("no sample")


class SampleStore:
    """Append-only JSON lines of one checkpoint, a file for each process.

    Memory holds the place of each sample, not its text: the texts of a large set are gigabytes.

    Args:
        model: the hash of checkpoint and engine, a part of every key.
        context: the engine's, in tokens; a part of the key where it may cut the prompt.
    """

    def __init__(self, folder: Path, model: str, rank: int = 0, context: int | None = None) -> None:
        self.folder, self._model, self._context = Path(folder), model, context
        self._path = self.folder / f"samples-{rank}.jsonl"
        self._places: dict[str, tuple[Path, int]] = {}  # file and byte of each key's line
        self._file: IO[bytes] | None = None

    def key(self, wanted: Request | Continuation) -> str:
        """The sample's key: a hash of the model and of the whole request."""
        fields = asdict(wanted)
        del fields["place"]
        known: list[object] = [self._model, type(wanted).__name__, fields]
        if may_be_cut(wanted):
            known.append(self._context)
        text = json.dumps(known, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def load(self) -> None:
        """Look up what every process has written."""
        self._places = {}
        for path in sorted(self.folder.glob("samples-*.jsonl")):
            place = 0
            with path.open("rb") as file:
                for line in file:
                    with suppress(ValueError):  # torn by a kill, and so generated again
                        self._places[_read_line(line)[0]] = path, place
                    place += len(line)

    def missing(self, wanted: Iterable[Request | Continuation]) -> list[Request | Continuation]:
        """Those that are not stored, each once, in order."""
        found = {self.key(one): one for one in wanted}
        return [one for key, one in found.items() if key not in self._places]

    def add(self, wanted: Request | Continuation, value: Completion | tuple[float, bool]) -> None:
        """Store a finished sample: on disk before anything else is asked for."""
        if self._file is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("a+b")
            if self._file.tell():
                self._file.seek(-1, os.SEEK_END)
                if self._file.read(1) != b"\n":  # torn by a kill
                    self._file.write(b"\n")
        key = self.key(wanted)
        if isinstance(value, Completion):
            fields = [str(value), value.num_tokens, value.cut_off]
        else:
            fields = [float(value[0]), bool(value[1])]
        self._places[key] = self._path, self._file.tell()
        # Escaped: a model may write halves of surrogate pairs, which UTF-8 lacks.
        self._file.write(json.dumps([key, *fields]).encode() + b"\n")
        self._file.flush()

    @overload
    def get(self, wanted: Request) -> Completion: ...

    @overload
    def get(self, wanted: Continuation) -> tuple[float, bool]: ...

    def get(self, wanted: Request | Continuation) -> Completion | tuple[float, bool]:
        """The stored sample; raises `UserError` where no process has stored it."""
        found = self._places.get(self.key(wanted))
        if found is None:
            raise UserError(
                f"{self.folder}: the samples of another process are missing; put output_dir on a "
                "file system that all hosts share"
            )
        path, place = found
        with path.open("rb") as file:
            file.seek(place)
            _, value = _read_line(file.readline())
        if isinstance(value, Completion) != isinstance(wanted, Request):
            raise UserError(f"{path}: byte {place}: is damaged; remove the line")
        return value

    def close(self) -> None:
        """Close the file; what is stored can still be had, and more be added."""
        if self._file is not None:
            self._file.close()
        self._file = None


def fill(
    store: SampleStore,
    wanted: Sequence[Request | Continuation],
    open_engine: Callable[[], AbstractContextManager[Any]],
    processes: Processes,
    label: str,
    *,
    is_logged: bool = False,
) -> None:
    """Generate the samples that the store lacks; each is on disk as soon as it is finished.

    Every process comes here with the same `wanted`, all completions or all log-likelihoods, and
    generates its share. Afterwards the main process can get all of them. `is_logged` shows the bar
    where stderr is no terminal, too.
    """
    from pipeline.console import Bar

    store.load()
    processes.meet()  # all have read the same before the first writes
    missing = store.missing(wanted)
    num_stored = len(set(wanted)) - len(missing)
    if processes.is_main and num_stored and not is_logged:
        sys.stdout.write(f"{label}: {num_stored:,} samples are already stored\n")
        sys.stdout.flush()
    mine = missing[processes.rank :: processes.world_size]
    is_hidden = False if is_logged else None  # None: where stderr is no terminal
    bar = Bar(
        total=len(wanted),
        initial=len(wanted) - len(missing),
        desc=label,
        unit=" samples",
        disable=is_hidden if processes.is_main else True,
    )
    opened: AbstractContextManager[Any] = open_engine() if mine else nullcontext()
    with closing(store), bar, opened as engine:
        for start in range(0, len(mine), WINDOW):
            window = mine[start : start + WINDOW]
            is_text = isinstance(window[0], Request)
            generate = engine.complete if is_text else engine.loglikelihood
            with closing(generate(window)) as found:
                for index, value in found:
                    store.add(window[index], value)
                    bar.update(processes.world_size)  # the others keep about the same pace
    processes.meet()
    if processes.is_main and processes.world_size > 1:
        store.load()
