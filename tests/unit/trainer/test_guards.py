"""Collapse guards: settings, streaks and actions, collapsing and healthy runs, what is measured."""

import json
import math
import random
import re
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml

from data_prep.sources import synthetic
from pipeline.prompts import build_completion
from stages.trainer import GuardCallback
from stages.trainer.guard_actions import GuardActions
from stages.trainer.guards import (
    GUARDS,
    Guards,
    GuardSettings,
    best_reference,
    length_growth,
    logp_mismatch,
    moved_share,
    repeated_ngram_share,
    repeated_tag_share,
    repetition_scores,
    sample_weights,
    why_no_signal,
)

NAN, INF = math.nan, math.inf
TABLE = yaml.safe_load(Path(__file__).with_name("guards.yaml").read_text(encoding="utf-8"))


def test_no_signal_cannot_roll_back():
    """It has no healthy checkpoint to go back to."""
    for name in {*GUARDS} - {"no_signal"}:
        GuardSettings(**{name: "rollback"})
    with pytest.raises(ValueError, match="guard_no_signal: must be "):
        GuardSettings(no_signal="rollback")


def firings_of(statistics, **settings):
    """What guards with these settings ask for in a run with these statistics of its steps."""
    guards = Guards(GuardSettings(**settings))
    found = [one for step, values in enumerate(statistics) for one in guards.observe(step, values)]
    return guards, found


def statistics_of(trace, num_steps):
    """The statistics of each step; how a trace is written is above the table."""
    columns = {}
    for name, parts in trace.items():
        parts = parts if isinstance(parts, list) else [[parts, num_steps]]
        columns[name] = [value for value, number in parts for _ in range(number)]
    for step in range(num_steps):
        yield {name: v[step] for name, v in columns.items() if v[step] != "missing"}


@pytest.mark.parametrize("row", TABLE["runs"], ids=lambda row: str(row["trace"]))
def test_what_fires(row):
    statistics = statistics_of(row["trace"], row.get("steps", 120))
    guards, found = firings_of(statistics, **row.get("settings", {}))
    assert {*guards.values} == {*row.get("judged", guards.values)}
    for firing, wanted in zip(found, row["fires"], strict=True):
        fields = {name: value for name, value in wanted.items() if name != "says"}
        assert fields.items() <= vars(firing).items()
        assert re.search(wanted.get("says", ""), firing.message)
    assert len(guards.state_dict()["signal_trace"]) <= 30


@pytest.mark.parametrize(("name", "key", "fine", "violating"), TABLE["levels"])
def test_a_level_fires_at_the_third_violating_step_once_per_streak(name, key, fine, violating):
    trace = [violating] * 2 + [fine] + [violating] * 5 + [fine] + [violating] * 3
    statistics = [{key: value} for value in trace]
    assert [firing.step for firing in firings_of(statistics, **{name: "stop"})[1]] == [5, 11]
    guards, found = firings_of(statistics, patience=1)
    assert [firing.step for firing in found] == [0, 3, 9]
    guards.observe(12, {key: fine})
    assert guards.values == {name: fine}


@pytest.mark.parametrize(("key", "before", "past", "others"), TABLE["causes"])
def test_where_another_cause_is_likelier(key, before, past, others):
    even = why_no_signal({"correctness": 0.5})
    assert why_no_signal(others | {key: before}) == even
    assert why_no_signal(others | {key: past}) != even


# Whole runs


def healthy(step, rng):
    """A run of 32 completions a step that learns: reward up, length up, some are cut off."""
    progress = step / 400
    return {
        "repetition": rng.choice([0, 0, 0, 1 / 32, 3 / 32]),
        "cut_off_rate": min(1, max(0, rng.gauss(0.03 + 0.15 * progress, 0.05))),
        "reward": rng.gauss(0.4 + 0.3 * progress, 0.08),
        "length": (300 + 900 * progress) * math.exp(rng.gauss(0, 0.2)),
        "logp_mismatch": rng.uniform(1.005, 1.03),
        "entropy": 0.4 - 0.38 * progress,
        "moved_share": rng.uniform(0.3, 0.9),
        "signal": sum(rng.random() < 0.3 for _ in range(4)) / 4,
        "num_groups": 4, "max_length": 4096, "correctness": 0.6 + 0.3 * progress,
    }  # fmt: skip


def blend(low, high, share):
    return low + (high - low) * min(1, max(0, share))


def ends_no_more(step, rng, num_steps):
    """From step 200 on completions are cut off and earn nothing, all of them after `num_steps`."""
    share = (step - 199) / num_steps
    fine = healthy(step, rng)
    return fine | {
        "cut_off_rate": blend(fine["cut_off_rate"], 1.0, share),
        "reward": blend(fine["reward"], 0.0, share),
    }


COLLAPSES = {  # guard, statistics from step 200 on, bad steps within which it fires
    "loops at once": ("repetition", lambda s, r: {"repetition": 0.6 if s > 199 else 0}, 3),
    "cut off at once": ("eos", lambda s, r: ends_no_more(s, r, 1), 6),
    "cut off over 100 steps": ("eos", lambda s, r: ends_no_more(s, r, 100), 40),
    "entropy halves every 3 steps": (
        "entropy", lambda s, r: {"entropy": 0.1 * 0.5 ** ((s - 199) / 3)}, 20,
    ),
    "three times as long at once": (
        "length", lambda s, r: {"length": healthy(s, r)["length"] * (3 if s > 199 else 1)}, 6,
    ),
    "ten times as long over 30 steps": (
        "length", lambda s, r: {"length": 500 * 10 ** ((s - 199) / 30)}, 18,
    ),
    "sampler with stale weights": ("alignment", lambda s, r: {"logp_mismatch": 1.2}, 3),
    "bf16 weights": ("weights", lambda s, r: {"moved_share": 0.01}, 3),
    "all learned": ("no_signal", lambda s, r: {"signal": 0.0, "correctness": 1.0}, 20),
}  # fmt: skip


@pytest.mark.parametrize("name", COLLAPSES)
@pytest.mark.parametrize("seed", range(3))
def test_a_collapse_is_seen_soon_and_by_its_guard_alone(name, seed):
    guard, trace, num_steps = COLLAPSES[name]
    guards, rng = Guards(GuardSettings()), random.Random(seed)
    for step in range(200 + num_steps):
        statistics = healthy(step, rng)
        if step > 199:
            statistics |= trace(step, rng)
        found = guards.observe(step, statistics)
        if found:
            assert [firing.guard for firing in found] == [guard]
            assert step >= 200 + 2 and found[0].since <= 200 + num_steps - 3
            assert found[0].since >= 190  # not far before the first bad step
            return
    pytest.fail("never fired")


@pytest.mark.parametrize("seed", range(10))
def test_a_healthy_run_is_silent(seed):
    rng = random.Random(seed)
    guards, found = firings_of(healthy(step, rng) for step in range(400))
    assert found == [] and {*guards.values} == {*GUARDS}


def mixed(step):
    """A trace on which every guard fires now and then."""
    rng = random.Random(f"mixed {step}")
    statistics = healthy(step, rng)
    if step % 40 > 25:
        statistics |= {"repetition": 0.5, "logp_mismatch": 1.3, "length": 5000.0 + step}
        statistics |= {"entropy": 0.001, "moved_share": 0.0, "cut_off_rate": 1.0, "reward": 0.0}
    if step % 7 == 0:
        statistics |= {"reward": NAN, "entropy": NAN, "correctness": NAN}
        statistics |= {"signal": NAN} if step % 14 else {"cut_off_rate": NAN}
    return statistics


SETTINGS = GuardSettings(eos="rollback", weights="off", patience=2)


def test_a_resumed_run_acts_as_an_uninterrupted_one():
    straight, resumed = Guards(SETTINGS), Guards(SETTINGS)
    fired = set()
    for step in range(120):
        expected = straight.observe(step, mixed(step))
        assert repr(resumed.observe(step, mixed(step))) == repr(expected)  # NaN equals NaN so
        fired |= {firing.guard for firing in expected}
        assert repr(resumed.values) == repr(straight.values)  # what the log shows
        state = json.loads(json.dumps(resumed.state_dict(), allow_nan=False))
        assert state == straight.state_dict()
        resumed = Guards(SETTINGS)
        resumed.load_state_dict(state)
    assert fired == {*GUARDS} - {"weights"}
    assert len(state["eos_trace"]) == 50 == len(state["length_trace"])  # it does not grow for ever


# Repetition


@pytest.mark.parametrize(
    ("ids", "size", "share"),
    [
        ([], 2, 0),
        ([1, 2, 3, 4], 2, 0),
        ([1, 2, 1, 2, 1, 2], 2, 3 / 5),  # 12 21 12 21 12
        ([1, 1, 1, 1], 1, 3 / 4),
        ([*range(50), *[50, 51] * 25], 2, 47 / 99),  # half of it a loop: 50 + 2 distinct
        ([*range(10)] * 10, 8, 83 / 93),  # a loop of 10: 10 distinct of 93
    ],
)
def test_repeated_ngrams(ids, size, share):
    assert repeated_ngram_share(ids, size) == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize(("text", "share"), TABLE["tags"])
def test_repeated_tags(text, share):
    assert repeated_tag_share(text) == pytest.approx(share, abs=1e-12)


def tokens(text):
    """Words, single digits, signs and line breaks, as ids: about what Qwen2's tokenizer cuts."""
    return [hash(token) for token in re.findall(r"\d| ?[A-Za-z]+| ?[^\w\s]+|\s+", text)]


def score(*texts, ngram_size=8):
    return repetition_scores([tokens(text) for text in texts], list(texts), ngram_size)


def test_the_larger_of_tokens_and_tags_counts():
    loop, spam = "so 1 + 1 = 2, " * 40, "</think>:)" * 40
    assert repetition_scores([[1] * 103, [*range(9)]], [spam, spam], 4) == [0.99, 39 / 40]
    assert repetition_scores([[*range(9)]], [loop], 4) == [0.0]
    with pytest.raises(ValueError):
        repetition_scores([[1]], ["a", "b"], 4)


def test_honest_arithmetic_is_low_and_loops_are_high():
    problems = synthetic.load("rl", 200, seed=0, max_level=7, hasty_share=0.3)
    honest = [build_completion(problem.solution, problem.answers[0]) for problem in problems]
    assert max(score(*honest)) < 0.3 and max(score(*honest, ngram_size=4)) < 0.5
    for text in honest[:20]:
        cut = text[: len(text) // 2]
        tail = text[len(text) // 2 :]
        loops = [cut + tail * 20, text * 20, cut + "5" * 1000, cut + " wait, no:" * 200]
        assert min(score(*loops)) > 0.85


@pytest.mark.parametrize("text", ["<think", "<", "</think>", "<think></think>", "a", "<answer>x "])
def test_hostile_text_costs_little(text):
    text = (text * 100_000)[:100_000]
    started = time.process_time()
    repetition_scores([[ord(c) for c in text]], [text], 8)
    assert time.process_time() - started < 5  # 0.05 s; quadratic would take minutes


# Log-probs


def test_logp_mismatch_by_hand():
    log2 = math.log(2)
    reference = torch.tensor([[0.0, 0.0, -1.0], [-1.0, -2.0, 5.0], [NAN, 0.0, 0.0], [-1, -1, -1]])
    sampling = torch.tensor([[log2, -log2, NAN], [-1.0, -2.0, -INF], [0.0, 0, 0], [NAN, 0, 0]])
    mask = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 1, 1], [1, 0, 0]])
    found = logp_mismatch(reference, sampling, mask).tolist()
    # Opposite signs do not cancel, NaN of the sampler and masked tokens are out, the trainer's NaN
    # is no agreement, and nothing left is no number.
    assert found[:3] == [pytest.approx(2.0), 1.0, INF] and math.isnan(found[3])


# Weights that move


def model_of(*parts):
    model = torch.nn.Module()
    for index, part in enumerate(parts):
        model.register_parameter(str(index), torch.nn.Parameter(part))
    return model


def moved(model, change, **keys):
    before = [part.clone() for part in sample_weights(model, **keys)]
    with torch.no_grad():
        change([p.data for p in model.parameters()])
    return moved_share(before, sample_weights(model, **keys))


def test_changed_weights_are_counted():
    model = model_of(torch.zeros(3), torch.zeros(2, 2), torch.zeros(1, dtype=torch.bfloat16))
    assert moved(model, lambda parts: (parts[0][1:2].add_(1), parts[2].add_(1e-30))) == 2 / 8
    assert moved(model, lambda parts: None) == 0
    assert math.isnan(moved_share([], []))


def test_every_kth_weight_is_looked_at_through_all_parameters():
    # 5 + 4 + 3 elements, at most 4 of them: every third, that is 0, 3 | 1 | 0 within each.
    parts = [torch.arange(5.0), torch.arange(4.0), torch.arange(3.0)]
    views = sample_weights(model_of(*parts), max_elements=4)
    assert [view.tolist() for view in views] == [[0, 3], [1], [0]]
    # 64 columns, one element a row would be column 0 alone.
    (view,) = sample_weights(model_of(torch.arange(64.0).repeat(64, 1)), max_elements=64)
    assert len({*view.tolist()}) > 60


def test_of_a_sharded_parameter_this_process_part_is_looked_at():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        local = torch.zeros(2, 4)
        mesh = init_device_mesh("cpu", (2,))
        model = model_of(DTensor.from_local(local, mesh, [Shard(0)]))  # (4, 4) over two processes
        assert moved(model, lambda parts: local[0].add_(1)) == 0.5
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize(("changes", "share"), TABLE["judged_steps"])
def test_only_a_step_that_should_move_weights_is_judged(changes, share):
    case = {"rate": 1.0, "gradient": 1.0, "actions": {"weights": "warn"}}
    case |= dict.fromkeys(("is_skipped", "is_deepspeed", "is_rounded_at_random"), False) | changes
    model, seen = torch.nn.Linear(3, 2), []
    trainer = SimpleNamespace(model=model, is_deepspeed_enabled=case["is_deepspeed"])
    settings = dict.fromkeys(GUARDS, "off") | case["actions"]
    watch = GuardActions(trainer, GuardSettings(**settings))
    optimizer = torch.optim.SGD(model.parameters(), lr=case["rate"])
    optimizer.step_was_skipped = case["is_skipped"]
    optimizer.bf16_stochastic_round = case["is_rounded_at_random"]
    for _ in range(2):
        if case["gradient"] is not None:
            for weight in model.parameters():
                weight.grad = torch.full_like(weight, case["gradient"])
        watch.on_pre_optimizer_step(None, None, None, model=model, optimizer=optimizer)
        if not case["is_skipped"]:
            optimizer.step()
        watch.on_optimizer_step(None, None, None, model=model, optimizer=optimizer)
        seen.append(watch._moved)
    assert len(seen) == 2
    assert all(math.isnan(moved) if share is None else moved == share for moved in seen)


# Windows over the steps behind


def test_length_growth_by_hand():
    assert math.isnan(length_growth([], 3, 5))
    assert math.isnan(length_growth([100.0] * 5, 3, 5))  # a baseline, but nothing after it
    assert length_growth([100.0] * 5 + [400.0], 3, 5) == 2.0  # (100 + 100 + 400) / 3 / 100
    assert length_growth([50, 150, 100, 100, 100, 9, 9, 300, 200, 250], 3, 5) == 2.5
    assert math.isnan(length_growth([0.0] * 9, 3, 5))
    # Linear growth: steps 0..99 are as long as their number; 10 ago and older: 50..89.
    assert length_growth(range(100), 3, 5) == pytest.approx(98 / 69.5)


def test_best_reference_by_hand():
    # Young: the last window, better or worse.
    assert best_reference([0.1] * 6, [1.0] * 5 + [0], 5, None) == [0.1, 1.0]
    assert best_reference([0.1] * 6, [0.5] * 6, 5, [0.0, 9.0]) == [0.1, 0.5]
    # Whole (50 steps): only a window whose reward is no worse; the last ten are not in it.
    rates, rewards = [0.2] * 40 + [1.0] * 10, [0.6] * 40 + [0.0] * 10
    assert best_reference(rates, rewards, 5, [0.1, 0.7]) == [0.1, 0.7]
    assert best_reference(rates, rewards, 5, [0.1, 0.6]) == pytest.approx([0.2, 0.6])
    assert best_reference(rates, rewards, 5, [0.1, 0.5]) == pytest.approx([0.2, 0.6])


# As a callback of TRL's own trainer


@pytest.mark.parametrize(
    "action", [{"length": "rollback"}, {"repetition": "stop"}, {"alignment": "stop"}]
)
def test_a_callback_refuses_what_it_cannot_do(action):
    with pytest.raises(ValueError, match=f"guard_{next(iter(action))}: .* needs MathGRPOTrainer"):
        GuardCallback(GuardSettings(**action))


ARGS = {
    "generation_batch_size": 64, "num_generations": 8, "max_completion_length": 100,
    "device": "cpu", "mask_truncated_completions": True,
}  # fmt: skip
LOGS = {
    "reward": 0.5, "completions/mean_length": 10, "completions/clipped_ratio": 0.1,
    "frac_reward_zero_std": 0.2, "entropy": 0.5, "kl": 0.0,
}  # fmt: skip


@pytest.mark.parametrize("action", ["warn", "stop"])
def test_a_callback_judges_the_logs_of_training(action, tmp_path):
    args = SimpleNamespace(output_dir=str(tmp_path), **ARGS)
    guards = GuardCallback(GuardSettings(length=action))
    control = SimpleNamespace(should_training_stop=False)
    for step in range(1, 31):
        logs = LOGS | {"completions/mean_length": 10 if step < 20 else 50}
        guards.on_log(args, SimpleNamespace(global_step=step), control, logs)
        guards.on_log(args, None, control, {"eval_reward": 0.0})  # is none of training
    assert [one.guard for one in guards.firings] == ["length"]
    assert 20 <= guards.firings[0].step < 30
    assert control.should_training_stop is (action == "stop")
    assert len((tmp_path / "events.jsonl").read_text().splitlines()) == 1


def test_an_empty_batch_has_no_entropy():
    """TRL logs 0 where every completion was cut off and masked."""
    logs = LOGS | {"completions/clipped_ratio": 1.0, "frac_reward_zero_std": 0.0, "entropy": 0.0}
    args, control = SimpleNamespace(**ARGS), SimpleNamespace()
    guards = GuardCallback(GuardSettings(entropy="stop", patience=1))
    guards.on_log(args, SimpleNamespace(global_step=1), control, logs)
    assert guards.firings == [] and "entropy" not in guards.guards.values
    guards.on_log(args, SimpleNamespace(global_step=2), control, logs | {"reward": None})
    assert guards.guards.values["no_signal"] == 0.5  # of a step with a signal and one without
