"""What results depend on: the code that scores, each task's data, the settings."""

from dataclasses import fields

from data_prep import manifest
from data_prep.decontamination import benchmarks
from data_prep.grading import grade
from eval.harness import fingerprint as prints
from eval.harness import score, suite
from eval.harness.settings import EvalArguments


def arguments(**changes):
    values = {"checkpoints": ["a=b"], "output_dir": "out", "report_dir": "report"}
    return EvalArguments(**values | {"test_file": "test.jsonl"} | changes)


def test_all_that_scores_is_in_the_packages():
    files = {f for folder in prints.SCORING_PACKAGES for f in folder.rglob("*")}
    names = {str(file) for file in files}
    assert {module.__file__ for module in (benchmarks, grade, score, manifest)} <= names
    assert str(suite.FOLDER / "think_common.yaml") in names


def test_the_data_of_each_task(tmp_path):
    for name in ("gsm8k/train.jsonl", "gsm8k/test.jsonl", "math/math500_test.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "test.jsonl").write_text("own")
    settings = {"tasks": ["held_out", "gsm8k", "math500"], "official": ["gsm8k"]}
    settings |= {"test_file": f"{tmp_path}/test.jsonl"}
    local = prints.hash_data(arguments(**settings, data_root=str(tmp_path)))
    files = ["test.jsonl", "gsm8k/test.jsonl", "math/math500_test.jsonl", "gsm8k/train.jsonl"]
    assert local == {f"{tmp_path}/{file}": manifest.sha256(tmp_path / file) for file in files}
    hub = prints.hash_data(arguments(**settings))
    assert list(hub) == [f"{tmp_path}/test.jsonl", "openai/gsm8k", "HuggingFaceH4/MATH-500"]
    assert set(list(hub.values())[1:]) == {"hub"}


def test_every_setting_that_decides_is_recorded():
    """What is left out names places and titles, or how much is done at once."""
    known = {field.name for field in fields(EvalArguments)}
    assert known - set(prints.SETTINGS) == {
        "checkpoints", "output_dir", "report_dir", "title", "test_file", "data_root", "batch_size",
        "vllm_gpu_memory_utilization", "vllm_max_model_length",
    }  # fmt: skip
    assert set(prints.SETTINGS) <= known
