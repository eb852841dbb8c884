"""YAML: a key given twice and what is no YAML are refused with the line; values are plain."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline import strict_yaml
from pipeline.errors import UserError
from pipeline.recipe_files import read_yaml
from pipeline.settings import read_settings
from stages.run.launch import asked_of_launcher


@dataclass
class Empty:
    """A stage without keys."""


ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("seed: 1\nrate: 2\nseed: 3", 3, ["seed", "lines 1 and 3"]),
        ("env:\n  A: 1\n  B: 2\n  A: 3", 4, ["lines 2 and 4"]),
        ("sft:\n- {name: a,\n   name: b}", 3, ["lines 2 and 3"]),
        ("? [a]\n: 1", 1, ["unhashable"]),
        (f"b: {'9' * 5000}", None, []),
        ("b: !!bool maybe", None, ["maybe"]),
        ("b: !!python/object/apply:os.system [ls]", 1, ["python"]),
        ("b: *nothing", 1, ["nothing"]),
        ("b: [1, 2", 1, []),
        ("b: \x00", None, []),
        (f"b: {'[' * 5000}", None, ["deep"]),
    ],
)
def test_a_key_given_twice_and_what_is_no_yaml_are_refused(text, line, words):
    with pytest.raises(UserError) as refused:
        strict_yaml.parse(text, "grpo.yaml")
    message = str(refused.value)
    place = "grpo.yaml:" if line is None else f"grpo.yaml:{line}: "
    assert message.startswith(place)
    assert "\n" not in message and len(message) < 300
    assert all(word in message for word in words)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        *[("1e-5", 1e-5), ("-2.5E+3", -2500.0), ("1.e3", 1000.0), ("1_000", 1000), ("007", 7)],
        *[("+3", 3), ("-0.0", 0.0), ("1.10", 1.1), ("null", None), ("~", None), ("", None)],
        *[("yes", True), ("off", False), ("'010'", "010"), ("!!str 010", "010"), ("08", "08")],
        *[(".inf", float("inf")), ("1-2", "1-2"), ("a:b", "a:b"), ("e5", "e5"), ("1e", "1e")],
        *[(text, text) for text in ("12e4567abc", "2e3_abc", "1.5e3.2")],
        ("2024-01-31", "2024-01-31"),
    ],
)
def test_plain_values_are_read_as_written(written, value):
    assert strict_yaml.parse(f"a: {{b: [{written}]}}" if written else "a: {b: [~]}", "f") == {
        "a": {"b": [value]}
    }


def test_aliases_and_merged_mappings_stay():
    text = "a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\nc: *a\n"
    assert strict_yaml.parse(text, "f") == {
        "a": {"x": 1, "y": 2},
        "b": {"x": 3, "y": 2},
        "c": {"x": 1, "y": 2},
    }
    assert strict_yaml.parse("\ufeffa: 1", "f") == {"a": 1}  # as Windows' editors save it


@pytest.mark.parametrize(
    "run", ["runs/a: b", 'runs/"b', "runs/a #c", "runs/a\nseed: 7", "*x", "runs/'d"]
)
def test_a_run_folder_is_never_yaml(run, tmp_path):
    path = tmp_path / "sft.yaml"
    path.write_text("a: {run}/sft\nb: ['x={run}/y', \"{run}\"]\nc: {d: '{run}'}\n")
    expected = {"a": f"{run}/sft", "b": [f"x={run}/y", run], "c": {"d": run}}
    assert read_yaml(str(path), run) == expected


def test_a_number_in_exponent_form_has_one_value_and_one_type(tmp_path):
    one, other = tmp_path / "a.yaml", tmp_path / "b.yaml"
    one.write_text("rate: 1e-5\nkwargs: {min_lr: 1e-6}\n")
    other.write_text("rate: 0.00001\nkwargs: {min_lr: 1.0e-6}\n")
    assert strict_yaml.read(one) == strict_yaml.read(other)
    assert read_yaml(str(one))["kwargs"] == {"min_lr": 1e-6}  # a text would fail in the scheduler


@pytest.mark.parametrize("written", ["off", "1.10", "null", "[a]"])
def test_a_variable_of_the_environment_is_set_as_it_is_written(written, tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text(f"env: {{WANDB_MODE: {written}}}\n")
    with pytest.raises(UserError, match="env: WANDB_MODE: must be a valid string"):
        read_settings(Empty, (), ["--config", str(path)])
    path.write_text("env: {WANDB_MODE: 'off', OMP_NUM_THREADS: 1}\n")
    found = read_settings(Empty, (), ["--config", str(path)]).env
    assert found == {"WANDB_MODE": "off", "OMP_NUM_THREADS": "1"}


def test_the_launchers_file_is_read_as_strictly(tmp_path):
    path = tmp_path / "ddp.yaml"
    path.write_text("num_processes: 2\nuse_cpu: true\nnum_processes: 8\n")
    with pytest.raises(UserError, match="lines 1 and 3"):
        asked_of_launcher(["accelerate", "launch", "--config_file", str(path), "x.py"])
