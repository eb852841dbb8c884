"""Two processes over gloo do what one does, under every engine that runs on a CPU."""

import json
from importlib.util import find_spec

import pytest

pytestmark = pytest.mark.integration
needs_deepspeed = pytest.mark.skipif(not find_spec("deepspeed"), reason="DeepSpeed not installed")
STEPS = 4
COMMON = {"max_steps": STEPS, "gradient_accumulation_steps": 2}
BASE = {
    "sft": COMMON,
    # A reference model beside the policy, and completions of unlike lengths.
    "grpo": COMMON | {"beta": 0.1},
}
LORA = {"use_peft": True, "lora_dropout": 0.0}
PACKED = {"update_tokens": 40}
# Some groups get equal rewards, so that rows without advantage go through without a gradient.
UNIFORM = PACKED | {
    "beta": 0.0, "num_generations": 2, "reward_funcs": ["soft_length_penalty"],
    "reward_weights": [1.0], "length_penalty_start": 5, "length_penalty_end": 6,
}  # fmt: skip


@pytest.fixture(scope="module")
def alone():
    """What one process did, by stage and settings."""
    return {}


@pytest.fixture
def train(fork_server, write_recipe, tmp_path):
    """Run a stage in a folder of its name; returns exit codes, what was printed, and the folder."""

    def call(stage, num_processes, config, name, die_at=0, rows=8, **settings):
        per_device = rows // num_processes
        settings = BASE[stage] | {"per_device_train_batch_size": per_device} | settings
        folder = tmp_path / name
        recipe = write_recipe(stage, output_dir=str(folder), **settings)
        codes, logs = fork_server.run(
            recipe, num_processes, stage=stage, config=config, die_at=die_at, rollouts=""
        )
        return codes, logs, folder

    return call


def logged(folder):
    """Loss and gradient norm of every step."""
    history = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    return {log["step"]: (log["loss"], log["grad_norm"]) for log in history if "grad_norm" in log}


def logits_of(folder):
    """What a checkpoint says, loaded by plain transformers."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder)
    return model(torch.arange(5, 45).view(4, 10)).logits.detach()


def assert_alike(folder, expected):
    """Losses within 2e-6, gradient norms within 5e-5 of themselves, logits of what was saved.

    The logits may be apart by a thousandth of what the training has moved them by.
    """
    losses, norms = zip(*logged(folder).values(), strict=True)
    wanted, wanted_norms = zip(*logged(expected).values(), strict=True)
    assert len(losses) == STEPS and losses == pytest.approx(wanted, abs=2e-6)
    assert norms == pytest.approx(wanted_norms, rel=5e-5)
    config = json.loads((folder / "run.json").read_text())["config"]
    end = logits_of(expected)
    moved = (end - logits_of(config["model_name_or_path"])).abs().max()
    for path in (folder, folder / f"checkpoint-{STEPS}"):
        assert (logits_of(path) - end).abs().max() < moved / 1000


CASES = [
    *[("sft", config, {}) for config in ("cpu", "zero2", "zero3")],
    *[("sft", config, LORA) for config in ("zero2", "zero3")],
    *[("grpo", config, {}) for config in ("cpu", "zero2", "zero3")],
    ("grpo", "zero2", LORA),
    *[("grpo", config, PACKED) for config in ("cpu", "zero2", "zero3")],
    *[("grpo", config, UNIFORM) for config in ("cpu", "zero2", "zero3")],
]


@pytest.mark.parametrize(
    ("stage", "config", "settings"),
    [
        pytest.param(*case, marks=needs_deepspeed if "zero" in case[1] else ())
        for case in CASES
    ],
    ids=["-".join([stage, config, *settings]) for stage, config, settings in CASES],
)  # fmt: skip
def test_two_processes_do_what_one_does(train, alone, stage, config, settings, tmp_path_factory):
    key = (stage, *settings)
    if key not in alone:
        folder = tmp_path_factory.mktemp("alone")
        codes, logs, _ = train(stage, 1, None, folder, **settings)
        assert codes == [0], logs
        alone[key] = folder
    codes, logs, folder = train(stage, 2, config, "two", **settings)
    assert codes == [0, 0], logs
    assert_alike(folder, alone[key])
    assert len(list(folder.glob("checkpoint-4/rng_state_*.pth"))) == 2
