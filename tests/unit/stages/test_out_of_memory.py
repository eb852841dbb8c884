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


def test_the_keys_that_are_set_are_named_in_their_order():
    assert what_to_lower(SimpleNamespace(**SFT)) == (
        "lower per_device_train_batch_size (now 8), max_length (now 2048), or use LORA=1"
    )
    assert what_to_lower(SimpleNamespace(**GRPO), update_tokens=4096) == (
        "set gradient_checkpointing: true, lower vllm_gpu_memory_utilization (now 0.3), "
        "update_tokens (now 4096), per_device_train_batch_size (now 4), "
        "max_completion_length (now 1024), or use LORA=1"
    )
    assert "vllm" not in what_to_lower(SimpleNamespace(**GRPO | {"use_vllm": False}))


@pytest.mark.parametrize(
    ("key", "is_same"), [("gradient_checkpointing", True), ("update_tokens", True), ("beta", False)]
)
def test_what_an_unfinished_run_resumes_with(key, is_same):
    old, new = ({"config": {key: value}, "inputs": {}, "num_processes": 1} for value in (0, 1))
    assert (difference(old, new) == "") is is_same
