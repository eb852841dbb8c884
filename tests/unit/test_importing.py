"""Importing a module changes nothing, and a light module brings in no torch."""

from tests.import_effects import find_changes, product_modules

# They run models, or the harness: see tests/integration/test_importing.py. All others are light.
WITH_MODELS = (
    "data_prep.sampling.generate",
    "data_prep.sampling.hf",
    "data_prep.sampling.vllm",
    "eval.audit.__main__",
    "eval.audit.checks",
    "eval.audit.inputs",
    "eval.audit.parsers",
    "eval.audit.verdict",
    "eval.harness.cached_lm",
    "stages.adapters",
    "stages.run.callbacks",
    "stages.own_reward",
    "stages.packed_rows",
    "stages.preflight.tracker",
    "stages.rewards",
    "stages.run.saving",
    "stages.sft_rows",
    "stages.trainer.",
    "stages.run.training",
    "stages.trial",
)
LIGHT_ALL_THE_SAME = ("stages.trainer.curriculum", "stages.trainer.guards")
# The light modules use them. Only a worker imports math-verify.
LIBRARIES = ["pydantic", "rich.text", "pandas", "matplotlib", "jinja2", "datasketch", "math_verify"]


def test_importing_a_light_module_changes_nothing():
    modules = [
        name
        for name in product_modules()
        if name in LIGHT_ALL_THE_SAME or not name.startswith(WITH_MODELS)
    ]
    assert {"pipeline.errors", "stages.grpo", "eval.run"} <= {*modules}
    assert find_changes(LIBRARIES, modules) == []


def test_changes_are_found(tmp_path, monkeypatch):
    changes = {
        "signal 2": "import signal; signal.signal(signal.SIGINT, signal.SIG_DFL)",
        "rich.text.strip_control_codes": "import rich.text; rich.text.strip_control_codes = str",
        "environment NEW": "import os; os.environ['NEW'] = '1'",
        "logger of_a_library": "import logging; logging.getLogger('of_a_library').setLevel(40)",
        "warnings.filters": "import warnings; warnings.simplefilter('ignore')",
        "threading.excepthook": "import threading; threading.excepthook = print",
    }
    (tmp_path / "changing.py").write_text("\n".join(changes.values()))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert find_changes(["rich.text"], ["changing"]) == sorted(changes)
