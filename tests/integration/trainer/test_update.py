"""The update in passes of similar rows gives TRL's losses, gradients, metrics and weights."""

from unittest.mock import Mock

import pytest
import torch
from transformers import AutoModelForCausalLM
from trl.trainer.utils import add_fused_lm_head

from stages.trainer import rows_apart
from stages.trainer.update import PackedForward, Planner, rows_on_host
from tests.integration import varlen_on_cpu
from tests.integration.flash_on_cpu import NAME as FLASH
from tests.integration.trainer.runs import read_logs

pytestmark = pytest.mark.integration

STEPS, NUM_TOKENS = 3, 75  # a prompt has about 60 tokens, a completion up to 12
ONLY_RIGHT = {"reward_funcs": ["correctness_reward"], "reward_weights": [1.0]}
MINIBATCHES = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 8}
CASES = {
    "micro-batches": MINIBATCHES,
    "two optimizer steps a batch": {
        "per_device_train_batch_size": 2, "gradient_accumulation_steps": 4,
        "steps_per_generation": 8,
    },
    "two iterations": {
        "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "num_iterations": 2,
    },
    "reference": {"beta": 0.04},
    "mean of each micro-batch": MINIBATCHES | {"loss_type": "bnpo"},
    "early stop": {"max_mean_ratio": 5.0, "per_device_train_batch_size": 4,
                   "steps_per_generation": 2},
    "LoRA": {"use_peft": True, "lora_r": 4, "lora_dropout": 0.0},
    "masked": MINIBATCHES | {"mask_truncated_completions": True},
    "uniform groups": ONLY_RIGHT | {"num_generations": 2},
    "uniform groups with entropy bonus": ONLY_RIGHT | {"num_generations": 2, "entropy_coef": 0.1},
    "no gradient at all": MINIBATCHES
    | {"reward_weights": [1.0], "reward_funcs": ["think_format_reward"]},
}  # fmt: skip
HAS_UNGRADED = {
    "uniform groups": True, "uniform groups with entropy bonus": False, "reference": False,
}  # fmt: skip
SAME = {"loss", "grad_norm", "reward", "rollout/rewards", "train/mean_ratio", "num_tokens"}
WHOLE = {"entropy", "kl", "clip_ratio/region_mean"}  # where a generation is one micro-batch


@pytest.fixture
def unlike_lengths(monkeypatch):
    """Completions of 1 to 12 tokens, by what is in them; shorter ones end with EOS."""
    from trl import GRPOTrainer

    generate = GRPOTrainer._generate_single_turn

    def cut(self, *args, **kwargs):
        rollouts, *rest = generate(self, *args, **kwargs)
        eos = self._tokenizer.eos_token_id
        lengths = [1 + sum(row) % 12 for row in rollouts]
        rollouts = [
            [*row[: n - 1], eos] if n < 12 else row[:12]
            for n, row in zip(lengths, rollouts, strict=True)
        ]
        return (rollouts, *rest)

    monkeypatch.setattr(GRPOTrainer, "_generate_single_turn", cut)


@pytest.fixture
def train(run_stage, graded_by_chance, unlike_lengths, tmp_path, monkeypatch):
    """Run the stage; returns its log, its final weights and the passes of each forward."""

    def call(name, **settings):
        passes, forward = [], PackedForward.__call__

        def spy(self, *args, **kwargs):
            graded = [is_graded for _, is_graded in self.passes]
            passes.append((torch.is_grad_enabled(), graded.count(True), graded.count(False)))
            return forward(self, *args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(PackedForward, "__call__", spy)
            folder = tmp_path / name.replace(" ", "-")
            # The samples, too, are those of TRL.
            given = {"max_steps": STEPS, "fast_generation": False, **settings}
            run_stage("grpo", output_dir=str(folder), **given)
        model = AutoModelForCausalLM.from_pretrained(folder)
        return read_logs(folder), model.state_dict(), passes

    return call


def assert_alike(found, expected, keys=SAME):
    """Logs and final weights of two runs."""
    for log, theirs in zip(found[0], expected[0], strict=True):
        assert log.keys() == theirs.keys()
        for key in keys & log.keys():
            assert log[key] == pytest.approx(theirs[key], rel=2e-4, abs=2e-6), key
    for name, weight in found[1].items():
        torch.testing.assert_close(weight, expected[1][name], rtol=2e-4, atol=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_losses_and_weights_are_those_of_trl(train, case):
    """With `auto` in as many passes; micro-batches without a gradient need no backward pass."""
    settings = CASES[case]
    num_micro = settings.get("gradient_accumulation_steps", 1)
    expected = train("stock", **settings)
    assert not expected[2]
    auto = train("auto", update_tokens="auto", **settings)
    assert_alike(auto, expected)
    update = [(graded, ungraded) for is_graded, graded, ungraded in auto[2] if is_graded]
    assert {sum(pair) for pair in update} == {1} and len(update) == STEPS * num_micro
    if case == "no gradient at all":  # the last of each step goes backward, for every weight's zero
        assert sum(ungraded for _, ungraded in update) == STEPS * (num_micro - 1)
        return
    assert any(log["grad_norm"] > 0.01 for log in auto[0])
    ours = train("ours", update_tokens=NUM_TOKENS, **settings)
    assert_alike(ours, expected, SAME if num_micro > 1 else SAME | WHOLE)
    assert max(graded + ungraded for _, graded, ungraded in ours[2]) > 1
    # Within the update, some rows go through without a gradient.
    has_ungraded = any(ungraded for is_graded, _, ungraded in ours[2] if is_graded)
    assert has_ungraded == HAS_UNGRADED.get(case, has_ungraded)


@pytest.mark.parametrize("case", ["reference", "LoRA", "uniform groups"])
@pytest.mark.parametrize("attention", [FLASH, "sdpa"])
def test_one_attention_call_for_all_rows_trains_as_trl(
    train, flash_calls, monkeypatch, case, attention
):
    """FlashAttention, and for `sdpa` torch's own."""
    calls = varlen_on_cpu.install(monkeypatch) if attention == "sdpa" else flash_calls
    monkeypatch.setattr(rows_apart, "has_varlen", lambda *args: False)
    expected = train("stock", **CASES[case])
    monkeypatch.setattr(rows_apart, "has_varlen", lambda *args: attention == "sdpa")
    keys = {"update_tokens": NUM_TOKENS, "attn_implementation": attention}
    found = train("ours", **CASES[case], **keys)
    assert max(map(len, calls)) > 1
    assert_alike(found, expected)


@pytest.fixture(scope="module")
def scored(tiny_model_dir):
    """Model with TRL's head, and `(log-probs, entropy, gradients)` of rows under some model."""
    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir)
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    torch.manual_seed(0)
    num_prompt, num_completion = 7, 12
    prompts, completions = torch.tensor([7, 3, 5, 2, 6, 4]), torch.tensor([12, 1, 5, 0, 8, 3])
    mask = torch.cat([
        torch.arange(num_prompt) >= num_prompt - prompts.unsqueeze(1),
        torch.arange(num_completion) < completions.unsqueeze(1),
    ], dim=1).long()  # fmt: skip
    ids = torch.randint(5, 260, mask.shape)
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :num_prompt] = -100
    weights = torch.rand(len(ids), ids.size(1) - 1)

    def score(forward, rows=None):
        model.zero_grad()
        wanted = weights if rows is None else weights * rows.unsqueeze(1)
        outputs = forward(
            input_ids=ids, attention_mask=mask, labels=labels.clone(), fused_lm_head=True
        )
        (outputs.log_probs * wanted + outputs.entropy * wanted).sum().backward()
        gradients = [weight.grad.clone() for weight in model.parameters()]
        return [outputs.log_probs.detach(), outputs.entropy.detach(), *gradients]

    return model, score


def assert_equal(found, expected):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=5e-5)


def packed(model, max_tokens, is_packed, num_prompt, *, agree=None, rows=None, shares=False):
    """A forward that plans its passes from what it is asked; it keeps them."""

    def forward(input_ids, attention_mask, **kwargs):
        masks = attention_mask[:, :num_prompt], attention_mask[:, num_prompt:]
        found = rows_on_host(input_ids[:, :num_prompt], *masks, rows)
        planner = Planner(max_tokens, not is_packed, shares, agree or (lambda numbers: numbers))
        (forward.passes,) = planner.passes([found], [True])
        run = PackedForward(model, found, forward.passes, num_prompt, is_packed)
        run.shares_prompts = shares
        return run(input_ids=input_ids, attention_mask=attention_mask, **kwargs)

    return forward


def num_passes(forward):
    graded = [is_graded for _, is_graded in forward.passes]
    return [graded.count(True), graded.count(False)]


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize(("max_tokens", "number"), [(5, 6), (30, 3), (1000, 1), (None, 1)])
def test_padded_and_packed_passes_give_the_same(scored, is_packed, max_tokens, number):
    model, score = scored
    forward = packed(model, max_tokens, is_packed, 7)
    assert_equal(score(forward), score(model))
    assert num_passes(forward) == [number, 0]


@pytest.mark.parametrize("is_packed", [False, True])
def test_rows_without_gradient_and_passes_of_other_processes(scored, is_packed):
    model, score = scored
    rows = torch.tensor([True, False, True, False, False, True])

    def agree(numbers):
        return [[graded + 2, ungraded + 1] for graded, ungraded in numbers]

    forward = packed(model, 30, is_packed, 7, agree=agree, rows=rows)
    assert_equal(score(forward, rows), score(model, rows))
    assert num_passes(forward) == [4, 2 if is_packed else 3]


@pytest.mark.parametrize("has_lone_row", [False, True])
@pytest.mark.parametrize("max_tokens", [25, 1000])
def test_rows_of_one_prompt_share_it(tiny_model_dir, max_tokens, has_lone_row):
    """Two problems of 3 and 2 rollouts; one of these has no token, or shares with no other."""
    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir)
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    on_cpu = torch.device("cpu"), torch.float32
    assert rows_apart.use(model, *on_cpu) and rows_apart.shares_prompts(model, *on_cpu)
    torch.manual_seed(0)
    problems = [0, 1, 0, 0, 2 if has_lone_row else 1]
    prompts, completions = [7, 5, 6], torch.tensor([9, 4, 1, 6, 5 if has_lone_row else 0])
    lengths = torch.tensor([prompts[problem] for problem in problems])
    mask = torch.cat([
        torch.arange(7) >= 7 - lengths.unsqueeze(1), torch.arange(9) < completions.unsqueeze(1)
    ], dim=1).long()  # fmt: skip
    ids = torch.randint(5, 260, mask.shape)
    ids[:, :7] = torch.randint(5, 260, (3, 7))[problems]
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :7] = -100
    found, num_tokens = [], []
    for shares in (False, True):
        spy = Mock(side_effect=model)
        forward = packed(spy, max_tokens, True, 7, shares=shares)
        model.zero_grad()
        outputs = forward(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True)
        scored = (labels != -100)[:, 1:]
        (outputs.log_probs * scored).square().sum().backward()
        gradients = [weight.grad.clone() for weight in model.parameters()]
        found.append([outputs.log_probs * scored, outputs.entropy * scored, *gradients])
        num_tokens.append(sum(call.kwargs["input_ids"].numel() for call in spy.call_args_list))
    assert_equal(found[1], found[0])
    assert num_tokens[1] < num_tokens[0]


def test_autocast_keeps_the_gradient(scored):
    """It keeps the weights that it has cast: those of a pass without gradient would have none."""
    model, score = scored
    rows = torch.tensor([True, False, True, False, True, True])
    forward = packed(model, 30, False, 7, rows=rows)
    with torch.autocast("cpu", torch.bfloat16):
        found = score(forward, rows)
    assert all(gradient.any() for gradient in found[2:])
