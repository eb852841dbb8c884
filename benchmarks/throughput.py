"""Throughput of SFT and GRPO against stock TRL, with random weights of a named shape.

    make bench                     the tiny shape
    make bench SHAPE=0.5B ARGS="--bf16 true --num_groups 8 ..."

Needs no network, no weights and no data: lengths are those of GSM8K and NuminaMath-CoT, kept in
`length_mix.json`; tokens are random. Tokens per second count real tokens, never padding. Ratios
are between trainers that took turns in this run, and only where their losses and gradients agree.
Where torch has `varlen_attn`, our update is measured without it, too ("by row").
"""

import os
import tempfile
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from benchmarks.table import publish, ratio_interval, show_interval, wrap
from pipeline.console import quiet
from pipeline.errors import run_cli
from pipeline.settings import parse, setting
from pipeline.values import Count, OneOf
from stages.preflight.inputs import load_shape

PARTS = {
    "sft": "SFT, with packed rows and with padded ones",
    "update": "GRPO, the update on given rollouts",
    "uniform": "GRPO, the same where 63 % of the groups have zero variance",
}
HOW = """`make bench` (`SHAPE=…`) measured the shape {shape} on {device}, in {precision}. Weights
and tokens are random. Lengths are real: GSM8K's for GRPO, and for SFT those of GSM8K and
NuminaMath-CoT as the 7B recipe mixes them. "Stock" is TRL's own trainer."""
MEANING = """{parts}
- Tokens are those of prompts and completions, never padding.
- Speed is the ratio to the first trainer, geometric mean [95 % interval] over the turns. The
  trainers take turns in one process. On a CPU time is the process's own.
- Peak memory is a GPU's."""


@dataclass
class BenchArguments:
    """Keys of the command line, or of a YAML file."""

    out: str = field(metadata={"help": "the page to write"})
    shape: str = setting("tiny", "tiny, 0.5B, 1.5B, 7B, or a checkpoint")
    parts: list[Annotated[str, OneOf(tuple(PARTS))]] = setting(
        [*PARTS], f"any of {', '.join(PARTS)}"
    )
    dtype: Literal["float32", "bfloat16"] = setting("float32", "of the weights")
    bf16: bool = setting(False, "bfloat16 autocast, as the recipes' key")
    gradient_checkpointing: bool = setting(True, "as the recipes' key")
    num_turns: int = setting(10, "turns of each trainer")
    num_groups: int = setting(16, "groups in a generation batch")
    num_generations: int = setting(8, "rollouts in a group")
    grpo_batch_size: int = setting(16, "rollouts in a micro-batch")
    update_tokens: Count | Literal["auto"] = setting("auto", "of our update, as the recipes' key")
    beta: float = setting(0.0, "KL weight; not 0 takes a reference model")
    sft_rows: int = setting(64, "rows of a pass")
    sft_rows_per_step: int = setting(32, "rows of an optimizer step")
    sft_batch_size: int = setting(8, "rows of a padded micro-batch")
    sft_max_length: int = setting(1024, "longest row, tokens")
    packed_lengths: list[int] = setting([1024, 2048], "lengths of a packed row, tokens")

    def __post_init__(self) -> None:
        load_shape(self.shape)

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
            "model_init_kwargs": {"dtype": self.dtype},
            "learning_rate": 1e-6, "logging_steps": 1, "save_strategy": "no", "report_to": "none",
            "disable_tqdm": True, "dataloader_pin_memory": False, "seed": 0,
        }  # fmt: skip


def run_parts(args: BenchArguments) -> dict[str, Any]:
    """Measure the parts that are asked for, each as `tokens`, `runs` and `difference`."""
    from benchmarks.throughput_runs import build_tokenizer, measure_grpo, measure_sft, save_model

    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder, tokenizer = Path(name), build_tokenizer()
        save_model(args.shape, folder / "model", tokenizer, args.dtype)
        for part in args.parts:
            if part == "sft":
                found[part] = measure_sft(args, folder, tokenizer)
            else:
                found[part] = measure_grpo(part, args, folder, tokenizer)
    return found


def summarise(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Figures of a part by trainer."""
    first = [run["seconds"] for run in next(iter(found["runs"].values()))]
    figures = {}
    for name, runs in found["runs"].items():
        seconds = [run["seconds"] for run in runs]
        figures[name] = {
            "attention": runs[0]["attention"],
            "tokens_per_second": found["tokens"] / sum(seconds),
            "seconds": sum(seconds) / len(seconds),
            "memory": max((run["memory"] for run in runs if run["memory"]), default=None),
            "ratio": ratio_interval([a / b for a, b in zip(first, seconds, strict=True)]),
        }
    return figures


def render(found: dict[str, dict[str, dict[str, Any]]]) -> list[dict[str, str]]:
    """A row of the table for each trainer of each part."""
    return [
        {
            "part": part,
            "trainer": name,
            "attention": figures["attention"],
            "tokens/s": f"{figures['tokens_per_second']:,.0f}",
            "seconds": f"{figures['seconds']:.2f}",
            "peak GB": "" if figures["memory"] is None else f"{figures['memory'] / 1e9:.2f}",
            "speed": show_interval(figures["ratio"]),
        }
        for part, trainers in found.items()
        for name, figures in trainers.items()
    ]


def main() -> None:
    """Warm up, measure, write the table."""
    (args,) = parse(__doc__, BenchArguments)
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"  # rollout_func

    import torch

    torch.set_num_threads(1)  # the process's time is that of all threads, also of waiting ones
    quiet()
    warm_up = {
        "shape": "tiny",
        "num_turns": 1,
        "num_groups": 1,
        "grpo_batch_size": args.num_generations,
        "sft_rows": args.sft_rows_per_step,
    }
    run_parts(replace(args, **warm_up))  # caches and lazy imports
    measured = run_parts(args)
    figures = {part: summarise(found) for part, found in measured.items()}
    parts = "\n".join(f"- `{name}`: {text}." for name, text in PARTS.items())
    has_gpu = torch.cuda.is_available()
    device = torch.cuda.get_device_name() if has_gpu else "one CPU core"
    how = HOW.format(shape=args.shape, device=device, precision=args.precision)
    data = {
        "arguments": asdict(args),
        "figures": figures,
        "differences": {part: found["difference"] for part, found in measured.items()},
    }
    title, meaning = "Throughput against stock TRL", MEANING.format(parts=parts)
    publish(args.out, title, wrap(how), render(figures), data, meaning)


if __name__ == "__main__":
    run_cli(main)
