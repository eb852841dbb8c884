"""Which functions of this project ask the device in a training step, and so wait for it.

    python -m benchmarks.host_waits --out runs/waits.md --num_groups 4 --grpo_batch_size 8

While the host waits for an answer, the GPU gets no further work. Rollouts are given, as in
`benchmarks.throughput`, whose keys these are. On a GPU torch reports each wait. A CPU has none, so
the calls that would wait are counted. TRL asks several times a micro-batch for its own log.
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
from benchmarks.table import about, publish, wrap
from benchmarks.throughput import BenchArguments
from benchmarks.throughput_runs import (
    Rollouts,
    build_grpo,
    build_tokenizer,
    draw_groups,
    save_model,
)
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
HOW = """One GRPO step of the shape {shape} in {num_batches} micro-batches on {device}: {what}, by
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
def gpu_waits(mode: str) -> Iterator[Counter[str]]:
    """Counts the waits for a GPU in the block; with the mode "error" the first one raises."""
    counts: Counter[str] = Counter()

    def count(message: Any, *_: Any, **__: Any) -> None:
        if "called a synchronizing" in str(message):
            counts[who_asks()] += 1

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = count
        torch.cuda.set_sync_debug_mode(mode)
        try:
            yield counts
        finally:
            torch.cuda.set_sync_debug_mode("default")


class CountWaits(TrainerCallback):
    """The waits of a training from its first step to the end of its last, `counts`."""

    counts: Counter[str]

    def __init__(self) -> None:
        self._around = ExitStack()

    def on_step_begin(self, args, state, control, **kwargs):
        if torch.cuda.is_available():
            self.counts = self._around.enter_context(gpu_waits("warn"))
        else:
            self.counts = self._around.enter_context(Questions()).counts

    def on_step_end(self, args, state, control, **kwargs):
        self._around.close()


def run_passes(trainer: Any) -> None:
    """The model over the first micro-batch's passes, without TRL: here nothing may wait.

    Raises:
        RuntimeError: something does.
    """
    batch, (rows, passes) = trainer._buffered_inputs[0], trainer._planned[0]
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    num_prompt = batch["prompt_ids"].size(1)
    is_gpu = ids.device.type == "cuda"
    questions = Questions()
    with gpu_waits("error") if is_gpu else questions, trainer.accelerator.autocast():
        for members, _ in passes:
            pieces = cut(rows, members, trainer._shares_prompts)
            inputs = Layout(pieces, rows, ids.size(1), num_prompt, True).inputs(ids, ids)
            del inputs["labels"]
            trainer.model.base_model(**inputs, use_cache=False)
    if questions.counts:
        raise RuntimeError(f"a pass waits in {', '.join(questions.counts)}")


def main() -> None:
    """Train one step, run its passes alone, and write who waits."""
    (args,) = parse(__doc__ or "", BenchArguments)
    quiet()
    tokenizer = build_tokenizer()
    rollouts = Rollouts(draw_groups(args.num_groups, args.num_generations, 0.0, 0), tokenizer, 0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_model(args.shape, folder / "model", tokenizer, args.dtype)
        trainer, found = build_grpo("ours", args, folder, rollouts), CountWaits()
        trainer.add_callback(found)
        trainer.train()
    wait = ""
    try:
        run_passes(trainer)
    except RuntimeError as error:
        wait = " ".join(str(error).split())
    is_gpu = torch.cuda.is_available()
    counts = dict(found.counts.most_common())
    how = HOW.format(
        shape=args.shape,
        num_batches=trainer.args.gradient_accumulation_steps,
        device=torch.cuda.get_device_name() if is_gpu else "a CPU",
        what="waits for the GPU" if is_gpu else "calls that would wait for a GPU",
    )
    rows = [{"function": name, "waits": str(number)} for name, number in counts.items()]
    figures = {"about": about(), "waits": counts, "alone": wait}
    publish(args.out, "Waits for the device", wrap(how), rows, figures)


if __name__ == "__main__":
    run_cli(main)
