"""Values, packages and files that SFT and GRPO have in common."""

import os
from pathlib import Path

from pipeline import manifest
from pipeline.errors import UserError
from pipeline.settings import Settings
from stages.launch import is_installed, is_on
from stages.run_folder import check_states

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
