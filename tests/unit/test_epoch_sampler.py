"""The order of the problems: TRL's in a run without a break, and by epoch alone after one."""

import pytest
from trl.trainer.utils import RepeatSampler

from stages.trainer.exact_resume import EpochSampler


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


def test_the_epoch_is_asked_for_when_the_iteration_starts():
    """And not when the loader is made: the trainer's state is loaded in between."""
    epoch = 0
    ours = EpochSampler(build(), lambda: epoch)
    iterator = iter(ours)
    epoch = 1
    first = next(iterator)
    epoch = 2
    stock = build()
    expected = [list(stock) for _ in range(2)][1]
    assert [first, *iterator] == expected
