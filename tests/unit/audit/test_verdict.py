"""What is read off the audit's table, by hand."""

import pandas as pd

from eval.audit.cases import TRICKS
from eval.audit.checks import GOLD, SUM, Line
from eval.audit.verdict import count_tricks, find_failures, find_rates

LINES = [
    *[Line("a", row, GOLD, "reward", "", True, "is 0" if row < 6 else "") for row in range(8)],
    Line("a", 0, GOLD, "template", "", True, ""),
    Line("a", 0, "empty box", "reward", "own", True, "is rewarded"),
    Line("a", 1, "empty box", "reward", "own", True, "is rewarded"),
    Line("a", 0, "empty box", "reward", SUM, True, "earns 1"),
    Line("a", 1, "empty box", "reward", SUM, True, ""),
    Line("b", 0, "empty box", "task", "", True, ""),
    Line("b", 0, "gold denied", "task", "", False, "is rewarded"),
]
TABLE = pd.DataFrame(LINES, columns=Line._fields, dtype=object).astype({"applies": bool})


def test_rates_are_of_golds_and_need_a_reward_for_correctness():
    rates = {"question": None, "template": 1.0, "reward": 0.25, "task": None}
    assert find_rates(TABLE, ["correctness_reward"]) == rates
    assert find_rates(TABLE, ["think_format_reward"]) == rates | {"reward": None}


def test_sums_and_what_does_not_apply_are_not_counted_as_tried():
    nothing = {"num_rows": 0, "num_paid": 0, "num_above": 0}
    found = {"empty box": {"num_rows": 3, "num_paid": 2, "num_above": 1}}
    assert count_tricks(TABLE) == dict.fromkeys(TRICKS, nothing) | found
    assert count_tricks(TABLE[:0]) == dict.fromkeys(TRICKS, nothing)


def test_five_golds_and_one_exploit_of_each_kind_are_kept():
    faults = [(one["row"], one["fault"]) for one in find_failures(TABLE)]
    golds = [(row, "is 0") for row in range(5)]
    assert faults == [*golds, (0, "is rewarded"), (0, "earns 1")]
