"""Rewards and tasks that pay for the wrong thing: the audit says which trick is paid."""

import functools

import pytest

from data_prep.grading.grade import Grade
from eval.audit.cases import TRICKS
from stages import rewards
from tests.integration.audit.runs import Recipe

pytestmark = pytest.mark.integration


@pytest.fixture
def recipe(tmp_path, tiny_model_dir):
    return Recipe(tmp_path, tiny_model_dir)


@pytest.fixture
def refused(recipe, capsys):
    """Audit the broken recipe: it must be refused; returns the report and what was printed."""

    def call():
        assert recipe.audit() == 2
        assert not recipe.manifest.exists()
        out, err = capsys.readouterr()
        return recipe.report(), out + err

    return call


def paid_tricks(report):
    return {
        name: found["num_paid"] for name, found in report["tricks"].items() if found["num_paid"]
    }


@pytest.fixture
def replace_reward(monkeypatch):
    """Put another function in the place of `correctness_reward`."""

    def call(pay):
        @functools.wraps(rewards.correctness_reward)
        def reward(**batch):
            texts = [completion[-1]["content"] for completion in batch["completions"]]
            right = rewards.REWARDS_BEFORE(**batch)
            return [pay(text, value) for text, value in zip(texts, right, strict=True)]

        before = rewards.REWARDS["correctness_reward"]
        monkeypatch.setattr(rewards, "REWARDS_BEFORE", before, raising=False)
        monkeypatch.setitem(rewards.REWARDS, "correctness_reward", reward)

    return call


def test_a_reward_that_pays_nothing_for_right(refused, replace_reward):
    replace_reward(lambda text, right: 0.0)
    report, shown = refused()
    assert "failed: grpo_train, row " in shown and "correctness_reward pays 0" in shown
    rates = {name: found["rates"]["reward"] for name, found in report["sets"].items()}
    assert rates == {"sft_train": 0.0, "grpo_train": 0.0, "held_out": 0.0}
    assert report["sets"]["held_out"]["rates"]["task"] == 1.0 and paid_tricks(report) == {}


@pytest.mark.parametrize(
    ("pay", "paid"),
    [
        (lambda text, right: float("\\boxed{" in text), {"a wrong answer", "two boxes, gold last"}),
        (lambda text, right: 1.0, {*TRICKS}),
        (lambda text, right: max(right, float("<think>\n\\boxed{" in text)),
         {"gold in the thought only"}),
    ],
)  # fmt: skip
def test_a_reward_that_pays_for_something_else(refused, replace_reward, pay, paid):
    replace_reward(pay)
    report, shown = refused()
    assert paid <= {*paid_tricks(report)} and ("nothing at all" in paid_tricks(report)) is (
        paid == {*TRICKS}
    )
    assert "Wrong answers and tricks that are paid" in shown
    assert all(found["rates"]["reward"] == 1.0 for found in report["sets"].values())


def test_a_weight_that_pays_for_the_opposite(recipe, refused):
    recipe.write("grpo", reward_funcs=["rlinf_reward"], reward_weights=[-1.0])
    report, shown = refused()
    assert "rlinf_reward pays -5" in shown and "a wrong answer" in paid_tricks(report)


def test_rlinf_rewards_are_audited_with_their_final_number(recipe):
    recipe.write("grpo", reward_funcs=["rlinf_reward"], final_number=True)
    assert recipe.audit() == 0
    assert paid_tricks(recipe.report()) == {}
    assert recipe.report()["notes"] == ["final_number differs between grpo.yaml and eval.yaml"]


def test_without_a_graded_reward_there_is_nothing_to_check_and_a_note(recipe):
    recipe.write("grpo", reward_funcs=["random_reward"])
    assert recipe.audit() == 0
    report = recipe.report()
    assert report["sets"]["grpo_train"]["rates"]["reward"] is None
    assert report["notes"] == ["no reward tells right from wrong; paid for: random_reward"]


def test_a_graded_reward_without_weight_is_checked_all_the_same(recipe, refused, replace_reward):
    names = ["random_reward", "correctness_reward"]
    recipe.write("grpo", reward_funcs=names, reward_weights=[1.0, 0.0])
    replace_reward(lambda text, right: 0.0)
    assert "correctness_reward pays 0" in refused()[1]


@pytest.fixture
def turn_verdicts(monkeypatch):
    """Let the harness tasks, and nothing else, take right for wrong and wrong for right."""
    from eval.harness import score as scoring

    grade = scoring.grade_rollouts

    def turned(*args, **form):
        other = {"right": "wrong"}
        return [
            Grade(other.get(one.verdict, "right"), one.prediction) for one in grade(*args, **form)
        ]

    monkeypatch.setattr(scoring, "grade_rollouts", turned)


@pytest.mark.usefixtures("turn_verdicts")
def test_a_task_with_a_reversed_verdict(refused):
    report, shown = refused()
    rates = report["sets"]["held_out"]["rates"]
    assert rates == {"template": 1.0, "reward": 1.0, "task": 0.0}
    assert "failed: held_out, row " in shown and ": task: wrong" in shown
    assert paid_tricks(report)["a wrong answer"] == 3
    assert {one["check"] for one in report["failures"]} == {"task"}
