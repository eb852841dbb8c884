"""What results depend on: every file that decides a score or a completion is looked at."""

import ast
import json
from pathlib import Path

import pytest

from data_prep import manifest
from data_prep.config import UserError
from eval import fingerprint as prints
from eval.arguments import EvalArguments
from eval.fingerprint import ENGINE_CODE, HERE, SCORING_CODE, hash_checkpoint, hash_data

ROOT = HERE.parent
# Of what an evaluation imports, these decide no score: errors, who works, command lines of the
# grader, checks, records; what `samples.py` and the engines decide is part of the keys.
EXEMPT = {"config.py", "processes.py", "samples.py", "grade_file.py", "graded_rows.py"}
EXEMPT |= {"arguments.py", "fingerprint.py", "manifest.py", "checkpoints.py"}
EXEMPT |= {"hf_engine.py", "vllm_engine.py"}


def arguments(**changes):
    values = {"checkpoints": ["a=b"], "output_dir": "out", "report_dir": "report"}
    return EvalArguments(**values | {"test_file": "test.jsonl"} | changes)


def imported_files(path):
    """The project's own modules that a module imports anywhere in its text."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    files = {ROOT / f"{name.replace('.', '/')}.py" for name in names}
    packages = {ROOT / name.replace(".", "/") / "__init__.py" for name in names}
    return {file for file in files | packages if file.is_file()}


def test_all_that_an_evaluation_imports_is_scoring_code():
    todo = [path for path in SCORING_CODE if path.suffix == ".py"]
    todo += imported_files(HERE / "run.py")
    seen = set()
    while todo:
        path = todo.pop()
        if path not in seen and path.name not in EXEMPT:
            seen.add(path)
            todo += imported_files(path)
    empty = {path for path in seen if not path.read_text(encoding="utf-8").strip()}
    assert seen - empty <= set(SCORING_CODE)
    assert all(path.is_file() for path in SCORING_CODE)
    assert len(SCORING_CODE) == len(set(SCORING_CODE))


def test_engine_code_is_there():
    assert all((HERE / name).is_file() for names in ENGINE_CODE.values() for name in names)
    assert imported_files(HERE / "hf_engine.py") <= {
        HERE / "samples.py", HERE / "sampling.py", ROOT / "data_prep" / "config.py"
    }  # fmt: skip


@pytest.fixture
def checkpoint(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (folder / name).write_text(name)
    return folder


@pytest.mark.parametrize(
    ("file", "counts"),
    [
        ("model.safetensors", True), ("model-00002-of-00002.safetensors", True),
        ("model.safetensors.index.json", True), ("pytorch_model.bin", True), ("config.json", True),
        ("generation_config.json", True), ("tokenizer.json", True), ("tokenizer.model", True),
        ("tokenizer_config.json", True), ("special_tokens_map.json", True),
        ("added_tokens.json", True), ("chat_template.jinja", True), ("vocab.json", True),
        ("merges.txt", True), ("spiece.model", True),
        ("README.md", False), ("trainer_state.json", False), ("manifest.json", False),
    ],
)  # fmt: skip
def test_which_files_make_a_checkpoint(checkpoint, file, counts):
    before = hash_checkpoint(str(checkpoint))
    (checkpoint / file).write_text("changed")
    assert (hash_checkpoint(str(checkpoint)) != before) == counts


def test_a_checkpoint_is_its_files_wherever_they_lie(checkpoint, tmp_path):
    before = hash_checkpoint(str(checkpoint))
    checkpoint.rename(tmp_path / "moved")
    assert hash_checkpoint(str(tmp_path / "moved")) == before
    (tmp_path / "moved" / "tokenizer.json").rename(tmp_path / "moved" / "tokenizer2.json")
    assert hash_checkpoint(str(tmp_path / "moved")) != before


def test_an_adapter_is_itself_and_its_base(checkpoint, tmp_path):
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    config = {"base_model_name_or_path": str(checkpoint)}
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    (adapter / "adapter_model.safetensors").write_text("weights")
    first = hash_checkpoint(str(adapter))
    assert first.endswith(f" on {hash_checkpoint(str(checkpoint))}")
    (checkpoint / "model.safetensors").write_text("changed")
    second = hash_checkpoint(str(adapter))
    (adapter / "adapter_model.safetensors").write_text("changed")
    assert len({first, second, hash_checkpoint(str(adapter))}) == 3


def test_a_model_of_the_hub_is_its_commit(monkeypatch):
    def cached_file(name, file):
        return f"/cache/models--{name.replace('/', '--')}/snapshots/abc123/{file}"

    monkeypatch.setattr("transformers.utils.cached_file", cached_file)
    assert hash_checkpoint("owner/model") == "hub:owner/model@abc123"

    def fail(*_):
        raise OSError("no network\nand much more")

    monkeypatch.setattr("transformers.utils.cached_file", fail)
    with pytest.raises(UserError, match="checkpoints: owner/model: no network; check the name and"):
        hash_checkpoint("owner/model")


def test_an_engine_is_its_code_backend_and_precision(monkeypatch, tmp_path):
    found = [
        prints.hash_engine(arguments(**changes))
        for changes in ({}, {"dtype": "float32"}, {"backend": "vllm"})
    ]
    assert len(set(found)) == 3
    assert prints.hash_engine(arguments(batch_size=1, seed=3, temperature=0.1)) == found[0]
    (tmp_path / "hf_engine.py").write_text("changed")
    code = (str(tmp_path / "hf_engine.py"), "sampling.py")
    monkeypatch.setitem(prints.ENGINE_CODE, "hf", code)
    assert prints.hash_engine(arguments()) != found[0]


def test_the_data_of_each_task(tmp_path):
    for name in ("gsm8k/train.jsonl", "gsm8k/test.jsonl", "math/math500_test.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "test.jsonl").write_text("own")
    settings = {"tasks": ["held_out", "gsm8k", "math500"], "official": ["gsm8k"]}
    settings |= {"test_file": f"{tmp_path}/test.jsonl"}
    local = hash_data(arguments(**settings, data_root=str(tmp_path)))
    files = ["test.jsonl", "gsm8k/test.jsonl", "math/math500_test.jsonl", "gsm8k/train.jsonl"]
    assert local == {f"{tmp_path}/{file}": manifest.sha256(tmp_path / file) for file in files}
    hub = hash_data(arguments(**settings))
    assert list(hub) == [f"{tmp_path}/test.jsonl", "openai/gsm8k", "HuggingFaceH4/MATH-500"]
    assert set(list(hub.values())[1:]) == {"hub"}


def test_every_setting_that_decides_is_recorded():
    """What is left out names places and titles, or how much is done at once."""
    known = set(EvalArguments.__dataclass_fields__)
    left_out = known - set(prints.SETTINGS)
    assert left_out == {
        "checkpoints", "output_dir", "report_dir", "title", "test_file", "data_root", "batch_size",
        "vllm_gpu_memory_utilization", "vllm_max_model_length",
    }  # fmt: skip
    assert set(prints.SETTINGS) <= known
    assert Path(prints.__file__).name == "fingerprint.py"
