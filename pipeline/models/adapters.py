"""Adapters of peft, merged into their model: what the merged model says is what the adapter said.

A merge can silently make another model: of tied weights one was trained and both are changed, or
the base is not the one of the training. Logits of a few rows before and after tell.
"""

from typing import Any

from pipeline.console import say
from pipeline.errors import UserError
from pipeline.models import weights
from pipeline.models.checkpoints import base_and_adapter
from pipeline.models.generation import read_repaired

ROWS, TOKENS = 2, 16
# Largest distance of the logits, as a share of their own size. In 16 bits the merged weights are
# rounded once more; the tests' models measured 0.02.
TOLERANCE, TOLERANCE_16 = 1e-3, 0.1
MOST_LOST = 0.5  # by rounding, before a line tells


def probe(model: Any) -> Any:
    """Logits of a few rows with tokens from all of the vocabulary, (B, L, V) in float32."""
    import torch

    config = model.config.get_text_config()
    device = next(model.parameters()).device
    ids = torch.linspace(0, config.vocab_size - 1, ROWS * TOKENS, device=device).long()
    ids = ids.view(ROWS, TOKENS)
    was_training = model.training
    model.eval()  # without dropout
    with torch.no_grad():
        found = model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits
    model.train(was_training)
    return found.float().cpu()


def distance(found: Any, expected: Any) -> float:
    """|found - expected| / |expected - mean of expected|, of two tensors of logits."""
    return float((found - expected).norm() / (expected - expected.mean()).norm())


def rounded_away(model: Any) -> float:
    """Share of what LoRA adds to the weights that their precision loses: |added - kept| / |added|.

    An addition below half of a weight's last digit changes nothing.
    """
    from peft.tuners.lora import Embedding, Linear

    lost, total = 0.0, 0.0
    for layer in model.modules():
        if not isinstance(layer, Linear | Embedding):
            continue
        weight = layer.get_base_layer().weight.data
        for name in layer.active_adapters:
            added = layer.get_delta_weight(name).detach().float()
            kept = (weight + added.to(weight.dtype)).float() - weight.float()
            lost += float((added - kept).square().sum())
            total += float(added.square().sum())
    return (lost / total) ** 0.5 if total else 0.0


def merge(model: Any, adapter: str, expected: Any = None, is_exact: bool = True) -> Any:
    """Merge an adapter into its model, in place, and compare the logits.

    Args:
        model: the `PeftModel`, whole in this process.
        adapter: the folder that keeps the adapter, for the message.
        expected: logits as trained, where these are not what `model` says now.
        is_exact: whether `expected` was computed in float32.

    Raises:
        UserError: the merged model is another one.
    """
    import torch

    # Without what a Trainer wraps around the outer model's forward, as autocast.
    said = [probe(model.get_base_model())]
    if expected is not None:
        said.append(expected)
    lost = rounded_away(model)
    if lost > MOST_LOST:
        say(
            f"{adapter}: merged, {model.dtype} weights lose {lost:.0%} of what LoRA has learned; "
            "the adapter has all of it; dtype: float32 keeps it"
        )
    merged = model.merge_and_unload()
    is_exact = is_exact and merged.dtype == torch.float32
    limit = TOLERANCE if is_exact else TOLERANCE_16
    found = probe(merged)
    worst = max(distance(found, one) for one in said)
    if worst <= limit:
        return merged
    raise UserError(
        f"{adapter}: merged into its base model it would be another model: logits differ by "
        f"{worst:.2g} of their size (limit {limit:g}); the adapter is kept there as it is; check "
        "that its base model has not changed, or train LoRA on linear layers alone"
    )


def load_merged(
    checkpoint: str, key: str, expected: Any = None, is_exact: bool = True, **settings: Any
) -> Any:
    """Load a model folder, hub id or adapter folder; an adapter is merged into its base model.

    A quantized base is dequantized first. In its few bits, what was learned would be rounded away:
    a small model's logits were off by 0.31 of their size in 4 bits, by 0.02 dequantized.

    Args:
        key: the YAML key that names it, for messages.
        expected, is_exact: as in `merge`.
        settings: of `from_pretrained`, such as dtype; a revision is that of the base model.
    """
    base, adapter = base_and_adapter(checkpoint)
    if adapter is None:
        repaired, _ = read_repaired(checkpoint, settings.get("revision"))
        if repaired is not None:
            settings.setdefault("generation_config", repaired)
        return weights.load(checkpoint, key, **settings)
    model = load_merged(base, key, **settings)
    if getattr(model, "is_quantized", False):
        model = model.dequantize()
    return merge(attach(model, adapter), adapter, expected, is_exact)


def attach(model: Any, adapter: str) -> Any:
    """The `PeftModel` of a model and an adapter folder, all of whose weights have a place.

    peft itself leaves out weights of other names. Where some are missing, it keeps those of a new
    adapter, which changes nothing.

    Raises:
        UserError: the kind of adapter cannot be merged, or its weights are not those of its config.
    """
    from peft import PeftConfig, PeftModel

    config = PeftConfig.from_pretrained(adapter)
    kind = str(getattr(config.peft_type, "value", config.peft_type))
    if config.is_prompt_learning or getattr(config, "layer_replication", None):
        what = f"peft_type: {kind}" if config.is_prompt_learning else "layer_replication"
        raise UserError(
            f"{adapter}: adapter_config.json: {what} cannot be merged into a model; use an adapter "
            "that changes weights, such as LoRA"
        )
    wrapped = PeftModel.from_pretrained(model, adapter)
    found = wrapped.load_adapter(adapter, "default")  # once more: the first load keeps this quiet
    for keys, fault in (
        (found.missing_keys, "lacks"),
        (found.unexpected_keys, "has no place for"),
    ):
        if keys:
            raise UserError(
                f"{adapter}: the adapter {fault} {len(keys)} weights, first {min(keys)}; its "
                "adapter_config.json is that of other weights: copy or save the folder again"
            )
    return wrapped
