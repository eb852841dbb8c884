"""Imports point from the upper floor to the lower one, and the tree does not grow."""

import json

import pytest

from tests import house

# From the ground up; a package imports its own floor and those before it.
DATA = [
    ("data_prep.quiet",),
    ("data_prep.config", "data_prep.manifest"),
    ("data_prep.prompts", "data_prep.checkpoints"),
    ("data_prep.reading",),
    ("data_prep.grading",),
    ("data_prep.schema",),
    ("data_prep.sources", "data_prep.sampling"),
    ("data_prep.decontamination",),
    ("data_prep.build",),
]
STAGES = [
    *DATA,
    ("stages.host_loss", "stages.trainer.guards"),
    ("stages.launch", "stages.arguments"),
    ("stages.held_out",),
    ("stages.vllm_checks",),
    ("stages.checks",),
    ("stages.run",),
    ("stages.rewards",),
    ("stages.trainer",),
    ("stages",),
]
EVAL = [*DATA, ("eval.harness",), ("eval.run", "eval.report")]
# They look at whole recipes: they import anything, and nothing imports them.
ROOFS = ("stages.preflight", "eval.audit", "benchmarks")


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def floor_of(name: str, floors: list[tuple[str, ...]]) -> int | None:
    for number, floor in enumerate(floors):
        if any(within(name, package) for package in floor):
            return number
    return None


def upward(graph: dict[str, set[str]]) -> list[str]:
    """Imports that point upwards, out of the package's reach, or into a roof."""
    found = []
    for name, targets in graph.items():
        if "." not in name or any(within(name, roof) for roof in ROOFS):
            continue
        floors = {"data_prep": DATA, "stages": STAGES, "eval": EVAL}[name.split(".")[0]]
        own = floor_of(name, floors)
        assert own is not None, f"{name} is on no floor"
        for target in targets - {"data_prep", "stages", "eval"}:
            floor = floor_of(target, floors)
            if floor is None or floor > own or any(within(target, roof) for roof in ROOFS):
                found.append(f"{name} -> {target}")
    return found


def graph():
    product = house.modules(*house.PRODUCT)
    return {name: house.imports(path, product) for name, path in product.items()}


def test_imports_point_down():
    assert upward(graph()) == []


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("data_prep.grading.pool", "data_prep.schema"),
        ("data_prep.sampling.hf", "stages.run"),
        ("stages.trainer.trainer", "stages.grpo"),
        ("stages.grpo", "eval.run"),
        ("eval.run", "eval.audit.cases"),
        ("eval.harness.score", "eval.report"),
    ],
)
def test_an_upward_import_is_found(name, target):
    assert upward({name: {target}}) == [f"{name} -> {target}"]


def test_circles_are_found():
    assert house.circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [{"a", "b", "c"}]


def test_no_figure_is_above_its_ceiling():
    ceilings = json.loads(house.CEILINGS.read_text(encoding="utf-8"))
    found = house.figures()
    assert {k: v for k, v in found.items() if v > ceilings[k]} == {}


def test_code_lines_are_neither_docstrings_nor_comments():
    text = (
        '"""Doc."""\n\n# why\nx = 1  # what\n\n\ndef f():\n    """Do."""\n    return """a\nb"""\n'
    )
    assert house.code_lines(text) == 4
