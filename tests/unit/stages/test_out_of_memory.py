"""What a run without enough memory is told to lower, and what it resumes with."""

from types import SimpleNamespace

import pytest

from stages.run.folders import difference
from stages.run.out_of_memory import what_to_lower

SFT = {
    "per_device_train_batch_size": 8, "gradient_accumulation_steps": 4, "max_length": 2048,
    "gradient_checkpointing": True,
}  # fmt: skip
GRPO = {
    "per_device_train_batch_size": 4, "gradient_accumulation_steps": 4, "steps_per_generation": 16,
    "gradient_checkpointing": False, "max_completion_length": 1024, "use_vllm": True,
    "vllm_mode": "colocate", "vllm_gpu_memory_utilization": 0.3, "vllm_enable_sleep_mode": False,
}  # fmt: skip


ROWS = "per_device_train_batch_size (now {}, with more gradient_accumulation_steps), "


@pytest.mark.parametrize(
    ("args", "update_tokens", "line"),
    [
        (SFT, None, f"lower {ROWS.format(8)}max_length (now 2048), or use LORA=1"),
        (GRPO, 4096, "set gradient_checkpointing: true, lower vllm_gpu_memory_utilization "
         f"(now 0.3), update_tokens (now 4096), {ROWS.format(4)}max_completion_length (now 1024), "
         "or use LORA=1"),
        (GRPO | {"use_vllm": False, "gradient_checkpointing": True}, "auto",
         f"lower {ROWS.format(4)}max_completion_length (now 1024), or use LORA=1"),
    ],
)  # fmt: skip
def test_the_keys_that_are_set_are_named_in_their_order(args, update_tokens, line):
    assert what_to_lower(SimpleNamespace(**args), update_tokens) == line


@pytest.mark.parametrize(
    ("key", "is_same"), [("gradient_checkpointing", True), ("update_tokens", True), ("beta", False)]
)
def test_what_an_unfinished_run_resumes_with(key, is_same):
    old, new = ({"config": {key: value}, "inputs": {}, "num_processes": 1} for value in (0, 1))
    assert (difference(old, new) == "") is is_same
