"""The values that a key may have: the range of every number, and no secret anywhere.

A range belongs to the name of the key, whoever reads it: our stages, TRL or transformers. Those two
accept most numbers, and fail or train nonsense minutes later.
"""

import math
import re
from operator import ge, gt, le, lt
from typing import Any

_KEYS_BY_RANGE = {
    "at least 0": """
        learning_rate weight_decay warmup_steps adam_epsilon eval_delay neftune_noise_alpha
        router_aux_loss_coef save_total_limit dataloader_num_workers max_grad_norm top_k beta
        epsilon epsilon_high vespo_k_pos vespo_k_neg vespo_lambda_pos vespo_lambda_neg
        entropy_coef_delta entropy_target max_tool_calling_iterations num_completions_to_print
        vllm_server_timeout vllm_importance_sampling_clip_min rest_batches length_penalty_start
        length_penalty_max repetition_max_penalty guard_max_rollbacks guard_min_entropy num_workers
        trace prompt_components num_samples""",
    "at least 0 and at most 4294967295": "seed data_seed",  # NumPy's
    "above 0": """
        vllm_call_timeout
        num_train_epochs logging_steps eval_steps save_steps repetition_penalty delta half_life
        sapo_temperature_pos sapo_temperature_neg off_policy_mask_threshold timeout_s gpu_memory
        vllm_importance_sampling_clip_max vllm_importance_sampling_cap initializer_range
        rope_theta price step_seconds cosine_min_value_correct
        cosine_max_value_correct""",
    "at most 0": "cosine_min_value_wrong cosine_max_value_wrong",
    "at least 1": """
        max_steps per_device_train_batch_size per_device_eval_batch_size gradient_accumulation_steps
        eval_accumulation_steps torch_empty_cache_steps dataset_num_proc dataloader_prefetch_factor
        ddp_bucket_cap_mb ddp_timeout pad_to_multiple_of max_length lora_r lora_alpha num_iterations
        steps_per_generation generation_batch_size num_generations_eval max_completion_length
        max_prompt_length ref_model_sync_steps vllm_tensor_parallel_size vllm_max_model_length
        update_tokens max_refill_rounds length_penalty_end repetition_ngram_size overlong_cache
        guard_repetition_ngram guard_max_length_growth guard_max_logp_mismatch
        max_new_tokens batch_size limit keep concurrency sample hidden_size num_layers num_heads
        num_kv_heads intermediate_size max_position_embeddings num_rows num_tricked num_parsed
        gpus batch_for_gpus parallel num_processes prompt_tokens row_tokens completion_tokens
        cosine_max_len""",
    "at least 2": "num_generations eval_problems",  # one alone is compared with nothing
    "above 1": "max_mean_ratio",  # that of an unmoved policy
    "at least 0 and at most 1": """
        min_p label_smoothing_factor top_entropy_quantile ref_model_mixup_alpha min_pass_rate
        max_pass_rate explore_share guard_max_repetition guard_max_repetitive_share
        guard_cut_off_rise guard_min_moved_share""",
    "at least 0 and below 1": "adam_beta1 adam_beta2 lora_dropout",
    "above 0 and at most 1": "top_p vllm_gpu_memory_utilization guard_min_signal",
    "above 0 and at most 2": "temperature",  # vLLM's
    "at least 1e-6 and at most 1": "guard_rollback_lr_factor",
    "at least 1 and at most 10": "guard_patience",  # the guards' RECENT, and their SPAN
    "at least 1 and at most 40": "guard_baseline_steps",
    "at least 1 and at most 65535": "vllm_server_port vllm_group_port",
}
RANGES = {key: limits for limits, keys in _KEYS_BY_RANGE.items() for key in keys.split()}
_HOLDS = {"at least": ge, "above": gt, "at most": le, "below": lt}
_SWITCHED_OFF = (("max_steps", -1), ("max_grad_norm", math.inf), ("half_life", math.inf))

_SECRET = re.compile(
    r"(.*_)?((?<!eos_)(?<!bos_)(?<!pad_)(?<!unk_)token|(api|access|private|secret)_?key"
    r"|passw(or)?d|secret|credentials?)",
    re.IGNORECASE,
)
_IN_URL = re.compile(
    r"(?<=://)[^\s/?#\"'<>]*(?=@)|(?<=[?&])([\w-]*(?:key|token|secret|password)=)[^\s&#\"'<>]*",
    re.IGNORECASE,
)


def redact(text: str) -> str:
    """The text with `***` for user, password and keys within its URLs."""
    return _IN_URL.sub(lambda found: f"{found[1] or ''}***", text)


def is_within(value: float, limits: str) -> bool:
    """Whether a number is in a range, written as in `RANGES`: "above 0 and at most 1"."""
    for limit in limits.split(" and "):
        words, _, end = limit.rpartition(" ")
        if not _HOLDS[words](value, float(end)):
            return False
    return True


def fault(
    key: str, value: Any, takes_secret_urls: bool = False, is_within_another: bool = False
) -> str | None:
    """What is wrong with a key's value, once typed, as `key: ...`; None where nothing is.

    `is_within_another`: the key is one of a mapping's.
    """
    if _SECRET.fullmatch(key) and value not in (None, ""):
        remedy = "set HF_TOKEN, OPENAI_API_KEY or its like in the environment, or `hf auth login`"
        return f"{key}: a secret here would end up in files and process lists; {remedy}"
    if isinstance(value, list | dict):
        parts = value.items() if isinstance(value, dict) else [(key, part) for part in value]
        for name, part in parts:
            if found := fault(str(name), part, takes_secret_urls, is_within_another=True):
                return found
        return None
    if isinstance(value, str) and not takes_secret_urls and redact(value) != value:
        remedy = "remove it; only a base_url in the YAML may have one"
        return f"{key}: {redact(value)} has a password that would end up in files; {remedy}"
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or (key, value) in _SWITCHED_OFF:
        return None
    if not math.isfinite(value):
        return f"{key}: must be finite (got {value!r})"
    # More than any size, seed or number of steps.
    if isinstance(value, int) and abs(value) >= 2**32 and not is_within_another:
        return f"{key}: must be below {2**32} (got {value!r})"
    if key in RANGES and not is_within(value, RANGES[key]):
        return f"{key}: must be {RANGES[key]} (got {value!r})"
    return None
