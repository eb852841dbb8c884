"""What is wrong with the keys of SFT and GRPO, though no library raises and no rehearsal shows it.

pointless   keys that somebody reads, a constructor as a rule, and that do nothing without
            another key; a rehearsal finds those that nobody reads
faults      values that spoil a run in silence, or that a rehearsal on a CPU cannot try
check_rules refuses both; the error has them all
"""

import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pipeline.console import one_line
from pipeline.errors import UserError
from pipeline.key_types import UNSET
from pipeline.own_code import check_own, is_own, load_own
from pipeline.settings import Settings
from stages.arguments import MODES, keeps_old_logps, steps_per_generation
from stages.run.folders import lost_states
from stages.run.launch import DATA_PARALLEL, asked_engine
from stages.trainer.guards import GUARDS, RECENT, RULES
from stages.trainer.logprobs import why_not_compared

TRACKERS = ("tensorboard", "wandb", "trackio", "mlflow", "swanlab")
FLASH = ("flash_attention_2", "flash_attention_3", "flash_attention_4")
NEED_GPU = ("fp16", "tf32", "activation_offloading", "load_in_4bit", "load_in_8bit")

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
    num_generations_eval per_device_eval_batch_size eval_packing eval_temperature eval_top_p
    eval_top_k"""
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
    "vllm_mode": ("colocate", "server"),
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
    own = pointless_of_sft if stage == "sft" else pointless_of_grpo
    rules = [*pointless_of_both(settings), *own(settings)]
    return {
        key: needed
        for keys, acts, needed in rules
        if not acts
        for key in keys.split()
        if settings.asks_for(key)
    }


def check_sft_keys(
    settings: Settings, processes: int | None = None, engine: str | None = None
) -> Settings:
    """The checks of an SFT run that need no input file."""
    return check_rules("sft", settings, processes, engine)


def check_grpo_keys(
    settings: Settings, processes: int | None = None, engine: str | None = None
) -> Settings:
    """The checks of a GRPO run that need no input file."""
    return check_rules("grpo", settings, processes, engine)


def check_rules(
    stage: str, settings: Settings, processes: int | None = None, engine: str | None = None
) -> Settings:
    """Refuse keys that do nothing, and values that spoil a run.

    Args:
        processes: of the launch, None for those of this process's environment; with 0 what
            depends on their number is left out.
        engine: of the launch, as `asked_engine` names it.

    Returns:
        The settings without pointless keys that an override left over. If overlay or command line
        give other keys, a file's own key is left out, with a line that `run_check` writes.

    Raises:
        UserError: with a line for each.
    """
    if processes is None:
        processes = int(os.environ.get("WORLD_SIZE", "1"))
    check_own_code(settings)
    lines, left_out, found = [], [], pointless(stage, settings)
    for key, needed in found.items():
        line = f"{key}: {settings[key]!r} would have no effect: {needed}"
        if settings.is_overruled(key):
            left_out.append(f"{one_line(line)}; it is left out")
        else:
            lines.append(f"{line}; set that, or remove the key")
    if found:
        settings = settings.replaced(**dict.fromkeys(found, UNSET))
        settings.left_out = left_out
    lines += faults(stage, settings, processes, engine or asked_engine())
    if lines:
        raise UserError(*lines)
    return settings


def check_own_code(settings: Settings) -> None:
    """Refuse code of the user's own that nobody allowed, or that does not fit."""
    if settings.get("reward_funcs"):
        check_own(settings, "reward_funcs")
    if is_own(settings.get("curriculum") or ""):
        from stages.trainer.curriculum import Curriculum  # late: numpy costs every other run time

        check_own(settings, "curriculum", Curriculum)


def faults(
    stage: str, settings: Settings, processes: int = 1, engine: str = DATA_PARALLEL
) -> Iterator[str]:
    """Each silent mistake of the keys of SFT and GRPO, as `key: what is wrong; remedy`.

    Args:
        processes, engine: of the launch, as `check_rules` takes them.
    """
    for key, known in CHOICES.items():
        value = settings.get(key)
        if value is not None and value not in known:
            yield f"{key}: must be one of {', '.join(known)} (got {value!r})"
    for key in NOT_RENDERED[stage]:
        if settings.get(key):
            yield f"{key}: the checkpoint's own tokenizer and template render rows; remove it"
    yield from of_saves(settings)
    yield from of_device(settings)
    yield from of_optimizer(settings, engine)
    yield from of_mappings(settings)
    yield from of_first_evaluation(settings)
    if stage == "sft":
        yield from of_sft(settings)
        return
    yield from of_loss(settings)
    yield from of_rewards(settings)
    yield from of_evaluation(settings)
    if settings.use_vllm:
        yield from of_vllm(settings)
    if processes:
        yield from of_processes(settings, processes)


def of_saves(s: Settings) -> Iterator[str]:
    """Uploads, trackers that the stages do not know, and saves that nothing can resume from."""
    if s.get("push_to_hub"):
        yield (
            "push_to_hub: true would upload logs, arguments and every save; remove it, and upload "
            "the final model by `make push REPO=owner/name`"
        )
    if s.get("log_completions_hub_repo"):
        yield (
            "log_completions_hub_repo: would upload completions every two minutes; remove it, "
            "log_completions: true keeps them in the run's folder"
        )
    names = s.report_to if isinstance(s.report_to, list) else [s.report_to]
    if names != ["none"] and not {*names} <= {*TRACKERS}:
        yield f"report_to: must be none, or of {', '.join(TRACKERS)} (got {s.report_to!r})"
    if s.get("load_best_model_at_end"):
        yield "load_best_model_at_end: <output_dir> is the model of the last step; remove it"
    if s.save_strategy == "best":
        yield "save_strategy: best leaves nothing to resume from; use steps"
    checkpoint, key = s.resume_from_checkpoint, "resume_from_checkpoint"
    if not checkpoint:
        return
    if not isinstance(checkpoint, str) or checkpoint.lower() == "true":
        yield f"{key}: a killed run resumes by itself; remove it, or name a folder"
    elif not Path(checkpoint, "trainer_state.json").is_file():
        yield f"{key}: {checkpoint} is no checkpoint; name a folder checkpoint-<n>"
    elif fault := lost_states(Path(checkpoint), key):
        yield fault


def of_device(s: Settings) -> Iterator[str]:
    """On a CPU what only a GPU can do, where it fails late or does nothing.

    Also attention that only generates: without its cache it has no mask.
    """
    attention = s.attn_implementation or ""
    if attention.startswith("paged|"):
        inner = attention.removeprefix("paged|")
        yield f"attn_implementation: {attention} cannot train; use {inner}"
    if not s.use_cpu:
        return
    for key in NEED_GPU:
        if s.get(key):
            yield (
                f"{key}: {s[key]} needs a GPU, and use_cpu is true; remove {key}, or set it to "
                "false"
            )
    cache = s.get("cache_implementation")
    if "offloaded" in str(cache):
        yield f"cache_implementation: {cache} needs a GPU, and use_cpu is true; use dynamic"
    if attention in FLASH:
        yield f"attn_implementation: {attention} needs a GPU, and use_cpu is true; use sdpa"


def of_optimizer(s: Settings, engine: str) -> Iterator[str]:
    """A schedule that never falls, and `stochastic_rounding` where it cannot work."""
    least = (s.lr_scheduler_kwargs or {}).get("min_lr")
    if isinstance(least, int | float) and least >= s.learning_rate:
        yield (
            f"lr_scheduler_kwargs: min_lr: {least} is not below learning_rate, {s.learning_rate}; "
            "lower it"
        )
    if not s.stochastic_rounding:
        return
    key = "stochastic_rounding"
    if engine != DATA_PARALLEL:
        name = engine.partition(" ")[0].lower()
        why = f"{name} updates float32 weights; set dtype to float32"
        yield f"{key}: true would have no effect: {why}"
    for other in ("optim", "optim_args"):
        if s.get(other):
            yield f"{key}: true sets {other} itself; remove {other}: {s.get(other)}"


def of_sft(s: Settings) -> Iterator[str]:
    """Rows that are cut, or that see each other."""
    if s.eval_packing and not s.packing:
        yield (
            "eval_packing: true without packing: the held-out rows would see each other; remove it"
        )
    if s.packing and s.packing_strategy == "wrapped":
        yield (
            "packing_strategy: wrapped cuts rows wherever a packed row is full, and they see each "
            "other; use bfd"
        )


def of_loss(s: Settings) -> Iterator[str]:
    """Keys that together make another loss than `loss_type` names; TRL at most warns."""
    loss, level, cap = s.loss_type, s.importance_sampling_level, s.epsilon_high
    fitting = {"luspo": "sequence", "grpo": level, "sapo": level}.get(loss, "token")
    if level != fitting:
        yield (
            f"importance_sampling_level: {level} does not go with loss_type: {loss}; use "
            f"{fitting}, or loss_type: grpo for GSPO"
        )
    if loss == "cispo" and (cap or 0) < 1:
        yield f"epsilon_high: loss_type: cispo caps ratios there; use 1 or more (got {cap})"
    least, most = s.entropy_coef_min, s.entropy_coef_max
    if s.use_adaptive_entropy and least > most:
        yield f"entropy_coef_min: {least} is above entropy_coef_max, {most}; lower it"
    is_summed_later = s.multi_objective_aggregation == "normalize_then_sum"
    if is_summed_later and s.scale_rewards not in ("group", True):
        yield (
            "multi_objective_aggregation: normalize_then_sum would have no effect with "
            f"scale_rewards: {s.scale_rewards}; remove one of them"
        )


def of_rewards(s: Settings) -> Iterator[str]:
    """Weights that do not fit, a function that is listed twice, rewards without their limits."""
    weights, funcs = s.reward_weights, s.reward_funcs
    # One of the user's own may be there under two names.
    functions = [load_own(name, "reward_funcs") if is_own(name) else name for name in funcs]
    for number, function in enumerate(functions):
        if function in functions[:number]:
            yield (
                f"reward_funcs: {funcs[number]} is listed twice; list it once, with the sum of its "
                "reward_weights"
            )
    if weights is not None and len(weights) != len(funcs):
        yield (
            f"reward_weights: {weights} has {len(weights)} entries, reward_funcs has "
            f"{len(funcs)}; give one weight per function"
        )
    if weights is not None and not any(weights):
        yield (
            f"reward_weights: {weights}: every reward would be 0, and nothing would be learned; "
            "give one of them a weight"
        )
    limit, cache = s.max_completion_length, s.overlong_cache
    if "cosine_scaled_reward" in funcs and limit is None and s.cosine_max_len is None:
        yield (
            "cosine_max_len: missing; the reward cosine_scaled_reward needs it, or a "
            "max_completion_length, in tokens"
        )
    if "overlong" not in funcs:
        return
    for key, value in (("max_completion_length", limit), ("overlong_cache", cache)):
        if value is None:
            yield f"{key}: missing; the reward overlong needs it, in tokens"
    if limit is not None and cache is not None and not 1 <= cache <= limit:
        yield (
            f"overlong_cache: must be within 1..{limit}, the max_completion_length (got {cache})"
        )


def of_first_evaluation(s: Settings) -> Iterator[str]:
    """An evaluation that would never come; a run's end in steps is known here by `max_steps`."""
    if s.eval_on_start:
        return
    if s.eval_strategy == "steps" and s.max_steps > 0:
        yield from beyond(s, ("eval_steps", "eval_delay"), s.max_steps, "steps")
    elif s.eval_strategy == "epoch" and s.max_steps <= 0:
        yield from beyond(s, ("eval_delay",), s.num_train_epochs, "epochs")


def beyond(s: Settings, keys: Iterable[str], end: float, unit: str) -> Iterator[str]:
    """A line for each key of the first evaluation that lies behind a run's end."""
    for key in keys:
        if (value := getattr(s, key) or 0) > end:
            yield f"{key}: {value:g} is beyond the last of {end:g} {unit}: no evaluation; lower it"


def of_evaluation(s: Settings) -> Iterator[str]:
    """An evaluation of GRPO that would leave problems out, or come at other steps."""
    if s.eval_strategy == "no":
        return
    if s.eval_strategy != "steps":
        yield f"eval_strategy: must be steps, with eval_steps (got {s.eval_strategy!r})"
        return
    if s.eval_steps is None:
        yield "eval_steps: missing; set the optimizer steps between two evaluations"
    elif s.eval_steps % 1:
        yield f"eval_steps: {s.eval_steps} must be a whole number of optimizer steps"
    if s.dataloader_drop_last:
        yield "dataloader_drop_last: true would leave out validation problems; remove it"


def of_vllm(s: Settings) -> Iterator[str]:
    """Numbers that vLLM would silently cut, and corrections that would erase the loss."""
    mode, why = s.vllm_importance_sampling_mode or "", why_not_compared(s)
    if s.vllm_importance_sampling_correction and why and mode.startswith("sequence"):
        yield (
            f"vllm_importance_sampling_mode: {mode} multiplies the loss of a completion by the "
            f"kept mass of all its tokens, nearly 0: {why}; set temperature: 1, where they are "
            "before it, or vllm_importance_sampling_mode: token_truncate"
        )
    is_of_tokens = mode.startswith("token_")
    if s.loss_type == "vespo" and s.vllm_importance_sampling_correction and not is_of_tokens:
        yield (
            f"vllm_importance_sampling_mode: {mode} does not go with loss_type: vespo; use "
            "token_truncate or token_mask"
        )
    context = s.vllm_max_model_length
    needed = (s.max_prompt_length or 1) + (s.max_completion_length or 1)
    if s.vllm_mode == "colocate" and context is not None and context < needed:
        yield (
            f"vllm_max_model_length: {context} is less than max_prompt_length + "
            f"max_completion_length = {needed}, and would cut completions; raise it"
        )


def of_processes(s: Settings, processes: int) -> Iterator[str]:
    """Numbers of GRPO that do not fit the processes of its launch."""
    steps = steps_per_generation(s, processes)
    if not steps or not s.num_generations:  # TRL refuses these
        return
    local = s.per_device_train_batch_size * steps
    if local % s.num_generations:
        yield partial_groups(s, processes, steps, local)
    yield from of_rollback(s, processes)
    if not s.use_vllm:
        return
    parallel = s.vllm_tensor_parallel_size
    if s.vllm_mode == "colocate" and (parallel < 1 or processes % parallel):
        yield (
            f"vllm_tensor_parallel_size: {parallel} does not divide {processes} processes; use 1"
        )
    if s.guard_alignment != "off" and not keeps_old_logps(s, steps):
        yield (
            "vllm_importance_sampling_correction: false leaves guard_alignment without log-probs "
            "to compare; remove the key, or set guard_alignment: off"
        )


def partial_groups(s: Settings, processes: int, steps: int, local: int) -> str:
    """The fault of a process whose `local` completions are no whole groups; with numbers that fit.

    TRL looks at all processes together.
    """
    group, per_device = s.num_generations, s.per_device_train_batch_size
    key, now, unit = "per_device_train_batch_size", per_device, group // math.gcd(group, steps)
    if s.generation_batch_size:
        key, now = "generation_batch_size", s.generation_batch_size
        unit = processes * math.lcm(per_device, group)
    below = now // unit * unit
    fitting = " or ".join(str(number) for number in (below, below + unit) if number)
    remedy = f"use {key} {fitting}"
    groups = [n for n in range(2, local + 1) if local % n == 0]
    if groups:
        remedy += f", or num_generations {min(groups, key=lambda n: abs(n - group))}"
    return (
        f"num_generations: {group} does not divide the {local} completions of one process "
        f"(per_device_train_batch_size {per_device} x {steps} steps per generation); {remedy}"
    )


def of_rollback(s: Settings, processes: int) -> Iterator[str]:
    """Checkpoints that a guard would roll back to, and that are deleted or never written."""
    names = [f"guard_{name}" for name in GUARDS if getattr(s, f"guard_{name}") == "rollback"]
    if not names:
        return
    if s.save_strategy != "steps":
        yield f"{names[0]}: rollback needs checkpoints; set save_strategy to steps"
        return
    if s.save_only_model:
        yield f"{names[0]}: rollback needs save_only_model: false"
    steps, limit = s.save_steps, s.save_total_limit
    if steps < 1:
        yield f"save_steps: must be at least 1 with a rollback (got {steps:g})"
        return
    # Optimizer steps that a guard, which sees one rollout a generation, may distrust.
    uses = steps_per_generation(s, processes) * s.num_iterations
    generation = max(1, math.ceil(uses / s.gradient_accumulation_steps))
    distrusted = (RECENT + s.guard_patience) * generation + 1
    needed = math.ceil(distrusted / steps) + 1
    if limit is not None and 0 < limit < needed:  # Hugging Face keeps all with 0
        yield (
            f"save_total_limit: {limit} with save_steps {steps:g} may leave {names[0]} no "
            f"checkpoint older than {distrusted} steps to roll back to; use {needed} or more"
        )


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


def pointless_of_both(s: Settings) -> Iterator[Rule]:
    """Rules of `pointless` for SFT and GRPO."""
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


def pointless_of_sft(s: Settings) -> Iterator[Rule]:
    """Rules of `pointless` for SFT alone."""
    yield "label_smoothing_factor", s.loss_type == "nll", "it needs loss_type: nll"


def pointless_of_grpo(s: Settings) -> Iterator[Rule]:
    """Rules of `pointless` for GRPO alone."""
    yield "lora_dropout", not s.disable_dropout, "disable_dropout: true turns it off"
    if s.curriculum in MODES or is_own(s.curriculum):
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
