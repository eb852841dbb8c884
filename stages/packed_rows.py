"""Packed rows of SFT: whether a loaded model keeps them apart, measured before training.

With torch's SDPA a GPU in 16 bit takes `varlen` of `rows_apart` instead, where a trial allows it.
"""

from types import SimpleNamespace
from typing import Any

import torch
from transformers.integrations import is_deepspeed_zero3_enabled

from pipeline.console import say
from pipeline.errors import UserError
from stages.trainer import rows_apart
from stages.trainer.rows_apart import all_agree, keeps_rows_apart
from stages.trial import own_model


def use_varlen(trainer: Any) -> None:
    """Take one attention call a layer for all packed rows, and no mask of T x T, where it works."""
    model, args = own_model(trainer), trainer.args
    dtype = rows_apart.computed_in(args, model)
    if not rows_apart.has_varlen(args.device, dtype):
        return
    is_changed = rows_apart.use(model, args.device, dtype)
    if is_changed and model.config._attn_implementation != rows_apart.VARLEN:
        rows_apart.set_attention(model, "sdpa")
        say("sft: packing: torch's varlen_attn does not give what sdpa does here; sdpa is taken")


def check_rows_apart(trainer: Any) -> None:
    """Refuse a model whose packed rows see each other.

    Not where its weights are elsewhere: under ZeRO-3, or on a CPU that FlashAttention cannot use.
    FSDP and DeepSpeed leave them on a CPU up to here.
    """
    model = own_model(trainer)
    is_elsewhere = next(model.parameters()).device.type != trainer.args.device.type
    if is_deepspeed_zero3_enabled() or (is_elsewhere and has_flash(model)):
        return
    probed = model if is_exact(model) else as_trained(trainer, model)
    if not all_agree(keeps_rows_apart, probed):
        raise UserError(
            f"packing: the model's layers, of model_type {model.config.model_type}, do not keep "
            "packed rows apart, so they would see each other; set packing: false, without "
            "padding_free"
        )


def is_exact(model: Any) -> bool:
    """Whether a model computes in float32; FlashAttention and TF32 do not."""
    has_tf32 = torch.cuda.is_available() and torch.backends.cuda.matmul.allow_tf32
    return (
        not has_flash(model)
        and not has_tf32
        and {p.dtype for p in model.parameters()} == {torch.float32}
    )


def has_flash(model: Any) -> bool:
    """Whether a model's attention is FlashAttention."""
    return "flash" in str(model.config._attn_implementation)


def as_trained(trainer: Any, model: Any) -> Any:
    """What `keeps_rows_apart` asks of a model, computed and judged in the training's precision."""

    def forward(**inputs: Any) -> tuple[torch.Tensor]:
        with trainer.accelerator.autocast():
            return (model.base_model(**inputs)[0].to(torch.bfloat16),)

    return SimpleNamespace(
        training=model.training,
        eval=model.eval,
        train=model.train,
        parameters=model.parameters,
        base_model=forward,
    )
