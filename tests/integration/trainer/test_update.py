"""The update: passes of similar rows give TRL's losses and weights; early stop; rounded weights.

And what it asks of the device.
"""

import json
import math
import shutil
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from trl import GRPOTrainer
from trl.trainer.utils import add_fused_lm_head

from benchmarks.host_waits import ON_HOST, OTHERS, Questions
from pipeline.errors import UserError
from stages.rules import check_sft_keys
from stages.trainer import rows_apart
from stages.trainer.update import PackedForward, Planner, RoundingNumbers, rows_on_host
from tests.integration import varlen_on_cpu
from tests.integration.flash_on_cpu import NAME as FLASH
from tests.integration.trainer.runs import read_logs, reporting, reports_of
from tests.unit.stages.helpers import sft

pytestmark = pytest.mark.integration

STEPS, NUM_TOKENS = 3, 75  # a prompt has about 60 tokens, a completion up to 12
TABLE = yaml.safe_load(Path(__file__).with_name("update.yaml").read_text(encoding="utf-8"))
CASES = TABLE["settings"]
SAME = {"loss", "grad_norm", "reward", "rollout/rewards", "train/mean_ratio", "num_tokens"}
WHOLE = {"entropy", "kl", "clip_ratio/region_mean"}  # where a generation is one micro-batch


@pytest.fixture
def unlike_lengths(monkeypatch):
    """Completions of 1 to 12 tokens, by what is in them; shorter ones end with EOS."""
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
    torch.testing.assert_close(found[1], expected[1], rtol=2e-4, atol=1e-4)


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=pytest.mark.slow) if c in TABLE["slow"] else c for c in CASES]
)
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
    assert has_ungraded == TABLE["has_ungraded"].get(case, has_ungraded)


@pytest.mark.parametrize("case", ["reference", "LoRA", "uniform groups"])
def test_one_attention_call_for_all_rows_trains_as_trl(train, flash_calls, monkeypatch, case):
    """FlashAttention, and for `sdpa` torch's own."""
    monkeypatch.setattr(rows_apart, "has_varlen", lambda *args: False)
    expected = train("stock", **CASES[case])
    for attention, calls in ((FLASH, flash_calls), ("sdpa", varlen_on_cpu.install(monkeypatch))):
        has_varlen = Mock(return_value=attention == "sdpa")
        monkeypatch.setattr(rows_apart, "has_varlen", has_varlen)
        keys = {"update_tokens": NUM_TOKENS, "attn_implementation": attention}
        found = train(f"ours with {attention}", **CASES[case], **keys)
        assert max(map(len, calls)) > 1
        assert_alike(found, expected)


NUM_PROMPT = 7  # columns of the prompts


def rectangle(prompts, completions, problems=None):
    """Ids, mask and labels of rows with so many tokens; those of a problem share their prompt."""
    lengths = [torch.tensor(part).unsqueeze(1) for part in (prompts, completions)]
    is_prompt = torch.arange(NUM_PROMPT) >= NUM_PROMPT - lengths[0]
    mask = torch.cat([is_prompt, torch.arange(max(completions)) < lengths[1]], dim=1).long()
    ids = torch.randint(5, 260, mask.shape)
    if problems is not None:
        ids[:, :NUM_PROMPT] = torch.randint(5, 260, (len(problems), NUM_PROMPT))[problems]
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :NUM_PROMPT] = -100
    return ids, mask, labels


@pytest.fixture(scope="module")
def scored(tiny_model_dir):
    """Model with TRL's head, and `(log-probs, entropy, gradients)` of rows under some model."""
    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir)
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    torch.manual_seed(0)
    ids, mask, labels = rectangle([7, 3, 5, 2, 6, 4], [12, 1, 5, 0, 8, 3])
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
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=5e-5)


def packed(model, max_tokens, is_packed, *, agree=None, rows=None, shares=False):
    """A forward that plans its passes from what it is asked; it keeps them."""

    def forward(input_ids, attention_mask, **kwargs):
        masks = attention_mask[:, :NUM_PROMPT], attention_mask[:, NUM_PROMPT:]
        found = rows_on_host(input_ids[:, :NUM_PROMPT], *masks, rows)
        planner = Planner(max_tokens, not is_packed, shares, agree or (lambda numbers: numbers))
        (forward.passes,) = planner.passes([found], [True])
        run = PackedForward(model, found, forward.passes, NUM_PROMPT, is_packed)
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
    forward = packed(model, max_tokens, is_packed)
    assert_equal(score(forward), score(model))
    assert num_passes(forward) == [number, 0]


@pytest.mark.parametrize("is_packed", [False, True])
def test_rows_without_gradient_and_passes_of_other_processes(scored, is_packed):
    model, score = scored
    rows = torch.tensor([True, False, True, False, False, True])

    def agree(numbers):
        return [[graded + 2, ungraded + 1] for graded, ungraded in numbers]

    forward = packed(model, 30, is_packed, agree=agree, rows=rows)
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
    prompts = [(7, 5, 6)[problem] for problem in problems]
    completions = [9, 4, 1, 6, 5 if has_lone_row else 0]
    ids, mask, labels = rectangle(prompts, completions, problems)
    found, num_tokens = [], []
    for shares in (False, True):
        spy = Mock(side_effect=model)
        forward = packed(spy, max_tokens, True, shares=shares)
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
    forward = packed(model, 30, False, rows=rows)
    with torch.autocast("cpu", torch.bfloat16):
        found = score(forward, rows)
    assert all(gradient.any() for gradient in found[2:])


# Early stop of a micro-batch

# Four minibatches share a generation; an optimizer step takes two of them.
EARLY_STOP = {
    "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "steps_per_generation": 4,
    "max_steps": 7, "max_completion_length": 6, "weight_decay": 0.1,
}  # fmt: skip


def shift_ratios_on_rank_0():
    """Rank 1 alone would keep these minibatches; only its ratio of 1 is in the mean.

    At micro-step 8 the activations of rank 0 are no numbers, and so the gradient. The rows of
    micro-step 13 have no advantage.
    """
    from stages.trainer import grpo_trainer

    keys = "train/dropped_minibatches", "train/skipped_steps", "grad_norm", "loss"

    class Trainer(reporting(grpo_trainer.MathGRPOTrainer, *keys)):
        def train(self, *args, **kwargs):
            self.max_mean_ratio = 5.0
            self.model.model.norm.register_forward_hook(self.break_activations)
            self.report()
            return super().train(*args, **kwargs)

        def break_activations(self, module, args, output):
            is_due = self._step == 8 and self.accelerator.process_index == 0
            return output * math.nan if is_due and torch.is_grad_enabled() else output

        def _prepare_inputs(self, generation_batch):
            inputs = dict(super()._prepare_inputs(generation_batch))
            inputs["advantages"] = torch.tensor([1.0, -1.0, 1.0, -1.0]) * (self._step != 13)
            shift = {1: 5.0, 2: 5.0, 3: math.nan, 4: 5.0, 12: 5.0}.get(self._step)
            if shift and self.accelerator.process_index == 0:
                inputs["old_per_token_logps"] = inputs["old_per_token_logps"] - shift
            return inputs

    grpo_trainer.MathGRPOTrainer = Trainer


def test_both_of_two_processes_drop_what_only_one_sees(write_recipe, fork_server):
    """Last in the step (where gradients are exchanged), all of it, first in it, none; NaN; none.

    In the last step the micro-batch that is kept has no gradient. A step without anything to learn
    leaves the weights alone: no momentum, no weight decay.
    """
    recipe = write_recipe("grpo", **EARLY_STOP)
    reports = reports_of(fork_server.finish(recipe, 2, setup=shift_ratios_on_rank_0))
    assert reports[0] == reports[1] and len(reports[0]) == 8
    weights = [weights for _, weights, *_ in reports[0]]
    logs = [log for _, _, *log in reports[0][1:]]
    dropped, skipped = [0.5, 1, 0.5, 0, 0.5, 0, 0.5], [0, 1, 0, 0, 1, 0, 1]
    assert [log[:2] for log in logs] == [*map(list, zip(dropped, skipped, strict=True))]
    assert [log[2] == 0 for log in logs] == skipped
    assert [a == b for a, b in pairwise(weights)] == skipped
    assert all(math.isfinite(value) for log in logs for value in log)


# Small learning rates in bfloat16; a run that is resumed is in `test_resume`

BF16 = {"dtype": "bfloat16", "learning_rate": 5.0e-7, "lr_scheduler_type": "constant"}
ROUNDED = BF16 | {"stochastic_rounding": True}


def test_a_stage_keeps_what_plain_bf16_loses(run_stage, tmp_path):
    """The change of all weights in a step, along that of the same step with float32 weights.

    The model's weights are large: 1e-5 is as far below their last bit as 5e-7 is for usual ones.
    """
    change = {}
    exact = BF16 | {"dtype": "float32"}
    for name, settings in (("plain", BF16), ("rounded", ROUNDED), ("exact", exact)):
        more = {"max_steps": 1, "learning_rate": 3.0e-5, "output_dir": str(tmp_path / name)}
        folder = run_stage("sft", **settings | more)
        values = json.loads((tmp_path / "sft.yaml").read_text())
        begin = AutoModelForCausalLM.from_pretrained(values["model_name_or_path"])
        end = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        before = [p.bfloat16().float() if name != "exact" else p for p in begin.parameters()]
        parts = [(b - a).flatten() for a, b in zip(before, end.parameters(), strict=True)]
        change[name] = torch.cat(parts).detach()
    scale = change["exact"].square().sum()
    kept = {name: ((c * change["exact"]).sum() / scale).item() for name, c in change.items()}
    assert kept["plain"] < 0.1, kept
    assert 0.75 < kept["rounded"] < 1.25, kept


def test_sampling_does_not_notice():
    """The numbers follow from seed and step; what is drawn after them is as without them."""

    def drawn_within(seed, step):
        numbers = RoundingNumbers(torch.device("cpu"))
        args, state = SimpleNamespace(seed=seed), SimpleNamespace(global_step=step)
        numbers.on_pre_optimizer_step(args, state, None)
        drawn = torch.rand(4).tolist()
        numbers.on_optimizer_step(args, state, None)
        return drawn

    first = drawn_within(0, 3)
    torch.manual_seed(7)  # as on another process, which samples with numbers of its own
    before = torch.get_rng_state()
    assert drawn_within(0, 3) == first
    assert len({tuple(drawn_within(*key)) for key in ((0, 3), (0, 4), (1, 3))}) == 3
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("engine", ["deepspeed", "fsdp"])
def test_it_is_refused_under_an_engine_with_weights_of_its_own(monkeypatch, engine):
    settings = sft(ROUNDED)
    check_sft_keys(settings)
    monkeypatch.setenv(f"ACCELERATE_USE_{engine.upper()}", "true")
    with pytest.raises(UserError, match=f"{engine} updates float32 weights"):
        check_sft_keys(settings)


def test_weights_that_turn_out_to_be_float32_are_refused():
    """As of a script that loads its model itself; a recipe's `dtype` decides."""
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))])
    rounding = RoundingNumbers(torch.device("cpu"))
    with pytest.raises(UserError, match=r"the optimizer has torch\.float32"):
        rounding.on_train_begin(None, None, None, optimizer=optimizer)


def test_a_checkpoint_that_turns_out_to_be_float16_is_refused(tiny_model_dir, run_stage, tmp_path):
    folder = shutil.copytree(tiny_model_dir, tmp_path / "half")
    weights = load_file(folder / "model.safetensors")
    halves = {name: weight.half() for name, weight in weights.items()}
    save_file(halves, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"dtype": None}))
    with pytest.raises(UserError, match=r"^dtype: \S+ is trained in float16: "):
        run_stage("sft", model_name_or_path=str(folder), dtype="auto")


# What a step asks of the device: while it waits for an answer, the GPU gets no further work. Each
# question that code of this project asks is counted, by the function that asks. What TRL asks
# itself, several times a micro-batch for its log, is not.

# Their tensors lie on the host, or they generate and have to know which completions have ended.
NOT_ASKING = ON_HOST | {
    "GuardActions._is_graded", "decode", "draw", "FiniteNumbers.on_train_begin", OTHERS,
}  # fmt: skip


@pytest.mark.usefixtures("graded_by_chance")
@pytest.mark.parametrize("case", TABLE["questions"])
def test_questions_of_two_steps(run_stage, monkeypatch, case):
    settings, expected = TABLE["questions"][case]
    questions, train = Questions(NOT_ASKING), GRPOTrainer.train

    def counted(self, *args, **kwargs):
        with questions:
            return train(self, *args, **kwargs)

    monkeypatch.setattr(GRPOTrainer, "train", counted)
    always = {
        "update_tokens": "auto", "curriculum": "predictive", "prompt_components": 0,
        "gradient_accumulation_steps": 2, "per_device_train_batch_size": 4, "max_steps": 2,
    }  # fmt: skip
    run_stage("grpo", **always | settings)
    assert questions.counts == expected
