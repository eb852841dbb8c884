"""The update by hand: ratios and dropped windows, rows of a forward pass, order of the problems."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from trl.trainer.utils import RepeatSampler

from pipeline.errors import UserError
from stages.trainer.resume import EpochSampler, load_generation_state
from stages.trainer.update import (
    Planner,
    Row,
    cut,
    fill_passes,
    ratio_totals,
    rows_on_host,
    sort_rows,
    zero_loss,
)

INF, NAN = math.inf, math.nan


def test_ratio_totals():
    logps = torch.tensor([[0.0, math.log(2), NAN], [math.log(4), INF, 3.0]])
    old_logps = torch.tensor([[0.0, 0.0, 0.0], [math.log(8), 0.0, INF]])
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    total, number = ratio_totals(logps, old_logps, mask)
    assert (total.item(), number.item()) == (pytest.approx(1 + 2 + 0.5), 3)
    assert ratio_totals(logps, None, mask)[0] == 3  # the policy against itself
    for place, bad in (((0, 2), "isnan"), ((1, 1), "isinf")):
        mask[place] = 1
        assert getattr(ratio_totals(logps, old_logps, mask)[0], bad)()
        assert ratio_totals(logps, None, mask)[0].isnan()
        mask[place] = 0
    # A ratio too large for a float is as bad as one that is not a number.
    assert ratio_totals(torch.tensor([[90.0]]), torch.zeros(1, 1), torch.ones(1, 1))[0].isinf()


def test_zero_loss():
    logps = torch.tensor([[0.5, NAN], [INF, -INF], [-3e38, -3e38]], requires_grad=True)
    loss = zero_loss(logps)
    loss.backward()
    assert loss == 0 and torch.equal(logps.grad, torch.zeros(3, 2))


TABLE = yaml.safe_load(Path(__file__).with_name("update.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("lengths", "max_tokens", "is_padded", "expected"), TABLE["passes"])
def test_passes(lengths, max_tokens, is_padded, expected):
    assert fill_passes(lengths, max_tokens, is_padded) == expected


def test_passes_count_a_shared_start_once():
    a, b = (1, 2, 3, 4), (5, 6, 7)
    lengths, starts = [5, 6, 7, 8, 4], [a, b, a, b, ()]
    # In a pass of 12 tokens: 3 + 5 + 3 of problem b, 4 + 3 + 1 of problem a and 4 of the lone row.
    assert fill_passes(lengths, 12, False, starts) == [[3, 1], [2, 0, 4]]
    assert fill_passes(lengths, 12, False) == [[3], [2], [1, 0], [4]]


def test_a_row_that_shares_with_no_other_of_its_pass_stays_whole():
    rows = [Row((1, 2, 3, 9), 5), Row((1, 2, 3, 9), 4), Row((4, 5, 9), 4)]
    assert [piece.length for piece in cut(rows, [0, 2], shares=True)] == [9, 7]
    assert [piece.length for piece in cut(rows, [0, 1, 2], shares=False)] == [9, 8, 7]
    pieces = cut(rows, [0, 1, 2], shares=True)
    assert [piece.length for piece in pieces] == [3, 6, 5, 7]
    assert [piece.after for piece in pieces] == [-1, 0, 0, -1]


def planner(max_tokens, agree=lambda numbers: numbers):
    return Planner(max_tokens, is_padded=False, shares_prompts=False, agree=agree)


@pytest.mark.parametrize(("graded", "max_tokens", "others", "must", "passes"), TABLE["plans"])
def test_all_processes_make_as_many_passes(graded, max_tokens, others, must, passes):
    lengths = zip((3, 2, 1), graded, strict=True)
    rows = [Row((1, 2), number, has_gradient) for number, has_gradient in lengths]

    def agree(numbers):
        return [[max(pair) for pair in zip(mine, others, strict=True)] for mine in numbers]

    found = planner(max_tokens, agree).passes([rows], [must])
    assert found == [[tuple(one) for one in passes]]


def batches(lengths, num_rows, graded=None):
    """Micro-batches of TRL's form: 2 prompt tokens, `lengths` of the completions; their rows."""
    made, rows = [], []
    for first in range(0, len(lengths), num_rows):
        part = torch.tensor(lengths[first : first + num_rows])
        mask = (torch.arange(9) < part.unsqueeze(1)).int()
        prompts = torch.ones(num_rows, 2, dtype=torch.int)
        is_graded = torch.tensor([graded is None or i in graded for i in range(len(lengths))])
        rows.append(rows_on_host(prompts, prompts, mask, is_graded[first : first + num_rows]))
        made.append({
            "prompt_mask": prompts,
            "completion_mask": mask,
            "advantages": torch.arange(first, first + num_rows),
            "names": [f"row {first + i}" for i in range(num_rows)],
            "num_items_in_batch": torch.tensor(sum(lengths)),
            "absent": None,
        })  # fmt: skip
    return made, rows


LENGTHS = [1, 8, 2, 7, 6, 3, 5, 4]


def test_rows_are_sorted_within_an_optimizer_step_only():
    ordered, rows = sort_rows(*batches(LENGTHS, 2), window=2)
    assert [batch["advantages"].tolist() for batch in ordered] == [[1, 3], [2, 0], [4, 6], [7, 5]]
    assert [batch["names"] for batch in ordered][1] == ["row 2", "row 0"]
    for batch, found in zip(ordered, rows, strict=True):
        assert batch["num_items_in_batch"] == 36 and batch["absent"] is None
        lengths = [LENGTHS[row] for row in batch["advantages"].tolist()]
        assert batch["completion_mask"].sum(1).tolist() == lengths
        assert [row.num_completion for row in found] == lengths


def test_rows_without_a_gradient_fill_micro_batches_of_their_own():
    ordered, rows = sort_rows(*batches(LENGTHS, 2, graded={1, 4, 5}), window=4, by_gradient=True)
    found = [batch["advantages"].tolist() for batch in ordered]
    assert found == [[3, 6], [7, 2], [0, 1], [4, 5]]  # those without: longest first
    must = [False, False, False, True]
    passes = planner(None).passes(rows, must)
    assert [is_graded for ((_, is_graded),) in passes] == [False, False, True, True]


def build(shuffle=True, seed=7):
    return RepeatSampler(
        range(11), mini_repeat_count=2, batch_size=3, repeat_count=2, shuffle=shuffle, seed=seed
    )


@pytest.mark.parametrize("shuffle", [True, False])
def test_epochs_in_order_are_trls(shuffle):
    stock, epochs = build(shuffle), iter(range(4))
    ours = EpochSampler(build(shuffle), lambda: next(epochs))
    orders = [(list(stock), list(ours)) for _ in range(4)]
    assert all(expected == found for expected, found in orders)
    assert (orders[0] == orders[1]) is not shuffle
    assert len(ours) == len(stock) == len(orders[0][0]) == 3 * 3 * 2 * 2


def test_an_epoch_is_the_same_however_often_and_whatever_came_before():
    stock, epoch = build(), 0
    orders = [list(stock) for _ in range(4)]
    ours = EpochSampler(build(), lambda: epoch)
    for epoch in (2, 2, 0, 3, 1):
        assert list(ours) == orders[epoch]
    assert list(EpochSampler(build(seed=8), lambda: 0)) != orders[0]


@pytest.mark.parametrize(("state", "words"), TABLE["checkpoints"])
def test_a_checkpoint_that_does_not_fit_is_refused(tmp_path, state, words):
    if state is not None:
        (tmp_path / "extra_state.json").write_text(json.dumps(state))
    args = SimpleNamespace(world_size=1)
    trainer = SimpleNamespace(args=args, extra_state={"guards": None})
    with pytest.raises(UserError, match=words):
        load_generation_state(trainer, tmp_path)
