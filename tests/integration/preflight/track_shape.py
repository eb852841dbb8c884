"""Peak memory of one training process at a recipe's real shape, on tensors without storage.

The model, TRL's fused head, autocast, checkpointing, LoRA and FSDP 2 are the real ones; torch's
FakeTensorMode runs each operation without its numbers, and a dispatch mode sums the storages that
are alive (torch's own MemTracker does, too, but was too slow for 28 layers). Fakes are CPU tensors,
as torch without CUDA has no others. What differs on a GPU is replaced: the head's Triton kernels,
which write into their tile, and the optimizer, of which only the states are there. torchao's
scratch is not compared, and every token has a loss on both sides.
"""

import contextlib
import sys
import types
import weakref
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from pytest import MonkeyPatch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoConfig, AutoModelForCausalLM
from trl.kernels import chunked_logprob
from trl.trainer.utils import add_fused_lm_head

from pipeline.settings import Settings
from stages.preflight.capacity import build_step
from stages.preflight.inputs import PreflightArguments, read_recipe
from stages.preflight.memory import Model, Plan, Step, plan_step

PLAIN = (torch.Tensor, torch.nn.Parameter, FakeTensor)


class LiveBytes(TorchDispatchMode):
    """Sums the bytes of all storages that operations returned and that are alive."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._sizes: dict[int, int] = {}

    def add(self, tensor: torch.Tensor) -> None:
        if not isinstance(tensor, FakeTensor):
            return
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._sizes:
            self._sizes[key] = 0
            weakref.finalize(storage, self._change, key, None)
        self._change(key, storage.nbytes())

    def _change(self, key: int, size: int | None) -> None:
        self.live += (size or 0) - self._sizes[key]
        self._sizes[key] = size or 0
        if size is None:
            del self._sizes[key]
        self.peak = max(self.peak, self.live)

    def __torch_dispatch__(self, func, kinds, args=(), kwargs=None):
        if any(kind not in PLAIN for kind in kinds):
            return NotImplemented  # a subclass of tensors: what it holds comes by
        out = func(*args, **(kwargs or {}))
        for item in tree_leaves(out):
            if isinstance(item, torch.Tensor):
                self.add(item)
        return out

    def __enter__(self):
        self._resize = resize = torch.UntypedStorage.resize_

        def resized(storage, size):  # FSDP frees what it gathered
            resize(storage, size)
            if storage._cdata in self._sizes:
                self._change(storage._cdata, size)

        torch.UntypedStorage.resize_ = resized
        return super().__enter__()

    def __exit__(self, *error):
        torch.UntypedStorage.resize_ = self._resize
        return super().__exit__(*error)


@contextlib.contextmanager
def one_of(processes: int):
    """A mesh in which this process is the first of so many, and no other is there."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=processes)
    try:
        yield init_device_mesh("cpu", (processes,))
    finally:
        dist.destroy_process_group()


def use_gpu_head(patch: MonkeyPatch) -> None:
    """TRL's fused head with kernels that write into their tile, and products summed in place."""

    class Kernel:
        def __getitem__(self, grid):
            return lambda *args, **kwargs: None

    for name, value in {
        "_use_triton": lambda device: True,
        "_forward_kernel": Kernel(),
        "_backward_kernel": Kernel(),
        "triton": types.SimpleNamespace(cdiv=lambda a, b: -(-a // b)),
        "_addmm_fp32": lambda acc, a, b: None,
    }.items():
        patch.setattr(chunked_logprob, name, value, raising=False)


def shard(model: torch.nn.Module, mesh: Any, dtype: torch.dtype) -> None:
    """Shard as accelerate's fsdp2_prepare_model does, as one process of so many."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    keys: dict[str, Any] = {
        "mesh": mesh,
        "mp_policy": MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32),
    }
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    for layer in base.model.layers:
        fully_shard(layer, **keys, reshard_after_forward=True)
    table, head = base.get_input_embeddings(), base.get_output_embeddings()
    tail = [base.model.norm, head]
    if table.weight is head.weight:
        tail.insert(1, table)
    else:
        fully_shard(table, **keys, reshard_after_forward=True)
    fully_shard(tail, **keys, reshard_after_forward=False)
    fully_shard(model, **keys)


def place(model: torch.nn.Module) -> None:
    """Give a model of the meta device fake weights of the current mode."""
    made: dict[int, torch.Tensor] = {}
    for module in model.modules():
        for held in (module._parameters, module._buffers):
            for name, old in held.items():
                if old is not None and id(old) not in made:
                    made[id(old)] = new = torch.empty(old.shape, dtype=old.dtype)
                    if isinstance(old, torch.nn.Parameter):
                        made[id(old)] = torch.nn.Parameter(new, old.requires_grad)
                if old is not None:
                    held[name] = made[id(old)]


def track(step: Step, shape: dict, steps: int = 2) -> float:
    """Peak of `steps` optimizer steps, bytes; the second has the optimizer's states."""
    dtype = torch.float32 if step.weight == 4 else torch.bfloat16
    config, live = AutoConfig.for_model(**shape), LiveBytes()
    with torch.device("meta"):
        keys = {"dtype": dtype, "attn_implementation": "sdpa"}
        models = [AutoModelForCausalLM.from_config(config, **keys)]
        family = type(models[0]).__module__
        if step.has_reference:
            models.append(AutoModelForCausalLM.from_config(config, **keys))
        add_fused_lm_head(models[0], outputs=("log_probs", "entropy"))
        if step.lora_rank:
            lora = LoraConfig(
                r=step.lora_rank, target_modules=[*step.lora_modules], task_type="CAUSAL_LM",
                lora_dropout=0.05 * step.has_dropout,
            )  # fmt: skip
            models[0] = get_peft_model(models[0], lora)
            models[0].enable_input_require_grads()
    alone = contextlib.nullcontext()
    sharded = one_of(step.processes) if step.engine == "fsdp2" else alone
    fakes = FakeTensorMode(allow_non_fake_inputs=True)
    with MonkeyPatch.context() as patch, sharded as mesh, fakes, live:
        use_gpu_head(patch)
        for model in models:
            place(model)
        model = models[0]
        if not step.is_masked:  # without numbers transformers cannot see that none is needed
            patch.setattr(sys.modules[family], "create_causal_mask", lambda **kwargs: None)
        if step.is_checkpointed:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        model.train()
        if mesh is not None:
            shard(model, mesh, torch.bfloat16)
        _steps(step, model, steps)
    return live.peak


def _steps(step: Step, model: torch.nn.Module, steps: int) -> None:
    weights = [p for p in model.parameters() if p.requires_grad]
    states: list[torch.Tensor] = []
    rows = [len(part) for part in torch.arange(step.rows).tensor_split(step.passes)]
    # FSDP 2 reduces the gradients of earlier micro-batches in the last one's first pass, before
    # those of its other passes are there: the highest of several is in a micro-batch between.
    last = step.accumulates * (2 if step.passes > 1 and step.engine == "fsdp2" else 1)
    for number in range(steps):
        for micro_batch in range(last + 1):
            if hasattr(model, "set_requires_gradient_sync"):  # accelerate's no_sync
                model.set_requires_gradient_sync(micro_batch == last)
            loss = 0.0
            with torch.autocast("cpu", torch.bfloat16, enabled=step.is_autocast):
                for each in rows:
                    ids = torch.zeros(each, step.length, dtype=torch.long)
                    inputs = {"attention_mask": torch.ones_like(ids)} if step.is_masked else {}
                    out = model(input_ids=ids, labels=ids, fused_lm_head=True, **inputs)
                    loss = loss + out.loss
                    del out
            loss.backward()
            del loss
        if not number:  # what a fused optimizer keeps
            size = int(step.optimizer * sum(map(_local, weights)))
            states.append(torch.zeros(size, dtype=torch.uint8))
        for weight in weights:
            weight.grad = None


def _local(weight: torch.Tensor) -> int:
    return (weight.to_local() if hasattr(weight, "to_local") else weight).numel()


def compare(
    folder: str, stage: str, gpus: int = 1, overlay: str | None = None, **changes: Any
) -> tuple[Step, Plan, float]:
    """The step of a recipe's stage, its plan, and the tracked peak, bytes."""
    launch = {"accelerate": "fsdp2"} if gpus > 1 else {}
    args = PreflightArguments(recipe=folder, gpus=gpus, overlay=overlay, **launch)
    recipe, _ = read_recipe(args)
    values: Settings = recipe.settings[stage]
    shape = recipe.shape(stage) | changes
    step = build_step(
        stage, Model(shape), values.replaced(use_cpu=False), None, recipe.engine, gpus
    )
    step = replace(step, scored=step.length, scratch=0)
    return step, plan_step(step), track(step, shape)
