"""Small learning rates in bfloat16: what is kept of an update, resumed, and on two processes."""

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file

from pipeline.errors import UserError
from stages.arguments import SFT, SftArguments
from stages.rules import check_sft_keys
from stages.trainer.update import RoundingNumbers
from tests.integration.fork_server import DIED
from tests.integration.trainer.runs import tell
from tests.settings import settings_of

pytestmark = pytest.mark.integration

BF16 = {"dtype": "bfloat16", "learning_rate": 5.0e-7, "lr_scheduler_type": "constant"}
ROUNDED = BF16 | {"stochastic_rounding": True}


def settings(changes=()):
    return settings_of(ROUNDED | dict(changes), SftArguments, SFT)


def weights(folder):
    """The weights of a saved model, by name."""
    from safetensors.torch import load_file

    return load_file(str(folder / "model.safetensors"))


def equal(first, second):
    return all(bool((first[name] == second[name]).all()) for name in first | second)


def test_a_stage_keeps_what_plain_bf16_loses(run_stage, tmp_path):
    """The change of all weights in a step, along that of the same step with float32 weights.

    The model's weights are large: 1e-5 is as far below their last bit as 5e-7 is for usual ones.
    """
    from transformers import AutoModelForCausalLM

    change = {}
    for name, settings in (
        ("plain", BF16),
        ("rounded", ROUNDED),
        ("exact", BF16 | {"dtype": "float32"}),
    ):
        more = {"max_steps": 1, "learning_rate": 3.0e-5, "output_dir": str(tmp_path / name)}
        folder = run_stage("sft", **settings | more)
        values = json.loads((tmp_path / "sft.yaml").read_text())
        begin = AutoModelForCausalLM.from_pretrained(values["model_name_or_path"])
        end = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        before = [p.bfloat16().float() if name != "exact" else p for p in begin.parameters()]
        parts = [(b - a).flatten() for a, b in zip(before, end.parameters(), strict=True)]
        change[name] = torch.cat(parts).detach()
    scale = change["exact"].square().sum()
    kept = {name: ((c * change["exact"]).sum() / scale).item() for name, c in change.items()}
    assert kept["plain"] < 0.1, kept
    assert 0.75 < kept["rounded"] < 1.25, kept


def test_sampling_does_not_notice():
    """The numbers follow from seed and step; what is drawn after them is as without them."""
    from stages.trainer.update import RoundingNumbers

    def drawn_within(seed, step):
        numbers = RoundingNumbers(torch.device("cpu"))
        args, state = SimpleNamespace(seed=seed), SimpleNamespace(global_step=step)
        numbers.on_pre_optimizer_step(args, state, None)
        drawn = torch.rand(4).tolist()
        numbers.on_optimizer_step(args, state, None)
        return drawn

    before = torch.get_rng_state()
    assert drawn_within(0, 3) == drawn_within(0, 3)
    assert len({tuple(drawn_within(*key)) for key in ((0, 3), (0, 4), (1, 3))}) == 3
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("stage", ["sft", "grpo"])
def test_a_killed_run_ends_with_the_weights_of_a_straight_one(
    write_recipe, fork_server, tmp_path, stage
):
    settings = ROUNDED | {"max_steps": 5, "save_steps": 2, "learning_rate": 1.0e-5}
    if stage == "grpo":  # pays for repetition, so that every step moves the weights
        settings |= {"reward_funcs": ["repetition_penalty"], "reward_weights": [-1.0]}
        settings |= {"repetition_ngram_size": 1}
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    recipe = write_recipe(stage, **settings, output_dir=str(straight))
    fork_server.finish(recipe, stage=stage)
    recipe = write_recipe(stage, **settings, output_dir=str(killed))
    codes, _ = fork_server.run(recipe, stage=stage, die_at=2)
    assert codes == [DIED] and not (killed / "manifest.json").exists()
    (lines,) = fork_server.finish(recipe, stage=stage)
    assert f"resuming from {killed.resolve()}/checkpoint-2" in lines
    assert equal(weights(straight), weights(killed))
    base = weights(Path(json.loads(recipe.read_text())["model_name_or_path"]))
    assert not equal(weights(straight), {name: value.bfloat16() for name, value in base.items()})


def compare_replicas():
    """Report whether both processes have the same weights, and other ones than before."""
    from stages.run import training

    train = training.train

    def flat(trainer):
        return torch.cat([p.detach().flatten().clone() for p in trainer.model.parameters()])

    def watched(trainer, *args):
        # As in GRPO, whose processes sample with random numbers of their own.
        torch.manual_seed(100 + int(os.environ["RANK"]))
        before = flat(trainer)
        train(trainer, *args)
        mine, other = trainer.accelerator.gather(flat(trainer)).view(2, -1)
        tell("replicas", torch.equal(mine, other), not torch.equal(mine, before))

    training.train = watched


def test_two_processes_round_alike(fork_server, write_recipe):
    recipe = write_recipe("sft", **ROUNDED | {"learning_rate": 1.0e-5, "max_steps": 4})
    for lines in fork_server.finish(recipe, 2, stage="sft", setup=compare_replicas):
        assert "replicas True True" in lines, lines


@pytest.mark.parametrize("engine", ["deepspeed", "fsdp"])
def test_it_is_refused_under_an_engine_with_weights_of_its_own(monkeypatch, engine):
    check_sft_keys(settings())
    monkeypatch.setenv(f"ACCELERATE_USE_{engine.upper()}", "true")
    with pytest.raises(UserError, match=f"{engine} updates float32 weights"):
        check_sft_keys(settings())


def test_weights_that_turn_out_to_be_float32_are_refused():
    """As of a script that loads its model itself; a recipe's `dtype` decides."""
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))])
    rounding = RoundingNumbers(torch.device("cpu"))
    with pytest.raises(UserError, match=r"the optimizer has torch\.float32"):
        rounding.on_train_begin(None, None, None, optimizer=optimizer)


def test_a_checkpoint_that_turns_out_to_be_float16_is_refused(tiny_model_dir, run_stage, tmp_path):
    folder = shutil.copytree(tiny_model_dir, tmp_path / "half")
    weights = load_file(folder / "model.safetensors")
    halves = {name: weight.half() for name, weight in weights.items()}
    save_file(halves, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"dtype": None}))
    with pytest.raises(UserError, match=r"^dtype: \S+ is trained in float16: "):
        run_stage("sft", model_name_or_path=str(folder), dtype="auto")
