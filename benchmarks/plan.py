"""The plan against published measurements, and the plan of every recipe.

    python -m benchmarks.plan --out docs/results/plan.md

The cases were chosen and written down before the plan had been run on any of them, and its
constants are the same for all.
"""

from dataclasses import dataclass, field
from types import SimpleNamespace

from benchmarks import table
from pipeline.errors import run_cli
from pipeline.settings import parse, setting
from stages.preflight.inputs import load_shape
from stages.preflight.memory import Model
from stages.preflight.plan import PlanArguments, grpo_seconds, plan
from stages.preflight.roofline import DEVICES, padding, pass_seconds, update_passes

QWEN3_32B = {
    "model_type": "qwen3", "hidden_size": 5120, "intermediate_size": 25600,
    "num_hidden_layers": 64, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128,
    "vocab_size": 151936, "tie_word_embeddings": False,
}  # fmt: skip
NEMO = "NVIDIA-NeMo/RL docs/about/performance-summary.md, v0.4"
# Keys that the sources leave open are TRL's or the framework's defaults; `num` is a GPU's.
CASES = [
    {
        "run": "NeMo RL, Llama 3.1 8B, GRPO step", "source": NEMO, "gpus": "16 x h100",
        "lengths": "2,048 rows of 1,060 on average, at most 4,096", "measured": 97.7,
        "shape": load_shape("meta-llama/Llama-3.1-8B-Instruct"), "num": 128, "prompt": 150,
        "mean": 910, "longest": 4096, "updates": 4, "beta": 0.01, "checkpointing": False,
    },
    {
        "run": "NeMo RL, Qwen3-32B, GRPO step", "source": NEMO, "gpus": "32 x h100",
        "lengths": "2,048 rows of 3,206 on average, at most 4,096", "measured": 393,
        "shape": QWEN3_32B, "num": 64, "prompt": 150, "mean": 3056, "longest": 4096, "updates": 4,
        "beta": 0.01, "checkpointing": True, "parallel": 4,
    },
    {
        "run": "JustRL on verl, R1-Distill-Qwen-1.5B, GRPO step",
        "source": "arXiv:2512.16649: over 4,000 steps; a reproduction of it: 32 A800, 15 days",
        "gpus": "32 x a100",
        "lengths": "2,048 completions, at most 15,360, 0.3 of it taken as mean",
        "measured": 15 * 86400 / 4000,
        "shape": load_shape("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"), "num": 64, "prompt": 150,
        "mean": 0.3 * 15360, "longest": 15360, "updates": 4, "beta": 0.0, "checkpointing": True,
    },
]  # fmt: skip
RECIPES = {
    "grpo7b": 1, "grpo7b-published": 1, "qwen2.5-1.5b": 1, "llama3.1-8b": 1, "rlinf-1.5b": 64,
    "rlinf-7b": 64, "perplexity": 1, "perplexity-gsm8k": 1, "rlite": 8, "rlite-packing": 8,
    "justrl-1.5b": 32, "qwen3-1.7b": 1,
}  # fmt: skip


HOW = """\
`python -m benchmarks.plan`. Published step times beside those of `make plan`'s arithmetic. The
cases were written down before the plan had been run on any of them, and it was not changed
afterwards: these are first looks. What the sources leave open (how lengths are distributed;
JustRL's mean length, and its evaluation and checkpoints, which are in the 15 days) is assumed. One
measurement was corrected after the first look: JustRL's steps are "over 4,000", not 4,380, so 324 s
a step in place of 296, and the error -53 % in place of -49 %. The plan is below every measurement:
take it as a lower end; for completions of many thousand tokens double it."""
RECIPES_HOW = """\
`make plan RECIPE=…` on H100s of 80 GB, no data built: the sets' published sizes, prompts of 150
tokens, SFT rows of 417, completions of 0.3 of their limit. Nothing was run. `perplexity`: one trace
a problem at most, its teacher's host is not planned. `perplexity-gsm8k`: one combination."""


@dataclass
class BenchArguments:
    """Keys of the command line."""

    out: str = field(default="docs/results/plan.md", metadata={"help": "Markdown file to write"})
    gpu: str = setting("h100", "of the recipes' table")


def planned(case: dict) -> float:
    """Seconds of a case's step by the plan."""
    values = SimpleNamespace(
        use_vllm=True, vllm_mode="server", vllm_tensor_parallel_size=case.get("parallel", 1),
        vllm_importance_sampling_correction=True, max_completion_length=case["longest"],
        per_device_train_batch_size=1, gradient_accumulation_steps=1, num_iterations=1,
        steps_per_generation=case["updates"], generation_batch_size=None, use_peft=False,
        gradient_checkpointing=case["checkpointing"], beta=case["beta"], update_tokens=1,
    )  # fmt: skip
    gpu = DEVICES[case["gpus"].split()[-1]]
    lengths = case["prompt"], case["mean"]
    return grpo_seconds(Model(case["shape"]), gpu, values, case["num"], *lengths, share=0.6)


def main() -> None:
    """Write the page."""
    (args,) = parse(__doc__, BenchArguments)
    rows = []
    for case in CASES:
        seconds = planned(case)
        row = {key: case[key] for key in ("run", "gpus", "lengths", "source")}
        row |= {"measured, s": f"{case['measured']:,.0f}", "plan, s": f"{seconds:,.0f}"}
        rows.append(row | {"error": f"{seconds / case['measured'] - 1:+.0%}"})
    seven = Model(load_shape("7B"))
    seconds = pass_seconds(
        seven, DEVICES["h100-nvl"], 27_000 * 417 * 2 * padding(4), 417, update_passes(True)
    )
    rows.append({
        "run": "the 7B write-up on TRL, SFT", "gpus": "1 x h100-nvl", "lengths": "27,000 x 417 x 2",
        "source": "docs/published.yaml", "measured, s": "about 7,200", "plan, s": f"{seconds:,.0f}",
        "error": f"{seconds / 7200 - 1:+.0%}",
    })  # fmt: skip
    hours = []
    for name, gpus in RECIPES.items():
        launch = {"accelerate": "fsdp2"} if gpus > 1 else {}
        _, stages = plan(PlanArguments(recipe=f"configs/{name}", gpus=gpus, gpu=args.gpu, **launch))
        each = {stage.name: f"{stage.seconds / 3600:,.1f}" for stage in stages}
        total = sum(stage.seconds for stage in stages) / 3600
        row = {"recipe": f"`{name}`", "GPUs": str(gpus)}
        row |= {key: each.get(key, "") for key in ("sft", "difficulty", "grpo", "eval")}
        hours.append(row | {"hours": f"{total:,.1f}", "GPU-hours": f"{total * gpus:,.0f}"})
    notes = f"## Every recipe, hours\n\n{RECIPES_HOW}\n\n{table.markdown(hours)}"
    figures = {"about": table.about(), "cases": rows, "recipes": hours}
    table.publish(args.out, "The plan against measurements", HOW, rows, figures, notes)


if __name__ == "__main__":
    run_cli(main)
