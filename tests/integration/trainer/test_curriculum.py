"""Refill in real runs: which problems are generated for, what is trained on.

What one process does two do as well: `test_parallel`, and with a curriculum `test_resume`.
"""

import copy
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import pytest
from pandas import read_parquet

from pipeline import manifest
from stages.arguments import GrpoArguments
from stages.trainer import grpo_trainer
from stages.trainer.curriculum import build_curriculum
from tests.files import read_rows
from tests.integration.trainer.runs import SIZE, generation_batches, record_batches

pytestmark = pytest.mark.integration

PAID = [1.0, 0.5, 1.0]  # correctness, form, length


# What the recorders have written down, worked out anew without tensors


def groups_of(ranks, number):
    """Groups of all ranks in one round of a step: id, rows, texts, rewards and correctness."""
    rounds = [step["rounds"][number] for step in ranks]
    assert all(one["rewards"] == rounds[0]["rewards"] for one in rounds), "gathered on every rank"
    paid = rounds[0]["rewards"]
    ids, rows, texts = ([x for one in rounds for x in one[key]] for key in ("ids", "rows", "texts"))
    groups = []
    for n in range(0, len(ids), SIZE):
        part = slice(n, n + SIZE)
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
        twin: what the trainer's curriculum was before the step.
        max_rounds: how often uniform groups may be replaced.
    """
    ids, world = list(pool), len(ranks)
    index = {key: number for number, key in enumerate(ids)}
    rounds = [groups_of(ranks, number) for number in range(len(ranks[0]["rounds"]))]
    batch, taken = list(rounds[0]), []
    chosen, draw = twin.choose(len(batch)), twin.curriculum.draw
    for number, new in enumerate(rounds):
        num, num_new = len(batch) // world, len(new) // world
        if number:
            bad = [group["is_uniform"] for group in batch]
            assert num_new == max(sum(bad[r * num : (r + 1) * num]) for r in range(world)) > 0
        found = [group["id"] for group in new]
        if number or chosen is not None:
            drawn = draw(len(new), taken) if number else chosen
            expected = [ids[problem] for problem in drawn]
        else:
            expected = [key for step in ranks for key in step["given"]]
        assert found == expected
        problems = [index[key] for key in found]
        assert not {*taken} & {*problems}, "other problems than those at hand"
        taken += problems
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


def check_advantages(ranks, batch, kind="group"):
    """Advantages of the trained rows, in the table too, by the formulas of the recipe's keys."""
    sums = [[paid_for(row) for row in group["rewards"]] for group in batch]
    whole = stdev(value for group in sums for value in group)
    expected = []
    for paid in sums:
        scale = {"group": stdev(paid), "batch": whole}[kind] + 1e-4
        expected += [(value - fmean(paid)) / scale for value in paid]
    found = [value for step in ranks for value in step["advantages"]]
    assert found == pytest.approx(expected, abs=1e-5)
    for step in ranks:
        assert step["table"]["advantage"] == found


def paid_for(rewards):
    return sum(weight * value for weight, value in zip(PAID, rewards, strict=True))


@pytest.fixture
def refilled(run_stage, monkeypatch, pool):
    """A run with 4 groups a batch: what was done, the trainer, its curriculum before."""
    steps, trainers = [], []

    class Trainer(generation_batches(grpo_trainer.MathGRPOTrainer, steps, monkeypatch.setattr)):
        def train(self, *args, **kwargs):
            trainers.append((self, copy.deepcopy(self.curriculum)))
            return super().train(*args, **kwargs)

    monkeypatch.setattr(grpo_trainer, "MathGRPOTrainer", Trainer)
    folder = run_stage(
        "grpo", curriculum="predictive+refill", max_refill_rounds=1, scale_rewards="batch",
        beta=0.1, per_device_train_batch_size=8, steps_per_generation=2, max_steps=8,
        train_file=str(pool[0]), log_completions=True, num_completions_to_print=0,
    )  # fmt: skip
    ((trainer, twin),) = trainers
    twin.see(np.array(trainer.extra_state["prompts"].state_dict()["components"]))
    num = sum(len(one["rows"]) for step in steps for one in step["rounds"])
    assert manifest.read(folder)["counts"]["completions"] == num
    assert steps[-1]["num_completions"] == num
    return steps, trainer, twin


def test_uniform_groups_are_replaced(refilled, pool):
    """By whole groups of other problems, with all that belongs to them; padding is redone."""
    steps, trainer, twin = refilled
    assert len(steps) == 4
    found = [check_step([step], pool[1], twin, 1) for step in steps]
    assert trainer.curriculum.state_dict() == twin.state_dict()
    for step, (batch, _) in zip(steps, found, strict=True):
        check_advantages([step], batch, "batch")
        assert {"old_per_token_logps", "ref_per_token_logps"} < {*step["keys"]}
    # Where nothing is replaced or all rounds are equally wide, nothing is tested.
    shapes = [[one["shape"] for one in step["rounds"]] for step in steps]
    assert any(len({shape[side] for shape in part}) > 1 for part in shapes for side in (0, 1))
    assert any(group not in generated[:4] for batch, generated in found for group in batch)

    logs = [log for log in trainer.state.log_history if "train/uniform_groups" in log]
    for log, (batch, generated) in zip(logs, found, strict=True):
        for name, groups in (("train", batch), ("rollout", generated)):
            share = fmean(group["is_uniform"] for group in groups)
            assert log[f"{name}/uniform_groups"] == pytest.approx(share)
        sums = [{paid_for(row) for row in group["rewards"]} for group in batch]
        assert log["frac_reward_zero_std"] == pytest.approx(fmean(len(one) == 1 for one in sums))
    for number, step in enumerate(steps):
        name = f"completions/completions_{2 * number + 1:05}.parquet"
        table = read_parquet(f"{trainer.args.output_dir}/{name}")
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
    found = [read_rows(Path(f"{tmp_path / 'grpo'}.rank{rank}.jsonl")) for rank in range(2)]
    ranks, curricula = [part[:-1] for part in found], [part[-1]["curriculum"] for part in found]
    args = GrpoArguments(train_file="", curriculum="refill")
    twin = build_curriculum([*pool[1].values()], args, 4, 0)
    unlike = 0
    for both in zip(*ranks, strict=True):
        batch, generated = check_step(both, pool[1], twin, 3)
        check_advantages(both, batch)
        bad = [group["is_uniform"] for group in generated[:4]]
        unlike += sum(bad[:2]) != sum(bad[2:])
        assert both[0]["num_completions"] == both[1]["num_completions"]
    num_rounds = {len(step["rounds"]) for step in ranks[0]}
    assert unlike > 1 and len(num_rounds) > 1 and max(num_rounds) > 2
    assert curricula == [twin.state_dict()] * 2
