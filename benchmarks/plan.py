"""The plan against published measurements, and the plan of every recipe.

    python -m benchmarks.plan --out docs/results/plan.md

The cases are in plan.yaml. The plan's constants are the same for all.
"""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks import table
from pipeline import strict_yaml
from pipeline.errors import run_cli
from pipeline.settings import parse, setting
from stages.preflight.inputs import load_shape
from stages.preflight.plan import PlanArguments, grpo_seconds, plan
from stages.preflight.roofline import (
    DEVICES,
    HIGH,
    LOW,
    padding,
    pass_seconds,
    read_model,
    update_passes,
)

KNOWN = strict_yaml.read(Path(__file__).with_suffix(".yaml"))
RECIPES: dict[str, int] = KNOWN["recipes"]  # and their GPUs
HOW = """\
`make plan` shows hours, and a range from {low} to {high} times as many. The constants of
`stages/preflight/roofline.py` were chosen on the runs marked "fit". The two marked "held out" were
named before that. `python -m benchmarks.plan` computes this page."""
CASES_HOW = """\
Seconds are of a GRPO step and of its phases, measured beside planned: generation, the log-probs
before the update and of the reference, and the update. Lengths are tokens. For JustRL the mean
length is assumed, and its evaluation and checkpoints are in the measured time."""
TRAINING_HOW = "Tokens a second and GPU."
RECIPES_HOW = """\
`make plan RECIPE=…` on H100s of 80 GB, without built data: published sizes of the sets, prompts of
150 tokens, SFT rows of 417, completions of 0.3 of their limit. Nothing was run. `perplexity` and
`perplexity-mixed` have one trace a problem and no teacher's host, `perplexity-gsm8k` has one
combination."""


@dataclass
class BenchArguments:
    """Keys of the command line."""

    out: str = setting("docs/results/plan.md", "the page to write")
    gpu: str = setting("h100", "the GPU of the recipes' table")


def planned(case: dict[str, Any]) -> dict[str, float]:
    """Seconds of the phases of a case's step by the plan."""
    values = SimpleNamespace(
        use_vllm=True, vllm_mode="server", vllm_tensor_parallel_size=case["parallel"],
        vllm_max_model_length=None, max_prompt_length=case["prompt"],
        vllm_importance_sampling_correction=True, max_completion_length=case["longest"],
        per_device_train_batch_size=case["num"], gradient_accumulation_steps=1, num_iterations=1,
        steps_per_generation=case["updates"], generation_batch_size=None,
        use_peft=case.get("lora", False), gradient_checkpointing=case["checkpointing"],
        beta=case["beta"], update_tokens="auto",
    )  # fmt: skip
    gpu = DEVICES[case["gpus"].split()[-1]]
    lengths = case["prompt"], case["mean"], case["longest"]
    return grpo_seconds(read_model(shape_of(case)), gpu, values, case["num"], *lengths, share=0.6)


def shape_of(case: dict[str, Any]) -> dict[str, Any]:
    """The config of a case's model."""
    return case["shape"] if isinstance(case["shape"], dict) else load_shape(case["shape"])


def step_row(case: dict[str, Any]) -> dict[str, str]:
    """A case's step, measured and planned."""
    phases = planned(case)
    pairs = {"step": (case["measured"], sum(phases.values()))}
    pairs |= {name: (seconds, phases[name]) for name, seconds in case.get("parts", {}).items()}
    row = {key: case[key] for key in ("run", "use", "gpus", "lengths", "source")}
    for name, (measured, plan_seconds) in pairs.items():
        row[f"{name}, s"] = f"{measured:,.0f} / {plan_seconds:,.0f}"
        if name == "step":
            row["error"] = f"{plan_seconds / measured - 1:+.0%}"
    return row


def training_row(case: dict[str, Any]) -> dict[str, str]:
    """The tokens a second of training alone, measured and planned."""
    passes = update_passes(case["checkpointing"])
    model, gpu, length = read_model(shape_of(case)), DEVICES[case["gpu"]], case["length"]
    seconds = pass_seconds(model, gpu, padding(case.get("rows", 1)), length, passes)
    row = {key: case[key] for key in ("run", "gpu", "source")}
    row |= {"measured": f"{case['measured']:,}", "plan": f"{1 / seconds:,.0f}"}
    return row | {"error": f"{1 / seconds / case['measured'] - 1:+.0%}"}


def main() -> None:
    """Write the page."""
    (args,) = parse(__doc__, BenchArguments)
    rows = [step_row(case) for case in KNOWN["cases"]]
    training = [training_row(case) for case in KNOWN["training"]]
    hours = []
    for name, gpus in RECIPES.items():
        launch = "fsdp2" if gpus > 1 else None
        asked = PlanArguments(recipe=f"configs/{name}", gpus=gpus, gpu=args.gpu, accelerate=launch)
        _, stages = plan(asked)
        each = {stage.name: f"{stage.seconds / 3600:,.1f}" for stage in stages}
        total = sum(stage.seconds for stage in stages) / 3600
        row = {"recipe": f"`{name}`", "GPUs": str(gpus)}
        row |= {key: each.get(key, "") for key in ("sft", "difficulty", "grpo", "eval")}
        hours.append(row | {"hours": f"{total:,.1f}", "GPU-hours": f"{total * gpus:,.0f}"})
    notes = f"## Training alone\n\n{TRAINING_HOW}\n\n{table.markdown(training)}\n\n"
    notes += f"## Hours of every recipe\n\n{RECIPES_HOW}\n\n{table.markdown(hours)}"
    figures = {"cases": rows, "training": training, "recipes": hours}
    how = table.wrap(HOW.format(low=LOW, high=HIGH))
    table.publish(args.out, "How good is the plan?", how, rows, figures, CASES_HOW, notes)


if __name__ == "__main__":
    run_cli(main)
