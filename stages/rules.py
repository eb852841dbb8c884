"""What is wrong with the keys of SFT and GRPO, though no library raises and no rehearsal shows it.

pointless   keys that somebody reads, a constructor as a rule, and that do nothing without
            another key; a rehearsal finds those that nobody reads
faults      values that spoil a run in silence
"""

from collections.abc import Iterator
from typing import Any

from pipeline.console import one_line
from pipeline.errors import UserError
from pipeline.settings import UNSET, Settings
from stages.arguments import MODES
from stages.trainer.guards import GUARDS, RULES

# The curricula that read a key.
READ_BY = {
    "min_pass_rate": ("offline",),
    "max_pass_rate": ("offline",),
    "prompt_components": ("predictive", "predictive+refill"),
    "explore_share": ("predictive", "predictive+refill"),
    "rest_batches": ("predictive", "refill", "predictive+refill"),
    "half_life": ("predictive", "predictive+refill"),
    "max_refill_rounds": ("refill", "predictive+refill"),
    "pass_rates": ("offline", "predictive", "predictive+refill"),
}
CLIP = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo")  # the losses that clip ratios
NO_ADAM = ("sgd", "adafactor", "adagrad", "rmsprop")
OF_EVALUATION = """eval_file eval_problems eval_steps eval_delay eval_on_start validate_only
    num_generations_eval per_device_eval_batch_size eval_packing"""
OF_LOADER = """dataloader_prefetch_factor dataloader_persistent_workers
    dataloader_multiprocessing_context"""
OF_COMPLETIONS = "num_completions_to_print log_unique_prompts log_completions_hub_repo"
OF_COLOCATE = """vllm_model_impl vllm_enable_sleep_mode vllm_gpu_memory_utilization
    vllm_max_model_length vllm_tensor_parallel_size"""
OF_SERVER = """vllm_server_base_url vllm_server_host vllm_server_port vllm_server_timeout
    vllm_group_port"""
OF_CORRECTION = """vllm_importance_sampling_mode vllm_importance_sampling_clip_max
    vllm_importance_sampling_clip_min vllm_importance_sampling_cap"""
OF_VLLM = f"""vllm_mode {OF_COLOCATE} {OF_SERVER} vllm_importance_sampling_correction
    {OF_CORRECTION} vllm_structured_outputs_regex vllm_call_timeout"""
OF_GENERATION = """cache_implementation fast_generation use_transformers_paged
    use_transformers_continuous_batching"""
OF_LORA = """lora_r lora_alpha lora_dropout lora_target_modules lora_target_parameters
    lora_modules_to_save use_rslora use_dora load_in_4bit load_in_8bit"""
# A rehearsal on a CPU leaves vLLM out, and peft takes any task with a model of its own.
CHOICES = {
    "vllm_model_impl": ("auto", "vllm", "transformers", "terratorch"),
    "vllm_importance_sampling_mode": (
        *("token_truncate", "token_mask", "sequence_truncate", "sequence_mask"),
    ),
    "lora_task_type": ("CAUSAL_LM",),
}
NOT_RENDERED = {"sft": ("eos_token", "pad_token"), "grpo": ("chat_template_kwargs",)}
# Of generation_kwargs, what a recipe sets by its own keys, or what would break groups.
TAKEN = {
    **dict.fromkeys(("max_new_tokens", "max_tokens", "max_length"), "max_completion_length"),
    **dict.fromkeys(("n", "num_return_sequences", "num_beams"), "num_generations"),
    "do_sample": "temperature",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "cache_implementation": "cache_implementation",
    "structured_outputs": "vllm_structured_outputs_regex",
}
# And what nothing in a recipe may set, and why.
REFUSED = dict.fromkeys(
    (
        *("eos_token_id", "pad_token_id", "bos_token_id", "stop_token_ids", "disable_compile"),
        *("return_dict_in_generate", "detokenize", "output_kind", "logprobs", "prompt_logprobs"),
    ),
    "is decided by TRL or the tokenizer",
) | {
    "watermarking_config": "would mark every rollout",
    "token_healing": "no rollout gets the tokenizer that it needs",
    "stop_strings": (
        "no rollout can end at a text, but at a token: add it to eos_token_id in the model's "
        "generation_config.json, or teach the EOS by SFT"
    ),
}
MODEL_TAKEN = {  # of model_init_kwargs
    "dtype": "dtype",
    "torch_dtype": "dtype",
    "attn_implementation": "attn_implementation",
    "revision": "model_revision",
    "trust_remote_code": "trust_remote_code",
}
Rule = tuple[str, Any, str]  # keys, whether they act, what they need


def pointless(stage: str, settings: Settings) -> dict[str, str]:
    """Given keys that are read and do nothing -> what they need.

    A value that says off as the default does asks for nothing.
    """
    rules = [*of_both(settings), *(of_grpo(settings) if stage == "grpo" else ())]
    return {
        key: needed
        for keys, acts, needed in rules
        if not acts
        for key in keys.split()
        if settings.asks_for(key)
    }


def faults(stage: str, settings: Settings) -> Iterator[str]:
    """Each silent mistake of the keys of SFT and GRPO, as `key: what is wrong; remedy`."""
    least = (settings.lr_scheduler_kwargs or {}).get("min_lr")
    if isinstance(least, int | float) and least >= settings.learning_rate:
        yield (
            f"lr_scheduler_kwargs: min_lr: {least} is not below learning_rate, "
            f"{settings.learning_rate}; lower it"
        )
    for key, known in CHOICES.items():
        value = settings.get(key)
        if value is not None and value not in known:
            yield f"{key}: must be one of {', '.join(known)} (got {value!r})"
    if settings.get("load_best_model_at_end"):
        yield "load_best_model_at_end: <output_dir> is the model of the last step; remove it"
    yield from of_mappings(settings)
    for key in NOT_RENDERED[stage]:
        if settings.get(key):
            yield f"{key}: the checkpoint's own tokenizer and template render rows; remove it"


def of_mappings(settings: Settings) -> Iterator[str]:
    """Names within a mapping that a key of the recipe sets, or that would change every rollout.

    transformers, vLLM and `trial.try_sampling` refuse names that nothing reads.
    """
    for key, taken in (("generation_kwargs", TAKEN), ("model_init_kwargs", MODEL_TAKEN)):
        given = settings.get(key)
        for name in given if isinstance(given, dict) else ():
            if name in taken:
                yield f"{key}: {name}: belongs to the recipe; set {taken[name]}"
            elif key == "generation_kwargs" and name in REFUSED:
                yield f"{key}: {name}: {REFUSED[name]}; remove it"


def check_rules(stage: str, settings: Settings) -> Settings:
    """Refuse all of this; returns the settings without pointless keys that an override left over.

    If overlay or command line give other keys, a file's own key is left out, with a line that
    `run_check` writes.
    """
    found, lines = pointless(stage, settings), []
    for key, needed in found.items():
        line = f"{key}: {settings[key]!r} would have no effect: {needed}"
        if not settings.is_overruled(key):
            raise UserError(f"{line}; set that, or remove the key")
        lines.append(f"{one_line(line)}; it is left out")
    if found:
        settings = settings.replaced(**dict.fromkeys(found, UNSET))
        settings.left_out = lines
    for fault in faults(stage, settings):
        raise UserError(fault)
    return settings


def of_both(s: Settings) -> Iterator[Rule]:
    """Rules of SFT and GRPO."""
    yield OF_LORA, s.use_peft, "it needs use_peft: true"
    yield "packing_strategy", s.get("packing"), "it needs packing: true"
    yield "padding_free", not s.get("packing"), "packed rows have no padding"
    yield OF_EVALUATION, s.eval_strategy != "no", "it needs eval_strategy: steps"
    yield "save_steps", s.save_strategy == "steps", "it needs save_strategy: steps"
    yield "logging_steps", s.logging_strategy == "steps", "it needs logging_strategy: steps"
    yield "num_train_epochs", s.max_steps == -1, "max_steps decides"
    yield OF_LOADER, s.dataloader_num_workers, "it needs dataloader_num_workers above 0"
    kwargs = "gradient_checkpointing_kwargs"
    yield kwargs, s.gradient_checkpointing, "it needs gradient_checkpointing: true"
    yield "adam_beta1 adam_beta2 adam_epsilon", s.get("optim") not in NO_ADAM, "optim has none"
    is_constant = s.lr_scheduler_type == "constant"
    warms_up = not is_constant or str(s.get("optim")).startswith("schedule_free")
    yield "warmup_steps", warms_up, "it needs lr_scheduler_type: constant_with_warmup"
    takes_kwargs = s.lr_scheduler_type not in ("constant", "constant_with_warmup", "linear")
    yield "lr_scheduler_kwargs", takes_kwargs, f"{s.lr_scheduler_type} takes none"
    # What `auto` and null stand for shows with the model: `RoundingNumbers` looks at its weights.
    rounds = s.dtype in ("bfloat16", "auto", None) and not s.use_peft
    yield "stochastic_rounding", rounds, "it rounds bfloat16 weights, without LoRA"


def of_grpo(s: Settings) -> Iterator[Rule]:
    """Rules of GRPO alone."""
    if s.curriculum in MODES or ":" in s.curriculum:
        for key, modes in READ_BY.items():
            yield key, s.curriculum in modes, f"it needs curriculum: {' or '.join(modes)}"
    yield "label_smoothing_factor", False, "GRPO's loss has no labels"
    clips = s.loss_type in CLIP
    yield "epsilon delta", clips, f"loss_type: {s.loss_type} clips no ratios"
    yield "epsilon_high", clips or s.loss_type == "cispo", f"loss_type: {s.loss_type} clips none"
    yield OF_COMPLETIONS, s.log_completions, "it needs log_completions: true"
    for name, rule in RULES.items():
        yield f"guard_{rule.limit}", getattr(s, f"guard_{name}") != "off", "its guard is off"
    rolls_back = any(getattr(s, f"guard_{name}") == "rollback" for name in GUARDS)
    yield "guard_rollback_lr_factor guard_max_rollbacks", rolls_back, "no guard rolls back"
    yield OF_VLLM, s.use_vllm, "it needs use_vllm: true"
    yield OF_GENERATION, not s.use_vllm, "vLLM generates"
    if s.use_vllm:
        is_colocated = s.vllm_mode == "colocate"
        yield OF_COLOCATE, is_colocated, "it needs vllm_mode: colocate"
        yield OF_SERVER, not is_colocated, "it needs vllm_mode: server"
        address = "vllm_server_host vllm_server_port"
        yield address, not s.vllm_server_base_url, "vllm_server_base_url decides"
        is_corrected = s.vllm_importance_sampling_correction
        yield OF_CORRECTION, is_corrected, "it needs vllm_importance_sampling_correction: true"
