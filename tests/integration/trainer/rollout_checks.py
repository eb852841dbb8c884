"""Checks of what `recorders` have written down, worked out anew without tensors."""

from statistics import fmean, stdev

import pytest

from tests.integration.trainer.recorders import SIZE


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


def check_advantages(ranks, batch, weights, kind="group", tolerance=1e-5):
    """Advantages of the trained rows, in the table too, by the formulas of the recipe's keys."""
    sums = [[dot(weights, row) for row in group["rewards"]] for group in batch]
    whole = stdev(value for group in sums for value in group)
    expected = []
    for paid in sums:
        scale = {"group": stdev(paid) + 1e-4, "none": 1.0, "batch": whole + 1e-4}[kind]
        expected += [(value - fmean(paid)) / scale for value in paid]
    found = [value for step in ranks for value in step["advantages"]]
    assert found == pytest.approx(expected, abs=tolerance)
    for step in ranks:
        assert step["table"]["advantage"] == found
    return found


def dot(weights, values):
    return sum(weight * value for weight, value in zip(weights, values, strict=True))
