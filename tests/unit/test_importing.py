"""Importing a module changes nothing, and a light module brings in no torch."""

import pytest

from tests.import_effects import find_changes, product_modules

# They run models, or the harness: see tests/integration/test_importing.py. All others are light.
WITH_MODELS = (
    "data_prep.sampling.hf",
    "data_prep.sampling.vllm",
    "eval.audit.__main__",
    "eval.audit.checks",
    "eval.audit.inputs",
    "eval.audit.parsers",
    "eval.harness.cached_lm",
    "stages.rewards",
    "stages.trainer.",
    "stages.training",
)
LIGHT_ALL_THE_SAME = ("stages.trainer.curriculum", "stages.trainer.guards")
# The light modules use them. Only the worker of the grader imports math-verify.
LIBRARIES = ["rich.text", "pandas", "matplotlib", "jinja2", "datasketch", "math_verify"]


def test_importing_a_light_module_changes_nothing():
    modules = [
        name
        for name in product_modules()
        if name in LIGHT_ALL_THE_SAME or not name.startswith(WITH_MODELS)
    ]
    assert {"pipeline.errors", "stages.grpo", "eval.run"} <= {*modules}
    assert find_changes(LIBRARIES, modules) == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import signal; signal.signal(signal.SIGINT, signal.SIG_DFL)", "signal 2"),
        ("import rich.text; rich.text.strip_control_codes = str", "rich.text.strip_control_codes"),
        ("import os; os.environ['NEW'] = '1'", "environment NEW"),
        ("import logging; logging.getLogger('rich').setLevel(40)", "logger rich"),
        ("import warnings; warnings.simplefilter('ignore')", "warnings.filters"),
        ("import threading; threading.excepthook = print", "threading.excepthook"),
    ],
)
def test_a_change_is_found(tmp_path, monkeypatch, code, found):
    (tmp_path / "changing.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert found in find_changes(["rich.text"], ["changing"])
