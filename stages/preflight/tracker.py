"""Memory of one training process at a recipe's real shape, on tensors without storage.

The model, its attention, autocast, checkpointing, LoRA and FSDP 2 are the real ones, of any
architecture that transformers builds. torch's `FakeTensorMode` runs each operation without its
numbers, and `LiveBytes` sums the storages that are alive (torch's own `MemTracker` does, too, and
is several times slower). A short model is tracked twice, with a few and with twice as many layers;
`peaks` extrapolates.

Fake tensors are CPU tensors, as torch without CUDA has no others. Where a GPU takes other memory,
something of its own stands in, and nothing of a library is overwritten: `GpuHead` for TRL's fused
LM head with its Triton kernels, `GpuDropout` for dropout, and an attention without a mask for
FlashAttention and for rows that lie end to end.
"""

import contextlib
import json
import weakref
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    AutoConfig,
    AutoModelForCausalLM,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from trl.kernels.chunked_logprob import TOKEN_CHUNK_SIZE, ChunkedLogProbFunction
from trl.trainer.utils import _CHUNKED_LOGPROB_CHUNK_SIZE as VOCAB_CHUNK_SIZE

from stages.preflight.step import Peaks, Size, Step, extrapolate

PLAIN = (torch.Tensor, nn.Parameter, FakeTensor)
NO_MASK = "sdpa_no_mask"
FEWEST = 3  # with 2 FSDP's gathers ahead are not yet what they are with more
LARGE = 2**20  # bytes of a storage that FSDP may free and fill again
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class LiveBytes(TorchDispatchMode):
    """Sums the bytes of the storages that are alive, by kind, and keeps the highest sum of each
    moment.

    Args:
        resizes: whether storages may change their size, as those that FSDP gathers weights into.
    """

    def __init__(self, resizes: bool) -> None:
        super().__init__()
        self.moment: tuple[str, int, int] = ("", 0, 0)  # name, pass, micro-batch
        self.peaks: dict[tuple[str, int, int], Counter[str]] = {}
        self.live: Counter[str] = Counter()
        self._resizes = resizes
        self._known: dict[int, tuple[weakref.ref, int, str]] = {}
        self._large: set[int] = set()

    def _set(self, key: int, ref: weakref.ref, size: int, kind: str) -> None:
        _, old_size, old_kind = self._known.get(key, (ref, 0, kind))
        self.live[old_kind] -= old_size
        self.live[kind] += size
        self._known[key] = ref, size, kind

    def _forget(self, key: int, ref: weakref.ref) -> None:
        self._set(key, ref, 0, self._known[key][2])
        del self._known[key]
        self._large.discard(key)

    def see(self, tensor: torch.Tensor, kind: str = "") -> None:
        """Count a tensor's storage; a `kind` of its own moves one that is counted already."""
        if not isinstance(tensor, FakeTensor):
            return
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key not in self._known:
            ref = weakref.ref(storage, partial(self._forget, key))
            self._set(key, ref, size, kind or "activations")
            if self._resizes and size > LARGE:
                self._large.add(key)
        elif kind or size != self._known[key][1]:
            self._set(key, self._known[key][0], size, kind or self._known[key][2])

    def rename(self, old: str, new: str) -> None:
        """Call all that is alive of one kind another."""
        for key, (ref, size, kind) in list(self._known.items()):
            if kind == old:
                self._set(key, ref, size, new)

    def note(self) -> None:
        """Keep what is alive if it is the most of this moment."""
        for key in self._large:
            ref, size, kind = self._known[key]
            storage = ref()
            if storage is not None and storage.nbytes() != size:
                self._set(key, ref, storage.nbytes(), kind)
        best = self.peaks.get(self.moment)
        if best is None or self.live.total() > best.total():
            self.peaks[self.moment] = self.live.copy()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(kind not in PLAIN for kind in types):
            return NotImplemented  # a subclass of tensors: what it holds comes by
        out = func(*args, **(kwargs or {}))
        for item in tree_leaves(out):
            if isinstance(item, torch.Tensor):
                self.see(item)
        self.note()
        return out


class GpuHead(torch.autograd.Function):
    """What TRL's fused LM head allocates on a GPU (`ChunkedLogProbFunction`), where Triton's
    kernels work within a tile of the logits.

    Takes hidden states (N, H), the head's weight (V, H) and the dtype of products; gives float32
    numbers (N,).
    """

    @staticmethod
    def work(hidden, weight, dtype):
        """A tile of the logits, and the chunks of both inputs in the precision of products."""
        height, width = min(len(hidden), TOKEN_CHUNK_SIZE), min(len(weight), VOCAB_CHUNK_SIZE)
        tile = hidden.new_empty((height, VOCAB_CHUNK_SIZE), dtype=dtype)
        return tile, hidden[:height].to(dtype), weight[:width].to(dtype)

    @staticmethod
    def forward(ctx, hidden, weight, dtype):
        ctx.save_for_backward(hidden, weight)
        ctx.dtype = dtype
        GpuHead.work(hidden, weight, dtype)
        return hidden.new_zeros(len(hidden), dtype=torch.float32)

    @staticmethod
    def backward(ctx, grad):
        inputs, gradients = ctx.saved_tensors, []
        sums = [
            torch.zeros(one.shape, dtype=torch.float32) if is_needed else None
            for one, is_needed in zip(inputs, ctx.needs_input_grad, strict=False)
        ]
        work = GpuHead.work(*inputs, ctx.dtype)  # there until the end
        following = inputs[1][VOCAB_CHUNK_SIZE : 2 * VOCAB_CHUNK_SIZE].to(ctx.dtype)
        for total, one in zip(sums, inputs, strict=True):
            gradients.append(None if total is None else total.to(one.dtype))
        del work, following
        return *gradients, None


class GpuDropout(nn.Dropout):
    """Dropout that keeps a mask of one byte a number, as on a GPU; on a CPU it is in numbers."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return torch.native_dropout(input, self.p, self.training)[0]


class Scored(nn.Module):
    """A model whose forward pass ends with the log-probs of the last `scored` tokens of a row."""

    def __init__(self, model: nn.Module, step: Step) -> None:
        super().__init__()
        self.model, self.step = model, step

    @property
    def base(self) -> nn.Module:
        """The model without LoRA's wrapper."""
        return self.model.get_base_model() if hasattr(self.model, "get_base_model") else self.model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        mask = torch.ones_like(ids) if self.step.is_masked else None
        out = self.base.base_model(input_ids=ids, attention_mask=mask, use_cache=False)
        hidden, head = out.last_hidden_state, self.base.get_output_embeddings()
        if not self.step.is_cuda:  # scores all positions
            hidden = hidden[:, :-1].reshape(-1, hidden.size(-1))
            outputs = ("entropy",)
            args = (ids[:, 1:].flatten(), 1.0, VOCAB_CHUNK_SIZE, None, 1.0, outputs)
            return ChunkedLogProbFunction.apply(hidden, head.weight, head.bias, *args)[0]
        hidden = hidden[:, -1 - self.step.scored : -1].flatten(0, 1).clone()
        is_autocast = torch.is_autocast_enabled("cpu")
        dtype = torch.get_autocast_dtype("cpu") if is_autocast else hidden.dtype
        return GpuHead.apply(hidden, head.weight, dtype)


def read_config(step: Step, layers: int | None = None) -> Any:
    """The configuration of a step's model, or of one with so many layers."""
    shape = json.loads(step.shape)
    config = AutoConfig.for_model(**{k: v for k, v in shape.items() if k != "quantization_config"})
    if layers:
        text = config.get_text_config()
        before = text.num_hidden_layers
        for key, value in list(vars(text).items()):
            if isinstance(value, list) and len(value) == before:  # one entry a layer
                setattr(text, key, value[:layers])
        text.num_hidden_layers = layers
    return config


def fewest_layers(config: Any) -> int:
    """Layers of the shortest model that has each kind, and once more one of the kinds repeats."""
    text = config.get_text_config()
    kinds = list(getattr(text, "layer_types", None) or ())
    period = next((n for n in range(1, len(kinds)) if kinds[n:] == kinds[:-n]), 1)
    return max(FEWEST, period) + (getattr(text, "first_k_dense_replace", None) or 0)


def build(step: Step, config: Any) -> nn.Module:
    """The model on the current device, with LoRA if the step has it."""
    keys = {"attn_implementation": "eager"} if step.attention == "eager" else {}
    model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, step.dtype), **keys)
    if not step.is_masked and not keys and model.is_backend_compatible():
        # Without the numbers transformers cannot see that no mask is needed.
        AttentionInterface.register(NO_MASK, sdpa_attention_forward)
        AttentionMaskInterface.register(NO_MASK, lambda *args, **kwargs: None)
        model.set_attn_implementation(NO_MASK)
    if step.lora:
        lora = LoraConfig(**{**json.loads(step.lora), "task_type": "CAUSAL_LM"})
        model = get_peft_model(model, lora)
        model.enable_input_require_grads()
    return model


def find_layers(model: nn.Module, number: int) -> list[nn.Module]:
    """The layers of a model that has so many; none where they are not in one list."""
    lists = (list(one) for one in model.modules() if isinstance(one, nn.ModuleList))
    return next((one for one in lists if len(one) == number), [])


def measure_size(step: Step) -> Size:
    """Count the parameters of a step's whole model on the meta device."""
    with torch.device("meta"):
        model = build(step, read_config(step))
    weights = list(model.parameters())
    trained = [one for one in weights if one.requires_grad]
    base = model.get_base_model() if step.lora else model
    layers = find_layers(base, base.config.get_text_config().num_hidden_layers)
    layer = max((sum(p.numel() for p in one.parameters()) for one in layers), default=0)
    compute = 2 if step.autocast != "no" else getattr(torch, step.dtype).itemsize
    is_upcast = step.engine == "fsdp2" and step.autocast != "no"
    return Size(
        weights=sum(
            one.numel() * (4 if is_upcast and one.requires_grad else one.itemsize)
            for one in weights
        ),
        trained=sum(one.numel() for one in trained),
        gradients=sum(one.numel() * one.itemsize for one in trained),
        largest=max(one.numel() for one in trained),
        gathered=compute * max(2 * layer, *(one.numel() for one in weights)),
        layers=base.config.get_text_config().num_hidden_layers,
    )


def place(model: nn.Module) -> None:
    """Give a model of the meta device fake weights of the current mode; what is tied stays so."""
    made: dict[int, torch.Tensor] = {}
    for module in model.modules():
        for held in (module._parameters, module._buffers):
            for name, old in held.items():
                if old is not None and id(old) not in made:
                    made[id(old)] = new = torch.empty(old.shape, dtype=old.dtype)
                    if isinstance(old, nn.Parameter):
                        made[id(old)] = nn.Parameter(new, old.requires_grad)
                if old is not None:
                    held[name] = made[id(old)]


@contextlib.contextmanager
def one_of(processes: int) -> Iterator[Any]:
    """A mesh in which this process is the first of so many, and no other is there."""
    dist.init_process_group("fake", rank=0, world_size=processes)
    try:
        yield init_device_mesh("cpu", (processes,))
    finally:
        dist.destroy_process_group()


def shard(scored: Scored, mesh: Any) -> None:
    """Shard as accelerate's `fsdp2_prepare_model` does; FSDP updates float32 weights."""
    base, step = scored.base, scored.step
    dtype = DTYPES.get(step.autocast)
    for one in scored.parameters() if dtype else ():
        if one.requires_grad:
            one.data = one.data.float()
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    keys: dict[str, Any] = {"mesh": mesh, "mp_policy": policy}
    for module in list(base.modules()):
        if type(module).__name__ in (base._no_split_modules or ()):
            fully_shard(module, **keys, reshard_after_forward=True)
    table, head = base.get_input_embeddings(), base.get_output_embeddings()
    tail = [one for one in base.base_model.children() if "Norm" in type(one).__name__][-1:]
    if table.weight is head.weight:
        tail.append(table)
    else:
        fully_shard(table, **keys, reshard_after_forward=True)
    fully_shard([*tail, head], **keys, reshard_after_forward=False)
    fully_shard(scored, **keys)


def track(step: Step, layers: int) -> Peaks:
    """What is alive at the highest sum of each moment of an optimizer step, without its states.

    Args:
        layers: of the model that is tracked in place of the whole.
    """
    config = read_config(step, layers)
    live = LiveBytes(resizes=step.engine == "fsdp2")
    alone = contextlib.nullcontext()
    with (
        one_of(step.processes) if step.engine == "fsdp2" else alone as mesh,
        FakeTensorMode(allow_non_fake_inputs=True),
        live,
    ):
        with torch.device("meta"):
            scored = Scored(build(step, config), step)
        place(scored)
        if step.is_cuda:
            for module in list(scored.modules()):
                for name, child in module.named_children():
                    if isinstance(child, nn.Dropout) and child.p:
                        setattr(module, name, GpuDropout(child.p))
        if step.is_checkpointed:
            scored.base.gradient_checkpointing_enable({"use_reentrant": False})
        scored.train()
        if mesh is not None:
            shard(scored, mesh)
        live.rename("activations", "weights")
        run(scored, live, layers)
    return live.peaks


def run(scored: Scored, live: LiveBytes, layers: int) -> None:
    """One optimizer step up to its update, with the gradients of earlier micro-batches."""
    step = scored.step
    is_sharded = isinstance(scored, FSDPModule)
    weights = [one for one in scored.parameters() if one.requires_grad]
    rows = [len(part) for part in torch.arange(step.rows).tensor_split(step.passes)]
    micro_batches = [rows]
    if not is_sharded:
        name_gradients(step, weights, live)
    elif step.accumulates:
        # Gradients of earlier micro-batches are whole (accelerate's no_sync). The last micro-batch
        # shards them in its first pass, so the highest of several passes is in one before it.
        micro_batches = [[1], rows, [1]] if step.passes > 1 else [[1], rows]
    mark_moments(scored, live, layers)
    live.peaks.clear()
    for number, parts in enumerate(micro_batches):
        is_last = number == len(micro_batches) - 1
        if is_sharded:
            scored.set_requires_gradient_sync(is_last)
        total: Any = 0.0
        dtype = DTYPES.get(step.autocast, torch.bfloat16)
        for place, size in enumerate(parts):
            live.moment = ("forward", place, number)
            with torch.autocast("cpu", dtype, enabled=step.autocast != "no"):  # as accelerate
                found = scored(torch.zeros(size, step.length, dtype=torch.long))
            found.register_hook(partial(enter, live, ("head", place, number)))
            total = total + found.sum()
            del found
        total.backward()
        del total
        if is_sharded and not is_last:
            live.rename("activations", "gradients")
    live.moment = ("optimizer", 0, 0)
    live.note()


def enter(live: LiveBytes, moment: tuple[str, int, int], *_: Any) -> None:
    """Say which moment begins."""
    live.moment = moment


def name_gradients(step: Step, weights: list[Any], live: LiveBytes) -> None:
    """Make those of earlier micro-batches, name the others as they come; ZeRO frees them then."""
    is_zero = step.engine.startswith("zero")

    def name(weight: torch.Tensor) -> None:
        if is_zero:
            weight.grad = None
        else:
            live.see(weight.grad, "gradients")

    for one in weights:
        if step.accumulates and not is_zero:
            one.grad = torch.empty_like(one)
            live.see(one.grad, "gradients")
        one.register_post_accumulate_grad_hook(name)


def mark_moments(scored: Scored, live: LiveBytes, layers: int) -> None:
    """Begin a moment where the forward pass leaves the last layer, and where gradients arrive."""
    found = find_layers(scored, layers)
    if not found:
        return

    def at(name: str, tensors: Any) -> None:
        for one in tree_leaves(tensors):
            if isinstance(one, torch.Tensor) and one.requires_grad:
                one.register_hook(partial(enter, live, (name, *live.moment[1:])))
                return

    def leave_last(module: nn.Module, args: Any, out: Any) -> None:
        at("last layer", out)
        if live.moment[0] == "forward":
            live.moment = ("head", *live.moment[1:])

    found[-1].register_forward_hook(leave_last)
    found[0].register_forward_hook(lambda module, args, out: at("first layer", out))
    found[0].register_forward_pre_hook(lambda module, args: at("end", args))


def peaks(step: Step, layers: int) -> Peaks:
    """What is alive at the highest sum of each moment, of the whole model with so many layers."""
    fewest = fewest_layers(read_config(step))
    if layers <= 2 * fewest:
        return track(step, layers)
    return extrapolate(track(step, fewest), track(step, 2 * fewest), fewest, layers)
