"""Imports point from the upper floor to the lower one, and the tree does not grow."""

import ast
import functools
import json
import re

import pytest

from tests import house

# From the ground up; a package imports its own floor and those before it.
DATA = [
    ("data_prep.quiet", "data_prep.values", "data_prep.progress"),
    ("data_prep.errors", "data_prep.ownership", "data_prep.config", "data_prep.manifest"),
    (
        "data_prep.prompts",
        "data_prep.checkpoints",
        "data_prep.make_variables",
        "data_prep.commands",
    ),
    ("data_prep.card",),
    ("data_prep.reading",),
    ("data_prep.grading",),
    ("data_prep.schema",),
    ("data_prep.sources", "data_prep.sampling"),
    ("data_prep.decontamination",),
    ("data_prep.build",),
]
STAGES = [
    *DATA,
    ("stages.restarts",),
    ("stages.launch", "stages.runs", "stages.own_code", "stages.trainer.guards"),
    ("stages.arguments",),
    ("stages.checks",),
    ("stages.run",),
    ("stages.rewards",),
    ("stages.trainer",),
    ("stages",),
]
EVAL = [*DATA, ("eval.harness",), ("eval.run", "eval.report", "eval.push")]
# They look at whole recipes: they import anything, and nothing imports them.
ROOFS = ("stages.preflight", "eval.audit", "benchmarks")
# One home for each concern: its file, the words of `words_of` that only it may have, and the other
# files that have them all the same, with the reason.
HOMES = {
    "silence": (
        "data_prep/quiet.py",
        r"setLevel|addFilter|logging\.disable|set_verbosity\w*|disable_progress_bars?"
        r"|filterwarnings|simplefilter|\.tqdm|VLLM_LOGGING_LEVEL|TQDM_DISABLE|TOKENIZERS_PARALLELISM",
        {"benchmarks/grader.py": "rivals log their time-outs as errors, under any name"},
    ),
    "load a tokenizer": (
        "data_prep/checkpoints.py",
        r"AutoTokenizer|PreTrainedTokenizerFast|\w*Tokenizer\.from_\w+",
        {"benchmarks/throughput_runs.py": "builds one, loads none"},
    ),
    "write a whole file": (
        "data_prep/manifest.py",
        r"os\.replace|os\.rename|shutil\.move|\.replace\(_\)|\.rename\(_\)",
        {
            "stages/runs.py": "puts a whole run's folder in place",
            "stages/trainer/resume.py": "renames the state of abandoned checkpoints",
            "stages/trainer/evaluation.py": "puts the best checkpoint's folder in place",
        },
    ),
    "encode surrogates": (
        "data_prep/manifest.py",
        r"surrogatepass|\.encode\(_, _\)|\.?(encode|open|write_text)\(.*errors=.*\)",
        {},
    ),
}


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


def test_imports_point_down():
    product = house.modules(*house.PRODUCT)
    assert upward({name: house.imports(path, product) for name, path in product.items()}) == []


def test_an_upward_import_is_found():
    for name, target in (
        ("data_prep.grading.pool", "data_prep.schema"),
        ("data_prep.sampling.hf", "stages.run"),
        ("stages.trainer.trainer", "stages.grpo"),
        ("stages.grpo", "eval.run"),
        ("eval.run", "eval.audit.cases"),
    ):
        assert upward({name: {target}}) == [f"{name} -> {target}"]


@functools.cache
def words_of(text: str) -> set[str]:
    """Names, `name.attribute`, whole strings and calls (`.encode(_, errors=)`) of a module."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add(node.name)
        elif isinstance(node, ast.Attribute):
            found |= {node.attr, f"{getattr(node.value, 'id', '')}.{node.attr}"}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "id", None) or f".{getattr(node.func, 'attr', '')}"
            arguments = ["_"] * len(node.args) + [f"{one.arg}=" for one in node.keywords]
            found.add(f"{name}({', '.join(arguments)})")
    return found


def is_used(pattern: str, text: str) -> bool:
    return any(re.fullmatch(pattern, word) for word in words_of(text))


@pytest.mark.parametrize("concern", HOMES)
def test_each_concern_has_one_home(concern):
    home, pattern, others = HOMES[concern]
    files = house.modules(*house.PRODUCT, "benchmarks").values()
    found = {str(path.relative_to(house.ROOT)) for path in files
             if is_used(pattern, path.read_text(encoding="utf-8"))}  # fmt: skip
    assert found == {home, *others}


@pytest.mark.parametrize(
    ("concern", "code", "is_second"),
    [
        ("silence", "logging.getLogger('trl').setLevel(logging.ERROR)", True),
        ("load a tokenizer", "Qwen2Tokenizer.from_pretrained(path)", True),
        ("load a tokenizer", "load_tokenizer(path, 'key')", False),
        ("write a whole file", "path.with_name(name).replace(path)", True),
        ("write a whole file", "text.replace('a', 'b')", False),
        ("encode surrogates", "text.encode('utf-8', 'replace')", True),
    ],
)
def test_a_second_home_is_found(concern, code, is_second):
    assert is_used(HOMES[concern][1], code) == is_second


def test_a_circle_is_found():
    assert house.circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})
    assert not house.circles({"a": {"b"}, "b": {"c"}, "d": {"a"}})


def test_no_figure_is_above_its_ceiling():
    ceilings = json.loads(house.CEILINGS.read_text(encoding="utf-8"))
    found = house.figures()
    assert {k: v for k, v in found.items() if v > ceilings[k]} == {}


def test_code_lines_are_neither_docstrings_nor_comments():
    text = (
        '"""Doc."""\n\n# why\nx = 1  # what\n\n\ndef f():\n    """Do."""\n    return """a\nb"""\n'
    )
    assert house.code_lines(text) == 4
