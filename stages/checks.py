"""What of an SFT or GRPO recipe can be refused before torch is imported.

Our keys together with Hugging Face's: what it accepts and fails on later, what it silently ignores,
what would have no effect. `check_sft` and `check_grpo` look at files and host too, `check_sft_keys`
and `check_grpo_keys` at the values alone.
"""

import math
import os
from pathlib import Path

from data_prep.checkpoints import check_checkpoint
from data_prep.config import PointlessKey, Settings, UserError
from data_prep.reading.rows import read_rows
from data_prep.schema import COLUMNS, check_row
from stages.arguments import MODES, SCALES, steps_per_generation
from stages.held_out import LEAST_PROBLEMS, key_of
from stages.launch import BATCH_KEYS, is_installed
from stages.trainer.guards import GUARDS, RECENT
from stages.vllm_checks import check_vllm, check_vllm_keys

# TRL accepts any text for these and fails at the first loss, or with the model loaded.
CHOICES = {
    "dtype": ("auto", "float32", "bfloat16", "float16"),
    "loss_type": ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo"),
    "importance_sampling_level": ("token", "sequence"),
}
_TEMPLATE = "prompts are rendered with the chat template of the checkpoint's own tokenizer"
SFT_INEFFECTIVE = {
    "chat_template_path": _TEMPLATE,
    "eos_token": "rows end with the EOS of the checkpoint's own tokenizer",
    "dataset_text_field": "rows have prompt and completion",
    "assistant_only_loss": "the loss is on the completion",
    "truncation_mode": "rows over max_length are dropped, never cut",
}
# Only GRPO would render with them, and SFT, difficulty and evaluation without.
GRPO_INEFFECTIVE = {"chat_template_kwargs": _TEMPLATE}


def check_sft(settings: Settings) -> None:
    """Everything about an SFT run that can be refused before torch is imported."""
    check_sft_keys(settings)
    check_file(settings, "train_file", "data")
    check_checkpoint(settings.model_name_or_path, "model_name_or_path", "base")


def check_sft_keys(settings: Settings) -> None:
    """The checks of `check_sft` that need no input file."""
    refuse_ineffective(settings, SFT_INEFFECTIVE)
    check_choices(settings, ("dtype",))
    check_lora(settings)
    check_rounding(settings)


def check_grpo(settings: Settings) -> None:
    """Everything about a GRPO run that can be refused before torch is imported."""
    check_grpo_keys(settings)
    check_file(settings, "train_file", "data")
    check_file(settings, "pass_rates", "difficulty")
    check_file(settings, "eval_file", "data")
    check_held_out(settings)
    check_checkpoint(settings.model_name_or_path, "model_name_or_path", "sft")
    check_vllm(settings)


def check_grpo_keys(settings: Settings) -> None:
    """The checks of `check_grpo` that need no input file."""
    refuse_ineffective(settings, GRPO_INEFFECTIVE)
    check_choices(settings, tuple(CHOICES))
    check_lora(settings)
    check_rounding(settings)
    check_numbers(settings)
    check_curriculum(settings)
    check_batch(settings, int(os.environ.get("WORLD_SIZE", "1")))
    check_rollback(settings)
    check_evaluation(settings)
    check_vllm_keys(settings)
    check_rewards(settings)


def check_file(settings: Settings, key: str, target: str) -> None:
    """Refuse a missing input file, naming the make target that writes it."""
    path = settings.get(key)
    if path and not Path(path).is_file():
        raise UserError(f"{key}: {path} does not exist; run `make {target}` first")


def refuse_ineffective(settings: Settings, reasons: dict[str, str]) -> None:
    """Refuse keys that Hugging Face knows and this pipeline would silently ignore."""
    for key, reason in reasons.items():
        if settings.get(key):
            raise UserError(f"{key}: {settings[key]!r} would have no effect: {reason}; remove it")


def check_choices(settings: Settings, keys: tuple[str, ...]) -> None:
    """Refuse a text that is none of the few that work."""
    for key in keys:
        value = getattr(settings, key)
        if value is not None and value not in CHOICES[key]:
            raise UserError(f"{key}: must be one of {', '.join(CHOICES[key])} (got {value!r})")


def check_lora(settings: Settings) -> None:
    """Refuse a rank that no LoRA can have."""
    if settings.use_peft and settings.lora_r < 1:
        raise UserError(
            f"lora_r: must be at least 1 (got {settings.lora_r}); use_peft: false for no LoRA"
        )


def check_rounding(settings: Settings) -> None:
    """Refuse `stochastic_rounding` where it would do nothing, or cannot work."""
    if not settings.stochastic_rounding:
        return
    key = "stochastic_rounding"
    causes = [
        ("dtype", settings.dtype != "bfloat16", f"dtype {settings.dtype} has nothing to round"),
        ("use_peft", settings.use_peft, "LoRA's weights are float32"),
    ]
    for engine in ("deepspeed", "fsdp"):
        is_launched = os.environ.get(f"ACCELERATE_USE_{engine.upper()}") == "true"
        why = f"{engine} updates float32 weights (dtype: float32)"
        causes.append((engine, is_launched or settings.get(engine), why))
    for cause, is_pointless, why in causes:
        if is_pointless:
            message = f"true would have no effect: {why}; set it to false"
            raise PointlessKey(key, message, (cause,))
    for other in ("optim", "optim_args"):
        if settings.get(other):
            raise UserError(f"{key}: true sets {other} itself; remove {other}: {settings[other]}")
    if not is_installed("torchao"):
        raise UserError(f"{key}: true needs the package torchao; pip install torchao==0.18.0")


def check_numbers(settings: Settings) -> None:
    """Refuse numbers, and two keys, that Hugging Face takes and a GRPO run cannot work with."""
    for key, least in (("num_iterations", 1), ("seed", 0), ("max_prompt_length", 1)):
        value = getattr(settings, key)
        if value is not None and value < least:
            raise UserError(f"{key}: must be at least {least} (got {value})")
    if not settings.temperature > 0:
        raise UserError(
            f"temperature: must be above 0 (got {settings.temperature}): a group of equal "
            "completions has nothing to compare"
        )
    if settings.sync_ref_model:
        raise UserError("sync_ref_model: checkpoints lack the moved reference; remove the key")
    checkpoint = settings.resume_from_checkpoint
    if isinstance(checkpoint, str) and not Path(checkpoint).is_dir():
        raise UserError(f"resume_from_checkpoint: {checkpoint} is no folder; name a checkpoint-<n>")


# Curriculum: keys that only some modes read.
_READ_BY = {
    "min_pass_rate": ("offline",),
    "max_pass_rate": ("offline",),
    "explore_share": ("predictive", "predictive+refill"),
    "rest_batches": ("predictive", "refill", "predictive+refill"),
    "half_life": ("predictive", "predictive+refill"),
    "max_refill_rounds": ("refill", "predictive+refill"),
    "pass_rates": ("offline", "predictive", "predictive+refill"),
}


def check_curriculum(settings: Settings) -> None:
    """Refuse keys that the chosen mode would not read."""
    mode = settings.curriculum
    for key, modes in _READ_BY.items():
        if key in settings and mode in MODES and mode not in modes:
            message = (
                f"{settings[key]!r} is read by curriculum: {' or '.join(modes)}; remove the key"
            )
            raise PointlessKey(key, message, ("curriculum",))
    scale = {True: "group", False: "none"}.get(settings.scale_rewards, settings.scale_rewards)
    if scale not in SCALES:
        raise UserError(f"scale_rewards: must be one of {', '.join(SCALES)} (got {scale!r})")
    if settings.multi_objective_aggregation == "normalize_then_sum":
        for key, is_own in (("curriculum", "refill" in mode), ("scale_rewards", scale != "group")):
            if is_own:
                raise UserError(
                    "multi_objective_aggregation: normalize_then_sum would have no effect with "
                    f"{key}: {getattr(settings, key)}; remove one of them"
                )


def check_batch(settings: Settings, num_processes: int) -> None:
    """Refuse batch numbers that do not give every process whole groups.

    TRL generates `per_device_train_batch_size x num_processes x steps_per_generation` completions
    at a time; each process's part must hold whole groups of `num_generations`.

    Args:
        num_processes: number of training processes (WORLD_SIZE).
    """
    group, per_device = settings.num_generations, settings.per_device_train_batch_size
    whole, rows = settings.generation_batch_size, per_device * num_processes
    for key in BATCH_KEYS:
        value = getattr(settings, key)
        if value is not None and value < 1:
            raise UserError(f"{key}: must be at least 1 (got {value})")
    if group is None or group < 2:
        raise UserError(
            f"num_generations: must be at least 2 (got {group}): a group is compared within itself"
        )
    if settings.steps_per_generation and whole:
        raise UserError("generation_batch_size: set it or steps_per_generation, not both")
    if whole and whole % rows:
        raise UserError(
            f"generation_batch_size: {whole} is no multiple of per_device_train_batch_size x "
            f"processes = {rows}; use a multiple of that"
        )
    steps = steps_per_generation(settings, num_processes)
    local = per_device * steps
    if local % group == 0:
        return
    if whole:
        key, now, unit = "generation_batch_size", whole, num_processes * math.lcm(per_device, group)
    else:
        key, now, unit = "per_device_train_batch_size", per_device, group // math.gcd(group, steps)
    fits = [n for n in (now // unit * unit, (now // unit + 1) * unit) if n]
    groups = [n for n in range(2, local + 1) if local % n == 0]
    groups = sorted(groups, key=lambda n: abs(n - group))
    raise UserError(
        f"num_generations: {group} does not divide the {local} completions of one process "
        f"(per_device_train_batch_size {per_device} x {steps} steps per generation); "
        f"use {key} {' or '.join(map(str, fits))}"
        + (f", or num_generations {groups[0]}" if groups else "")
    )


def check_rollback(settings: Settings) -> None:
    """Refuse a recipe that deletes, or never writes, the checkpoints a guard would roll back to."""
    actions = tuple(f"guard_{name}" for name in GUARDS)
    names = [key for key in actions if getattr(settings, key) == "rollback"]
    if not names:
        for key in ("guard_rollback_lr_factor", "guard_max_rollbacks"):
            if key in settings:
                message = f"{settings[key]} would have no effect: no guard rolls back; remove it"
                raise PointlessKey(key, message, actions)
        return
    if settings.save_strategy != "steps":
        raise UserError(f"{names[0]}: rollback needs checkpoints; set save_strategy to steps")
    steps, limit = settings.save_steps, settings.save_total_limit
    if steps < 1:
        raise UserError(f"save_steps: must be at least 1 with a rollback (got {steps:g})")
    if limit is None or limit <= 0:  # Hugging Face keeps all
        return
    needed = math.ceil(look_back(settings) / steps) + 1
    if limit < needed:
        raise UserError(
            f"save_total_limit: {limit} with save_steps {steps:g} may leave {names[0]} nothing to "
            f"roll back to, it distrusts up to {look_back(settings)} steps; use {needed} or more"
        )


def look_back(settings: Settings) -> int:
    """Optimizer steps that a guard may distrust when it fires.

    Rollouts are judged once a generation, which serves `steps_per_generation` x `num_iterations`
    micro-batches.
    """
    accumulation = settings.gradient_accumulation_steps
    uses = (settings.steps_per_generation or accumulation) * settings.num_iterations
    return (RECENT + settings.guard_patience) * max(1, math.ceil(uses / accumulation)) + 1


# Evaluation during training: without `eval_strategy: steps` nothing reads these.
_NEEDS_STRATEGY = (
    "eval_file", "eval_problems", "eval_steps", "eval_delay", "eval_on_start", "do_eval",
    "num_generations_eval", "per_device_eval_batch_size",
)  # fmt: skip
_BEST = "the model with the highest avg@k is kept in <output_dir>/best, <output_dir> has the last"


def check_evaluation(settings: Settings) -> None:
    """Refuse keys of the evaluation that contradict each other or would have no effect."""
    for key in ("load_best_model_at_end", "metric_for_best_model", "greater_is_better"):
        if settings.get(key):
            raise UserError(f"{key}: {settings[key]!r} has no use here: {_BEST}; remove the key")
    if settings.save_strategy == "best":
        raise UserError(f"save_strategy: best leaves nothing to resume from; use steps: {_BEST}")
    if settings.lr_scheduler_type in ("reduce_lr_on_plateau", "greedy"):
        fault = "follows a loss of held-out rows; use another"
        raise UserError(f"lr_scheduler_type: {settings.lr_scheduler_type} {fault}")
    if settings.eval_strategy == "no":
        for key in _NEEDS_STRATEGY:
            if settings.get(key):
                message = f"{settings[key]!r} would have no effect without eval_strategy: steps"
                raise PointlessKey(key, message, ("eval_strategy",))
        return
    if settings.eval_strategy != "steps":
        raise UserError(f"eval_strategy: {settings.eval_strategy!r}: use steps, with eval_steps")
    problems, steps = settings.eval_problems, settings.eval_steps
    if not settings.eval_file and not problems:
        raise UserError("eval_problems: missing; eval_strategy: steps needs them, or an eval_file")
    if problems is not None and problems < LEAST_PROBLEMS:
        raise UserError(f"eval_problems: {problems} must be at least {LEAST_PROBLEMS}")
    if steps is None:
        raise UserError("eval_steps: missing; set the optimizer steps between two evaluations")
    if steps < 1 or not float(steps).is_integer():
        raise UserError(f"eval_steps: {steps} must be a whole number of optimizer steps above 0")
    if settings.dataloader_drop_last:
        raise UserError("dataloader_drop_last: True would leave held-out problems out; remove it")
    key = "num_generations_eval" if settings.num_generations_eval else "num_generations"
    size, batch = getattr(settings, key), settings.per_device_eval_batch_size
    if size < 1 or batch < 1:
        raise UserError(f"{key}: {size} and per_device_eval_batch_size: {batch} must be above 0")
    if batch % size:
        fits = [n for n in (batch // size * size, math.ceil(batch / size) * size) if n]
        raise UserError(
            f"per_device_eval_batch_size: {batch} is no multiple of {key}, {size}; use "
            f"{' or '.join(map(str, fits))}"
        )


def _read_keys(path: str) -> dict[str, str]:
    """The normalised question of every problem of a file, and the place of its first copy."""
    keys: dict[str, str] = {}
    for where, row in read_rows(path):
        check_row(row, COLUMNS, where)
        keys.setdefault(key_of(row), where)
    return keys


def check_held_out(settings: Settings) -> None:
    """Refuse too few held-out problems, and held-out problems that would be trained on.

    The recipe's files exist.
    """
    if settings.eval_strategy == "no":
        return
    train_file, eval_file, num = settings.train_file, settings.eval_file, settings.eval_problems
    train = _read_keys(train_file)
    held_out = _read_keys(eval_file) if eval_file else train
    if len(held_out) < LEAST_PROBLEMS:
        raise UserError(
            f"{'eval_file' if eval_file else 'train_file'}: {eval_file or train_file} has "
            f"{len(held_out)} problems; at least {LEAST_PROBLEMS} are needed to evaluate on"
        )
    if num is not None and num > len(held_out):
        raise UserError(
            f"eval_problems: {num} is more than the {len(held_out)} different problems of "
            f"{eval_file or train_file}; use fewer"
        )
    if eval_file is None and num == len(train):
        raise UserError(f"eval_problems: {num} would leave nothing of {train_file} to train on")
    if eval_file and (shared := [key for key in held_out if key in train]):
        first = shared[0]
        raise UserError(
            f"eval_file: {held_out[first]}: the question is also in {train[first]} ({len(shared)} "
            f"of {len(held_out)} are); take them out of one of the files"
        )


def check_rewards(settings: Settings) -> None:
    """Refuse weights that do not fit the functions, and `overlong` without its limits."""
    weights, funcs = settings.reward_weights, settings.reward_funcs
    if weights is not None and len(weights) != len(funcs):
        raise UserError(
            f"reward_weights: {weights} has {len(weights)} entries, reward_funcs has {len(funcs)}; "
            "give one weight per function"
        )
    if "overlong" not in funcs:
        return
    limit, cache = settings.max_completion_length, settings.overlong_cache
    for key, value in (("max_completion_length", limit), ("overlong_cache", cache)):
        if value is None:
            raise UserError(f"{key}: missing; the reward overlong needs it, in tokens")
    if not 1 <= cache <= limit:
        raise UserError(
            f"overlong_cache: must be within 1..{limit}, the max_completion_length (got {cache})"
        )
