"""Values, packages and files that SFT and GRPO have in common."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline import manifest
from pipeline.errors import UserError
from pipeline.settings import Settings
from stages.launch import is_installed, is_on
from stages.run_folder import check_states

# TRL accepts any text for these and fails at the first loss, or with the model loaded.
CHOICES = {
    "loss_type": ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo"),
    "importance_sampling_level": ("token", "sequence"),
    "multi_objective_aggregation": ("sum_then_normalize", "normalize_then_sum"),
    "vllm_importance_sampling_mode": (
        "token_truncate",
        "token_mask",
        "sequence_truncate",
        "sequence_mask",
    ),
    "cache_implementation": (
        "static",
        "offloaded_static",
        "dynamic",
        "offloaded",
        "quantized",
    ),
    "vllm_model_impl": ("auto", "vllm", "transformers", "terratorch"),
}
_LEVELS = ("debug", "detail", "info", "warning", "error", "critical", "passive")
SHARED_CHOICES: dict[str, tuple[Any, ...]] = {
    "include_num_input_tokens_seen": ("all", "non_padding", "no", True, False),
    "log_level": _LEVELS,
    "log_level_replica": _LEVELS,
    "lora_task_type": ("CAUSAL_LM",),
    "torch_compile_backend": (
        "eager",
        "aot_eager",
        "inductor",
        "cudagraphs",
        "ofi",
        "fx2trt",
        "onnxrt",
        "tensorrt",
        "tvm",
        "hpu_backend",
        "neuron",
    ),
    "torch_compile_mode": (
        "default",
        "lite",
        "reduce-overhead",
        "max-autotune",
        "max-autotune-no-cudagraphs",
    ),
}
TRACKERS = ("tensorboard", "wandb", "trackio", "mlflow", "swanlab")
# What a key, or its value, needs one of; transformers takes `kernels` in place of FlashAttention.
PACKAGES = {name: (name,) for name in TRACKERS} | {
    "mlflow": ("mlflow", "mlflow-skinny"),
    "flash_attention_2": ("flash-attn", "kernels"),
    "flash_attention_3": ("flash-attn-3", "kernels"),
    "flash_attention_4": ("flash-attn-4", "kernels"),
    "use_liger_kernel": ("liger-kernel",),
    "load_in_4bit": ("bitsandbytes",),
    "load_in_8bit": ("bitsandbytes",),
}
NEED_GPU = ("fp16", "tf32", "activation_offloading", "load_in_4bit", "load_in_8bit")
LOSS_ALONE = "evaluation takes a loss or rewards, and keeps no predictions"
UPLOAD = "the stages upload nothing; `make push REPO=owner/name` does"
INEFFECTIVE = {
    "do_train": "a training stage trains",
    "do_predict": "a training stage predicts nothing",
    **dict.fromkeys(
        (
            "prediction_loss_only",
            "include_for_metrics",
            "batch_eval_metrics",
            "eval_do_concat_batches",
            "eval_use_gather_object",
            "label_names",
        ),
        LOSS_ALONE,
    ),
    **dict.fromkeys(
        ("bf16_full_eval", "fp16_full_eval"), "evaluation while training has training's precision"
    ),
    **dict.fromkeys(
        (
            "hub_model_id",
            "hub_strategy",
            "hub_token",
            "hub_private_repo",
            "hub_always_push",
            "hub_revision",
        ),
        UPLOAD,
    ),
    "fsdp_config": "FSDP belongs to the launch, see configs/accelerate/fsdp2.yaml",
    "length_column_name": "rows have no column with their length",
}
LAST = "<output_dir> is the model of the last step"
SFT_INEFFECTIVE = INEFFECTIVE | {
    "eos_token": "rows end with the EOS of the checkpoint's own tokenizer",
    "dataset_text_field": "rows have prompt and completion",
    "assistant_only_loss": "the loss is on the completion",
    "truncation_mode": "rows over max_length are dropped, never cut",
    "dataset_kwargs": "rows are prepared by the stage",
    "pad_token": "rows are padded with that of the checkpoint's own tokenizer",
    "load_best_model_at_end": LAST,
    "metric_for_best_model": LAST,
    "greater_is_better": LAST,
}
TEMPLATE = "prompts are rendered with the chat template of the checkpoint's own tokenizer"
BEST = "<output_dir>/best keeps the model with the highest avg@k, <output_dir> the last one"
GRPO_INEFFECTIVE = INEFFECTIVE | {
    # Only GRPO would render with them, and SFT, difficulty and evaluation without.
    "chat_template_kwargs": TEMPLATE,
    "load_best_model_at_end": BEST,
    "metric_for_best_model": BEST,
    "greater_is_better": BEST,
    "label_smoothing_factor": "GRPO's loss has no labels",
    "max_tool_calling_iterations": "no tools are called",
    "log_multimodal": "problems are text",
    "train_sampling_strategy": "curriculum chooses the problems",
}


def check_ineffective(settings: Settings, reasons: dict[str, str]) -> None:
    """Refuse keys that this pipeline would ignore, each for its reason."""
    for key, reason in reasons.items():
        if settings.asks_for(key):
            raise UserError(f"{key}: {settings[key]!r} would have no effect: {reason}; remove it")


def check_upload(settings: Settings) -> None:
    """Refuse the Trainer's own uploads."""
    if settings.get("push_to_hub"):
        raise UserError(
            "push_to_hub: true would upload logs, arguments and every save; remove it, and upload "
            "the final model by `make push REPO=owner/name`"
        )
    if settings.get("log_completions_hub_repo"):
        raise UserError(
            "log_completions_hub_repo: would upload completions every two minutes; remove it, "
            "log_completions: true keeps them in the run's folder"
        )


def check_choices(settings: Settings, choices: Mapping[str, Sequence[Any]]) -> None:
    """Refuse a value that is none of a key's `choices`."""
    for key, known in choices.items():
        value = settings.get(key)
        if value is not None and value not in known:
            listed = ", ".join(str(one) for one in known)
            raise UserError(f"{key}: must be one of {listed} (got {value!r})")
    known = ("underflow_overflow", "tpu_metrics_debug")
    for word in str(settings.debug or "").split():
        if word not in known:
            raise UserError(f"debug: must be of {', '.join(known)} (got {word!r})")
    multiple = settings.pad_to_multiple_of
    if isinstance(multiple, str) and multiple != "auto":
        raise UserError(f"pad_to_multiple_of: must be a whole number or auto (got {multiple!r})")


def check_trackers(settings: Settings) -> None:
    """Refuse trackers that the stages do not know."""
    asked = settings.report_to
    names = asked if isinstance(asked, list) else [asked]
    if names != ["none"] and not {*names} <= {*TRACKERS}:
        raise UserError(f"report_to: must be none, or of {', '.join(TRACKERS)} (got {asked!r})")


def check_packages(settings: Settings) -> None:
    """Refuse what needs a package that is not installed."""
    attention = settings.attn_implementation or ""
    is_of_hub = "/" in attention  # kernels-community/flash-attn2
    needed = [("attn_implementation", ("kernels",) if is_of_hub else PACKAGES.get(attention))]
    needed += [("report_to", PACKAGES[name]) for name in TRACKERS if name in settings.report_to]
    if settings.get("cache_implementation") == "quantized":
        needed.append(("cache_implementation", ("optimum-quanto",)))
    needed += [(key, PACKAGES[key]) for key in PACKAGES.keys() & settings.keys() if settings[key]]
    for key, packages in needed:
        if packages and not manifest.versions(packages):
            raise UserError(
                f"{key}: {settings[key]} needs the package {' or '.join(packages)}; "
                f"pip install {packages[0]}"
            )


def check_device(settings: Settings) -> None:
    """Refuse on a CPU what only a GPU can do, where it fails late or does nothing.

    Also attention that only generates: without its cache it has no mask.
    """
    attention = settings.attn_implementation or ""
    if attention.startswith("paged|"):
        inner = attention.removeprefix("paged|")
        raise UserError(f"attn_implementation: {attention} cannot train; use {inner}")
    if not settings.use_cpu:
        return
    for key in NEED_GPU:
        if settings.get(key):
            raise UserError(
                f"{key}: {settings[key]} needs a GPU, and use_cpu is true; remove {key}, or "
                "set it to false"
            )
    if "offloaded" in str(settings.get("cache_implementation")):
        raise UserError(
            f"cache_implementation: {settings.cache_implementation} needs a GPU, and use_cpu is "
            "true; use dynamic"
        )
    if attention in PACKAGES:
        raise UserError(
            f"attn_implementation: {attention} needs a GPU, and use_cpu is true; use sdpa"
        )


def check_file(settings: Settings, key: str, target: str) -> None:
    """Refuse a missing input file, naming the make target that writes it."""
    path = settings.get(key)
    if path and not Path(path).is_file():
        raise UserError(f"{key}: {path} does not exist; run `make {target}` first")


def check_resume(settings: Settings) -> None:
    """Refuse to resume from what is not a checkpoint, or from one without all of its states."""
    checkpoint, key = settings.resume_from_checkpoint, "resume_from_checkpoint"
    if not checkpoint:
        return
    if not isinstance(checkpoint, str) or checkpoint.lower() == "true":
        raise UserError(f"{key}: a killed run resumes by itself; remove it, or name a folder")
    if not Path(checkpoint, "trainer_state.json").is_file():
        raise UserError(f"{key}: {checkpoint} is no checkpoint; name a folder checkpoint-<n>")
    check_states(Path(checkpoint), key)


def check_rounding(settings: Settings) -> None:
    """Refuse `stochastic_rounding` where it would do nothing, or cannot work."""
    key = "stochastic_rounding"
    if not settings.stochastic_rounding:
        return
    for engine in ("deepspeed", "fsdp"):
        if is_on(os.environ.get(f"ACCELERATE_USE_{engine.upper()}")):
            why = f"{engine} updates float32 weights; set dtype to float32"
            raise UserError(f"{key}: true would have no effect: {why}")
    for other in ("optim", "optim_args"):
        if settings.get(other):
            raise UserError(
                f"{key}: true sets {other} itself; remove {other}: {settings.get(other)}"
            )
    if not is_installed("torchao"):
        raise UserError(f"{key}: true needs the package torchao; pip install torchao==0.18.0")
