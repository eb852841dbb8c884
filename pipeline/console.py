"""The terminal's output: our lines, one progress bar, no log lines of libraries.

Rows, completions and file names are untrusted. Their control characters could clear the screen,
write into the clipboard or make an incorrect answer look correct.
"""

import contextlib
import importlib
import io
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator
from typing import Any, BinaryIO

import rich.text
from tqdm import tqdm

# Both tell every stage of GPUs that are not there, as soon as transformers or accelerate find them.
_AT_IMPORT = ("torchao", "torch.utils._pytree")
# vLLM reads its level when it is imported, in its child processes too, so these are set before.
VLLM_ENVIRONMENT = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_NO_USAGE_STATS": "1",
    "TQDM_DISABLE": "1",  # read by the engine's child process
}

# C0 but for newline and tab, DEL, C1, direction marks, halves of surrogate pairs.
HIDDEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
MAX_LINE = 2000  # characters at either end of a line of which a row may be part


def clean(text: str) -> str:
    """A text with whatever a browser, editor or terminal would act on written as `\\x1b`.

    JSON stays the same JSON: the letters that it may hold unescaped are written as it escapes them.
    """
    return HIDDEN.sub(_write_out, text.replace("\r\n", "\n"))


def _write_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 32:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}"


def one_line(text: object) -> str:
    """Its text cleaned, as one line; a very long one loses its middle, not place and remedy."""
    line = " ".join(clean(str(text)).splitlines())
    if len(line) <= 2 * MAX_LINE:
        return line
    return f"{line[:MAX_LINE]} ... {line[-MAX_LINE:]}"


class UnfailingFile(io.FileIO):
    """A standard stream of which a write never fails: what cannot be written is left out.

    The reader of a pipe ends, a log's disk is full, a terminal is gone: the work goes on.
    """

    def write(self, data: Any) -> int:
        """The bytes that are written; all of them, where none can be."""
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def protect_output() -> None:
    """Let no write to stdout and stderr end the process, whoever writes; entry points call it.

    Letters that the terminal's encoding lacks are written as `\\xb1`. A stream that is closed
    becomes /dev/null, for child processes too: the next file that is opened would take its number.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number: those below are open by now.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is getattr(sys, f"__{name}__"):  # no other's, such as a notebook's
            with contextlib.suppress(OSError, AttributeError):
                stream.flush()
            os.set_blocking(number, True)  # a slow reader is waited for
            file = io.BufferedWriter(UnfailingFile(number, "w", closefd=False))
            encoding = stream.encoding if stream else "utf-8"
            text = io.TextIOWrapper(file, encoding, "backslashreplace", line_buffering=True)
            setattr(sys, name, text)


def write_past_locks(text: str) -> None:
    """Write to stderr past sys.stderr's lock, which another thread may hold for good."""
    UnfailingFile(2, "w", closefd=False).write(clean(text).encode())


@contextlib.contextmanager
def open_results() -> Iterator[BinaryIO]:
    """Standard output for a command's results: there a write that fails is an error."""
    buffer = sys.stdout.buffer
    if isinstance(getattr(buffer, "raw", buffer), UnfailingFile):
        with open(1, "wb", closefd=False) as file:
            yield file
    else:
        yield buffer


def is_main_process() -> bool:
    """Whether this is the one process that touches files and prints (rank 0)."""
    return os.environ.get("RANK", "0") == "0"


def say(line: str) -> None:
    """Print one line on stdout, above a progress bar, from the main process only."""
    if is_main_process():
        tqdm.write(one_line(line))
        sys.stdout.flush()


def notice(text: str) -> None:
    """Write one line on stderr about something that the user may not expect."""
    sys.stderr.write(f"notice: {one_line(text)}\n")


class Bar(tqdm):
    """A bar that drops its last facts instead of wrapping, and writes no \\r to a log."""

    disable: bool  # tqdm's, as are n and fp

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Without a terminal every refresh is a line in a log: one in ten seconds is enough.
        self.is_log = not sys.stderr.isatty()
        defaults: dict[str, Any] = {"dynamic_ncols": True, "mininterval": 0.5}
        if self.is_log:
            defaults |= {"mininterval": 10, "miniters": 1}
        super().__init__(*args, **defaults | kwargs)

    def __str__(self) -> str:
        text, columns = super().__str__(), self.format_dict["ncols"]
        while not self.is_log and columns and len(text) >= columns and ", " in text:
            text = text.rpartition(", ")[0]
        return text

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Draw the bar; in a log, write a line."""
        if not self.is_log:
            super().display(msg, pos)
        elif self.n:
            self.fp.write(f"{msg or self}\n")
            self.fp.flush()

    def close(self) -> None:
        """End the bar; in a log, with the last line if it is not there yet."""
        if self.is_log and not self.disable:
            if self.n != self.last_print_n or not self.n:
                self.display()
            self.disable = True
            self._decr_instances(self)
        super().close()


def quiet_loggers(*names: str) -> None:
    """Let these loggers report errors only; a library may set its level again when imported."""
    for name in names:
        logging.getLogger(name).setLevel(logging.ERROR)


def quiet_imports() -> None:
    """Silence libraries that print while they are imported; call it before torch is imported."""
    # All tables are made of it, TRL's `log_completions` too. Its own drops five characters.
    rich.text.strip_control_codes = clean  # type: ignore[assignment]  # only called with a text
    quiet_loggers(*_AT_IMPORT)
    deepspeed = logging.getLogger("DeepSpeed")
    deepspeed.addFilter(lambda record: record.filename != "real_accelerator.py")


@contextlib.contextmanager
def tokenizers_on_all_cores() -> Iterator[None]:
    """Let tokenizers use every core for a while: where nothing forks, and others wait for it."""
    before = os.environ.get("TOKENIZERS_PARALLELISM", "false")
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    try:
        yield
    finally:
        os.environ["TOKENIZERS_PARALLELISM"] = before


def quiet_launcher() -> None:
    """Silence all loggers of a process that only starts others; call it before importing torch."""
    logging.disable(logging.ERROR)
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # stack traces of every broken connection


def quiet_harness() -> None:
    """Silence the harness's bar for building prompts, which is over at once."""
    import lm_eval.api.task

    lm_eval.api.task.tqdm = lambda items, **_: items


def hide_trackers(names: list[str]) -> None:
    """Keep trackers that are not asked for out of this process; call it before TRL is imported.

    TRL imports all that are installed: seconds, and folders in /tmp that a kill leaves behind.
    """
    for name in {"wandb", "trackio", "mlflow", "swanlab"}.difference(names):
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # None: not importable


def quiet_trackers(names: list[str]) -> None:
    """Silence W&B and trackio, which print a dozen lines for each run."""
    os.environ.setdefault("WANDB_SILENT", "true")
    if "trackio" in names:
        for name in ("trackio", "trackio.run", "trackio.utils"):
            vars(importlib.import_module(name))["print"] = lambda *args, **kwargs: None


def quiet() -> None:
    """Silence warnings, log lines and bars of the Hugging Face libraries; a stage has its own."""
    warnings.filterwarnings("ignore", category=UserWarning)
    warnings.filterwarnings("ignore", category=FutureWarning)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import datasets
    from transformers.utils import logging as hf_logging

    hf_logging.disable_progress_bar()
    datasets.disable_progress_bars()
    quiet_loggers("transformers", "huggingface_hub", "datasets", "trl", "lm_eval")
