"""Small learning rates in bfloat16: what is kept of an update, resumed, and on two processes."""

import json
import shutil
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file

from pipeline.errors import UserError
from stages.arguments import SFT, SftArguments
from stages.rules import check_sft_keys
from stages.trainer.update import RoundingNumbers
from tests.integration.fork_server import DIED
from tests.integration.trainer.runs import PAYS_FOR_LOOPS, weights_of
from tests.settings import settings_of

pytestmark = pytest.mark.integration

BF16 = {"dtype": "bfloat16", "learning_rate": 5.0e-7, "lr_scheduler_type": "constant"}
ROUNDED = BF16 | {"stochastic_rounding": True}


def settings(changes=()):
    return settings_of(ROUNDED | dict(changes), SftArguments, SFT)


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

    def drawn_within(seed, step):
        numbers = RoundingNumbers(torch.device("cpu"))
        args, state = SimpleNamespace(seed=seed), SimpleNamespace(global_step=step)
        numbers.on_pre_optimizer_step(args, state, None)
        drawn = torch.rand(4).tolist()
        numbers.on_optimizer_step(args, state, None)
        return drawn

    first = drawn_within(0, 3)
    torch.manual_seed(7)  # as on another process, which samples with numbers of its own
    before = torch.get_rng_state()
    assert drawn_within(0, 3) == first
    assert len({tuple(drawn_within(*key)) for key in ((0, 3), (0, 4), (1, 3))}) == 3
    assert torch.equal(torch.get_rng_state(), before)


def test_a_killed_run_ends_with_the_weights_of_a_straight_one(write_recipe, fork_server, tmp_path):
    settings = ROUNDED | PAYS_FOR_LOOPS  # every step moves the weights
    settings |= {"max_steps": 5, "save_steps": 2, "learning_rate": 1.0e-5}
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    fork_server.finish(write_recipe("grpo", **settings, output_dir=str(straight)))
    recipe = write_recipe("grpo", **settings, output_dir=str(killed))
    codes, _ = fork_server.run(recipe, die_at=2)
    assert codes == [DIED] and not (killed / "manifest.json").exists()
    (lines,) = fork_server.finish(recipe)
    assert f"resuming from {killed.resolve()}/checkpoint-2" in lines
    assert weights_of(straight) == weights_of(killed) != weights_of(killed / "checkpoint-2")


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
