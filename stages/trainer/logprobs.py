"""Which log-probs vLLM gives the trainer, where keys change the distribution it samples from.

TRL asks vLLM for "processed" log-probs: after temperature, penalties and truncation. Its importance
sampling correction and `guard_alignment` compare them with the trainer's, which know only the
temperature. A token that top_p keeps has a log-prob higher by -log(kept mass): a healthy engine
looks like a wrong one, and the correction multiplies the loss by the kept mass of every token.

vLLM's "raw" log-probs are before all of it, temperature too. So they serve where that is 1.
"""

from typing import Any

PROCESSED, RAW = "processed_logprobs", "raw_logprobs"
NEUTRAL: dict[str, tuple[Any, ...]] = {  # values with which a key leaves the distribution as it is
    "top_p": (None, 1, 1.0),
    "top_k": (None, 0, -1),
    "min_p": (None, 0, 0.0),
    "repetition_penalty": (None, 1, 1.0),
    "presence_penalty": (None, 0, 0.0),
    "frequency_penalty": (None, 0, 0.0),
    "min_tokens": (None, 0),
    "logit_bias": (None, {}),
    "bad_words": (None, []),
    "allowed_token_ids": (None,),
    "structured_outputs": (None,),
    "vllm_structured_outputs_regex": (None,),
}


def shaping_keys(settings: Any) -> list[str]:
    """Keys by which vLLM samples from another distribution than the model's at its temperature."""
    more, found = settings.generation_kwargs or {}, []
    for key, neutral in NEUTRAL.items():
        if key in more:
            if more[key] not in neutral:
                found.append(f"generation_kwargs: {key}")
        elif getattr(settings, key, None) not in neutral:
            found.append(key)
    return found


def logprobs_mode(settings: Any) -> str:
    """Which of vLLM's log-probs a recipe needs, for its engine or its server."""
    is_raw = bool(shaping_keys(settings)) and settings.temperature == 1
    return RAW if is_raw else PROCESSED


def why_not_compared(settings: Any) -> str:
    """Why vLLM's log-probs cannot be compared with the trainer's; empty where they can."""
    if not settings.use_vllm:
        return ""
    keys = shaping_keys(settings)
    if not keys or logprobs_mode(settings) == RAW:
        return ""
    names = " and ".join(keys)
    return f"with temperature: {settings.temperature:g} vLLM's log-probs are those after {names}"
