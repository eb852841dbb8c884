"""Importing any module changes nothing."""

import pytest

from tests.import_effects import find_changes, product_modules

pytestmark = pytest.mark.integration
# They change some of it themselves, so they come first.
LIBRARIES = [
    "trl.trainer.sft_trainer", "trl.trainer.grpo_trainer", "lm_eval.tasks", "lm_eval.api.model",
    "datasets", "pandas", "matplotlib", "datasketch", "math_verify",
]  # fmt: skip


def test_importing_any_module_changes_nothing():
    assert find_changes(LIBRARIES, product_modules()) == []
