"""Refill in real runs: which problems are generated for, what is trained on.

What one process does two do as well: `test_parallel`, and with a curriculum `test_resume`.
"""

import copy
from statistics import fmean, stdev

import numpy as np
import pytest

from pipeline import manifest
from stages.arguments import GrpoArguments
from stages.trainer.curriculum import build_curriculum
from tests.integration.trainer.recorders import (
    SIZE,
    generation_batches,
    read_steps,
    record_batches,
)

pytestmark = pytest.mark.integration

PAID = [1.0, 0.5, 1.0]  # correctness, form, length
ONE = {"reward_funcs": ["correctness_reward"], "reward_weights": [1.0]}


# What the recorders have written down, worked out anew without tensors


def groups_of(ranks, number, size=SIZE):
    """Groups of all ranks in one round of a step: id, rows, texts, rewards and correctness."""
    rounds = [step["rounds"][number] for step in ranks]
    assert all(one["rewards"] == rounds[0]["rewards"] for one in rounds), "gathered on every rank"
    paid = rounds[0]["rewards"]
    ids, rows, texts = ([x for one in rounds for x in one[key]] for key in ("ids", "rows", "texts"))
    groups = []
    for n in range(0, len(ids), size):
        part = slice(n, n + size)
        assert len({*ids[part]}) == 1, "the rows of a group follow one another"
        correct = [row[0] > 0 for row in paid[part]]
        one = {"id": ids[n], "rows": rows[part], "texts": texts[part], "rewards": paid[part]}
        groups.append(one | {"correct": correct, "is_uniform": len({*correct}) == 1})
    return groups


def check_step(ranks, pool, twin, max_rounds):
    """Follow a step with a curriculum of its own; returns the groups to train on and all.

    Args:
        ranks: what each process has written down of the step.
        pool: `{id: problem}`, in the order of the trainer's data.
        twin: what the trainer's curriculum was before the step; None for none.
        max_rounds: how often uniform groups may be replaced.
    """
    ids, world = list(pool), len(ranks)
    index = {key: number for number, key in enumerate(ids)}
    rounds = [groups_of(ranks, number) for number in range(len(ranks[0]["rounds"]))]
    batch, taken = list(rounds[0]), []
    chosen, draw = twin and twin.choose(len(batch)), getattr(twin, "curriculum", twin)
    for number, new in enumerate(rounds):
        num, num_new = len(batch) // world, len(new) // world
        if number:
            bad = [group["is_uniform"] for group in batch]
            assert num_new == max(sum(bad[r * num : (r + 1) * num]) for r in range(world)) > 0
        found = [group["id"] for group in new]
        if number or chosen is not None:
            drawn = draw.draw(len(new), taken) if number else chosen
            expected = [ids[problem] for problem in drawn]
        else:
            expected = [key for step in ranks for key in step["given"]]
        assert found == expected
        problems = [index[key] for key in found]
        assert not {*taken} & {*problems}, "other problems than those at hand"
        taken += problems
        if twin is not None:
            twin.observe(problems, [sum(group["correct"]) for group in new], SIZE)
        if number:
            for rank in range(world):
                part = new[rank * num_new : (rank + 1) * num_new]
                good = [group for group in part if not group["is_uniform"]]
                for n in range(rank * num, (rank + 1) * num):
                    if batch[n]["is_uniform"] and good:
                        batch[n] = good.pop(0)
    assert len(rounds) <= 1 + max_rounds
    if len(rounds) <= max_rounds:
        assert not any(group["is_uniform"] for group in batch), "stopped too early"
    generated = [group for groups in rounds for group in groups]
    check_answers(ranks, pool, generated)
    check_batch(ranks, batch)
    return batch, generated


def check_answers(ranks, pool, generated):
    """Rewards see the problems that were generated for: ids, prompts, completions and golds."""
    for step in ranks:
        for one in step["rounds"]:
            problems = [pool[key] for key in one["ids"]]
            pairs = [[p["question"], p["answers"]] for p in problems]
            assert one["golds"] == pairs
    for group in generated:
        prompts = {tuple(row["prompt"]) for row in group["rows"]}
        assert prompts == {tuple(pool[group["id"]]["prompt_ids"])}
        assert [row["text"] for row in group["rows"]] == group["texts"]


def check_batch(ranks, batch):
    """What the trainer hands on is made of the groups to train on."""
    rows = [row for group in batch for row in group["rows"]]
    assert [row for step in ranks for row in step["rows"]] == rows
    num_tokens = sum(len(row["completion"]) for row in rows)
    for step in ranks:
        assert step["keys"] == step["rounds"][0]["keys"]
        assert step["num_items"] == num_tokens
        table = step["table"]
        ids = [(group["id"], text) for group in batch for text in group["texts"]]
        assert [c[-1]["content"] for c in table["completion"]] == [text for _, text in ids]
        verdicts = ["right" if right else "wrong" for group in batch for right in group["correct"]]
        assert table["verdict"] == verdicts
        paid = [row for group in batch for row in group["rewards"]]
        names = [name for name in table if name.endswith(("_reward", "_penalty"))]
        for number, name in enumerate(names):
            assert table[name] == [row[number] for row in paid]
        assert len(names) == len(paid[0])


def check_advantages(ranks, batch, weights, kind="group"):
    """Advantages of the trained rows, in the table too, by the formulas of the recipe's keys."""
    sums = [[dot(weights, row) for row in group["rewards"]] for group in batch]
    whole = stdev(value for group in sums for value in group)
    expected = []
    for paid in sums:
        scale = {"group": stdev(paid) + 1e-4, "none": 1.0, "batch": whole + 1e-4}[kind]
        expected += [(value - fmean(paid)) / scale for value in paid]
    found = [value for step in ranks for value in step["advantages"]]
    assert found == pytest.approx(expected, abs=1e-5)
    for step in ranks:
        assert step["table"]["advantage"] == found


def dot(weights, values):
    return sum(weight * value for weight, value in zip(weights, values, strict=True))


@pytest.fixture
def train(run_stage, monkeypatch, pool):
    """Train with 4 groups a batch; returns what was done, the trainer, its curriculum before."""
    from stages.trainer import grpo_trainer as module

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
        if getattr(twin, "num_components", 0):
            twin.see(np.array(trainer.extra_state["prompts"].state_dict()["components"]))
        num = sum(len(one["rows"]) for step in steps for one in step["rounds"])
        assert manifest.read(folder)["counts"]["completions"] == num
        assert steps[-1]["num_completions"] == num
        return steps, trainer, twin

    return call


def check(steps, trainer, twin, pool, weights=PAID, kind="group", max_rounds=0):
    """Every step; returns the groups that were trained on and the generated ones."""
    found = []
    for step in steps:
        batch, generated = check_step([step], pool[1], twin, max_rounds)
        check_advantages([step], batch, weights, kind)
        found.append((batch, generated))
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
    assert any(group not in generated[:4] for batch, generated in found for group in batch)
    for step, table in zip(
        steps, read_tables(trainer)[:: trainer.state.global_step // 4], strict=True
    ):
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
