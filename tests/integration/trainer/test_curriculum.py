"""Refill in a real run: which problems are generated for, what is trained on."""

import json
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import pytest
from pandas import read_parquet

from pipeline import manifest
from stages.arguments import GrpoArguments
from stages.trainer.curriculum import build_curriculum
from tests.files import read_rows
from tests.integration.trainer.runs import SIZE, read_extra, read_logs, record_batches

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
    rounds = [groups_of(ranks, number) for number in range(len(ranks[0]["rounds"]))]
    batch, taken = list(rounds[0]), []
    drawn = twin.choose(len(batch))
    for number, new in enumerate(rounds):
        num, num_new = len(batch) // world, len(new) // world
        if number:
            bad = [group["is_uniform"] for group in batch]
            assert num_new == max(sum(bad[r * num : (r + 1) * num]) for r in range(world)) > 0
            drawn = twin.curriculum.draw(len(new), taken)
        assert [group["id"] for group in new] == [ids[problem] for problem in drawn]
        assert not {*taken} & {*drawn}, "other problems than those at hand"
        taken += drawn
        twin.observe(drawn, [sum(group["correct"]) for group in new], SIZE)
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
            asked = [pool[key] for key in one["ids"]]
            assert one["golds"] == [[row["question"], row["answers"]] for row in asked]
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
        texts = [text for group in batch for text in group["texts"]]
        assert [completion[-1]["content"] for completion in table["completion"]] == texts
        verdicts = ["right" if right else "wrong" for group in batch for right in group["correct"]]
        assert table["verdict"] == verdicts
        paid = [row for group in batch for row in group["rewards"]]
        names = [name for name in table if name.endswith(("_reward", "_penalty"))]
        for number, name in enumerate(names):
            assert table[name] == [row[number] for row in paid]
        assert len(names) == len(paid[0])


def check_advantages(ranks, batch):
    """Advantages of the trained rows, in the table too, by the formula of the recipe's key."""
    sums = [[paid_for(row) for row in group["rewards"]] for group in batch]
    scale = stdev(value for paid in sums for value in paid) + 1e-4
    expected = [(value - fmean(paid)) / scale for paid in sums for value in paid]
    found = [value for step in ranks for value in step["advantages"]]
    assert found == pytest.approx(expected, abs=1e-5)
    for step in ranks:
        assert step["table"]["advantage"] == found


def paid_for(rewards):
    return sum(weight * value for weight, value in zip(PAID, rewards, strict=True))


def test_uniform_groups_are_replaced(fork_server, write_recipe, pool, tmp_path):
    """By whole groups of other problems, with all that belongs to them; padding is redone.

    Of two processes, each generates as many as the one with most, and keeps what it needs.
    """
    recipe = write_recipe(
        "grpo", curriculum="predictive+refill", max_refill_rounds=3, scale_rewards="batch",
        beta=0.1, per_device_train_batch_size=4, steps_per_generation=2, max_steps=12,
        train_file=str(pool[0]), log_completions=True, num_completions_to_print=0,
    )  # fmt: skip
    fork_server.finish(recipe, 2, setup=record_batches)
    folder = tmp_path / "grpo"
    ranks = [read_rows(Path(f"{folder}.rank{rank}.jsonl")) for rank in range(2)]
    steps = [*zip(*ranks, strict=True)]
    assert len(steps) == 6
    saved = read_extra(folder, 12)["extra"]
    args = GrpoArguments(train_file="", curriculum="predictive+refill", max_refill_rounds=3)
    twin = build_curriculum([*pool[1].values()], args, SIZE, 0)
    twin.see(np.array(saved["prompts"]["components"]))
    found = [check_step(both, pool[1], twin, 3) for both in steps]
    assert saved["curriculum"] == json.loads(json.dumps(twin.state_dict()))

    for both, (batch, _) in zip(steps, found, strict=True):
        check_advantages(both, batch)
        assert {"old_per_token_logps", "ref_per_token_logps"} < {*both[0]["keys"]}
        assert both[0]["num_completions"] == both[1]["num_completions"]
    num = sum(len(one["rows"]) for part in ranks for step in part for one in step["rounds"])
    assert manifest.read(folder)["counts"]["completions"] == num == ranks[0][-1]["num_completions"]
    # Where nothing is replaced, or all rounds are equally wide or many, nothing is tested.
    shapes = [[one["shape"] for one in step["rounds"]] for part in ranks for step in part]
    assert any(len({shape[side] for shape in part}) > 1 for part in shapes for side in (0, 1))
    assert any(group not in generated[:4] for batch, generated in found for group in batch)
    bad = [[group["is_uniform"] for group in generated[:4]] for _, generated in found]
    assert sum(sum(one[:2]) != sum(one[2:]) for one in bad) > 1
    num_rounds = {len(step["rounds"]) for step in ranks[0]}
    assert len(num_rounds) > 1 and max(num_rounds) > 2

    logs = [log for log in read_logs(folder) if "train/uniform_groups" in log]
    for log, (batch, generated) in zip(logs, found, strict=True):
        for name, groups in (("train", batch), ("rollout", generated)):
            share = fmean(group["is_uniform"] for group in groups)
            assert log[f"{name}/uniform_groups"] == pytest.approx(share)
        sums = [{paid_for(row) for row in group["rewards"]} for group in batch]
        assert log["frac_reward_zero_std"] == pytest.approx(fmean(len(one) == 1 for one in sums))
    for number, step in enumerate(ranks[0]):
        table = read_parquet(folder / f"completions/completions_{2 * number + 1:05}.parquet")
        assert table["advantage"].tolist() == pytest.approx(step["table"]["advantage"])
        texts = [completion[-1]["content"] for completion in table["completion"]]
        assert texts == [one[-1]["content"] for one in step["table"]["completion"]]
        assert table["verdict"].tolist() == step["table"]["verdict"]
