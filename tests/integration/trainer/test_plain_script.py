"""The trainer in a plain TRL script: what such scripts may ask for.

With every part switched off it trains as TRL's own trainer does, bit for bit.
"""

import pytest
import torch
from datasets import Dataset
from pandas import read_parquet
from transformers import AutoTokenizer, Qwen3MoeConfig, Qwen3MoeForCausalLM
from trl import GRPOConfig, GRPOTrainer

from pipeline.errors import UserError
from stages.trainer.curriculum import PredictiveCurriculum, Refill
from stages.trainer.grpo_trainer import METRIC_NAMES, MathGRPOTrainer
from stages.trainer.guards import GuardSettings
from tests.integration.trainer.runs import checksum, read_events

pytestmark = pytest.mark.integration
ROWS = [{"prompt": f"{a} + {b} =", "total": a + b} for a in range(6) for b in range(4)]


def my_reward(completions, total, **_):
    """The model writes noise: call some of it right."""
    return [float(checksum(text) % 3 == 0) for text in completions]


@pytest.fixture
def build(tiny_model_dir, tmp_path):
    """A trainer over 24 rows without ids; `trl` are settings of `GRPOConfig`."""

    def call(cls=MathGRPOTrainer, rounds=None, model=tiny_model_dir, folder="out", trl=(), **ours):
        settings = {
            "num_generations": 4, "per_device_train_batch_size": 8, "max_completion_length": 6,
            "max_steps": 3, "learning_rate": 1e-2, "logging_steps": 1, "report_to": "none",
            "use_cpu": True, "bf16": False, "disable_tqdm": True,
        }  # fmt: skip
        args = GRPOConfig(str(tmp_path / folder), **settings | dict(trl))
        if cls is MathGRPOTrainer and "curriculum" not in ours:
            own = PredictiveCurriculum([0] * len(ROWS), args.num_generations, args.seed)
            ours["curriculum"] = own if rounds is None else Refill(own, rounds)
            ours.setdefault("correctness", "my_reward")
        ours.setdefault("train_dataset", Dataset.from_list(ROWS))
        return cls(str(model), my_reward, args, **ours)

    return call


def used(trainer):
    """Problems that the curriculum has seen groups of."""
    last_used = trainer.curriculum.state_dict()["last_used"]
    return {problem for problem, batch in enumerate(last_used) if batch >= 0}


CASES = {
    "iterations": {"rounds": 2, "trl": {"num_iterations": 2, "steps_per_generation": 2,
                                        "per_device_train_batch_size": 4}},
    "TRL's order": {"trl": {"shuffle_dataset": False}, "choose": lambda count: None},
    "dropped": {"rounds": 1, "dead_groups": "drop", "trl": {"loss_type": "grpo", "beta": 0.1}},
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_rows_without_ids_are_told_apart(build, case):
    """And what is observed of a problem is what its own rollouts have earned."""
    seen = []
    settings = dict(CASES[case])
    choose = settings.pop("choose", None)
    trainer = build(**settings)
    observe = trainer.curriculum.observe
    trainer.curriculum.observe = lambda *args: (seen.append(args), observe(*args))
    if choose is not None:
        trainer.curriculum.choose = choose
    calculate = trainer._calculate_rewards

    def check(inputs, prompts, completions, ids):
        rewards = calculate(inputs, prompts, completions, ids)
        problems, num_right, size = seen[-1]
        assert [row["prompt"] for row in inputs[::size]] == [ROWS[i]["prompt"] for i in problems]
        assert num_right == rewards.view(-1, size).sum(dim=1).tolist()
        return rewards

    trainer._calculate_rewards = check
    trainer.train()
    assert seen and (choose is None or seen[0][0] == [0, 1])


def test_what_a_script_gets_wrong_is_named(build):
    stream = Dataset.from_list(ROWS).to_iterable_dataset()
    both = {"multi_objective_aggregation": "normalize_then_sum"}
    bonus = {"entropy_coef": 0.1, "loss_type": "grpo"}
    rollback = GuardSettings(length="rollback")
    for key, error, settings in (
        ("correctness", ValueError, {"correctness": None}),
        ("correctness", ValueError, {"correctness": "reward", "curriculum": None}),
        ("curriculum", ValueError, {"train_dataset": stream}),
        ("curriculum: object", ValueError, {"curriculum": object(), "correctness": "my_reward"}),
        ("dead_groups", ValueError, {"dead_groups": True}),
        ("refill: .*normalize_then_sum", UserError, {"rounds": 1, "trl": both}),
        ("dead_groups: .*normalize_then_sum", UserError, {"dead_groups": "drop", "trl": both}),
        ("micro-batch", UserError, {"dead_groups": "drop", "trl": {"loss_type": "bnpo"}}),
        ("dead_groups: .*entropy", UserError, {"dead_groups": "drop", "trl": bonus}),
        ("^guard_length: .*save_only_model", UserError,
         {"guards": rollback, "trl": {"save_only_model": True}}),
    ):  # fmt: skip
        with pytest.raises(error, match=key):
            build(**settings).train()
    trainer = build(guards=rollback)
    trainer.is_deepspeed_enabled = True
    with pytest.raises(UserError, match=r"^guard_length: .* with DeepSpeed"):
        trainer.train()


WARN = GuardSettings(
    patience=1, min_entropy=100.0, repetition_ngram=1, max_repetition=0.0, max_repetitive_share=0.0
)
TIMES = ("time", "second")


def test_what_is_off_leaves_no_trace(build, tmp_path):
    """Bit for bit TRL's steps, evaluations and weights; guards that warn leave their metrics."""
    keys = {
        "eval_strategy": "steps", "eval_steps": 2, "num_generations_eval": 2, "max_steps": 8,
        "steps_per_generation": 2, "per_device_train_batch_size": 4, "log_completions": True,
        "num_completions_to_print": 0,
    }  # fmt: skip
    rows = {"train_dataset": Dataset.from_list(ROWS[:6])}  # three generation batches an epoch
    sets = {"one": Dataset.from_list(ROWS[6:9]), "other": Dataset.from_list(ROWS[9:12])}
    expected = build(GRPOTrainer, folder="stock", trl=keys, eval_dataset=sets, **rows)
    expected.train()
    theirs = [without_times(log) for log in expected.state.log_history]
    assert {"eval_one_loss", "eval_reward"} <= {key for log in theirs for key in log}
    assert any(log.get("grad_norm") for log in theirs)
    for name, ours in (("off", {}), ("warned", {"guards": WARN, "max_mean_ratio": 1e9})):
        found = build(curriculum=None, folder=name, trl=keys, eval_dataset=sets, **rows, **ours)
        found.train()
        assert not found._is_kept  # no minibatch of an optimizer step
        added = set()
        for log, their in zip(found.state.log_history, theirs, strict=True):
            assert {key: log[key] for key in their} == their
            added |= without_times(log).keys() - their.keys()
        pairs = zip(found.model.parameters(), expected.model.parameters(), strict=True)
        assert all(torch.equal(one, other) for one, other in pairs)
        tables = [sorted((tmp_path / one / "completions").iterdir()) for one in ("stock", name)]
        for one, other in zip(*tables, strict=True):
            assert read_parquet(one).equals(read_parquet(other))
        fired = {event["guard"] for event in read_events(tmp_path / name)}
        if ours:
            assert fired >= {"repetition", "entropy"} and added > {*METRIC_NAMES}
        else:
            assert not fired and added == {*METRIC_NAMES}


def without_times(log):
    return {key: value for key, value in log.items() if not any(map(key.count, TIMES))}


@pytest.fixture
def mixture_dir(tiny_model_dir, tmp_path):
    """A tiny mixture of experts whose balance is in the loss."""
    tokenizer = AutoTokenizer.from_pretrained(tiny_model_dir)
    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        moe_intermediate_size=16, num_attention_heads=2, num_key_value_heads=1, head_dim=8,
        num_experts=4, num_experts_per_tok=2, router_aux_loss_coef=0.5, initializer_range=0.3,
        bos_token_id=None, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    Qwen3MoeForCausalLM(config).save_pretrained(tmp_path / "mixture")
    tokenizer.save_pretrained(tmp_path / "mixture")
    return tmp_path / "mixture"


@pytest.mark.parametrize("lora", [False, True])
def test_experts_are_balanced_over_all_passes(build, mixture_dir, lora):
    """Loss, gradient and balance are TRL's, which runs a micro-batch in one pass."""
    from peft import LoraConfig

    logs = []
    for cls, ours in ((GRPOTrainer, {}), (MathGRPOTrainer, {"update_tokens": 30})):
        more = ours | ({} if cls is GRPOTrainer else {"curriculum": None})
        more |= {"peft_config": LoraConfig(target_modules=["q_proj"])} if lora else {}
        trainer = build(cls, model=mixture_dir, trl={"max_steps": 2}, **more)
        trainer.train()
        logs.append([log for log in trainer.state.log_history if "aux_loss" in log])
    assert len(logs[0]) == 2
    for stock, found in zip(*logs, strict=True):
        for key in ("loss", "grad_norm", "aux_loss", "entropy"):
            assert found[key] == pytest.approx(stock[key], rel=1e-4, abs=1e-6), key


# Dead groups

LOSSES = ("dapo", "grpo", "dr_grpo", "luspo", "sapo")


@pytest.mark.parametrize("loss_type", LOSSES)
def test_a_dropped_group_is_as_if_never_generated(build, loss_type):
    """The loss and its gradient, KL included, are those of the other group alone."""
    keys = {"loss_type": loss_type, "beta": 0.1, "epsilon_high": 2.0, "disable_dropout": True}
    keys |= {"importance_sampling_level": "sequence"} if loss_type == "luspo" else {}
    trainer = build(trl=keys, curriculum=None, dead_groups="drop")
    trainer.current_gradient_accumulation_steps = 1
    generator = torch.Generator().manual_seed(0)
    length = torch.tensor([6, 3, 2, 5, 1, 6, 4, 4])
    rewards = torch.tensor([1.0, 0, 0, 1, 0.3, 0.3, torch.nan, 0.3])
    batch = {
        "prompt_ids": torch.randint(10, 200, (8, 4), generator=generator),
        "prompt_mask": torch.ones(8, 4, dtype=torch.long),
        "completion_ids": torch.randint(10, 200, (8, 6), generator=generator),
        "completion_mask": (torch.arange(6) < length.unsqueeze(1)).long(),
        "ref_per_token_logps": torch.full((8, 6), -5.0),
        "advantages": torch.tensor([1.0, -1, -1, 1, 0, 0, 0, 0]),
        "num_items_in_batch": length.sum(),
    }
    alone = {key: value[:4] if value.ndim else length[:4].sum() for key, value in batch.items()}
    trainer._rewards = rewards
    trainer._drop_dead_groups(batch)
    found = []
    for inputs in (batch, alone):
        trainer.model.zero_grad()
        loss = trainer.compute_loss(trainer.model.train(), inputs)
        loss.backward()
        found.append([loss.detach(), *(part.grad.clone() for part in trainer.model.parameters())])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-6)
    assert found[0][0] != 0
