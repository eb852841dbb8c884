"""What is looked for before the first stage of a command is paid for."""

import pytest

from pipeline import manifest
from pipeline.errors import UserError
from stages.preflight import ahead
from tests import demo


def test_a_missing_vllm_is_told_unless_nothing_is_left_for_it(monkeypatch, tmp_path):
    def look(*given):
        line = f"ahead --recipe {demo.ROOT}/configs/grpo7b --run {tmp_path} --goal difficulty"
        monkeypatch.setattr("sys.argv", [*line.split(), *given])
        ahead.main()

    monkeypatch.setattr(ahead, "is_installed", lambda package: False)
    with pytest.raises(UserError, match=r"difficulty\.yaml: vLLM is not installed"):
        look()
    look("--", "--backend", "hf")
    (tmp_path / "difficulty").mkdir()
    (tmp_path / "difficulty/manifest.json").touch()
    look()


def test_a_missing_package_of_a_later_stage_is_told_first(monkeypatch, tmp_path):
    line = f"ahead --recipe {demo.ROOT}/configs/tiny-cpu --run {tmp_path} --goal grpo --"
    monkeypatch.setattr("sys.argv", [*line.split(), "--optim", "paged_adamw_8bit"])
    monkeypatch.setattr(manifest, "versions", lambda names: {"tensorboard"} & {*names})
    with pytest.raises(UserError, match="optim: paged_adamw_8bit needs the package bitsandbytes"):
        ahead.main()


@pytest.mark.parametrize(
    ("stage", "given", "line"),
    [
        ("difficulty", "--backend hf --max_new_tokens 32768", "the model's positions, 32,768"),
        ("difficulty", "--vllm_max_model_length 1000 --max_new_tokens 1000", "max_model_length"),
        ("eval", "--max_new_tokens 40000", "the model's positions, 32,768"),
        ("eval", "--max_new_tokens 2048", ""),
    ],
)
def test_samples_that_the_context_cannot_hold_are_told_first(
    monkeypatch, tmp_path, stage, given, line
):
    """Before SFT and GRPO are trained, whose models have as many positions as the first."""
    monkeypatch.setattr(ahead, "is_installed", lambda package: True)
    monkeypatch.setattr(ahead, "check_packages", lambda settings: None)
    start = f"ahead --recipe {demo.ROOT}/configs/grpo7b --run {tmp_path} --goal {stage} --"
    monkeypatch.setattr("sys.argv", [*start.split(), *given.split()])
    if line:
        with pytest.raises(UserError, match=rf"{stage}\.yaml: max_new_tokens.*{line}"):
            ahead.main()
    else:
        ahead.main()


def test_one_value_of_a_sweep_in_two_spellings_is_told_first(monkeypatch, tmp_path):
    line = f"ahead --recipe {demo.ROOT}/configs/tiny-cpu --run {tmp_path} --goal grpo"
    given = ["--sweep", "learning_rate=1e-6,0.000001"]
    monkeypatch.setattr("sys.argv", [*line.split(), *given])
    with pytest.raises(UserError, match=r"learning_rate: 1e-6 and 0\.000001 are one value"):
        ahead.main()
