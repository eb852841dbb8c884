"""The values that a key may have: the range of every number, and no secret anywhere.

The range of a key of ours is on its field. TRL and transformers accept most numbers, and fail or
train nonsense minutes later, so the ranges of their keys are here.
"""

import math
import re
from dataclasses import dataclass
from operator import ge, gt, le, lt
from typing import Annotated, Any, Literal

from pydantic import Field

# Types of the fields of our own keys.
Natural = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
NotPositive = Annotated[float, Field(le=0)]
Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True)
class OneOf:
    """Of a text: one of these names, which a table has. Where they are written out it is `Literal`.

    `prompt: Annotated[str, OneOf(tuple(PROMPTS))]`
    """

    names: tuple[str, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return handler.generate_schema(Literal[self.names])


# Of TRL's and transformers' keys, and of ours with such a name.
_KEYS_BY_RANGE = {
    "at least 0": """
        learning_rate weight_decay warmup_steps adam_epsilon eval_delay neftune_noise_alpha
        router_aux_loss_coef save_total_limit dataloader_num_workers max_grad_norm top_k beta
        epsilon epsilon_high vespo_k_pos vespo_k_neg vespo_lambda_pos vespo_lambda_neg
        entropy_coef_delta entropy_target max_tool_calling_iterations num_completions_to_print
        vllm_server_timeout vllm_importance_sampling_clip_min""",
    "at least 0 and at most 4294967295": "seed data_seed",  # NumPy's
    "above 0": """
        num_train_epochs logging_steps eval_steps save_steps repetition_penalty delta
        sapo_temperature_pos sapo_temperature_neg off_policy_mask_threshold
        vllm_importance_sampling_clip_max vllm_importance_sampling_cap""",
    "at least 1": """
        max_steps per_device_train_batch_size per_device_eval_batch_size gradient_accumulation_steps
        eval_accumulation_steps torch_empty_cache_steps dataset_num_proc dataloader_prefetch_factor
        ddp_bucket_cap_mb ddp_timeout pad_to_multiple_of max_length lora_r lora_alpha num_iterations
        steps_per_generation generation_batch_size num_generations_eval max_completion_length
        ref_model_sync_steps vllm_tensor_parallel_size vllm_max_model_length""",
    "at least 2": "num_generations",  # one alone is compared with nothing
    "at least 0 and at most 1": """
        min_p label_smoothing_factor top_entropy_quantile ref_model_mixup_alpha""",
    "at least 0 and below 1": "adam_beta1 adam_beta2 lora_dropout",
    "above 0 and at most 1": "top_p vllm_gpu_memory_utilization",
    "above 0 and at most 2": "temperature",  # vLLM's
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
    if isinstance(value, float) and not math.isfinite(value):
        return f"{key}: must be finite (got {value!r})"
    # More than any size, seed or number of steps.
    if isinstance(value, int) and abs(value) >= 2**32 and not is_within_another:
        return f"{key}: must be below {2**32} (got {value!r})"
    if key in RANGES and not is_within(value, RANGES[key]):
        return f"{key}: must be {RANGES[key]} (got {value!r})"
    return None
