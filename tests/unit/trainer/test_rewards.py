"""Rewards by hand, at every boundary."""

import random
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from trl.rewards import get_cosine_scaled_reward

from grading.grade import VERDICTS, Grade
from stages import rewards
from stages.arguments import GRADED, GrpoArguments
from stages.rewards import REWARDS, TAKEN, build_rewards, reward_columns

RIGHT = "<think>\n1 + 1 = 2\n</think>\n\n\\boxed{2}"
WRONG = "<think>\n1 + 1 = 3\n</think>\n\n\\boxed{3}"


def chat(*texts):
    return [[{"role": "assistant", "content": text}] for text in texts]


def ask(*golds):
    """The columns of rows with these golds."""
    return {
        "answers": [[gold] for gold in golds], "answer_form": ["box"] * len(golds),
        "question": [""] * len(golds),
    }  # fmt: skip


def config(max_completion_length=100, seed=0, process_index=0):
    """What rewards read of TRL's config."""
    return SimpleNamespace(**locals())


def build(name, think_prefilled=False, config=config(), **keys):  # noqa: B008 - never changed
    """The reward `name`, called as TRL calls it; what is logged is thrown away."""
    args = GrpoArguments(train_file="f", reward_funcs=[name], **keys)
    (reward,) = build_rewards(args, config, think_prefilled)

    def call(**batch):
        return reward(**{"log_metric": lambda *_: None, "log_extra": lambda *_: None} | batch)

    return call


TABLE = yaml.safe_load(Path(__file__).with_name("rewards.yaml").read_text(encoding="utf-8"))
ROWS = [(name, *row) for name, rows in TABLE.items() for row in rows]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_rewards_by_hand(row):
    name, completion, value, *more = row
    keys = dict(more[0]) if more else {}
    ids = keys.pop("ids", [7] * keys.pop("tokens", 1))
    usual = {"answers": ["2"], "answer_form": "box", "question": ""}
    columns = {column: [keys.pop(column, cell)] for column, cell in usual.items()}
    reward = build(name, **keys)
    found = reward(completions=chat(completion), completion_ids=[ids], **columns)
    assert found == pytest.approx([value], abs=1e-12)


def graded(monkeypatch, *verdicts):
    """Let the grader say this; returns the list that counts its calls."""
    calls = []

    def grade_rollouts(completions, golds, forms, questions, *, own_graders, **form):
        assert own_graders is None
        calls.append(form)
        return [Grade(verdict, None) for verdict in verdicts]

    monkeypatch.setattr(rewards, "grade_rollouts", grade_rollouts)
    return calls


def test_every_verdict_but_right_is_paid_as_wrong_and_none_as_nothing(monkeypatch):
    """TRL would count None as 0: more than wrong, for a completion that cannot be read."""
    graded(monkeypatch, *VERDICTS)
    batch = {"completions": chat(*VERDICTS)} | ask(*"2" * len(VERDICTS))
    assert VERDICTS[-1] == "right" and "unparseable" in VERDICTS
    assert build("correctness_reward")(**batch) == [0.0] * (len(VERDICTS) - 1) + [1.0]
    assert build("rlinf_reward")(**batch) == [-5.0] * (len(VERDICTS) - 1) + [5.0]


def test_a_batch_is_graded_and_logged_once(monkeypatch):
    calls = graded(monkeypatch, "right", "unparseable", "unparseable", "no_think")
    names = ["correctness_reward", "rlinf_reward"]
    args = GrpoArguments(train_file="f", reward_funcs=names, final_number=True)
    both = build_rewards(args, config(), think_prefilled=True)
    metrics, columns = {}, {}

    def log_metric(name, value):
        assert name not in metrics
        metrics[name] = value

    batch = {"completions": chat(*"abcd")} | ask(*"2222")
    batch |= {"log_metric": log_metric, "log_extra": columns.__setitem__}
    paid = [reward(**batch) for reward in both]
    assert paid == [[1.0, 0.0, 0.0, 0.0], [5.0, -5.0, -5.0, -5.0]]
    assert calls == [{"think_prefilled": True, "final_number": True}]
    assert columns == {"verdict": ["right", "unparseable", "unparseable", "no_think"]}
    shares = dict.fromkeys(VERDICTS[:-1], 0.0) | {"unparseable": 0.5, "no_think": 0.25}
    expected = {f"rollout/verdict/{name}": share for name, share in shares.items()}
    assert metrics == expected

    metrics.clear()
    both[0](**batch | {"completions": chat(*"abcd")})  # equal texts, but the next batch
    assert len(calls) == 2 and metrics


VALUES = {
    "cosine_min_value_wrong": -10.0, "cosine_max_value_wrong": 0.0,
    "cosine_min_value_correct": 1.0, "cosine_max_value_correct": 2.0,
}  # fmt: skip


@pytest.mark.parametrize("values", [{}, VALUES])
@pytest.mark.parametrize(("keys", "most"), [({}, 100), ({"cosine_max_len": 40}, 40)])
def test_the_cosine_reward_is_trls_on_plain_answers(values, keys, most):
    lengths = [0, 1, 20, 39, 40, 41, 99, 100, 250]
    texts = [RIGHT, WRONG] * len(lengths)
    ids = [[7] * length for length in lengths for _ in range(2)]
    named = {name.removeprefix("cosine_"): value for name, value in values.items()}
    trl = get_cosine_scaled_reward(most, **named)
    expected = trl(chat(*texts), solution=["$2$"] * len(texts), completion_ids=ids)
    batch = ask(*["2"] * len(texts)) | {"completion_ids": ids}
    found = build("cosine_scaled_reward", **values, **keys)(completions=chat(*texts), **batch)
    assert found == pytest.approx(expected, abs=1e-12)
    correct, wrong = found[::2], found[1::2]
    assert correct == sorted(correct, reverse=True) and wrong == sorted(wrong)
    assert all(value > 0 for value in correct) and all(value <= 0 for value in wrong)


def test_the_cosine_reward_by_hand_and_by_our_verdict(monkeypatch):
    graded(monkeypatch, "right", "right", "right", "wrong", "unparseable", "no_think")
    batch = {"completion_ids": [[7] * n for n in (0, 50, 100, 0, 50, 100)]} | ask(*"222222")
    found = build("cosine_scaled_reward")(completions=chat(*"abcdef"), **batch)
    assert found == pytest.approx([1.0, 0.75, 0.5, -1.0, -0.75, -0.5], abs=1e-12)


@pytest.mark.parametrize("name", GRADED)
def test_only_a_correct_answer_earns_a_graded_reward(name):
    batch = ask("2", "2") | {"completion_ids": [[7] * 3] * 2}
    correct, wrong = build(name)(completions=chat(RIGHT, WRONG), **batch)
    assert correct > 0 >= wrong


def toss(reward, step, text=RIGHT, number=2000):
    state = SimpleNamespace(global_step=step)
    return reward(completions=chat(*[text] * number), trainer_state=state)


def test_random_reward_is_a_fair_coin_of_seed_rank_and_step_alone():
    first = toss(build("random_reward"), step=3)
    assert {*first} == {0.0, 1.0} and abs(sum(first) - 1000) < 100  # 4.5 standard deviations
    random.seed(7)  # as vLLM does
    assert toss(build("random_reward"), step=3, text=WRONG) == first
    for other in (config(seed=1), config(process_index=1)):
        assert toss(build("random_reward", config=other), step=3) != first
    # Two generation batches in one step, then the next step: nothing repeats, all comes again.
    reward = build("random_reward")
    found = [toss(reward, step, number=1000) for step in (3, 3, 4)]
    assert found[0] + found[1] == first != found[2] + found[1]
    assert found[2] == toss(build("random_reward"), step=4, number=1000)
    # An evaluation before a step's batches uses none of their tosses up.
    held_out = {"trainer_state": SimpleNamespace(global_step=3), "held_out": [0] * 1000}
    reward(completions=chat(*[WRONG] * 1000), **held_out)
    assert toss(reward, step=3) == first


def test_trl_sees_the_recipes_names_in_the_recipes_order():
    """And a column replaces nothing that a reward is built with, whatever it is called."""
    names = [*reversed(REWARDS)]
    args = GrpoArguments(train_file="f", reward_funcs=names, overlong_cache=2)
    found = build_rewards(args, config(max_completion_length=2), think_prefilled=False)
    assert [f.__name__ for f in found] == names
    # TRL passes every column and some helpers of its own to each function.
    every = {"completions": chat(RIGHT), "completion_ids": [[1]]} | ask("2")
    every["prompts"] = [[{"role": "user", "content": "1 + 1?"}]]
    every |= {"id": ["p"], "trainer_state": SimpleNamespace(global_step=0)}
    every |= {"log_metric": lambda *_: None, "log_extra": lambda *_: None}
    every |= dict.fromkeys(("self", "args", "config", "grader", "coin", "think_prefilled"), ("x",))
    values = {f.__name__: f(**every) for f in found}
    assert values.pop("random_reward") in ([0.0], [1.0])
    assert values == {
        "overlong": [-0.5], "repetition_penalty": [0.0], "soft_length_penalty": [0.0],
        "think_format_reward": [1.0], "loose_think_format_reward": [0.0],
        "cosine_scaled_reward": [0.75], "rlinf_reward": [5.0], "correctness_reward": [1.0],
    }  # fmt: skip


# Columns


def test_a_reward_sees_every_column_of_its_row():
    """Of any value, and None where a row lacks it; all parts have the same columns."""
    rows = [{"id": "a", "level": 3, "tags": ["x", 1]}, {"id": "b", "level": "hard"}]
    train, held_out = reward_columns(rows, [{"id": "c", "own": {}}])
    assert train[0] == {"id": "a", "level": 3, "tags": ["x", 1], "own": None}
    assert train[1] == {"id": "b", "level": "hard", "tags": None, "own": None}
    assert held_out == [{"id": "c", "level": None, "tags": None, "own": {}}]


def test_names_of_trl_and_the_trainer_are_no_columns():
    assert reward_columns([dict.fromkeys(TAKEN, 0) | {"id": "a"}]) == [[{"id": "a"}]]
