"""Collapse guards: settings, streaks and actions, on runs that collapse and that do not."""

import json
import math
import random
import subprocess
import sys

import pytest

from stages.trainer.guards import (
    ACTIONS,
    GUARDS,
    Guards,
    GuardSettings,
    append_event,
    last_healthy_checkpoint,
)

NAN, INF = math.nan, math.inf


# Settings


@pytest.mark.parametrize("name", GUARDS)
def test_actions_are_checked(name):
    for action in ACTIONS:
        if action == "mask" and name in ("entropy", "weights"):
            with pytest.raises(ValueError, match=f"guard_{name}: 'mask' .* use warn, rollback, st"):
                GuardSettings(**{name: action})
        else:
            assert getattr(GuardSettings(**{name: action}), name) == action
    with pytest.raises(ValueError, match=f"guard_{name}: 'halt' is no action; use warn, .*or off"):
        GuardSettings(**{name: "halt"})


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("repetition_ngram", (1, 40), (0, -1)),
        ("max_repetition", (0, 1), (-0.1, 1.1, NAN)),
        ("max_repetitive_share", (0, 1), (-0.1, 20)),
        ("cut_off_rise", (0, 1), (-0.1, 20)),
        ("min_entropy", (0, 3), (-0.1, NAN)),
        ("max_length_growth", (1, 9), (0.9,)),
        ("max_logp_mismatch", (1, 2), (0.05,)),
        ("min_moved_share", (0, 1), (-0.1, 5)),
        ("patience", (1, 10), (0, 11)),
        ("baseline_steps", (1, 40), (0, 41)),
    ],
)
def test_limits_are_checked(name, good, bad):
    for value in good:
        GuardSettings(**{name: value})
    for value in bad:
        with pytest.raises(ValueError, match=f"guard_{name}: {value} must be "):
            GuardSettings(**{name: value})


# Streaks and actions


def steps_of(guards, name, values, first=0):
    """The steps at which one statistic makes its guard fire."""
    firings = [guards.observe(first + i, {name: value}) for i, value in enumerate(values)]
    return [firing.step for found in firings for firing in found]


@pytest.mark.parametrize(
    ("name", "key", "fine", "violating"),
    [
        ("repetition", "repetition", 0.2, 0.21),
        ("entropy", "entropy", 0.002, 0.0019),
        ("entropy", "entropy", 0.3, NAN),
        ("entropy", "entropy", 0.3, INF),
        ("entropy", "entropy", 0.3, -INF),
        ("alignment", "logp_mismatch", 1.05, 1.051),
        ("alignment", "logp_mismatch", 0.9999999, INF),  # 1, after some rounding
        ("weights", "moved_share", 0.05, 0.049),
    ],
)
def test_a_level_fires_at_the_third_violating_step_once_per_streak(name, key, fine, violating):
    trace = [violating] * 2 + [fine] + [violating] * 5 + [fine] + [violating] * 3
    guards = Guards(GuardSettings(**{name: "stop"}))
    assert steps_of(guards, key, trace) == [5, 11]
    guards = Guards(GuardSettings(patience=1))
    assert steps_of(guards, key, trace) == [0, 3, 9]
    assert guards.is_firing(name)
    guards.observe(12, {key: fine})
    assert not guards.is_firing(name)
    assert guards.metrics() == {f"guard/{name}": fine}


@pytest.mark.parametrize("action", ACTIONS)
def test_mask_lasts_while_the_streak_lasts_and_off_is_silent(action):
    guards = Guards(GuardSettings(repetition=action))
    expected = {"off": [], "mask": [2, 3, 4, 5]}.get(action, [2])
    assert steps_of(guards, "repetition", [0.9] * 6) == expected
    assert guards.is_firing("repetition") == (action != "off")
    assert steps_of(guards, "repetition", [0.1, 0.9], first=6) == []
    assert bool(guards.metrics()) == (action != "off")


def test_a_step_without_a_number_neither_adds_to_a_streak_nor_ends_it():
    guards = Guards(GuardSettings())
    assert steps_of(guards, "repetition", [0.9, NAN, 0.9, NAN, NAN]) == []
    assert guards.observe(5, {"reward": 0.1}) == []
    (firing,) = guards.observe(6, {"repetition": 0.9})
    assert (firing.since, firing.step) == (0, 6)
    for key in ("logp_mismatch", "moved_share", "length", "reward", "cut_off_rate"):
        assert steps_of(Guards(GuardSettings()), key, [NAN] * 20) == []


def test_a_firing_says_all():
    guards = Guards(GuardSettings(alignment="rollback", weights="stop"))
    half = {"logp_mismatch": 1.5}
    for step in (20, 21):
        assert guards.observe(step, half) == []
        assert guards.observe(step, {"moved_share": 0.01, "entropy": 0.3}) == []
    (first,) = guards.observe(22, half)
    (second,) = guards.observe(22, {"moved_share": 0.01, "entropy": 0.3})
    assert (first.guard, first.step, first.value, first.limit) == ("alignment", 22, 1.5, 1.05)
    assert (first.action, first.since) == ("rollback", 20)
    assert first.message == (
        "alignment: mean exp|log-prob difference| of sampler and trainer is 1.5, "
        "guard_max_logp_mismatch 1.05, since step 20; "
        "check that the sampler has the trainer's weights, precision and temperature"
    )
    assert (second.guard, second.action, second.value) == ("weights", "stop", 0.01)
    assert "\n" not in second.message and "guard_min_moved_share 0.05" in second.message


def test_a_rollback_forgets_the_streak_that_led_to_it():
    guards = Guards(GuardSettings(repetition="rollback"))
    steps_of(guards, "repetition", [0.0] * 20)
    healthy_state = guards.state_dict()
    assert steps_of(guards, "repetition", [0.9] * 4, first=20) == [22]
    guards.load_state_dict(healthy_state)
    assert not guards.is_firing("repetition") and guards.metrics() == {}
    assert steps_of(guards, "repetition", [0.9] * 4, first=20) == [22]


def test_guards_need_no_torch():
    code = "import sys, stages.trainer.guards; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Events and checkpoints


def test_events_are_lines_of_strict_json(tmp_path):
    path = tmp_path / "events.jsonl"
    append_event(
        path, {"value": NAN, "list": [INF, 1.5, {"x": -INF}], "text": 'a\n"\ud800', "n": 3}
    )
    append_event(str(path), {"path": path})
    first, second = path.read_text(encoding="utf-8").splitlines()
    assert json.loads(first) == {
        "value": None, "list": [None, 1.5, {"x": None}], "text": 'a\n"\ud800', "n": 3,
    }  # fmt: skip
    assert json.loads(second) == {"path": str(path)}


@pytest.mark.parametrize("before", [b"", b'{"a": 1}\n', b'{"a": 1}', b'{"a": 1}\n{"cut sho', b"\n"])
def test_an_event_starts_on_a_line_of_its_own(tmp_path, before):
    path = tmp_path / "events.jsonl"
    path.write_bytes(before)
    append_event(path, {"b": 2})
    append_event(path, {"c": 3})
    written = path.read_bytes()
    assert written.startswith(before) and written.endswith(b'\n{"c": 3}\n')
    assert written.splitlines()[-2:] == [b'{"b": 2}', b'{"c": 3}']
    assert written.count(b"\n") == before.count(b"\n") + 2 + bool(before and before[-1:] != b"\n")


def test_last_healthy_checkpoint(tmp_path):
    assert last_healthy_checkpoint(tmp_path / "none", 5) is None
    whole = '{"global_step": 1}'
    found = {"9": whole, "20": whole, "100": whole, "120": '{"log', "140": None, "160": b"\xff"}
    for step, state in (found | {"best2": whole, "30.partial": whole}).items():
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        if isinstance(state, str):
            (folder / "trainer_state.json").write_text(state)
        elif state:
            (folder / "trainer_state.json").write_bytes(state)
    cases = {9: None, 10: 9, 20: 9, 21: 20, 100: 20, 101: 100, 121: 100, 10_000: 100}
    for since, step in cases.items():
        expected = step and tmp_path / f"checkpoint-{step}"
        assert last_healthy_checkpoint(str(tmp_path), since) == expected


def test_checkpoints_are_ordered_by_number(tmp_path):
    for step in random.Random(0).sample(range(1, 31), 30):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        (folder / "trainer_state.json").write_text("{}")
        assert last_healthy_checkpoint(tmp_path, step + 1) == folder
    for since in range(2, 32):
        assert last_healthy_checkpoint(tmp_path, since).name == f"checkpoint-{since - 1}"
