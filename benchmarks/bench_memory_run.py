"""The peak of a real training step's memory, to hold `stages.preflight.memory_plan` against.

Runs TRL's own trainers, with this project's update and rounding, on a random-init model of a named
shape with rows of one length, on the CPU. PyTorch's profiler reports every allocation there; their
running sum over an optimizer step, on top of the tensors that are there before it, has the peak
that `torch.cuda.max_memory_allocated` would give. The process's own memory (RSS) is read beside it.
"""

import gc
import tempfile
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stages.preflight.memory_model import read_model
from stages.preflight.memory_plan import Plan, plan_step
from stages.preflight.memory_recipe import Launch, grpo_step, sft_step
from stages.preflight.model_shapes import build_config, load_shape


@dataclass(frozen=True)
class Case:
    """One measurement; lengths in tokens. Of GRPO's `length` the first `prompt` are the prompt."""

    shape: str = "tiny"
    stage: str = "sft"
    batch: int = 2
    length: int = 128
    prompt: int = 32
    checkpointing: bool = False
    dtype: str = "float32"
    bf16: bool = False  # autocast
    padded: bool = False
    packing: bool = False
    accumulation: int = 1
    stochastic_rounding: bool = False
    lora_rank: int | None = None
    lora_dropout: float = 0.0
    update_tokens: int | None = None
    changes: dict[str, Any] = field(default_factory=dict)  # fields of the shape

    def fields(self) -> dict[str, Any]:
        """The model's config.json."""
        return load_shape(self.shape) | self.changes

    def values(self) -> dict[str, Any]:
        """The case as a recipe's keys."""
        keys: dict[str, Any] = {
            "use_cpu": True,
            "bf16": self.bf16,
            "dtype": self.dtype,
            "per_device_train_batch_size": self.batch,
            "gradient_accumulation_steps": self.accumulation,
            "gradient_checkpointing": self.checkpointing,
            "stochastic_rounding": self.stochastic_rounding,
        }
        if self.stage == "sft":
            keys |= {"max_length": self.length, "packing": self.packing}
        else:
            keys |= {
                "max_prompt_length": self.prompt,
                "max_completion_length": self.length - self.prompt,
                "update_tokens": self.update_tokens,
            }
        if self.lora_rank:
            keys |= {
                "use_peft": True,
                "lora_r": self.lora_rank,
                "lora_dropout": self.lora_dropout,
                "lora_target_modules": "all-linear",
            }
        return keys

    def plan(self) -> Plan:
        """What the plan says, by the way a recipe is planned."""
        model = read_model(self.fields())
        make = sft_step if self.stage == "sft" else grpo_step
        step = make(model, self.values(), Launch(), None)
        if not self.packing and not self.update_tokens:
            step = replace(step, is_masked=self.padded)  # a recipe is planned for the worst case
        return plan_step(model, step)


class AllocationPeak:
    """Highest sum of live tensor bytes between `start` and `stop`; RSS beside it."""

    def start(self) -> None:
        """Note what is there and watch from here on."""
        from torch.profiler import ProfilerActivity, profile

        gc.collect()
        self.before = live_bytes()
        self.rss_before = self.rss = _rss()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        self._profile = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
        self._profile.__enter__()

    def _watch(self) -> None:
        while not self._ended.wait(0.005):
            self.rss = max(self.rss, _rss())

    def stop(self) -> None:
        """Stop watching; `peak` is then the result, bytes."""
        self._profile.__exit__(None, None, None)
        self._ended.set()
        self._thread.join()
        events = [
            e for e in self._profile.profiler.kineto_results.events() if e.name() == "[memory]"
        ]
        changes = [e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())]
        total = peak = 0
        for change in changes:
            total += change
            peak = max(peak, total)
        self.peak = self.before + peak


def live_bytes() -> int:
    """Bytes of all tensors that Python can reach, each storage once."""
    import torch

    sizes = {}
    for item in gc.get_objects():
        # Subclasses, such as an optimizer's 8-bit states, hold plain tensors, which come by too.
        if type(item) in (torch.Tensor, torch.nn.Parameter) and item.layout == torch.strided:
            storage = item.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
    return sum(sizes.values())


def _rss() -> int:
    import psutil

    return psutil.Process().memory_info().rss


def measure(case: Case) -> AllocationPeak:
    """Run two optimizer steps of the case and measure the second, which has optimizer states."""
    import torch
    from transformers import AutoModelForCausalLM, TrainerCallback, set_seed

    from stages import run
    from stages.tiny_model import build_tokenizer
    from stages.trainer.stochastic_rounding import use_stochastic_rounding

    run.quiet()
    set_seed(0)
    peak = AllocationPeak()

    class Watch(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            if state.global_step == 1:
                peak.start()

        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 2:
                peak.stop()

    config = build_config(case.fields())
    model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, case.dtype))
    tokenizer = build_tokenizer(["think boxed answer step problem the"])
    with tempfile.TemporaryDirectory() as folder:
        trainer = BUILDERS[case.stage](case, model, tokenizer, folder)
        if case.stochastic_rounding:
            use_stochastic_rounding(trainer)
        trainer.add_callback(Watch())
        trainer.train()
    return peak


def _settings(case: Case, folder: str) -> dict[str, Any]:
    return {
        "output_dir": str(Path(folder, "out")),
        "per_device_train_batch_size": case.batch,
        "gradient_accumulation_steps": case.accumulation,
        "max_steps": 2,
        "learning_rate": 1e-6,
        "gradient_checkpointing": case.checkpointing,
        "bf16": case.bf16,
        "use_cpu": True,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "logging_steps": 100,
    }


def _lora(case: Case) -> Any:
    from peft import LoraConfig

    if case.lora_rank is None:
        return None
    return LoraConfig(
        r=case.lora_rank,
        lora_dropout=case.lora_dropout,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )


def _sft(case: Case, model: Any, tokenizer: Any, folder: str) -> Any:
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    # Padding by one token is enough for the attention mask to be built.
    length = case.length // 2 if case.packing else case.length - case.padded
    rows = Dataset.from_list(
        [
            {
                "input_ids": [(i * 7 + j) % 200 for j in range(length)],
                "completion_mask": [0] * case.prompt + [1] * (length - case.prompt),
            }
            for i in range(case.batch * case.accumulation * (4 if case.packing else 2))
        ]
    )
    config = SFTConfig(
        **_settings(case, folder),
        max_length=case.length,
        completion_only_loss=True,
        packing=case.packing,
        pad_to_multiple_of=None if case.packing else case.length,
    )
    return SFTTrainer(
        model=model,
        args=config,
        train_dataset=rows,
        processing_class=tokenizer,
        peft_config=_lora(case),
    )


def _grpo(case: Case, model: Any, tokenizer: Any, folder: str) -> Any:
    import torch
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from stages.trainer.efficient_update import EfficientUpdate

    class Given(EfficientUpdate, GRPOTrainer):
        """Rollouts of a given length in place of generated ones."""

        def _generate_and_score_completions(self, inputs):
            rows, written = len(inputs), case.length - case.prompt
            prompts = torch.ones(rows, case.prompt, dtype=torch.long)
            prompts[:, 0] = 1 - int(case.padded)
            return {
                "prompt_ids": torch.randint(0, 200, (rows, case.prompt)),
                "prompt_mask": prompts,
                "completion_ids": torch.randint(0, 200, (rows, written)),
                "completion_mask": torch.ones(rows, written, dtype=torch.long),
                "advantages": torch.randn(rows),
                "num_items_in_batch": torch.tensor(rows * written),
            }

    config = GRPOConfig(
        **_settings(case, folder),
        num_generations=case.batch * case.accumulation,
        max_completion_length=case.length - case.prompt,
        beta=0.0,
        loss_type="dapo",
    )
    rows = Dataset.from_list([{"prompt": f"{i}"} for i in range(8)])
    trainer = Given(
        model=model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=config,
        train_dataset=rows,
        processing_class=tokenizer,
        peft_config=_lora(case),
    )
    trainer.update_tokens = case.update_tokens
    return trainer


BUILDERS = {"sft": _sft, "grpo": _grpo}
