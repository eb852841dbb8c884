"""One training run of the throughput benchmark, with a clock on each part of its steps.

On a GPU a part's time is the wall clock's, read when the device has finished. On a CPU it is the
process's own time on one thread, which other load on the machine hardly touches.
"""

import gc
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback
from transformers.trainer_callback import PrinterCallback, ProgressCallback

GRPO_PARTS = {  # method of TRL's trainer -> part of a step
    "_generate": "generate",
    "_calculate_rewards": "reward",
    "_get_per_token_logps_and_entropies": "log-probs",
    "_prepare_inputs": "inputs",
}


def now() -> float:
    """Seconds: see the module's docstring."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


@contextmanager
def peak_memory(found: dict[str, float]) -> Iterator[None]:
    """Put the highest memory within the block into `found["bytes"]`.

    Of a GPU what torch allocated; of a CPU the resident set of the process, whose mark Linux
    forgets where `/proc/self/clear_refs` can be written, and else since the process began.
    """
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        yield
        found["bytes"] = torch.cuda.max_memory_allocated()
        return
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    yield
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    found["bytes"] = int(line.split()[1]) * 1024


class StepClock(TrainerCallback):
    """Seconds of each part of a trainer's steps, and the loss and gradient norm of each step.

    Args:
        trainer: whose methods are timed; `seconds["step"]` is from the first minibatch of an
            optimizer step to behind the optimizer.
        parts: method -> name.
    """

    def __init__(self, trainer: Any, parts: dict[str, str]) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.losses: list[float] = []
        self._started = 0.0
        for method, part in parts.items():
            setattr(trainer, method, self._timed(getattr(trainer, method), part))
        self._whole_step = trainer.training_step
        trainer.training_step = self._training_step
        for callback in (ProgressCallback, PrinterCallback):
            trainer.remove_callback(callback)
        trainer.add_callback(self)

    def _timed(self, method: Callable[..., Any], part: str) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            # The update's own forward pass is no pass for log-probs.
            if part == "log-probs" and torch.is_grad_enabled():
                return method(*args, **kwargs)
            started = now()
            try:
                return method(*args, **kwargs)
            finally:
                self.seconds[part] += now() - started

        return timed

    def _training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        loss = self._whole_step(*args, **kwargs)
        self.losses[-1] += float(loss.detach())
        return loss

    def on_step_begin(self, args, state, control, **kwargs):
        self.losses.append(0.0)
        self._started = now()

    def on_step_end(self, args, state, control, **kwargs):
        self.seconds["step"] += now() - self._started


def train(trainer: Any, parts: dict[str, str]) -> dict[str, Any]:
    """Train to the end.

    Returns:
        `seconds` of the parts and of all steps, `losses` and `grad_norms` of the optimizer steps,
        `memory` in bytes.
    """
    clock = StepClock(trainer, parts)
    memory: dict[str, float] = {}
    with peak_memory(memory):
        trainer.train()
    logs = trainer.state.log_history
    return {
        "seconds": dict(clock.seconds),
        "losses": clock.losses,
        "grad_norms": [float(log["grad_norm"]) for log in logs if "grad_norm" in log],
        "memory": memory["bytes"],
    }


def take_turns(
    kinds: dict[str, Any],
    run: Callable[[Any, int], dict[str, Any]],
    num_turns: int,
    check: Callable[[dict[str, dict[str, Any]]], float],
) -> tuple[dict[str, list[dict[str, Any]]], float]:
    """Runs of each kind, one a turn, and the greatest difference that `check` found.

    Args:
        run: of a kind and a turn's number -> what was found.
        check: compares the runs of a turn and raises where they must not be compared.
    """
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in kinds}
    greatest, names = 0.0, list(kinds)
    for turn in range(num_turns):
        shift = turn % len(names)  # none is always first
        this = {}
        for name in names[shift:] + names[:shift]:
            gc.collect()  # the last trainer, before the next one is loaded
            this[name] = run(kinds[name], turn)
        greatest = max(greatest, check(this))
        for name, found in this.items():
            runs[name].append(found)
    return runs, greatest


def split_step(seconds: dict[str, float]) -> dict[str, float]:
    """Parts of the time of GRPO steps that add up to it.

    The update is forward, backward and optimizer; `other` is what TRL and we do besides: padding,
    sorting, advantages, metrics.
    """
    parts = {name: seconds.get(name, 0.0) for name in ("generate", "reward", "log-probs")}
    parts["update"] = seconds["step"] - seconds["inputs"]
    parts["other"] = seconds["inputs"] - parts["generate"] - parts["reward"] - parts["log-probs"]
    return parts
