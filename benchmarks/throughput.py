"""Throughput of SFT and GRPO beside stock TRL, with random weights of a named shape.

    make bench                     the tiny shape
    make bench SHAPE=0.5B ARGS="--bf16 true --num_groups 8 ..."

Needs no network, no weights and no data: lengths are those of GSM8K and NuminaMath-CoT, kept in
`length_mix.json`; tokens are random. Tokens per second count real tokens, never padding. Ratios
are between trainers that took turns in this run, and only where their losses and gradients agree.
Each run adds its shape's figures to the page's JSON, from which the page is written.
"""

import os
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from data_prep import manifest
from data_prep.config import UserError, parse, run_cli
from stages.preflight.model_shapes import load_shape

PARTS = ("sft", "update", "uniform", "step")
VARIANTS = ("trimmed", "sorted", "nothing skipped", "ours")


@dataclass
class ThroughputArguments:
    """Keys of the command line; there is no YAML for this one."""

    out: str = field(metadata={"help": "page to write; figures are kept in .json beside it"})
    shape: str = field(default="tiny", metadata={"help": "tiny, 0.5B, 1.5B, 7B, or a checkpoint"})
    parts: list[str] = field(
        default_factory=lambda: list(PARTS), metadata={"help": f"any of {', '.join(PARTS)}"}
    )
    variants: list[str] = field(
        default_factory=lambda: list(VARIANTS),
        metadata={"help": f"beside stock in the GRPO parts, any of {', '.join(VARIANTS)}"},
    )
    dtype: str = field(default="float32", metadata={"help": "of the weights: float32, bfloat16"})
    bf16: bool = field(default=False, metadata={"help": "bfloat16 autocast, as the recipes' key"})
    attn_implementation: str = field(default="sdpa", metadata={"help": "as the recipes' key"})
    gradient_checkpointing: bool = field(default=True, metadata={"help": "as the recipes' key"})
    num_turns: int = field(default=10, metadata={"help": "turns of each trainer: SFT, update"})
    num_step_turns: int = field(default=5, metadata={"help": "turns of whole GRPO steps"})
    num_groups: int = field(default=16, metadata={"help": "groups in a generation batch"})
    num_generations: int = field(default=8, metadata={"help": "rollouts in a group"})
    grpo_batch_size: int = field(default=16, metadata={"help": "rollouts in a micro-batch"})
    update_tokens: int = field(default=2048, metadata={"help": "as the recipes' key"})
    beta: float = field(default=0.0, metadata={"help": "KL weight; not 0 takes a reference model"})
    sft_rows: int = field(default=64, metadata={"help": "rows of a pass"})
    sft_rows_per_step: int = field(default=32, metadata={"help": "rows of an optimizer step"})
    sft_batch_size: int = field(default=8, metadata={"help": "rows of a padded micro-batch"})
    sft_max_length: int = field(default=1024, metadata={"help": "longest row, tokens"})
    packed_lengths: list[int] = field(
        default_factory=lambda: [1024, 2048], metadata={"help": "lengths of a packed row, tokens"}
    )

    def __post_init__(self) -> None:
        load_shape(self.shape)
        for key, known in (("parts", PARTS), ("variants", VARIANTS)):
            if unknown := [name for name in getattr(self, key) if name not in known]:
                raise ValueError(f"{key}: {unknown[0]!r} is none of {', '.join(known)}")
        if self.dtype not in ("float32", "bfloat16"):
            raise ValueError(f"dtype: {self.dtype!r} is none of float32, bfloat16")
        if self.num_turns < 2 or self.num_step_turns < 2:
            raise ValueError("num_turns, num_step_turns: one turn has no interval; use 2 or more")
        if self.num_groups * self.num_generations % self.grpo_batch_size:
            raise ValueError(
                f"grpo_batch_size: {self.grpo_batch_size} does not divide the "
                f"{self.num_groups} x {self.num_generations} rollouts"
            )
        if self.num_generations < 2:
            raise ValueError(f"num_generations: {self.num_generations} is below 2")
        if self.sft_rows % self.sft_rows_per_step or self.sft_rows_per_step % self.sft_batch_size:
            raise ValueError(
                f"sft_batch_size: {self.sft_batch_size} must divide sft_rows_per_step, "
                f"{self.sft_rows_per_step}, and that sft_rows, {self.sft_rows}"
            )
        if min(self.packed_lengths, default=self.sft_max_length) < self.sft_max_length:
            raise ValueError(
                f"packed_lengths: {min(self.packed_lengths)} would cut rows of "
                f"sft_max_length: {self.sft_max_length}"
            )

    @property
    def precision(self) -> str:
        """What matrices are multiplied in."""
        return "bfloat16" if self.bf16 else self.dtype

    def training(self) -> dict[str, Any]:
        """What both stages' configs have in common."""
        import torch

        return {
            "use_cpu": not torch.cuda.is_available(),
            "bf16": self.bf16,
            "gradient_checkpointing": self.gradient_checkpointing,
            "model_init_kwargs": {
                "dtype": self.dtype,
                "attn_implementation": self.attn_implementation,
            },
            "learning_rate": 1e-6,
            "logging_steps": 1,
            "save_strategy": "no",
            "report_to": "none",
            "disable_tqdm": True,
            "dataloader_pin_memory": False,
            "seed": 0,
        }


def device() -> dict[str, Any]:
    """Name of the device, and its peak in FLOP/s by precision, measured where no table has it."""
    import torch

    from stages.preflight import flops

    if torch.cuda.is_available():
        name = torch.cuda.get_device_name()
        return {"name": name, "peak": {"bfloat16": flops.peak_flops(name, "bfloat16")}}
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = (line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    name = next(names, "CPU")  # ARM's has none
    kinds = ("float32", "bfloat16")
    peak = {kind: flops.measured_peak(getattr(torch, kind)) for kind in kinds}
    return {"name": f"one core of {name}", "peak": peak}


def run_parts(args: ThroughputArguments, folder: Path) -> dict[str, Any]:
    """Measure the parts that are asked for, each as `rows`, `runs` and `difference`."""
    from benchmarks import bench_throughput_grpo as grpo
    from benchmarks import bench_throughput_sft as sft
    from benchmarks.bench_throughput_workload import build_tokenizer, save_model

    tokenizer = build_tokenizer()
    save_model(args.shape, folder / "model", tokenizer, args.dtype)
    found = {}
    if "sft" in args.parts:
        found["sft"] = sft.measure(args, folder, tokenizer)
    for part in ("update", "uniform", "step"):
        if part in args.parts:
            found[part] = grpo.measure(part, args, folder, tokenizer)
    return found


def main() -> None:
    """Warm up, measure, add to the figures, write the page."""
    (args,) = parse(__doc__, ThroughputArguments)
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"  # rollout_func
    if not Path(args.out).parent.is_dir():
        raise UserError(f"out: {Path(args.out).parent} is no folder")

    import torch

    from benchmarks.bench_throughput_page import add_figures, write_page
    from stages import run
    from stages.preflight.model_shapes import build_config

    torch.set_num_threads(1)  # the process's time is that of all threads, also of waiting ones
    run.quiet()
    where = device()
    small = asdict(args) | {
        "shape": "tiny", "num_turns": 1, "num_step_turns": 1, "num_groups": 1,
        "grpo_batch_size": args.num_generations, "sft_rows": args.sft_rows_per_step,
    }  # fmt: skip
    warm_up = object.__new__(ThroughputArguments)  # one turn is enough here
    vars(warm_up).update(small)
    with tempfile.TemporaryDirectory() as folder:
        run_parts(warm_up, Path(folder))  # caches and lazy imports
    with tempfile.TemporaryDirectory() as folder:
        found = run_parts(args, Path(folder))
    about = {
        "device": where, "arguments": asdict(args), "versions": manifest.versions(),
        "commit": manifest.git_commit(), "precision": args.precision,
    }  # fmt: skip
    figures = add_figures(Path(args.out), about, found, build_config(load_shape(args.shape)))
    run.say(write_page(Path(args.out), figures))


if __name__ == "__main__":
    run_cli(main)
