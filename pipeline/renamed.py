"""Names of keys in older versions and other trainers, and the key to use here.

A dotted name, such as verl's `actor_rollout_ref.rollout.n`, is looked up by its last part.
"""

import difflib
from collections.abc import Collection

SAMPLES = ("num_generations", "num_samples")
LENGTH = ("max_completion_length", "max_new_tokens")
# Name -> the keys that do the same, by stage: the first that the stage has is the hint.
RENAMED: dict[str, tuple[str, ...]] = {
    "torch_dtype": ("dtype",),
    "evaluation_strategy": ("eval_strategy",),
    "warmup_ratio": ("warmup_steps",),
    "max_seq_length": ("max_length", "max_completion_length"),
    "max_length": LENGTH,
    "max_prompt_length": ("max_length", "vllm_max_model_length"),
    "model": ("model_name_or_path",),
    "model_name": ("model_name_or_path",),
    "lora_rank": ("lora_r",),
    "target_modules": ("lora_target_modules",),
    "lr": ("learning_rate",),
    "epochs": ("num_train_epochs",),
    "steps": ("max_steps",),
    "batch_size": ("per_device_train_batch_size",),
    "n": SAMPLES,
    "group_size": SAMPLES,
    "num_rollouts": SAMPLES,
    "max_tokens": LENGTH,
    "max_new_tokens": LENGTH,
    "max_completion_length": ("max_new_tokens",),
    "use_vllm": ("backend",),
    "gpu_memory_utilization": ("vllm_gpu_memory_utilization",),
    "kl_coef": ("beta",),
    "clip_ratio": ("epsilon",),
    "rewards": ("reward_funcs",),
    "dataset_name": ("train_file", "hub"),
    "wandb_project": ("project",),
}
# Names without a key here: what to do instead.
REMOVED = {
    "chat_template": "put chat_template.jinja into the checkpoint's folder",
    "system_prompt": "choose a prompt in data.yaml, which renders it with each problem",
    "overwrite_output_dir": "remove it; FORCE=1 starts a run from scratch",
    "num_gpus": "set NUM_PROCESSES and ACCELERATE",
}


def find_key(name: str, known: Collection[str]) -> str:
    """The name where it is a known key, else what the key is called here; "" where none fits."""
    return next((key for key in (name, *RENAMED.get(name, ())) if key in known), "")


def hint(name: str, known: Collection[str], otherwise: str) -> str:
    """What to write in place of an unknown key: its key here, the nearest name, or `otherwise`.

    Args:
        known: the keys that the stage has.
        otherwise: the hint where no name is near.
    """
    last = name.rpartition(".")[2].replace("-", "_")
    if key := find_key(last, known):
        return f"use {key!r}"
    if last in REMOVED:
        return REMOVED[last]
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else otherwise
