"""Names of keys that were renamed, or that other trainers use, and the key to use here.

The names come from older transformers (see its migration guide to version 5), from older TRL, and
from verl, OpenRLHF, open-r1 and Unsloth. A dotted name, such as verl's
`actor_rollout_ref.rollout.n`, is looked up by its last part.
"""

import difflib
from collections.abc import Collection

# Name -> the keys that do the same, by stage: the first that the stage has is the hint.
RENAMED: dict[str, tuple[str, ...]] = {
    # transformers
    "torch_dtype": ("dtype",),
    "evaluation_strategy": ("eval_strategy",),
    "warmup_ratio": ("warmup_steps",),
    "no_cuda": ("use_cpu",),
    "group_by_length": ("train_sampling_strategy",),
    "per_gpu_train_batch_size": ("per_device_train_batch_size",),
    "per_gpu_eval_batch_size": ("per_device_eval_batch_size",),
    "include_tokens_per_second": ("include_num_input_tokens_seen",),
    "adafactor": ("optim",),
    "use_flash_attention_2": ("attn_implementation",),
    # TRL
    "max_seq_length": ("max_length", "max_completion_length"),
    "max_length": ("max_completion_length", "max_new_tokens"),
    "max_prompt_length": ("max_length", "vllm_max_model_length"),
    "use_liger": ("use_liger_kernel",),
    "use_liger_loss": ("use_liger_kernel",),
    "vllm_max_model_len": ("vllm_max_model_length",),
    "vllm_guided_decoding_regex": ("vllm_structured_outputs_regex",),
    "wandb_log_unique_prompts": ("log_unique_prompts",),
    # Model and LoRA
    "model": ("model_name_or_path",),
    "model_name": ("model_name_or_path",),
    "model_path": ("model_name_or_path",),
    "base_model": ("model_name_or_path",),
    "precision": ("dtype",),
    "use_lora": ("use_peft",),
    "lora_rank": ("lora_r",),
    "lora_target": ("lora_target_modules",),
    "target_modules": ("lora_target_modules",),
    # Steps and batches
    "lr": ("learning_rate",),
    "epochs": ("num_train_epochs",),
    "num_epochs": ("num_train_epochs",),
    "total_epochs": ("num_train_epochs",),
    "steps": ("max_steps",),
    "num_steps": ("max_steps",),
    "max_train_steps": ("max_steps",),
    "total_training_steps": ("max_steps",),
    "batch_size": ("per_device_train_batch_size",),
    "micro_batch_size": ("per_device_train_batch_size",),
    "train_batch_size": ("generation_batch_size", "per_device_train_batch_size"),
    "rollout_batch_size": ("generation_batch_size",),
    "eval_batch_size": ("per_device_eval_batch_size",),
    "use_dynamic_bsz": ("update_tokens",),
    "ppo_max_token_len_per_gpu": ("update_tokens",),
    "grad_clip": ("max_grad_norm",),
    "scheduler": ("lr_scheduler_type",),
    "optimizer": ("optim",),
    "use_gradient_checkpointing": ("gradient_checkpointing",),
    "random_state": ("seed",),
    "save_freq": ("save_steps",),
    "test_freq": ("eval_steps",),
    # Rollouts
    "n": ("num_generations", "num_samples"),
    "k": ("num_generations", "num_samples"),
    "group_size": ("num_generations",),
    "rollouts": ("num_generations", "num_samples"),
    "num_rollouts": ("num_generations", "num_samples"),
    "num_return_sequences": ("num_generations", "num_samples"),
    "n_samples_per_prompt": ("num_generations", "num_samples"),
    "max_tokens": ("max_completion_length", "max_new_tokens"),
    "max_new_tokens": ("max_completion_length",),
    "max_completion_length": ("max_new_tokens",),
    "max_response_length": ("max_completion_length", "max_new_tokens"),
    "use_vllm": ("backend",),
    "fast_inference": ("use_vllm", "backend"),
    "gpu_memory_utilization": ("vllm_gpu_memory_utilization",),
    "max_model_len": ("vllm_max_model_length",),
    "tensor_model_parallel_size": ("vllm_tensor_parallel_size",),
    # Rewards and loss
    "reward_fn": ("reward_funcs",),
    "reward_functions": ("reward_funcs",),
    "rewards": ("reward_funcs",),
    "kl_coef": ("beta",),
    "kl_loss_coef": ("beta",),
    "init_kl_coef": ("beta",),
    "clip_ratio": ("epsilon",),
    "cliprange": ("epsilon",),
    "clip_ratio_low": ("epsilon",),
    "clip_ratio_high": ("epsilon_high",),
    "ppo_epochs": ("num_iterations",),
    "loss_agg_mode": ("loss_type",),
    "entropy_coeff": ("entropy_coef",),
    "overlong_filtering": ("mask_truncated_completions",),
    "overlong_buffer": ("overlong_cache",),
    "dynamic_sampling": ("curriculum",),
    "filter_groups": ("curriculum",),
    # Trackers
    "wandb_project": ("project",),
    "trackio_project": ("project",),
    # Data
    "dataset": ("train_file", "hub"),
    "dataset_name": ("train_file", "hub"),
    "data_path": ("train_file", "data_root"),
    "train_files": ("train_file",),
    "val_files": ("eval_file",),
    "benchmarks": ("tasks",),
}
# What else to know where the key of the hint takes another kind of value.
NOTES = {
    "warmup_ratio": "a value below 1 is a share of all steps",
    "no_cuda": "set it to true",
    "group_by_length": "set it to group_by_length",
    "adafactor": "set it to adafactor",
    "use_flash_attention_2": "set it to flash_attention_2",
    "precision": "such as bfloat16",
    "train_batch_size": "it counts completions, not prompts",
    "rollout_batch_size": "it counts completions, not prompts",
    "dynamic_sampling": "refill replaces zero-variance groups",
    "filter_groups": "refill replaces zero-variance groups",
    "loss_agg_mode": "dapo averages over tokens, grpo over completions",
    "use_vllm": "set it to vllm",
    "dataset_name": "`make data` writes it from data.yaml",
    "dataset": "`make data` writes it from data.yaml",
}
# Names without a key here: what to do instead.
REMOVED = {
    "tokenizer_name": "remove it; the checkpoint's own tokenizer is used",
    "tokenizer_name_or_path": "remove it; the checkpoint's own tokenizer is used",
    "chat_template": "put chat_template.jinja into the checkpoint's folder",
    "system_prompt": "choose a prompt in data.yaml, which renders it with each problem",
    "overwrite_output_dir": "remove it; FORCE=1 starts a run from scratch",
    "logging_dir": "set TENSORBOARD_LOGGING_DIR in your own environment",
    "wandb_entity": "set WANDB_ENTITY in your own environment",
    "save_safetensors": "remove it; weights are always saved as safetensors",
    "half_precision_backend": "remove it; torch.amp is used",
    "fp16_backend": "remove it; torch.amp is used",
    "vllm_device": "remove it; vllm_mode says whether vLLM shares the training GPUs",
    "vllm_dtype": "remove it; vLLM samples in the trainer's: fp16 or bf16",
    "vllm_enable_prefix_caching": "remove it; vLLM decides",
    "num_gpus": "set NUM_PROCESSES and ACCELERATE",
    "n_gpus_per_node": "set NUM_PROCESSES and ACCELERATE",
    "nnodes": "set it at the launch, see docs/scale.md",
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
        note = f"; {NOTES[last]}" if last in NOTES and key == RENAMED[last][0] else ""
        return f"use {key!r}{note}"
    if last in REMOVED:
        return REMOVED[last]
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else otherwise
