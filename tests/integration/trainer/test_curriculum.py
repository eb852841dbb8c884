"""Refill in real runs: which problems are generated for, what is trained on.

What one process does two do as well: `test_parallel`, and with a curriculum `test_resume`.
"""

import copy

import pytest

from data_prep import manifest
from stages.arguments import GrpoArguments
from stages.trainer.curriculum import build_curriculum
from tests.integration.trainer.recorders import generation_batches, read_steps, record_batches
from tests.integration.trainer.rollout_checks import check_advantages, check_step

pytestmark = pytest.mark.integration

PAID = [1.0, 0.5, 1.0]  # correctness, form, length
ONE = {"reward_funcs": ["correctness_reward"], "reward_weights": [1.0]}


@pytest.fixture
def train(run_stage, monkeypatch, pool):
    """Train with 4 groups a batch; returns what was done, the trainer, its curriculum before."""
    from stages.trainer import trainer as module

    def call(**settings):
        steps, trainers = [], []
        with monkeypatch.context() as patch:
            recorder = generation_batches(module.MathGRPOTrainer, steps, patch.setattr)

            class Trainer(recorder):
                def train(self, *args, **kwargs):
                    trainers.append((self, copy.deepcopy(self.curriculum)))
                    return super().train(*args, **kwargs)

            patch.setattr(module, "MathGRPOTrainer", Trainer)
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
        found.append((batch, generated, values))
    assert twin is None or trainer.curriculum.state_dict() == twin.state_dict()
    return found


def read_tables(trainer):
    from pandas import read_parquet

    folder = trainer.args.output_dir
    steps = range(1, trainer.state.global_step + 1)
    return [read_parquet(f"{folder}/completions/completions_{n:05d}.parquet") for n in steps]


REFILLS = {
    "refill": ({"curriculum": "refill"} | ONE, [1.0], "group", 2),
    "refill with other log-probs": (
        {"curriculum": "predictive+refill", "max_refill_rounds": 1, "scale_rewards": "batch",
         "beta": 0.1, "per_device_train_batch_size": 8, "steps_per_generation": 2, "max_steps": 8},
        PAID, "batch", 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFILLS)
def test_uniform_groups_are_replaced(train, pool, name):
    """By whole groups of other problems, with all that belongs to them; padding is redone."""
    settings, weights, kind, max_rounds = REFILLS[name]
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


# Several processes


def test_ranks_with_unlike_numbers_of_uniform_groups_stay_together(
    fork_server, write_recipe, pool, tmp_path
):
    """Each generates as many as the one with most, and keeps what it needs."""
    settings = {"curriculum": "refill", "max_refill_rounds": 3, "max_steps": 6, "beta": 0.1}
    settings |= {"train_file": str(pool[0]), "per_device_train_batch_size": 8}
    recipe = write_recipe("grpo", **settings)
    fork_server.finish(recipe, 2, setup=record_batches)
    found = [read_steps(f"{tmp_path / 'grpo'}.rank{rank}.jsonl") for rank in range(2)]
    ranks, curricula = [part[:-1] for part in found], [part[-1]["curriculum"] for part in found]
    args = GrpoArguments(train_file="", curriculum="refill")
    twin = build_curriculum([*pool[1].values()], args, 4, 0)
    unlike = 0
    for both in zip(*ranks, strict=True):
        batch, generated = check_step(both, pool[1], twin, 3)
        check_advantages(both, batch, PAID)
        bad = [group["is_uniform"] for group in generated[:4]]
        unlike += sum(bad[:2]) != sum(bad[2:])
        assert both[0]["num_completions"] == both[1]["num_completions"]
    num_rounds = {len(step["rounds"]) for step in ranks[0]}
    assert unlike > 1 and len(num_rounds) > 1 and max(num_rounds) > 2
    assert curricula == [twin.state_dict()] * 2
