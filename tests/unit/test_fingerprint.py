"""What results depend on: every file that decides a score or a completion is looked at."""

from dataclasses import fields
from pathlib import Path

from own_imports import imported_files

from data_prep import manifest
from eval.harness import fingerprint as prints
from eval.harness.arguments import EvalArguments
from eval.harness.fingerprint import SCORING_CODE, hash_data

HERE = Path(prints.__file__).parent
# What the engines decide is part of the samples' keys; of the rest these decide no score.
ENGINES = HERE.parents[1] / "data_prep" / "sampling"
EXEMPT = {"config.py", "manifest.py", "checkpoints.py", "run.py"}


def arguments(**changes):
    values = {"checkpoints": ["a=b"], "output_dir": "out", "report_dir": "report"}
    return EvalArguments(**values | {"test_file": "test.jsonl"} | changes)


def test_all_that_an_evaluation_imports_is_scoring_code():
    todo = [path for path in SCORING_CODE if path.suffix == ".py"]
    todo += imported_files(HERE.parent / "run.py")
    seen = set()
    while todo:
        path = todo.pop()
        if path not in seen and path.name not in EXEMPT and path.parent != ENGINES:
            seen.add(path)
            todo += imported_files(path)
    empty = {path for path in seen if not path.read_text(encoding="utf-8").strip()}
    assert seen - empty <= set(SCORING_CODE)
    assert all(path.is_file() for path in SCORING_CODE)
    assert len(SCORING_CODE) == len(set(SCORING_CODE))


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
    known = {field.name for field in fields(EvalArguments)}
    left_out = known - set(prints.SETTINGS)
    assert left_out == {
        "checkpoints", "output_dir", "report_dir", "title", "test_file", "data_root", "batch_size",
        "vllm_gpu_memory_utilization", "vllm_max_model_length",
    }  # fmt: skip
    assert set(prints.SETTINGS) <= known
    assert Path(prints.__file__).name == "fingerprint.py"
