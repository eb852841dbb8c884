"""Rows that lie end to end get what each gets alone, by row or in one call, and without a mask."""

from pathlib import Path

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM

from stages.trainer import rows_apart
from tests.integration import varlen_on_cpu

pytestmark = pytest.mark.integration

LENGTHS = (50, 1, 70, 33)  # some longer than the sliding window of 32

TABLE = yaml.safe_load(Path(__file__).with_name("rows_apart.yaml").read_text(encoding="utf-8"))


def config_of(kind, changes):
    """A small configuration of a model type, with thetas that are nobody's default."""
    from transformers import CONFIG_MAPPING

    made = CONFIG_MAPPING[kind]
    names = {*made.__dataclass_fields__, *made.attribute_map}
    rope = getattr(made(), "rope_parameters", None)
    if rope and "rope_type" in rope:
        changes = {"rope_parameters": rope | {"rope_theta": 123456.0}} | changes
    elif rope:
        thetas = {"full_attention": 123456.0, "sliding_attention": 123456.0}
        if kind == "gemma3_text":
            thetas["sliding_attention"] = 23456.0
        rope = {layer: rope[layer] | {"rope_theta": theta} for layer, theta in thetas.items()}
        changes = {"rope_parameters": rope} | changes
    return made(**{key: value for key, value in TABLE["sizes"].items() if key in names} | changes)


def build(kind, **changes):
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config_of(kind, changes), dtype=torch.float32)


ON_CPU = torch.device("cpu"), torch.float32


def rows():
    return [torch.arange(3, 3 + n).unsqueeze(0) for n in LENGTHS]


def packed():
    positions = [torch.arange(n).unsqueeze(0) for n in LENGTHS]
    where = rows_apart.model_inputs(list(LENGTHS), [-1] * len(LENGTHS), ON_CPU[0])
    return {"input_ids": torch.cat(rows(), 1), "position_ids": torch.cat(positions, 1), **where}


@pytest.fixture(params=rows_apart.NAMES)
def attention(request, monkeypatch):
    """The attention that models get: `varlen_on_cpu` stands for torch's kernel."""
    if request.param == rows_apart.VARLEN:
        varlen_on_cpu.install(monkeypatch)
    return request.param


@pytest.mark.parametrize("kind", TABLE["packed"])
def test_packed_rows_get_the_logits_of_rows_alone(kind, attention):
    model = build(kind).eval()
    assert rows_apart.use(model, *ON_CPU) and model.config._attn_implementation == attention
    with torch.no_grad():
        alone = torch.cat([model(input_ids=row, use_cache=False).logits for row in rows()], 1)
        together = model(**packed(), use_cache=False).logits
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-5)


def test_a_window_is_that_of_the_mask(attention):
    """Some models do not pass their window to the attention, or another than the mask's."""
    window = {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 0}
    model = build("qwen2_moe", **window).eval()
    with torch.no_grad():
        expected = model(**packed(), use_cache=False).logits
        assert rows_apart.use(model, *ON_CPU)
        found = model(**packed(), use_cache=False).logits
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("kind", "changes", "shares"), TABLE["shared"])
def test_which_models_share_a_start(kind, changes, shares, attention):
    model = build(kind, **changes)
    assert rows_apart.use(model, *ON_CPU)
    assert rows_apart.shares_prompts(model, *ON_CPU) == shares


@pytest.mark.parametrize("has_checkpointing", [False, True])
def test_gradients_are_those_of_the_mask(has_checkpointing, monkeypatch, attention):
    """Checkpointing runs each layer again, when the forward pass is long over."""
    found = {}
    for name in ("mask", "ours"):
        model = build("qwen2").train()
        if name == "ours":
            assert rows_apart.use(model, *ON_CPU) and model.training
            monkeypatch.setattr(rows_apart, "sdpa_mask", None)  # no mask is made
        if has_checkpointing:
            model.gradient_checkpointing_enable()
        logits = model(**packed(), use_cache=False).logits
        logits.log_softmax(-1)[..., 5].sum().backward()
        found[name] = [weight.grad for weight in model.parameters()]
    for one, other in zip(found["mask"], found["ours"], strict=True):
        assert (one - other).abs().max() <= 1e-5 * one.abs().max()


@pytest.mark.parametrize(("kind", "changes"), TABLE["mixed"])
def test_a_model_that_would_mix_rows_is_left_as_it_is(kind, changes):
    model = build(kind, **changes)
    before = model.config._attn_implementation
    assert not rows_apart.use(model, *ON_CPU)
    assert model.config._attn_implementation == before


def test_padded_rows_are_generated_as_with_sdpa():
    model = build("qwen2").eval()
    ids = torch.arange(5, 25).view(2, 10)
    mask = torch.ones_like(ids)
    mask[0, :4] = 0
    given = {"attention_mask": mask, "max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    expected = model.generate(ids, **given)
    assert rows_apart.use(model, *ON_CPU)
    assert torch.equal(model.generate(ids, **given), expected)


@pytest.mark.parametrize(
    "change", ["another answer", "a head size it refuses", "wrong gradients", "a wider window"]
)
def test_varlen_is_not_taken_where_a_trial_fails(monkeypatch, change):
    def broken(query, *args, **kwargs):
        if change == "a head size it refuses":
            raise RuntimeError("FlashAttention only supports head dimensions up to 256")
        if change == "a wider window":
            kwargs["window_size"] = (kwargs["window_size"][0] + 1, 0)
        found = varlen_on_cpu.varlen_attn(query, *args, **kwargs)
        if change == "wrong gradients":
            return (found + found.detach()) / 2
        return found * 1.01 if change == "another answer" else found

    varlen_on_cpu.install(monkeypatch)
    monkeypatch.setattr(rows_apart, "varlen_attn", broken)
    model = build("mistral")  # with a window
    assert rows_apart.use(model, *ON_CPU)
    assert model.config._attn_implementation == rows_apart.BY_ROW


def test_no_start_is_shared_where_the_first_query_would_see_the_first_key(monkeypatch):
    varlen_on_cpu.install(monkeypatch, end_aligned=False)
    model = build("qwen2")
    assert rows_apart.use(model, *ON_CPU)
    assert model.config._attn_implementation == rows_apart.VARLEN
    assert not rows_apart.shares_prompts(model, *ON_CPU)


@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (6, 1)])
@pytest.mark.parametrize(("window", "shares"), [(0, False), (5, False), (0, True)])
def test_one_call_is_that_of_each_row(monkeypatch, heads, window, shares):
    """Outputs and gradients, with windows, grouped heads and shared prompts."""
    varlen_on_cpu.install(monkeypatch)
    torch.manual_seed(0)
    after = [-1, 0, 0, -1, 3] if shares else [-1] * 5
    where = rows_apart.model_inputs([9, 4, 17, 1, 6], after, ON_CPU[0])
    parts = [torch.randn(1, heads[min(i, 1)], 37, 8) for i in range(3)]
    weights, module = torch.randn(1, 37, heads[0], 8), torch.nn.Module()
    module.num_key_value_groups = heads[0] // heads[1]
    found = []
    for attend in (rows_apart.by_row, rows_apart.by_varlen):
        copies = [part.clone().requires_grad_() for part in parts]
        output = attend(module, *copies, torch.tensor([window]), scaling=0.3, **where)[0]
        (output * weights).sum().backward()
        found.append([output, *(copy.grad for copy in copies)])
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-5)
