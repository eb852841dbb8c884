"""Plan the memory of one training process, in bytes, from a recipe's worst step.

`tracker.py` runs that step on tensors without storage, with a few layers of the real model and with
twice as many. Here each moment of the step is extrapolated to all layers, and the highest is the
plan. Weights and optimizer states are counted on the whole model. DDP's and DeepSpeed's own memory
is arithmetic (arXiv:1910.02054).
"""

import contextlib
import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from pipeline import manifest
from pipeline.errors import UserError
from pipeline.models.hub import user_cache
from stages.preflight.step import Size, Step

ZERO_BUCKET = 500_000_000  # numbers; DeepSpeed's reduce_bucket_size and allgather_bucket_size


@dataclass(frozen=True)
class Plan:
    """The highest moment of a step; its parts, and the sums of all moments, in bytes.

    `weights` are with those of a reference model, `optimizer` with ZeRO's float32 copies.
    `buckets` are those of DDP and DeepSpeed. `activations` are the rest: what autograd keeps,
    gathered weights, scratch.
    """

    moment: str
    weights: float
    gradients: float
    optimizer: float
    buckets: float
    activations: float
    moments: dict[str, float]

    @property
    def peak(self) -> float:
        return self.moments[self.moment]

    @property
    def states(self) -> float:
        """Bytes that are there between steps."""
        return self.weights + self.optimizer + self.buckets

    def parts(self) -> dict[str, float]:
        """The parts of the peak, the largest first."""
        names = ("weights", "gradients", "optimizer", "buckets", "activations")
        found = {name: getattr(self, name) for name in names if getattr(self, name)}
        return dict(sorted(found.items(), key=lambda part: -part[1]))


def kept_plans() -> Path:
    """The folder of the plans, of all recipes of this user."""
    return user_cache() / "sft-grpo-math/memory"


@contextlib.contextmanager
def planned(step: Step) -> Iterator[None]:
    """Make one line of what a library raises where it cannot build or run a step's model."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        kind = json.loads(step.shape).get("model_type")
        what = f"{type(error).__name__}: {' '.join(str(error).split())}"
        remedy = "correct what the rehearsal finds, or measure a step on a GPU"
        raise UserError(f"{kind}: no memory plan: {what}; {remedy}") from error


@cache
def model_size(step: Step) -> Size:
    """Count the parameters of a step's whole model, on the meta device."""
    from stages.preflight import tracker

    with planned(step):
        return tracker.measure_size(step)


@cache
def plan_step(step: Step) -> Plan:
    """Plan one process: the moment with the highest sum.

    It takes some seconds, and is kept by a hash of step, versions and code: a later command need
    not import torch.
    """
    package = Path(__file__).parent
    code = manifest.hash_code(package / "memory.py", package / "tracker.py")
    text = json.dumps([asdict(step), manifest.versions(), code])
    kept = kept_plans() / f"{hashlib.sha256(text.encode()).hexdigest()}.json"
    with contextlib.suppress(OSError, ValueError, TypeError):  # none, or of a killed process
        return Plan(**json.loads(kept.read_text(encoding="utf-8")))
    plan = make_plan(step)
    with contextlib.suppress(OSError):  # a home folder that cannot be written: planned again
        kept.parent.mkdir(parents=True, exist_ok=True)
        manifest.write_json(kept, asdict(plan))
    return plan


def make_plan(step: Step) -> Plan:
    """Track a step and put its parts together."""
    from stages.preflight import tracker

    size = model_size(step)
    with planned(step):
        peaks = tracker.peaks(step, size.layers)
    weights, optimizer, buckets = states(step, size)
    sums: dict[str, tuple[float, float, float]] = {}  # all, gradients, activations
    for (moment, *_), kinds in peaks.items():
        gradients: float = kinds["gradients"]
        activations: float = kinds["activations"]
        if step.engine.endswith("offload"):  # in the host's memory
            gradients = 0
        elif step.engine.startswith("zero"):  # a share of them is there from the start
            gradients = size.gradients / step.processes
        if step.engine.startswith("zero3"):
            activations += size.gathered
        if moment == "optimizer":
            activations += step.scratch * size.largest
        found = gradients + activations, gradients, activations
        sums[moment] = max(sums.get(moment, found), found)
    peak = max(sums, key=sums.__getitem__)
    always = weights + optimizer + buckets
    moments = {moment: always + one[0] for moment, one in sums.items()}
    return Plan(peak, weights, sums[peak][1], optimizer, buckets, sums[peak][2], moments)


def states(step: Step, size: Size) -> tuple[float, float, float]:
    """Bytes of weights, of the optimizer, and of the buckets in which gradients are exchanged."""
    processes, engine = step.processes, step.engine
    weights = size.weights * (2 if step.has_reference else 1)
    optimizer = step.optimizer * size.trained
    if engine == "ddp":  # buckets of its own, as large as all gradients
        return weights, optimizer, size.gradients
    if engine == "fsdp2":
        return weights / processes, optimizer / processes, 0
    if engine == "none":
        return weights, optimizer, 0
    number = min(2, size.gradients / size.trained)
    buckets = 2 * number * min(ZERO_BUCKET, size.trained)
    if engine.endswith("offload"):  # the others are in the host's memory
        return 0, 0, buckets
    optimizer = (optimizer + 4 * size.trained) / processes  # with float32 copies
    return weights if engine == "zero2" else weights / processes, optimizer, buckets
