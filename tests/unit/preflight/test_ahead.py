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
