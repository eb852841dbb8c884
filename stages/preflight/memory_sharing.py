"""What several processes share of a plan: data parallel, ZeRO and FSDP 2.

By the ZeRO paper (arXiv:1910.02054, section 3) and the engines' defaults; unlike the rest of the
plan this could not be measured here, see docs/preflight.md.
"""

from dataclasses import dataclass, replace

from stages.preflight.memory_model import Model, Step

ZERO_BUCKET = 500_000_000  # numbers; DeepSpeed's reduce_bucket_size and allgather_bucket_size


@dataclass(frozen=True)
class Part:
    """One term of the plan; `formula` says how it came about."""

    name: str
    bytes: float
    formula: str


def share(parts: list[Part], model: Model, step: Step) -> list[Part]:
    """The same parts for one of `step.processes` processes under `step.engine`."""
    if step.engine == "ddp":
        return [*parts, _buckets(model, step)]
    is_zero = step.engine.startswith("zero")
    trained = model.params
    if step.lora_rank is not None:
        trained = model.lora_params(step.lora_rank, step.lora_modules)
    divided = {"gradients", "optimizer"} if step.engine == "zero2" else {*SHARDED}
    shared = []
    for part in parts:
        if part.name in divided and part.bytes:
            text = f"{part.formula} / {step.processes}"
            part = replace(part, bytes=part.bytes / step.processes, formula=text)
        if part.name in OFFLOADED and step.engine.endswith("offload"):
            part = replace(part, bytes=0, formula="in the host's memory")
        shared.append(part)
    if is_zero:
        master = 0 if step.engine.endswith("offload") else 4 * trained / step.processes
        shared.append(
            Part("master weights", master, f"4 B x {trained:,} / {step.processes} (DeepSpeed)")
        )
        bucket = 2 * min(ZERO_BUCKET, trained) * min(2, step.weight)
        shared.append(Part("buckets", bucket, "DeepSpeed's reduce and gather buckets"))
    if step.engine != "zero2":
        largest = max(2 * model.layer_params, model.embedding)
        gathered = step.compute * largest
        text = f"{step.compute} B x {largest:,}: two layers or the embedding, whole"
        shared.append(Part("gathered weights", gathered, text))
    return shared


OFFLOADED = ("optimizer", "weights", "LoRA weights", "reference model")  # both, as the file asks
SHARDED = ("weights", "LoRA weights", "gradients", "optimizer", "reference model")


def _buckets(model: Model, step: Step) -> Part:
    """DDP sums gradients in buckets of its own, as large as all of them."""
    if step.lora_rank is not None:
        number, size = model.lora_params(step.lora_rank, step.lora_modules), 4
    else:
        number, size = model.params, step.weight
    return Part("DDP's buckets", number * size, f"{size} B x {number:,}")
