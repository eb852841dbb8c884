"""The tracker: what stands in for a GPU, all layers from a few, architectures nobody names here."""

import json
import types
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import AutoConfig
from trl.kernels import chunked_logprob

from stages.preflight import tracker
from stages.preflight.memory import model_size, plan_step
from stages.preflight.step import Step, extrapolate
from stages.preflight.tracker import GpuDropout, GpuHead, LiveBytes

pytestmark = pytest.mark.integration
TABLES = yaml.safe_load(Path(__file__).with_name("tracker.yaml").read_text(encoding="utf-8"))
MODELS, SIZES, CHANGES = (TABLES[name] for name in ("models", "sizes", "changes"))


def step_of(kind, **changes):
    shape = AutoConfig.for_model(kind, **SIZES | MODELS[kind]).to_dict() | {"model_type": kind}
    text = json.dumps(shape, sort_keys=True, default=str)
    step = Step(text, rows=4, length=512, scored=384, autocast="bf16", is_masked=True)
    return replace(step, **changes)


def highest(peaks):
    return max(kinds.total() for kinds in peaks.values())


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n in TABLES["slow"] else n for n in CHANGES],
)
def test_six_layers_tell_what_all_take(name):
    step = step_of("qwen2", **CHANGES[name])
    whole = tracker.track(step, 12)
    assert highest(tracker.peaks(step, 12)) == pytest.approx(highest(whole), rel=0.005)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("how", ["full", "lora"])
def test_an_architecture_that_nobody_names_is_planned(kind, how):
    step = step_of(kind, **CHANGES[how])
    plan, size = plan_step(step), model_size(step)
    assert plan.weights == size.weights / step.processes
    assert plan.optimizer == 8 * size.trained / step.processes
    assert plan.peak == pytest.approx(sum(plan.parts().values()))
    assert plan.gradients >= 2 * size.trained and plan.activations > 0
    assert plan.moment in ("head", "last layer", "first layer", "forward", "end")
    half = plan_step(replace(step, rows=2))
    assert half.states == plan.states and half.activations < plan.activations


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("is_autocast", [True, False])
@pytest.mark.parametrize("is_trained", [True, False])
def test_the_head_takes_what_trl_s_takes_on_a_gpu(monkeypatch, dtype, is_autocast, is_trained):
    """TRL's own with kernels that write into their tile, and products that are summed in place."""

    class Kernel:
        def __getitem__(self, grid):
            return lambda *args, **kwargs: None

    cdiv = types.SimpleNamespace(cdiv=lambda a, b: -(-a // b))
    for name, value in {
        "_use_triton": lambda device: True,
        "_forward_kernel": Kernel(),
        "_backward_kernel": Kernel(),
        "triton": cdiv,
        "_addmm_fp32": lambda acc, a, b: None,
    }.items():
        monkeypatch.setattr(chunked_logprob, name, value, raising=False)

    def peaks(apply):
        live = LiveBytes(resizes=False)
        with FakeTensorMode(), live, torch.autocast("cpu", torch.bfloat16, enabled=is_autocast):
            hidden = torch.empty(5000, 512, dtype=dtype, requires_grad=True)
            weight = torch.empty(70_000, 512, dtype=dtype, requires_grad=is_trained)
            live.moment = ("forward", 0, 0)
            out = apply(hidden, weight)
            live.moment = ("backward", 0, 0)
            out.sum().backward()
        return [live.peaks["forward", 0, 0].total(), live.peaks["backward", 0, 0].total()]

    compute = torch.bfloat16 if is_autocast else dtype
    ours = peaks(lambda hidden, weight: GpuHead.apply(hidden, weight, compute))
    chunk = tracker.VOCAB_CHUNK_SIZE
    theirs = peaks(
        lambda hidden, weight: chunked_logprob.ChunkedLogProbFunction.apply(
            hidden, weight, None, torch.zeros(len(hidden), dtype=torch.long), 1.0, chunk, None, 1.0,
            ("entropy",),
        )[0]
    )  # fmt: skip
    assert ours == pytest.approx(theirs, rel=0.01)


def test_what_fsdp_frees_is_not_counted():
    """Beside the shares of the states, a sharded model has no more than some layers at once."""
    step = step_of("qwen2", **CHANGES["fsdp2-alone"])
    one, four = (plan_step(replace(step, processes=number)) for number in (1, 4))
    assert four.weights == one.weights / 4
    freed = one.weights + one.gradients + one.activations - four.weights - four.activations
    assert freed > 0.5 * one.weights


def test_dropout_keeps_a_byte_a_number():
    live = LiveBytes(resizes=False)
    with FakeTensorMode(), live:
        inputs = torch.empty(1000, 1000, requires_grad=True)
        out = GpuDropout(0.5)(inputs)
        assert live.live.total() == (4 + 4 + 1) * 1000 * 1000
        del out
    assert live.live.total() == 4 * 1000 * 1000


def test_kinds_of_layers_are_all_in_the_short_model():
    kinds = ["linear_attention"] * 5 + ["full_attention"]
    config = types.SimpleNamespace(layer_types=kinds * 4)
    config.get_text_config = lambda: config
    assert tracker.fewest_layers(config) == 6
    config.layer_types, config.first_k_dense_replace = None, 3
    assert tracker.fewest_layers(config) == 3 + 3
    step = step_of("qwen2")
    short = tracker.read_config(step, 3)
    assert short.num_hidden_layers == len(short.layer_types) == 3
    assert extrapolate({}, {}, 3, 12) == {}
