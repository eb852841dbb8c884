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


def lower(settings, why="CUDA out of memory", **facts):
    return what_to_lower(SimpleNamespace(**settings), why, **facts)


def test_the_same_batch_in_smaller_parts_comes_first():
    batch, length, lora = lower(SFT)
    assert batch == "per_device_train_batch_size: 4 with gradient_accumulation_steps: 8"
    assert length.startswith("max_length (now 2048)") and lora == "LORA=1"
    assert lower(SFT, is_fsdp=True)[0] == "per_device_train_batch_size: 4"
    assert lower(SFT | {"per_device_train_batch_size": 1}) == [length, lora]


def test_grpo_names_the_keys_that_are_set():
    found = lower(GRPO, update_tokens=4096, has_reference=True)
    assert [one.split(":")[0].split(" ")[0] for one in found] == [
        "vllm_gpu_memory_utilization", "gradient_checkpointing", "update_tokens",
        "per_device_train_batch_size", "beta", "max_completion_length", "LORA=1",
    ]  # fmt: skip
    assert "steps_per_generation: 32" in found[3]
    at_once = lower(GRPO | {"use_vllm": False}, is_generating=True)[0]
    assert at_once.startswith("steps_per_generation: 64 completions")


def test_a_loaders_worker_is_named():
    why = "DataLoader worker (pid 7) is killed by signal: Bus error"
    assert lower(SFT, why)[0] == "dataloader_num_workers: 0"


@pytest.mark.parametrize(
    ("key", "is_same"), [("gradient_checkpointing", True), ("update_tokens", True), ("beta", False)]
)
def test_what_an_unfinished_run_resumes_with(key, is_same):
    old, new = ({"config": {key: value}, "inputs": {}, "num_processes": 1} for value in (0, 1))
    assert (difference(old, new) == "") is is_same
