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

CONFIGS = Path(__file__).parents[3] / "configs"
OPENAI = "backend: openai\nbase_url: http://localhost:8000/v1\n"
SERVER = "{name: a, backend: openai, base_url: 'http://localhost:8000/v1', concurrency: 8}"
FILES = {"eval": EvalArguments, "difficulty": ProblemSetArguments, "distill": DistillArguments}


def read(own, text, path, *argv):
    needed = "checkpoints: [a=b]\nreport_dir: r\noutput_dir: o\n"
    if own is not EvalArguments:
        needed = "model_name_or_path: m\nproblems_file: p\noutput_dir: o\n"
    path.write_text(needed + text, encoding="utf-8")
    return read_settings(own, (), ["--config", str(path), *argv])


def check_of(own):
    return check_keys if own is DistillArguments else check_sampling


@pytest.mark.parametrize(
    ("own", "text", "refused"),
    [
        (EvalArguments, "backend: vllm\nbatch_size: 8", "batch_size"),
        (EvalArguments, "backend: vllm\nfast_generation: true", "fast_generation"),
        (EvalArguments, "backend: vllm\nvllm_max_model_length: 64", None),
        (EvalArguments, "vllm_max_model_length: 64", "vllm_max_model_length"),
        (ProblemSetArguments, "vllm_gpu_memory_utilization: 0.5", "vllm_gpu_memory_utilization"),
        (ProblemSetArguments, "batch_size: 8\ntemperature: 0.5", None),
        (DistillArguments, "concurrency: 8", "concurrency"),
        (DistillArguments, OPENAI + "batch_size: 8", "batch_size"),
        (DistillArguments, OPENAI + "concurrency: 8", None),
        (DistillArguments, f"teachers: [{SERVER}]\nconcurrency: 8", None),
        (DistillArguments, f"teachers: [{SERVER}]\nbatch_size: 8", "batch_size"),
        (DistillArguments, f"teachers: [{SERVER}, {{name: b}}]\nbatch_size: 8", None),
        (DistillArguments, f"teachers: [{SERVER}, {{name: b, batch_size: 8}}]", None),
        (DistillArguments, "teachers: [{name: a, timeout_s: null}]", None),
        (DistillArguments, "teachers: [{name: a, timeout_s: 9.0}]", "teachers: a: timeout_s"),
        (
            DistillArguments,
            OPENAI + "teachers: [{name: a, batch_size: 8}]",
            "teachers: a: batch_size",
        ),
    ],
)
def test_keys_of_another_backend_are_refused(own, text, refused, tmp_path):
    settings = read(own, text, tmp_path / "x.yaml")
    if refused:
        with pytest.raises(UserError, match=f"^{refused}: "):
            check_of(own)(settings)
    else:
        check_of(own)(settings)


def test_every_switched_key_is_one_of_a_recipe():
    known = {key for own in FILES.values() for key in known_keys(own)}
    assert {key for keys in READ_BY.values() for key in keys} <= known


def test_another_backend_on_the_command_line_overrules_a_key(tmp_path):
    text, path = "backend: hf\nbatch_size: 8", tmp_path / "x.yaml"
    run_check(read(EvalArguments, text, path, "--backend", "vllm"), check_sampling)
    both = read(EvalArguments, text, path, "--backend", "vllm", "--batch_size", "4")
    with pytest.raises(UserError, match="batch_size: 4"):
        run_check(both, check_sampling)


def test_recipes_have_no_such_key():
    for name, own in FILES.items():
        for path in CONFIGS.glob(f"*/{name}.yaml"):
            given = ["--checkpoints", "base=b"] if own is EvalArguments else []
            check_of(own)(read_settings(own, (), ["--config", str(path), *given]))
