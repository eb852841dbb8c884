"""Collapse guards on whole runs: what fires how soon, what never does, and after a resume."""

import json
import math
import random

import pytest

from stages.trainer.guards import GUARDS, Guards, GuardSettings

NAN = math.nan


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
    }


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
    "loops over 50 steps": ("repetition", lambda s, r: {"repetition": (s - 199) / 50}, 13),
    "cut off at once": ("eos", lambda s, r: ends_no_more(s, r, 1), 6),
    "cut off over 20 steps": ("eos", lambda s, r: ends_no_more(s, r, 20), 14),
    "cut off over 100 steps": ("eos", lambda s, r: ends_no_more(s, r, 100), 40),
    "cut off over 300 steps": ("eos", lambda s, r: ends_no_more(s, r, 300), 90),
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
    guards, rng = Guards(GuardSettings()), random.Random(seed)
    assert [f for step in range(400) for f in guards.observe(step, healthy(step, rng))] == []
    assert {*guards.metrics()} == {f"guard/{name}" for name in GUARDS}


def cut_off_run(rates, rewards):
    guards = Guards(GuardSettings())
    steps = enumerate(zip(rates, rewards, strict=True))
    found = [guards.observe(s, {"cut_off_rate": c, "reward": r}) for s, (c, r) in steps]
    return [firing for firings in found for firing in firings]


def test_cut_off_rate_alone_and_reward_alone_do_not_fire():
    up, down = [0.0] * 60 + [0.9] * 60, [0.5] * 60 + [0.1] * 60
    assert cut_off_run(up, [0.5] * 60 + [0.6] * 60) == []  # long, and better for it
    assert cut_off_run(up, [0.5] * 120) == []
    assert cut_off_run([0.3] * 120, down) == []
    assert cut_off_run(up[::-1], down) == []
    (firing,) = cut_off_run(up, down)
    # Ten steps on average: 0.27 at the third of them, 0.45 at the fifth, that is in steps 53..62.
    assert (firing.step, firing.since, firing.value) == (64, 53, pytest.approx(0.45))
    assert firing.message.startswith("eos: rise of the cut-off rate since the best reward is 0.45")


def test_a_fall_from_a_peak_above_the_start_is_seen():
    """Reward climbs to 0.9 and falls to 0.5, still above the start, as completions stop ending."""
    rewards = [0.2] * 10 + [0.9] * 60 + [0.5] * 20
    rates = [0.5] * 10 + [0.05] * 60 + [0.5] * 20
    (firing,) = cut_off_run(rates, rewards)
    assert 70 < firing.step < 80


def test_length_by_hand():
    guards, found = Guards(GuardSettings()), []
    for step in range(80):
        length = NAN if step == 30 else 100.0 if step < 60 else 300.0
        found += guards.observe(step, {"length": length})
    # Three steps on average: 167 at step 60, 233 at step 61, that is in steps 59..61.
    assert [(f.step, f.since, f.value) for f in found] == [(63, 59, 3.0)]
    # Twenty steps later a quarter of the reference is as long, and it is no explosion any more.
    assert guards.metrics() == {"guard/length": 2.0} and not guards.is_firing("length")


def test_the_baseline_is_never_called_unhealthy():
    """Or a run that collapses in its first steps would have nothing to go back to."""
    (firing,) = cut_off_run([0.0] * 5 + [1.0] * 10, [0.5] * 5 + [0.0] * 10)
    assert (firing.step, firing.since) == (8, 5)  # 1/6, then 2/7 of six and seven steps
    guards = Guards(GuardSettings())
    lengths = [100.0] * 5 + [1000.0] * 3
    found = [guards.observe(step, {"length": length}) for step, length in enumerate(lengths)]
    assert [(firing.step, firing.since) for firing in found[7]] == [(7, 5)]


def test_no_verdict_on_trends_before_there_is_a_baseline():
    guards = Guards(GuardSettings(patience=1))
    bad = {"cut_off_rate": 0.0, "reward": 1.0, "length": 10.0}
    for step in range(5):
        assert guards.observe(step, bad) == [] and guards.metrics() == {}
        bad = {"cut_off_rate": 1.0, "reward": 0.0, "length": 10.0**step}
    guards.observe(5, bad)
    assert {*guards.metrics()} == {"guard/eos", "guard/length"}


def mixed(step):
    """A trace on which every guard fires now and then."""
    rng = random.Random(f"mixed {step}")
    statistics = healthy(step, rng)
    if step % 40 > 25:
        statistics |= {"repetition": 0.5, "logp_mismatch": 1.3, "length": 5000.0 + step}
        statistics |= {"entropy": 0.001, "moved_share": 0.0, "cut_off_rate": 0.9, "reward": 0.0}
    if step % 7 == 0:
        statistics |= {"reward": NAN, "entropy": NAN}
    return statistics


def both_halves(guards, step):
    statistics = mixed(step)
    end = {key: statistics.pop(key) for key in ("entropy", "moved_share")}
    return guards.observe(step, statistics) + guards.observe(step, end)


SETTINGS = GuardSettings(
    repetition="mask", eos="rollback", length="mask", alignment="mask", weights="off", patience=2
)


def test_a_resumed_run_acts_as_an_uninterrupted_one():
    straight, resumed = Guards(SETTINGS), Guards(SETTINGS)
    fired = set()
    for step in range(120):
        expected = both_halves(straight, step)
        assert repr(both_halves(resumed, step)) == repr(expected)  # NaN equals NaN so
        fired |= {firing.guard for firing in expected}
        state = json.loads(json.dumps(resumed.state_dict(), allow_nan=False))
        assert state == straight.state_dict()
        resumed = Guards(SETTINGS)
        resumed.load_state_dict(state)
    assert fired == {*GUARDS} - {"weights"}
    assert len(state["eos_trace"]) == 50 == len(state["length_trace"])  # it does not grow for ever


def test_a_state_is_a_copy():
    guards = Guards(SETTINGS)
    both_halves(guards, 30)
    state = guards.state_dict()
    kept = json.dumps(state)
    other = Guards(SETTINGS)
    other.load_state_dict(state)
    for step in range(31, 36):
        both_halves(guards, step)
        both_halves(other, step)
    assert json.dumps(state) == kept
