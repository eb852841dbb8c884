"""Imports point down, no two modules import each other, and each concern has one home."""

import ast
import functools
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("pipeline", "grading", "data_prep", "stages", "eval")
# A package imports those that stand before it; within one the same holds, layer by layer.
LAYERS: dict[str, list[tuple[str, ...]]] = {
    "pipeline": [
        ("console", "figures", "memory", "values", "renamed", "stages", "venv"),
        ("errors", "names"),
        ("key_types",),
        ("strict_yaml", "json_files", "paths", "consent", "folders"),
        ("models.hub",),
        ("lock", "manifest"),
        ("models.smollm2",),
        ("settings", "own_code", "side_by_side", "launched"),
        ("models.generation", "models.dropout", "models.template_date"),
        ("prompts", "models.checkpoints", "rows", "models.card"),
        ("models.weights", "models.tokenizer"),
        ("models.adapters", "models"),
        ("chain",),
        ("words",),
        ("keys",),
        ("request",),
        ("scoring", "freshness", "commands", "clean"),
        ("__main__",),
    ],
    "grading": [("",)],
    "data_prep": [("schema",), ("sources", "sampling"), ("decontamination",), ("builder",)],
    "stages": [
        ("run.restarts", "run.removal"),
        ("run.launch", "run.folders", "blame", "trainer.guards", "trainer.logprobs"),
        ("arguments", "precision", "own_reward", "run.out_of_memory"),
        ("trainer.curriculum", "trainer.rollouts", "trainer.evaluation"),
        ("run.callbacks", "run.saving"),
        ("rules", "adapters", "trial", "sft_rows"),
        ("held_out", "host"),
        ("run.training", "run"),
        ("rewards",),
        ("trainer",),
        ("",),
    ],
    "eval": [("harness",), ("run", "report", "push", "fetch")],
}
# They look at whole recipes: they import anything, and nothing imports them.
ROOTS = ("stages.preflight", "eval.audit", "benchmarks")
# One home for each concern: its file, the words of `words_of` that only it may have, and the other
# files that have them all the same, with the reason.
HOMES = {
    "silence": (
        "pipeline/console.py",
        r"setLevel|addFilter|logging\.disable|set_verbosity\w*|disable_progress_bars?"
        r"|filterwarnings|simplefilter|\.tqdm|VLLM_LOGGING_LEVEL|TQDM_DISABLE|TOKENIZERS_PARALLELISM",
        {
            "benchmarks/host_waits.py": "counts what torch warns of",
        },
    ),
    "load a tokenizer": (
        "pipeline/models/tokenizer.py",
        r"AutoTokenizer|PreTrainedTokenizerFast|\w*Tokenizer\.from_\w+",
        {
            "benchmarks/throughput_runs.py": "builds one, loads none",
            "pipeline/models/smollm2.py": "builds one, loads none",
            "stages/trial.py": "looks at a class, loads none",
        },
    ),
    "write a whole file": (
        "pipeline/manifest.py",
        r"os\.replace|os\.rename|shutil\.move|\.replace\(_\)|\.rename\(_\)",
        {
            "stages/run/removal.py": "gives what a run cannot use a name of its own",
            "pipeline/folders.py": "puts the link to a run in place",
            "stages/adapters.py": "puts a merged copy's folder in place",
            "stages/trainer/evaluation.py": "puts the best checkpoint's folder in place",
        },
    ),
    "encode surrogates": (
        "pipeline/manifest.py",
        r"surrogatepass|\.encode\(_, _\)|\.?(encode|open|write_text)\(.*errors=.*\)",
        {"pipeline/venv.py": "knows the standard library alone"},
    ),
}


def module_name(path: Path) -> str:
    """`stages/trainer/__init__.py` -> `stages.trainer`."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def modules(*folders: str) -> dict[str, Path]:
    """Every Python module below the folders, by dotted name."""
    return {module_name(p): p for name in folders for p in sorted((ROOT / name).rglob("*.py"))}


def imports(path: Path, known: dict[str, Path]) -> set[str]:
    """Names of the `known` modules that a file imports, function bodies included."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names & known.keys() or {node.module}
    return (found & known.keys()) - {module_name(path)}


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """A cycle of modules that import each other, if there is one."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def layer_of(name: str) -> tuple[int, int]:
    """The place of a module's package, and of its layer in that package; lower ones come first."""
    package = name.partition(".")[0]
    for number, layer in enumerate(LAYERS[package]):
        if any(within(name, f"{package}.{part}".rstrip(".")) for part in layer):
            return PRODUCT.index(package), number
    raise AssertionError(f"{name} is in no layer")


def upward(graph: dict[str, set[str]]) -> list[str]:
    """Imports that point upwards, between stages and eval, or at what looks at whole recipes."""
    found = []
    for name, targets in graph.items():
        if name in PRODUCT or any(within(name, root) for root in ROOTS):
            continue
        for target in targets - {*PRODUCT}:
            is_sideways = name.startswith("eval.") and target.startswith("stages.")
            is_root = any(within(target, root) for root in ROOTS)
            if is_root or is_sideways or layer_of(target) > layer_of(name):
                found.append(f"{name} -> {target}")
    return found


def product_imports() -> dict[str, set[str]]:
    product = modules(*PRODUCT)
    return {name: imports(path, product) for name, path in product.items()}


def test_imports_point_down():
    assert upward(product_imports()) == []


def test_no_modules_import_each_other():
    assert cycle(product_imports()) == []


def test_an_upward_import_is_found():
    for name, target in (
        ("pipeline.manifest", "grading.worker"),
        ("grading.worker", "data_prep.schema"),
        ("data_prep.sampling.hf", "stages.run.training"),
        ("stages.trainer.grpo_trainer", "stages.grpo"),
        ("stages.grpo", "eval.run"),
        ("eval.run", "stages.rewards"),
        ("eval.run", "eval.audit.cases"),
    ):
        assert upward({name: {target}}) == [f"{name} -> {target}"]


def test_a_cycle_is_found():
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})
    assert not cycle({"a": {"b"}, "b": {"c"}, "d": {"a"}})


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
    files = modules(*PRODUCT, "benchmarks").values()
    found = {str(path.relative_to(ROOT)) for path in files
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
