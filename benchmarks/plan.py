"""The plan against published measurements, and the plan of every recipe.

    python -m benchmarks.plan --out docs/results/plan.md

The cases are in plan.yaml. The plan's constants are the same for all.
"""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks import table
from pipeline import strict_yaml
from pipeline.errors import run_cli
from pipeline.settings import parse, setting
from stages.preflight.inputs import load_shape
from stages.preflight.memory import Model
from stages.preflight.plan import PlanArguments, grpo_seconds, plan
from stages.preflight.roofline import DEVICES, padding, pass_seconds, update_passes

KNOWN = strict_yaml.read(Path(__file__).with_suffix(".yaml"))
RECIPES: dict[str, int] = KNOWN["recipes"]  # and their GPUs
HOW = """\
`make plan` estimates below every published step time. Take its hours as a lower end, and double
them for completions of many thousand tokens. This table has published times beside the plan's
(`python -m benchmarks.plan`)."""
CASES_HOW = """\
The cases were written down before the plan had been run on any of them. The plan was not changed
afterwards, so these are first looks. The sources leave open how lengths are distributed. For
JustRL the mean length is assumed, and its evaluation and checkpoints are in the 15 days."""
RECIPES_HOW = """\
`make plan RECIPE=…` on H100s of 80 GB, without built data. It takes the published sizes of the
sets, prompts of 150 tokens, SFT rows of 417 tokens, and completions of 0.3 of their limit. Nothing
was run. For `perplexity` and `perplexity-mixed` it counts one trace a problem at most, and not the
teacher's host. For `perplexity-gsm8k` it counts one combination."""


@dataclass
class BenchArguments:
    """Keys of the command line."""

    out: str = field(default="docs/results/plan.md", metadata={"help": "the page to write"})
    gpu: str = setting("h100", "the GPU of the recipes' table")


def planned(case: dict[str, Any]) -> float:
    """Seconds of a case's step by the plan."""
    values = SimpleNamespace(
        use_vllm=True, vllm_mode="server", vllm_tensor_parallel_size=case["parallel"],
        vllm_importance_sampling_correction=True, max_completion_length=case["longest"],
        per_device_train_batch_size=1, gradient_accumulation_steps=1, num_iterations=1,
        steps_per_generation=case["updates"], generation_batch_size=None, use_peft=False,
        gradient_checkpointing=case["checkpointing"], beta=case["beta"], update_tokens=1,
    )  # fmt: skip
    gpu = DEVICES[case["gpus"].split()[-1]]
    shape = case["shape"] if isinstance(case["shape"], dict) else load_shape(case["shape"])
    lengths = case["prompt"], case["mean"]
    return grpo_seconds(Model(shape), gpu, values, case["num"], *lengths, share=0.6)


def main() -> None:
    """Write the page."""
    (args,) = parse(__doc__, BenchArguments)
    rows = []
    for case in KNOWN["cases"]:
        seconds = planned(case)
        row = {key: case[key] for key in ("run", "gpus", "lengths", "source")}
        row |= {"measured, s": f"{case['measured']:,.0f}", "plan, s": f"{seconds:,.0f}"}
        rows.append(row | {"error": f"{seconds / case['measured'] - 1:+.0%}"})
    seven = Model(load_shape("7B"))
    seconds = pass_seconds(
        seven, DEVICES["h100-nvl"], 27_000 * 417 * 2 * padding(4), 417, update_passes(True)
    )
    rows.append(
        {
            "run": "the 7B write-up on TRL, SFT",
            "gpus": "1 x h100-nvl",
            "lengths": "27,000 x 417 x 2",
            "source": "docs/published.yaml",
            "measured, s": "about 7,200",
            "plan, s": f"{seconds:,.0f}",
            "error": f"{seconds / 7200 - 1:+.0%}",
        }
    )
    hours = []
    for name, gpus in RECIPES.items():
        launch = {"accelerate": "fsdp2"} if gpus > 1 else {}
        _, stages = plan(PlanArguments(recipe=f"configs/{name}", gpus=gpus, gpu=args.gpu, **launch))
        each = {stage.name: f"{stage.seconds / 3600:,.1f}" for stage in stages}
        total = sum(stage.seconds for stage in stages) / 3600
        row = {"recipe": f"`{name}`", "GPUs": str(gpus)}
        row |= {key: each.get(key, "") for key in ("sft", "difficulty", "grpo", "eval")}
        hours.append(row | {"hours": f"{total:,.1f}", "GPU-hours": f"{total * gpus:,.0f}"})
    notes = f"## Hours of every recipe\n\n{RECIPES_HOW}\n\n{table.markdown(hours)}"
    figures = {"about": table.about(), "cases": rows, "recipes": hours}
    table.publish(args.out, "How good is the plan?", HOW, rows, figures, CASES_HOW, notes)


if __name__ == "__main__":
    run_cli(main)
