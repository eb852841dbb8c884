"""The configuration: what beats what, and every mistake answered in one line."""

import subprocess
import sys
from dataclasses import dataclass, field

import pytest

from data_prep import config
from data_prep.config import UserError, parse, run_cli


@dataclass
class Arguments:
    """A stage with one key of each kind."""

    output_dir: str = field(metadata={"help": "where it goes"})
    seed: int = 0
    rate: float = 0.5
    fast: bool = False
    files: list[str] = field(default_factory=list)

    def __post_init__(self):
        if self.rate > 1:
            raise ValueError(f"rate: {self.rate} must be at most 1")


def parse_text(tmp_path, text, *argv):
    path = tmp_path / "recipe" / "stage.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return parse("doc", Arguments, argv=["--config", str(path), *argv])[0]


def test_command_line_beats_file_beats_default(tmp_path):
    args = parse_text(tmp_path, "output_dir: a\nseed: 3\n", "--seed", "4")
    assert (args.output_dir, args.seed, args.rate) == ("a", 4, 0.5)
    assert parse_text(tmp_path, "output_dir: a\nseed: 3\n", "--seed=5").seed == 5


def test_run_folder_is_filled_in(tmp_path):
    text = 'output_dir: "{run}/out"\nfiles: ["{run}/a"]\n'
    assert parse_text(tmp_path, text).output_dir == "runs/recipe/out"
    args = parse_text(tmp_path, text, "--run_dir", "elsewhere")
    assert (args.output_dir, args.files) == ("elsewhere/out", ["elsewhere/a"])


@pytest.mark.parametrize(
    ("text", "argv", "words"),
    [
        ("output_dir: a\nsede: 1\n", [], r"stage\.yaml: unknown key 'sede'; did you mean 'seed'"),
        ("output_dir: a\n", ["--sede", "1"], "command line: unknown key 'sede'"),
        ("seed: 1\n", [], "missing key 'output_dir'"),
        ("output_dir: a\nseed: one\n", [], "seed: 'one' is not a number"),
        ("output_dir: a\nseed: 1.5\n", [], "seed: 1.5 is not a whole number"),
        ("output_dir: a\nfast: maybe\n", [], "fast: 'maybe' is not true or false"),
        ("output_dir: a\nrate: 2\n", [], "rate: 2.* must be at most 1"),
        ("output_dir: [\n", [], r"stage\.yaml:2: not valid YAML"),
        ("- a\n", [], "must be a mapping"),
    ],
)
def test_mistakes(tmp_path, text, argv, words):
    with pytest.raises(UserError, match=words) as error:
        parse_text(tmp_path, text, *argv)
    assert "\n" not in str(error.value)


def test_missing_config_file():
    with pytest.raises(UserError, match=r"none\.yaml: no such config file"):
        parse("doc", Arguments, argv=["--config", "none.yaml"])


def test_stray_word():
    with pytest.raises(UserError, match="unexpected 'stray'"):
        parse("doc", Arguments, argv=["stray", "--output_dir", "a"])


def test_check_runs_on_the_merged_mapping(tmp_path):
    seen = []
    path = tmp_path / "a.yaml"
    path.write_text("output_dir: a\nseed: 1\n", encoding="utf-8")
    parse("doc", Arguments, check=seen.append, argv=["--config", str(path), "--seed", "2"])
    assert seen == [{"output_dir": "a", "seed": "2"}]


def test_help_shows_the_docstring_and_the_keys(capsys):
    with pytest.raises(SystemExit) as done:
        parse("The stage.", Arguments, argv=["--help"])
    out = capsys.readouterr().out
    assert done.value.code == 0
    assert out.startswith("The stage.") and "where it goes" in out and "fast" in out


def test_run_cli_turns_a_user_error_into_one_line(capsys):
    def main():
        raise UserError("seed: 'x' is not a number")

    with pytest.raises(SystemExit) as done:
        run_cli(main)
    assert done.value.code == 2
    assert capsys.readouterr().err == "error: seed: 'x' is not a number\n"


def test_hf_fields_are_read_without_importing_torch():
    code = (
        "import sys; from data_prep.config import hf_fields\n"
        "assert 'loss_type' in hf_fields('GRPOConfig')\n"
        "assert not {'torch', 'trl', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("annotation", "some"),
    [
        ("SchedulerType | str", "constant_with_warmup"),
        ("OptimizerNames | str", "adamw_torch_fused"),
        ("SaveStrategy | str", "steps"),
    ],
)
def test_enum_values_are_read_from_the_source(annotation, some):
    assert some in config.enum_values(annotation)


def test_a_choice_that_does_not_exist_is_refused_with_those_that_do():
    with pytest.raises(UserError, match=r"lr_scheduler_type: 'bogus' is none of linear, cosine,"):
        config.check_value("lr_scheduler_type", "bogus", "SchedulerType | str", "x.yaml")
    config.check_value("lr_scheduler_type", "cosine", "SchedulerType | str", "x.yaml")
    config.check_value("save_strategy", False, "SaveStrategy | str", "x.yaml")  # YAML's bare `no`
    assert config.enum_values("str | None") == []
