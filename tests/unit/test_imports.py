"""Imports point down and change nothing; no module needs what only Linux has."""

import ast
from graphlib import TopologicalSorter

from eval.harness.settings import split_checkpoints
from grading import worker
from stages.run import launch
from tests.import_effects import PRODUCT, ROOT, find_changes, product_modules
from tests.refused import refused
from tests.tables import read_beside

# They look at whole recipes: they import anything, and nothing imports them.
ROOTS = ("stages.preflight", "eval.audit", "benchmarks")
# They run models, or the harness: see tests/integration/test_importing.py. Others are light.
WITH_MODELS = tuple(read_beside(__file__)["with_models"])
LIGHT_ALL_THE_SAME = ("stages.trainer.curriculum", "stages.trainer.guards")
# The light modules use them. Only a worker imports math-verify.
LIBRARIES = ["pydantic", "rich.text", "pandas", "matplotlib", "jinja2", "datasketch", "math_verify"]


def product_imports() -> dict[str, set[str]]:
    """The product's modules that each one imports, function bodies included."""
    known = product_modules()
    return {name: imports(name, known) for name in known}


def imports(module: str, known: list[str]) -> set[str]:
    """Names of the `known` modules that a module imports."""
    path = ROOT / module.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names & {*known} or {node.module}
    return found & {*known} - {module}


def upward(graph: dict[str, set[str]]) -> list[str]:
    """Imports that point upwards, between stages and eval, or at what looks at whole recipes."""
    found = []
    for name, targets in graph.items():
        if name.startswith(ROOTS):
            continue
        package = name.partition(".")[0]
        for target in targets:
            other = target.partition(".")[0]
            is_up = PRODUCT.index(other) > PRODUCT.index(package)
            is_sideways = (package, other) == ("eval", "stages")
            if is_up or is_sideways or target.startswith(ROOTS):
                found.append(f"{name} -> {target}")
    return found


def test_imports_point_down_and_in_no_cycle():
    graph = product_imports()
    assert upward(graph) == []
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_an_upward_import_is_found():
    for name, target in (
        ("pipeline.manifest", "grading.worker"), ("data_prep.sampling.hf", "stages.run.training"),
        ("eval.run", "stages.rewards"), ("eval.run", "eval.audit.cases"),
    ):  # fmt: skip
        assert upward({name: {target}}) == [f"{name} -> {target}"]


def test_importing_a_light_module_changes_nothing_and_brings_in_no_torch():
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
    }
    (tmp_path / "changing.py").write_text("\n".join(changes.values()))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert find_changes(["rich.text"], ["changing"]) == sorted(changes)


def test_cpus_are_counted_without_affinity(monkeypatch):
    monkeypatch.delattr(worker.os, "sched_getaffinity", raising=False)
    assert worker.count_cpus() == (worker.os.cpu_count() or 1)


def test_without_proc_no_launcher_is_known(monkeypatch):
    def missing(*_, **__):
        raise FileNotFoundError("/proc")

    monkeypatch.setattr(launch.Path, "read_text", missing)
    assert launch.parent_command() == []


def test_two_checkpoints_never_share_a_folder_where_case_does_not_count():
    refused("SFT", split_checkpoints, ["sft=a/b", "SFT=c/d"])
