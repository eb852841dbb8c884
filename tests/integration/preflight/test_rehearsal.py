"""The rehearsal before the first stage: what it refuses, passes, keeps and leaves alone."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from transformers import AutoConfig

from pipeline.errors import UserError
from pipeline.settings import read_settings
from pipeline.stages import load_keys
from stages.arguments import DEFAULTS
from stages.preflight import rehearsal
from stages.preflight.inputs import stage_flags
from tests import demo
from tests.integration.conftest import CHATML
from tests.recipes import SHIPPED

pytestmark = pytest.mark.integration
CONFIGS = demo.ROOT / "configs"
SAVES = ("push_to_hub", "save_strategy")
OWN_REWARD = """
def half(completions, **columns):
    return [0.5 for _ in completions]
"""


@pytest.fixture(autouse=True)
def kept(tmp_path, monkeypatch):
    """Switch the rehearsal on; returns the folder of its results."""
    monkeypatch.setenv("REHEARSE", "on")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return rehearsal.kept_results()


def settings_of(recipe, stage, *given, overlay=None):
    """A stage's settings, as `python -m pipeline` reads them."""
    own, hf, _ = load_keys(stage)
    path = Path(CONFIGS, recipe, f"{stage}.yaml")
    flags = stage_flags(stage, path, "a/run", overlay and str(CONFIGS / overlay), None, None)
    return read_settings(own, hf, [*flags, *given], DEFAULTS)


def rehearse(stage, *given, recipe="tiny-cpu", **options):
    """What is found in one stage of a recipe, with these flags."""
    settings = settings_of(recipe, stage, *given, **options)
    first = settings_of(recipe, "sft") if Path(CONFIGS, recipe, "sft.yaml").is_file() else settings
    model = rehearsal.origin({"sft": first, stage: settings}, stage, "a/run")
    return rehearsal.rehearse({stage: settings}, {stage: model})


def keys_of(lines):
    """The key of each line, which the name of the file stands before."""
    return [line.split(": ")[1] for line in lines]


def look(monkeypatch, tmp_path, *given):
    """Check SFT and GRPO of tiny-cpu as `make grpo` does, with these keys."""
    line = f"- --recipe {CONFIGS}/tiny-cpu --run {tmp_path}/run --goal grpo --trained sft grpo"
    keys = ["--keys", *given] if given else []
    monkeypatch.setattr(sys, "argv", [*line.split(), *keys])
    rehearsal.main()


def test_all_faults_of_all_stages_are_told_before_data_are_built(monkeypatch, tmp_path, capsys):
    wrong = 'model_init_kwargs={"banana": 3}'
    with pytest.raises(UserError, match=r"tiny-cpu/grpo\.yaml: model_init_kwargs: .*banana"):
        look(monkeypatch, tmp_path, f"sft.{wrong}", f"grpo.{wrong}")
    lines = capsys.readouterr().err
    assert "tiny-cpu/sft.yaml: model_init_kwargs: " in lines and "banana" in lines
    assert not (tmp_path / "run").exists()


def test_so_are_all_that_show_without_torch(monkeypatch, tmp_path, capsys):
    both = ("push_to_hub=true", "save_strategy=best")
    wrong = [f"{stage}.{key}" for stage in ("sft", "grpo") for key in both]
    wrong.append("grpo.loss_type=cispo")
    with pytest.raises(UserError) as last:
        look(monkeypatch, tmp_path, *wrong)
    told = [*capsys.readouterr().err.splitlines(), f"error: {last.value}"]
    named = [
        tuple(line.removeprefix(f"error: {CONFIGS}/tiny-cpu/").split(": ")[:2]) for line in told
    ]
    shared = [(file, key) for file in ("sft.yaml", "grpo.yaml") for key in SAVES]
    assert named == [*shared, ("grpo.yaml", "epsilon_high")]


def test_a_second_start_repeats_nothing(monkeypatch, tmp_path, kept):
    look(monkeypatch, tmp_path)
    assert len([*kept.iterdir()]) == 1
    monkeypatch.setattr(rehearsal, "inspect", lambda tried: pytest.fail("rehearsed again"))
    look(monkeypatch, tmp_path)
    with pytest.raises(pytest.fail.Exception):
        look(monkeypatch, tmp_path, "sft.learning_rate=1e-5")


def test_all_values_of_another_type_are_told_with_their_place():
    found = rehearse("grpo", "--learning_rate", "quick", "--bf16", "maybe", "--beta", "[1]")
    assert all(line.startswith("command line: ") for line in found.faults)
    assert {*keys_of(found.faults)} == {"learning_rate", "bf16", "beta"}


def test_faults_are_kept_as_long_as_the_files_are_as_they_were(monkeypatch, tmp_path):
    code = tmp_path / "mine_of_rehearsal.py"
    code.write_text("def half(completions, **columns):\n    return 1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALLOW_CODE", "1")
    given = ("--reward_funcs", "mine_of_rehearsal:half", "--reward_weights", "1")
    line, *_ = rehearse("grpo", *given).faults
    assert line.startswith("grpo.yaml: reward_funcs: mine_of_rehearsal:half")
    with monkeypatch.context() as patch:
        patch.setattr(rehearsal, "inspect", lambda tried: pytest.fail("rehearsed again"))
        assert rehearse("grpo", *given).faults[0] == line
    code.write_text(OWN_REWARD)
    del sys.modules["mine_of_rehearsal"]
    assert not rehearse("grpo", *given).faults


def test_a_model_that_is_not_whole_is_refused_whenever_that_happens(tiny_model_dir, tmp_path):
    folder = shutil.copytree(tiny_model_dir, tmp_path / "mine")
    given = ("--model_name_or_path", str(folder))
    assert not rehearse("sft", *given).faults
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.0.input_layernorm.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (line,) = rehearse("sft", *given).faults
    assert line.startswith(f"sft.yaml: model_name_or_path: {folder}: ") and "at random" in line
    shutil.copy(tiny_model_dir / "model.safetensors", folder)
    (folder / "chat_template.jinja").unlink()
    (line,) = rehearse("sft", *given).faults
    assert line.startswith("sft.yaml: model_name_or_path: ") and "chat_template" in line
    template = tmp_path / "chat.jinja"
    template.write_text(CHATML)
    assert not rehearse("sft", *given, "--chat_template_path", str(template)).faults


def test_rehearse_off_leaves_it_out(monkeypatch, tmp_path):
    monkeypatch.setenv("REHEARSE", "off")
    monkeypatch.setattr(rehearsal, "inspect", lambda tried: pytest.fail("rehearsed"))
    look(monkeypatch, tmp_path, 'grpo.model_init_kwargs={"banana": 3}')


def test_a_rehearsal_that_cannot_be_made_stops_nothing(tmp_path):
    settings = settings_of("tiny-cpu", "sft", "--model_name_or_path", "nobody/knows")
    found = rehearsal.rehearse({"sft": settings}, {"sft": "nobody/knows"})
    (note,) = found.notes
    assert note.startswith("sft.yaml: not rehearsed") and "nobody/knows" in note
    assert not found.faults


def test_a_key_that_nobody_reads_is_refused_if_it_is_ours_and_else_told():
    found = rehearse("grpo", "--length_penalty_max", "0.2", "--ref_model_mixup_alpha", "0.5",
                     "--reward_funcs", "correctness_reward", "--reward_weights", "1")  # fmt: skip
    assert keys_of(found.faults) == ["length_penalty_max"]
    # The file's own are only overruled.
    assert {*keys_of(found.notes)} >= {"ref_model_mixup_alpha", "length_penalty_start"}


def test_the_first_fault_hides_no_other():
    wrong = ("--lr_scheduler_kwargs", '{"banana": 1}', "--importance_sampling_level", "word")
    found = rehearse("grpo", "--lr_scheduler_type", "cosine", *wrong)
    assert {*keys_of(found.faults)} == {"lr_scheduler_kwargs", "importance_sampling_level"}


@pytest.mark.slow
@pytest.mark.parametrize("overlay", [None, "lora.yaml"])
@pytest.mark.parametrize("stage", ["sft", "grpo"])
@pytest.mark.parametrize("recipe", SHIPPED)
def test_every_recipe_passes(recipe, stage, overlay):
    if not (CONFIGS / recipe / f"{stage}.yaml").is_file():
        pytest.skip("the recipe has no such stage")
    found = rehearse(stage, recipe=recipe, overlay=overlay)
    assert not found.faults and not found.notes


@pytest.mark.parametrize("kind", ["olmo2", "stablelm"])
@pytest.mark.parametrize("stage", ["sft", "grpo"])
def test_an_architecture_that_nobody_names_is_rehearsed(stage, kind, tmp_path):
    shape = AutoConfig.for_model(kind).to_dict() | {"model_type": kind}
    (tmp_path / "config.json").write_text(json.dumps(shape, default=str))
    settings = settings_of("qwen2.5-1.5b", stage, "--model_name_or_path", str(tmp_path))
    found = rehearsal.rehearse({stage: settings}, {stage: str(tmp_path)})
    assert found.faults == [] and found.notes == []
