"""Which functions of this project ask the device in a training step, and so wait for it.

    python -m benchmarks.host_waits --out runs/waits.md --num_groups 4 --grpo_batch_size 8

While the host waits for an answer, the GPU gets no further work. Rollouts are given, as in
`benchmarks.throughput`, whose keys these are. On a GPU torch reports each wait. A CPU has none, so
the calls that would wait are counted. TRL asks several times a micro-batch for its own log. The
model's passes are run alone, too: there nothing may wait.
"""

import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from transformers import TrainerCallback

from benchmarks.gpu_verdicts import OTHERS
from benchmarks.table import publish, wrap
from benchmarks.throughput import BenchArguments
from benchmarks.throughput_runs import (
    Rollouts,
    build_grpo,
    build_tokenizer,
    draw_groups,
    save_model,
)
from data_prep.sampling.fastest import device_name
from pipeline.console import quiet
from pipeline.errors import run_cli
from pipeline.settings import parse
from pipeline.stages import ROOT
from stages.trainer.update import Layout, cut

ON_HOST = {"by_row", "by_varlen", "window_or_mask"}
ASKS = {
    getattr(torch.Tensor, name)
    for name in (
        "item", "tolist", "cpu", "numpy", "nonzero", "unique", "masked_select", "__bool__",
        "__int__", "__float__", "__index__", "__array__", "__contains__",
    )
} | {torch.nonzero, torch.unique, torch.masked_select, torch.equal, torch.allclose}  # fmt: skip
SENDS = {torch.tensor, torch.as_tensor, torch.Tensor.new_tensor}  # a list, to a device that waits
HOW = """One GRPO step of the shape {shape} in {num_batches} micro-batches on {device}, and the
model's passes over the first of them alone: waits for the GPU, or calls that would wait for one, by
the function that asks."""


def who_asks() -> str:
    """The innermost function outside of torch if it is this project's, else `OTHERS`."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if "/torch/" not in file and not file.endswith((__file__, "warnings.py")):
            is_ours = Path(file).is_relative_to(ROOT) and "site-packages" not in file
            return frame.f_code.co_qualname if is_ours else OTHERS
        frame = frame.f_back
    return OTHERS


class Questions(TorchFunctionMode):
    """Counts calls that would wait for a GPU, `counts`, by `who_asks`; on any device.

    Args:
        on_host: names of functions whose tensors lie on the host.
    """

    def __init__(self, on_host: Collection[str] = ON_HOST) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self._on_host = on_host

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if self.asks(func, args, kwargs or {}) and (name := who_asks()) not in self._on_host:
            self.counts[name] += 1
        return func(*args, **(kwargs or {}))

    @staticmethod
    def asks(func: Any, args: Any, kwargs: dict[str, Any]) -> bool:
        """Whether a call of a function of torch would wait."""
        if func in SENDS:
            return func is torch.Tensor.new_tensor or kwargs.get("device") is not None
        if func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__):
            places = args[1] if isinstance(args[1], tuple) else (args[1],)
            return any(isinstance(x, torch.Tensor) and x.dtype == torch.bool for x in places)
        return func in ASKS or (func is torch.where and len(args) == 1)


@contextmanager
def gpu_waits() -> Iterator[Counter[str]]:
    """Counts the waits for a GPU in the block, by `who_asks`."""
    counts: Counter[str] = Counter()

    def count(message: Any, *_: Any, **__: Any) -> None:
        if "called a synchronizing" in str(message):
            counts[who_asks()] += 1

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = count
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield counts
        finally:
            torch.cuda.set_sync_debug_mode("default")


@contextmanager
def waits() -> Iterator[Counter[str]]:
    """Counts the waits in the block; on a CPU the calls that would wait."""
    if torch.cuda.is_available():
        with gpu_waits() as counts:
            yield counts
    else:
        with Questions() as questions:
            yield questions.counts


class CountWaits(TrainerCallback):
    """The waits of a training of one step, `counts`."""

    counts: Counter[str]

    def __init__(self) -> None:
        self._around = ExitStack()

    def on_step_begin(self, args, state, control, **kwargs):
        self.counts = self._around.enter_context(waits())

    def on_step_end(self, args, state, control, **kwargs):
        self._around.close()


def run_passes(trainer: Any) -> Counter[str]:
    """The waits of the model alone, over the first micro-batch's passes and without TRL."""
    batch, (rows, passes) = trainer._buffered_inputs[0], trainer._planned[0]
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    num_prompt = batch["prompt_ids"].size(1)
    with waits() as counts, trainer.accelerator.autocast():
        for members, _ in passes:
            pieces = cut(rows, members, trainer._shares_prompts)
            inputs = Layout(pieces, rows, ids.size(1), num_prompt, True).inputs(ids, ids)
            del inputs["labels"]
            trainer.model.base_model(**inputs, use_cache=False)
    return counts


def main() -> None:
    """Train one step, run its passes alone, and write who waits."""
    (args,) = parse(__doc__ or "", BenchArguments)
    quiet()
    tokenizer = build_tokenizer()
    rollouts = Rollouts(draw_groups(args.num_groups, args.num_generations, 0.0, 0), tokenizer)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_model(args.shape, folder / "model", tokenizer, args.dtype)
        trainer, found = build_grpo("ours", args, folder, rollouts), CountWaits()
        trainer.add_callback(found)
        trainer.train()
    alone = run_passes(trainer)
    how = HOW.format(
        shape=args.shape,
        num_batches=trainer.args.gradient_accumulation_steps,
        device=device_name(trainer.accelerator.device),
    )
    rows = [
        {"function": name, "step": str(found.counts[name]), "passes alone": str(alone[name])}
        for name in found.counts | alone
    ]
    figures = {"waits": dict(found.counts), "alone": dict(alone)}
    publish(args.out, "Waits for the device", wrap(how), rows, figures)


if __name__ == "__main__":
    run_cli(main)
