"""Compare the memory plan with measured training steps: the check `memory` of `make gpu-check`.

    python -m benchmarks.memory --out memory.md --shapes 0.5B 1.5B

Runs TRL's own trainers, with this project's update and rounding, on random-init models, on a GPU or
on the CPU. docs/results/memory.md has more cases.
"""

import gc
import tempfile
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Annotated, Any

import torch
from datasets import Dataset
from peft import LoraConfig
from torch.profiler import ProfilerActivity, profile
from transformers import AutoConfig, AutoModelForCausalLM, TrainerCallback, set_seed
from transformers.trainer_callback import PrinterCallback
from trl import GRPOConfig, SFTConfig, SFTTrainer

from benchmarks.table import publish, tell
from pipeline.console import quiet
from pipeline.errors import run_cli
from pipeline.key_types import known_keys
from pipeline.settings import Settings, parse, setting
from pipeline.values import OneOf
from stages.preflight.capacity import build_step
from stages.preflight.inputs import KEYS_OF, load_shape
from stages.preflight.memory import Plan, plan_step
from stages.tiny_model import build_tokenizer
from stages.trainer.grpo_trainer import MathGRPOTrainer
from stages.trainer.update import use_stochastic_rounding

CASES = ("sft", "sft-rounded", "grpo")
HOW = """`python -m benchmarks.memory` runs two optimizer steps of TRL's trainers and compares the
peak of the second with `make preflight`'s plan. On a CPU the peak is the highest sum of live
tensor bytes, on a GPU what torch had allocated. MB are 10^6 bytes."""


@dataclass(frozen=True)
class Case:
    """One measurement; lengths in tokens. Of GRPO's `length` the first `prompt` are the prompt."""

    stage: str = "sft"
    batch: int = 2
    length: int = 128
    prompt: int = 32
    checkpointing: bool = False
    dtype: str = "float32"
    bf16: bool = False  # autocast
    padded: bool = False  # of SFT: a row is shorter than the others
    accumulation: int = 1
    stochastic_rounding: bool = False
    lora_rank: int | None = None
    lora_dropout: float = 0.0
    update_tokens: int | None = None
    changes: dict[str, Any] = field(default_factory=dict)  # fields of the shape

    def config_keys(self) -> dict[str, Any]:
        """The keys that Hugging Face's config takes as well."""
        keys = {
            "use_cpu": not torch.cuda.is_available(),
            "bf16": self.bf16,
            "per_device_train_batch_size": self.batch,
            "gradient_accumulation_steps": self.accumulation,
            "gradient_checkpointing": self.checkpointing,
        }
        if self.stage == "sft":
            return keys | {"max_length": self.length}
        return keys | {"max_completion_length": self.length - self.prompt}

    def plan(self) -> Plan:
        """Plan the case as a recipe is planned."""
        keys = {
            "dtype": self.dtype,
            "stochastic_rounding": self.stochastic_rounding,
            "update_tokens": self.update_tokens,
            "max_prompt_length": self.prompt,
            "use_peft": self.lora_rank is not None,
            "lora_r": self.lora_rank or 16,
            "lora_dropout": self.lora_dropout,
            "lora_target_modules": "all-linear",
        }
        shape = load_shape("tiny") | self.changes
        own, hf, _ = KEYS_OF[self.stage]
        settings = Settings(keys | self.config_keys(), {}, known_keys(own, hf))
        step = build_step(self.stage, shape, settings)
        if not self.update_tokens:
            step = replace(step, is_masked=self.padded)  # a recipe is planned for the worst case
        return plan_step(step)


class AllocationPeak(TrainerCallback):
    """Highest sum of live tensor bytes, `peak`, in the second optimizer step, which has its states.

    PyTorch's profiler reports every allocation; their running sum, on top of the tensors that are
    there before, has the peak that `torch.cuda.max_memory_allocated` gives on a GPU.
    """

    peak = 0

    def on_step_begin(self, args, state, control, **kwargs):
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        elif state.global_step == 1:
            gc.collect()
            self._before = live_bytes()
            self._profile = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
            self._profile.__enter__()

    def on_step_end(self, args, state, control, **kwargs):
        if torch.cuda.is_available():
            self.peak = torch.cuda.max_memory_allocated()
        elif state.global_step == 2:
            self._profile.__exit__(None, None, None)
            events = self._profile.profiler.kineto_results.events()
            events = [event for event in events if event.name() == "[memory]"]
            events.sort(key=lambda event: event.start_ns())
            changes = (event.nbytes() for event in events)
            self.peak = max(accumulate(changes, initial=self._before))


def live_bytes() -> int:
    """Bytes of all tensors that Python can reach, each storage once."""
    sizes = {}
    for item in gc.get_objects():
        # Subclasses, such as an optimizer's 8-bit states, hold plain tensors, which come by too.
        if type(item) in (torch.Tensor, torch.nn.Parameter) and item.layout == torch.strided:
            storage = item.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
    return sum(sizes.values())


def measure(case: Case) -> int:
    """Run two optimizer steps; the peak of the second, bytes."""
    quiet()
    gc.collect()  # what the case before leaves on a GPU
    set_seed(0)
    peak = AllocationPeak()
    config = AutoConfig.for_model(**load_shape("tiny") | case.changes)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, case.dtype))
    with tempfile.TemporaryDirectory() as folder:
        settings = case.config_keys() | {
            "output_dir": folder, "max_steps": 2, "learning_rate": 1e-6, "disable_tqdm": True,
            "report_to": "none", "save_strategy": "no", "dataloader_pin_memory": False,
        }  # fmt: skip
        objects = {
            "model": model,
            "processing_class": build_tokenizer(["think boxed answer step problem the"]),
            "callbacks": [peak],
        }
        if case.lora_rank:
            objects["peft_config"] = LoraConfig(
                r=case.lora_rank, lora_dropout=case.lora_dropout, target_modules="all-linear",
                task_type="CAUSAL_LM",
            )  # fmt: skip
        build = build_sft if case.stage == "sft" else build_grpo
        trainer = build(case, settings, objects)
        trainer.remove_callback(PrinterCallback)
        if case.stochastic_rounding:
            use_stochastic_rounding(trainer)
        trainer.train()
    return peak.peak


def build_sft(case: Case, settings: dict[str, Any], objects: dict[str, Any]) -> Any:
    """TRL's SFT trainer over rows of the case's length."""
    length = case.length
    if case.padded:
        length -= 1  # enough for the attention mask to be built
    rows = [
        {
            "input_ids": [(i * 7 + j) % 200 for j in range(length)],
            "completion_mask": [0] * case.prompt + [1] * (length - case.prompt),
        }
        for i in range(2 * case.batch * case.accumulation)  # two steps
    ]
    config = SFTConfig(**settings, completion_only_loss=True, pad_to_multiple_of=case.length)
    return SFTTrainer(args=config, train_dataset=Dataset.from_list(rows), **objects)


def build_grpo(case: Case, settings: dict[str, Any], objects: dict[str, Any]) -> Any:
    """This project's GRPO trainer, whose rollouts are made up."""

    class Given(MathGRPOTrainer):
        """Rollouts of a given length in place of generated ones."""

        def _generate_and_score_completions(self, inputs):
            rows, written = len(inputs), case.length - case.prompt
            batch = {
                "prompt_ids": torch.randint(0, 200, (rows, case.prompt)),
                "prompt_mask": torch.ones(rows, case.prompt, dtype=torch.long),
                "completion_ids": torch.randint(0, 200, (rows, written)),
                "completion_mask": torch.ones(rows, written, dtype=torch.long),
                "advantages": torch.randn(rows),
                "num_items_in_batch": torch.tensor(rows * written),
            }
            return {key: value.to(self.accelerator.device) for key, value in batch.items()}

    group = case.batch * case.accumulation
    return Given(
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=GRPOConfig(**settings, num_generations=group, beta=0.0, loss_type="dapo"),
        train_dataset=Dataset.from_list([{"prompt": f"{i}"} for i in range(8)]),
        update_tokens=case.update_tokens,
        **objects,
    )


def cases_of(shape: str) -> dict[str, Case]:
    """What recipes do with a model of a named shape, by the name of the case."""
    long = Case(changes=load_shape(shape), length=1024, prompt=256, checkpointing=True, bf16=True)
    half = replace(long, dtype="bfloat16", stochastic_rounding=True)
    return {
        "sft": long,
        "sft-rounded": replace(half, batch=4, padded=True),
        "grpo": replace(half, stage="grpo", batch=8, update_tokens=4096),
    }


@dataclass
class BenchArguments:
    """Keys of the command line."""

    out: str = field(metadata={"help": "the page to write"})
    shapes: list[str] = setting(["tiny"], "tiny, 0.5B, 1.5B or 7B")
    cases: list[Annotated[str, OneOf(CASES)]] = setting([*CASES], f"any of {', '.join(CASES)}")


def main() -> None:
    """Measure the cases of each shape, write the table."""
    (args,) = parse(__doc__, BenchArguments)
    rows, ratios = [], []
    for shape in args.shapes:
        for name in args.cases:
            case = cases_of(shape)[name]
            plan, measured = case.plan(), measure(case)
            ratios.append(plan.peak / measured)
            row = {
                "model": shape,
                "case": name,
                "rows x tokens": f"{case.batch} x {case.length}",
                "measured, MB": f"{measured / 1e6:,.1f}",
                "plan, MB": f"{plan.peak / 1e6:,.1f}",
                "plan / measured": f"{ratios[-1]:.3f}",
                "moment": plan.moment,
            }
            rows.append(row)
            tell(", ".join(row.values()))
    publish(args.out, "Memory: the plan against measured steps", HOW, rows, {"ratios": ratios})


if __name__ == "__main__":
    run_cli(main)
