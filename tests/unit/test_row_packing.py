"""Rows that share a forward pass, and rows of an optimizer step in order of their length."""

import pytest
import torch

from stages.settings.update_arguments import UpdateArguments
from stages.trainer.row_packing import plan_passes, sort_rows

CASES = {
    "nothing to do": ([], 10, True, []),
    "one pass": ([3, 5, 4], 15, True, [[1, 2, 0]]),
    "padding counts": ([3, 5, 4], 14, True, [[1, 2], [0]]),
    "packed it does not": ([3, 5, 4], 12, False, [[1, 2, 0]]),
    "packed and full": ([3, 5, 4], 11, False, [[1, 2], [0]]),
    "a long row goes alone": ([3, 50, 4], 8, True, [[1], [2, 0]]),
    "each alone": ([5, 5, 5], 9, True, [[0], [1], [2]]),
    "equal lengths keep their order": ([2, 2, 2, 2], 4, False, [[0, 1], [2, 3]]),
}


@pytest.mark.parametrize("case", CASES)
def test_passes(case):
    lengths, max_tokens, is_padded, expected = CASES[case]
    assert plan_passes(lengths, max_tokens, is_padded) == expected


def batches(lengths, num_rows):
    """Micro-batches of TRL's form: 2 prompt tokens, `lengths` of the completions."""
    rows = []
    for first in range(0, len(lengths), num_rows):
        part = torch.tensor(lengths[first : first + num_rows])
        mask = (torch.arange(9) < part.unsqueeze(1)).int()
        rows.append({
            "prompt_mask": torch.ones(num_rows, 2, dtype=torch.int),
            "completion_mask": mask,
            "advantages": torch.arange(first, first + num_rows),
            "names": [f"row {first + i}" for i in range(num_rows)],
            "num_items_in_batch": torch.tensor(sum(lengths)),
            "absent": None,
        })  # fmt: skip
    return rows


def test_rows_are_sorted_within_an_optimizer_step_only():
    ordered = sort_rows(batches([1, 8, 2, 7, 6, 3, 5, 4], 2), window=2)
    assert [batch["advantages"].tolist() for batch in ordered] == [[1, 3], [2, 0], [4, 6], [7, 5]]
    assert [batch["names"] for batch in ordered][1] == ["row 2", "row 0"]
    for batch in ordered:
        assert batch["num_items_in_batch"] == 36 and batch["absent"] is None
        assert batch["completion_mask"].sum(1).tolist() == [
            [1, 8, 2, 7, 6, 3, 5, 4][row] for row in batch["advantages"].tolist()
        ]


@pytest.mark.parametrize("value", [0, -5])
def test_a_budget_below_one_is_refused(value):
    with pytest.raises(ValueError, match="must be at least 1"):
        UpdateArguments(update_tokens=value)
