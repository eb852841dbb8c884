"""Keys that other keys switch on: TRL and transformers silently ignore them where those are off.

With `lora_r` and without `use_peft`, for example, all weights would be trained.
"""

from collections.abc import Mapping
from typing import Any

from pipeline.settings import Settings
from pipeline.switches import OFF, ON, Switch, check_switched
from stages.checks.common import TRACKERS
from stages.checks.optimizer import OPTIMIZERS, SCHEDULERS, optimizer_of
from stages.trainer.guards import ACTIONS, RULES


def _named(table: Mapping[str, Any], attribute: str) -> tuple[str, ...]:
    """The names of a table's rows in which an attribute is true."""
    return tuple(name for name, row in table.items() if getattr(row, attribute))


_CLIPPED = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo")  # the losses that clip ratios
SWITCHES = (
    Switch(
        {"use_peft": ON},
        "lora_r lora_alpha lora_dropout lora_target_modules lora_target_parameters "
        "lora_modules_to_save lora_task_type use_rslora use_dora load_in_8bit load_in_4bit",
    ),
    Switch({"load_in_4bit": ON}, "bnb_4bit_quant_type use_bnb_nested_quant bnb_4bit_quant_storage"),
    # The batch: rows packed, and how they are read.
    Switch({"packing": ON}, "packing_strategy"),
    Switch({"packing": OFF}, "padding_free"),  # packed rows have no padding
    Switch(
        {"dataloader_num_workers": ON},
        "dataloader_prefetch_factor dataloader_persistent_workers "
        "dataloader_multiprocessing_context dataloader_in_order",
        "dataloader_num_workers above 0",
    ),
    Switch({"max_steps": (-1,)}, "num_train_epochs", "max_steps: -1, its default"),
    # When something is done.
    Switch(
        {"eval_strategy": ("steps", "epoch")},
        "eval_file eval_problems eval_steps eval_delay eval_on_start do_eval num_generations_eval "
        "per_device_eval_batch_size eval_accumulation_steps eval_packing validate_only",
        "eval_strategy: steps",
    ),
    Switch({"eval_strategy": ("steps",)}, "eval_steps"),
    Switch({"save_strategy": ("steps",)}, "save_steps"),
    Switch({"save_strategy": ("steps", "epoch", "best")}, "save_only_model save_total_limit"),
    Switch({"logging_strategy": ("steps",)}, "logging_steps"),
    Switch(
        {"log_completions": ON},
        "num_completions_to_print log_unique_prompts log_completions_hub_repo",
    ),
    Switch(
        {"report_to": ("trackio",)}, "trackio_space_id trackio_bucket_id trackio_static_space_id"
    ),
    Switch({"report_to": tuple(name for name in TRACKERS if name != "tensorboard")}, "project"),
    # Optimizer, schedule, memory.
    Switch(
        {
            "lr_scheduler_type": _named(SCHEDULERS, "warms_up"),
            "optim": ("schedule_free_adamw", "schedule_free_sgd"),
        },
        "warmup_steps",
        "a schedule with a warm-up, such as lr_scheduler_type: constant_with_warmup",
    ),
    Switch({"lr_scheduler_type": _named(SCHEDULERS, "keys")}, "lr_scheduler_kwargs"),
    Switch(
        {"optim": _named(OPTIMIZERS, "has_betas")}, "adam_beta1 adam_beta2", "optim: adamw_torch"
    ),
    Switch({"optim": _named(OPTIMIZERS, "has_epsilon")}, "adam_epsilon", "optim: adamw_torch"),
    Switch({"optim": _named(OPTIMIZERS, "takes_args")}, "optim_args", "an optim that reads it"),
    Switch({"optim": _named(OPTIMIZERS, "needs_targets")}, "optim_target_modules"),
    Switch({"gradient_checkpointing": ON}, "gradient_checkpointing_kwargs"),
    Switch({"use_liger_kernel": ON}, "liger_kernel_config"),
    # GRPO's generation.
    Switch(
        {"use_vllm": ON},
        "vllm_mode vllm_model_impl vllm_enable_sleep_mode vllm_structured_outputs_regex "
        "vllm_server_base_url vllm_server_host vllm_server_port vllm_server_timeout "
        "vllm_group_port vllm_gpu_memory_utilization vllm_max_model_length "
        "vllm_tensor_parallel_size vllm_importance_sampling_correction "
        "vllm_importance_sampling_mode vllm_importance_sampling_clip_max "
        "vllm_importance_sampling_clip_min vllm_importance_sampling_cap vllm_call_timeout",
    ),
    Switch(
        {"vllm_mode": ("colocate",)},
        "vllm_model_impl vllm_enable_sleep_mode vllm_gpu_memory_utilization vllm_max_model_length "
        "vllm_tensor_parallel_size",
    ),
    Switch(
        {"vllm_mode": ("server",)},
        "vllm_server_base_url vllm_server_host vllm_server_port vllm_server_timeout "
        "vllm_group_port",
    ),
    Switch(
        {"vllm_server_base_url": OFF},
        "vllm_server_host vllm_server_port",
        "vllm_server_base_url left out",
    ),
    Switch(
        {"vllm_importance_sampling_correction": ON},
        "vllm_importance_sampling_mode vllm_importance_sampling_clip_max "
        "vllm_importance_sampling_clip_min vllm_importance_sampling_cap",
    ),
    Switch(
        {"use_vllm": OFF},
        "cache_implementation use_transformers_continuous_batching use_transformers_paged "
        "fast_generation",
    ),
    Switch(
        {"use_transformers_continuous_batching": ON, "use_transformers_paged": ON},
        "transformers_continuous_batching_config",
    ),
    # GRPO's loss.
    Switch({"loss_type": _CLIPPED}, "epsilon delta"),
    Switch({"loss_type": (*_CLIPPED, "cispo")}, "epsilon_high"),
    Switch({"loss_type": ("sapo",)}, "sapo_temperature_pos sapo_temperature_neg"),
    Switch({"loss_type": ("vespo",)}, "vespo_k_pos vespo_k_neg vespo_lambda_pos vespo_lambda_neg"),
    Switch({"sync_ref_model": ON}, "ref_model_mixup_alpha ref_model_sync_steps"),
    *(
        Switch({"reward_funcs": (name,)}, keys)
        for name, keys in (
            (
                "cosine_scaled_reward",
                "cosine_max_len cosine_min_value_wrong cosine_max_value_wrong "
                "cosine_min_value_correct cosine_max_value_correct",
            ),
            ("soft_length_penalty", "length_penalty_start length_penalty_end length_penalty_max"),
            ("repetition_penalty", "repetition_ngram_size repetition_max_penalty"),
            ("overlong", "overlong_cache"),
        )
    ),
    *(
        Switch({f"guard_{name}": ACTIONS[1:]}, f"guard_{rule.limit}")
        for name, rule in RULES.items()
    ),
    Switch({"guard_repetition": ACTIONS[1:]}, "guard_repetition_ngram guard_max_repetition"),
    Switch(
        {"use_adaptive_entropy": ON},
        "entropy_coef_min entropy_coef_max entropy_coef_delta entropy_target",
    ),
)


def check_switches(settings: Settings) -> None:
    """Refuse keys that would be ignored because of the value of another key."""
    # transformers works out the default of `optim`, so `settings` does not have it.
    check_switched(settings.replaced(optim=optimizer_of(settings)), SWITCHES)
