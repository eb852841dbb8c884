"""The curriculum inside real runs: which problems are generated for, and what is trained on."""

import copy
import json

import pytest
from rollout_checks import check_advantages, check_logs, check_step
from rollout_recorder import record

from data_prep import manifest

pytestmark = pytest.mark.integration

PAID = [1.0, 0.5, 1.0]  # correctness, form, length
ONE = {"reward_funcs": ["correctness_reward"], "reward_weights": [1.0]}


@pytest.fixture
def train(run_stage, monkeypatch, pool):
    """Train with 4 groups a batch; returns what was done, the trainer, its curriculum before."""
    from stages.trainer import grpo_trainer

    def call(**settings):
        steps, trainers = [], []
        with monkeypatch.context() as patch:
            recorder = record(grpo_trainer.MathGRPOTrainer, steps, patch.setattr)

            class Trainer(recorder):
                def train(self, *args, **kwargs):
                    trainers.append((self, copy.deepcopy(self._curriculum)))
                    return super().train(*args, **kwargs)

            patch.setattr(grpo_trainer, "MathGRPOTrainer", Trainer)
            values = {"per_device_train_batch_size": 16, "max_steps": 4, "log_completions": True}
            values |= {"train_file": str(pool[0]), "num_completions_to_print": 0} | settings
            folder = run_stage("grpo", **values)
        ((trainer, twin),) = trainers
        num = sum(len(one["rows"]) for step in steps for one in step["rounds"])
        assert manifest.read(folder)["counts"]["completions"] == num
        assert steps[-1]["num_completions"] == num
        return steps, trainer, twin

    return call


def check(steps, trainer, twin, pool, weights=PAID, kind="group", max_rounds=0):
    """Every step; returns the groups that were trained on, the generated ones, the advantages."""
    found = []
    for step in steps:
        batch, generated = check_step([step], pool[1], twin, max_rounds)
        values = check_advantages([step], batch, weights, kind)
        if max_rounds:
            check_logs([step], batch, generated, weights)
        found.append((batch, generated, values))
    assert twin is None or trainer._curriculum.state_dict() == twin.state_dict()
    return found


def read_tables(trainer):
    from pandas import read_parquet

    folder = trainer.args.output_dir
    steps = range(1, trainer.state.global_step + 1)
    return [read_parquet(f"{folder}/completions/completions_{n:05d}.parquet") for n in steps]


def test_problems_are_chosen_before_they_are_generated(train, pool):
    """Rows, answers and prompts are swapped together; what the loader gives is left alone."""
    settings = {"curriculum": "predictive", "explore_share": 0.5, "rest_batches": 1}
    steps, trainer, twin = train(**settings, max_steps=8)
    check(steps, trainer, twin, pool)
    given = [{*step["given"]} for step in steps]
    used = [{*step["rounds"][0]["ids"]} for step in steps]
    assert all(len(ids) == 4 for ids in used) and given != used
    assert [len(step["rounds"]) for step in steps] == [1] * 8
    for step, table in zip(steps, read_tables(trainer), strict=True):
        questions = [pool[1][key]["question"] for key in step["rounds"][0]["ids"]]
        assert [prompt[-1]["content"] for prompt in table["prompt"]] == questions
        assert table["advantage"].tolist() == pytest.approx(step["advantages"])


CASES = {
    "refill": ({"curriculum": "refill"} | ONE, [1.0], "group", 2),
    "refill with other log-probs": (
        {"curriculum": "predictive+refill", "max_refill_rounds": 1, "advantage": "batch",
         "beta": 0.1, "per_device_train_batch_size": 8, "steps_per_generation": 2, "max_steps": 8},
        PAID, "batch", 1,
    ),
    "refill and posterior": (
        {"curriculum": "predictive+refill", "advantage": "posterior",
         "reward_weights": [2, 0.5, 1]},
        [2.0, 0.5, 1.0], "posterior", 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_uniform_groups_are_replaced(train, pool, name):
    """By whole groups of other problems, with all that belongs to them; padding is redone."""
    settings, weights, kind, max_rounds = CASES[name]
    steps, trainer, twin = train(**settings)
    assert len(steps) == 4
    found = check(steps, trainer, twin, pool, weights, kind, max_rounds)
    keys = {"advantages", "completion_ids", "completion_mask", "num_items_in_batch"}
    keys |= {"prompt_ids", "prompt_mask"}
    if "beta" in settings:
        keys |= {"old_per_token_logps", "ref_per_token_logps"}
    assert all({*step["keys"]} == keys for step in steps)
    # Where nothing is replaced or all rounds are equally wide, nothing is tested.
    shapes = [[one["shape"] for one in step["rounds"]] for step in steps]
    assert any(len({shape[side] for shape in part}) > 1 for part in shapes for side in (0, 1))
    assert any(group not in generated[:4] for batch, generated, _ in found for group in batch)
    for step, table in zip(steps, read_tables(trainer)[:: len(steps[0]["losses"])], strict=True):
        assert table["advantage"].tolist() == pytest.approx(step["advantages"])
        texts = [completion[-1]["content"] for completion in table["completion"]]
        assert texts == [one[-1]["content"] for one in step["table"]["completion"]]
        assert table["verdict"].tolist() == step["table"]["verdict"]


def test_posterior_advantages_teach_from_uniform_groups(train, pool):
    steps, trainer, twin = train(advantage="posterior", **ONE)
    assert trainer.args.scale_rewards == "none" and not twin.is_predictive
    found = check(steps, trainer, twin, pool, [1.0], "posterior")
    signs = {
        (group["correct"][0], value > 0)
        for batch, _, values in found
        for n, group in enumerate(batch)
        if group["is_uniform"]
        for value in values[4 * n : 4 * n + 4]
    }
    assert signs == {(True, True), (False, False)}
    for step, table in zip(steps, read_tables(trainer), strict=True):
        assert table["advantage"].tolist() == pytest.approx(step["advantages"])
    assert any(loss for step in steps for loss in step["losses"])
    logs = json.dumps(trainer.state.log_history)
    assert "train/uniform_groups" not in logs and "rollout/uniform_groups" in logs
