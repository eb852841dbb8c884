"""Keys of sampling that another backend reads are refused."""

from pathlib import Path

import pytest

from data_prep.sampling import ProblemSetArguments
from data_prep.sampling.keys import READ_BY, check_sampling
from eval.harness.settings import EvalArguments
from pipeline.errors import UserError
from pipeline.key_types import known_keys
from pipeline.settings import read_settings, run_check
from stages.distill import DistillArguments, check_keys
from tests.recipes import SCORING, SHIPPED

CONFIGS = Path(__file__).parents[3] / "configs"
SERVER = "backend: openai, base_url: 'http://localhost:8000/v1'"
OPENAI = SERVER.replace(", ", "\n") + "\n"
NEEDED = {
    "eval": (EvalArguments, "checkpoints: [a=b]\nreport_dir: r\n"),
    "difficulty": (ProblemSetArguments, "model_name_or_path: m\nproblems_file: p\n"),
    "distill": (DistillArguments, "model_name_or_path: m\nproblems_file: p\n"),
}
CHECKS = {DistillArguments: check_keys}  # else check_sampling


def read(stage, text, path, *argv):
    own, needed = NEEDED[stage]
    path.write_text(f"{needed}output_dir: o\n{text}", encoding="utf-8")
    return read_settings(own, (), ["--config", str(path), *argv])


@pytest.mark.parametrize(
    ("stage", "text", "refused"),
    [
        ("eval", "backend: vllm\nbatch_size: 8", "batch_size"),
        ("eval", "backend: vllm\nfast_generation: true", "fast_generation"),
        ("eval", "backend: vllm\nvllm_max_model_length: 64", None),
        ("eval", "vllm_max_model_length: 64", "vllm_max_model_length"),
        ("difficulty", "vllm_gpu_memory_utilization: 0.5", "vllm_gpu_memory_utilization"),
        ("difficulty", "batch_size: 8\ntemperature: 0.5", None),
        ("distill", "concurrency: 8", "concurrency"),
        ("distill", OPENAI + "batch_size: 8", "batch_size"),
        ("distill", OPENAI + "concurrency: 8", None),
        ("distill", f"teachers: [{{name: a, {SERVER}}}]\nconcurrency: 8", None),
        ("distill", f"teachers: [{{name: a, {SERVER}}}]\nbatch_size: 8", "batch_size"),
        ("distill", f"teachers: [{{name: a, {SERVER}}}, {{name: b}}]\nbatch_size: 8", None),
        ("distill", "teachers: [{name: a, timeout_s: null}]", None),
        ("distill", "teachers: [{name: a, timeout_s: 9.0}]", "teachers: a: timeout_s"),
        ("distill", OPENAI + "teachers: [{name: a, batch_size: 8}]", "teachers: a: batch_size"),
    ],
)
def test_keys_of_another_backend_are_refused(stage, text, refused, tmp_path):
    settings = read(stage, text, tmp_path / "x.yaml")
    check = CHECKS.get(NEEDED[stage][0], check_sampling)
    if refused:
        with pytest.raises(UserError, match=f"^{refused}: "):
            check(settings)
    else:
        check(settings)


def test_another_backend_on_the_command_line_overrules_a_key(tmp_path):
    text, path = "backend: hf\nbatch_size: 8", tmp_path / "x.yaml"
    run_check(read("eval", text, path, "--backend", "vllm"), check_sampling)
    both = read("eval", text, path, "--backend", "vllm", "--batch_size", "4")
    with pytest.raises(UserError, match="batch_size: 4"):
        run_check(both, check_sampling)


def test_recipes_have_no_such_key():
    known = {key for own, _ in NEEDED.values() for key in known_keys(own)}
    assert {key for keys in READ_BY.values() for key in keys} <= known
    for stage, (own, _) in NEEDED.items():
        paths = [CONFIGS / name / f"{stage}.yaml" for name in (*SHIPPED, *SCORING)]
        for path in filter(Path.exists, paths):
            given = ["--checkpoints", "base=b"] if stage == "eval" else []
            settings = read_settings(own, (), ["--config", str(path), *given])
            CHECKS.get(own, check_sampling)(settings)
