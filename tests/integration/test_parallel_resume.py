"""Resume with another number of processes or another engine: the same data, or one clear line."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.integration.fork_server import DIED

pytestmark = pytest.mark.integration
needs_deepspeed = pytest.mark.skipif(not find_spec("deepspeed"), reason="DeepSpeed not installed")
STEPS, DIE_AT = 8, 5
COMMON = {"max_steps": STEPS, "save_steps": DIE_AT, "gradient_accumulation_steps": 2}
BASE = {
    # 40 rows, 16 a step, and 12 problems, 4 a step: three steps an epoch, so it ends within one
    "sft": COMMON,
    "grpo": COMMON | {"curriculum": "predictive", "rest_batches": 1},
}


@pytest.fixture(scope="module")
def straight():
    """Folder of an uninterrupted run of one process, by stage."""
    return {}


@pytest.fixture
def launch(fork_server, write_recipe, tmp_path):
    """Run a stage; a launch is (processes, config, settings). Returns codes, output, folder."""

    def call(stage, launch, name="resumed", die_at=0, **more):
        num_processes, config, settings = launch
        folder = tmp_path / name
        settings = BASE[stage] | {"per_device_train_batch_size": 8} | settings | more
        recipe = write_recipe(stage, output_dir=str(folder), **settings)
        codes, logs = fork_server.run(
            recipe, num_processes, stage=stage, config=config, die_at=die_at, rollouts=""
        )
        return codes, logs, folder

    return call


def losses(folder):
    history = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    return [log["loss"] for log in history if "grad_norm" in log]


def weights_of(folder):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder).state_dict()


ONE = (1, None, {})
ONE_SHORT = (1, None, {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4})
TWO = (2, "cpu", {"per_device_train_batch_size": 4})
TWO_SHORT = (2, "cpu", {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4})
ZERO2 = (2, "zero2", {"per_device_train_batch_size": 4})
ZERO3 = (2, "zero3", {"per_device_train_batch_size": 4})
GOES_ON = {
    "sft, one to two": ("sft", ONE, TWO),
    "sft, two to one": ("sft", TWO, ONE),
    "sft, two to one, other micro-batches": ("sft", TWO_SHORT, ONE),
    "grpo, one to two": ("grpo", ONE, TWO),
    "grpo, two to one": ("grpo", TWO, ONE),
    "grpo, two to one, other micro-batches": ("grpo", TWO, ONE_SHORT),
    "zero2": ("sft", ZERO2, ZERO2),
    "zero3": ("grpo", ZERO3, ZERO3),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=needs_deepspeed if "zero" in n else ()) for n in GOES_ON]
)
def test_killed_and_gone_on(launch, straight, name, tmp_path_factory):
    stage, before, after = GOES_ON[name]
    if stage not in straight:
        codes, logs, straight[stage] = launch(stage, ONE, tmp_path_factory.mktemp("straight"))
        assert codes == [0], logs
    expected = straight[stage]
    codes, logs, folder = launch(stage, before, die_at=DIE_AT)
    assert codes == [DIED] * before[0], logs
    codes, logs, _ = launch(stage, after)
    assert codes == [0] * after[0], logs
    assert f"resuming from {folder}/checkpoint-{DIE_AT}\n" in logs[0]
    # Other rows would be off in the second digit.
    assert losses(folder) == pytest.approx(losses(expected), abs=1e-5)
    assert len(losses(folder)) == STEPS and len({f"{loss:.3f}" for loss in losses(folder)}) > 4
    found = weights_of(folder)
    for key, value in weights_of(expected).items():
        assert (found[key] - value).abs().max() < 1e-3, key
    if stage == "grpo":
        last = [path / f"checkpoint-{STEPS}" / "extra_state.json" for path in (folder, expected)]
        state, wanted = (json.loads(path.read_text()) for path in last)
        assert state["extra"]["curriculum"] == wanted["extra"]["curriculum"]
        assert state["num_completions"] == wanted["num_completions"]
    assert not folder.with_name("resumed.previous").exists()


SAME_RECIPE = (1, None, {"per_device_train_batch_size": 4})
ZERO2_ALONE = (1, "zero2", {})
REFUSED = {
    "sft, the same recipe": (
        "sft", TWO, SAME_RECIPE,
        "was made with 2 processes and 16 rows a step, this launch has 1 and 8; change per_device",
    ),
    "grpo, the same recipe": (
        "grpo", TWO, SAME_RECIPE, "was made with 2 processes and 16 rows a step, this launch has 1",
    ),
    "grpo, another generation batch": (
        "grpo", TWO, (1, None, {"steps_per_generation": 1}),
        "was made with 2 processes and 16 rows a generation batch, this launch has 1 and 8;",
    ),
    "zero2, two to one": (
        "sft", ZERO2, ZERO2_ALONE,
        "was made with 2 processes and DeepSpeed ZeRO-2, which loads it with as many only; this "
        "launch has 1;",
    ),
    "zero2 to data parallel": (
        "sft", ZERO2, TWO, "was made with DeepSpeed ZeRO-2, this launch has data parallel; start",
    ),
    "data parallel to zero2": (
        "sft", TWO, ZERO2, "was made with data parallel, this launch has DeepSpeed ZeRO-2; start",
    ),
    "zero3 to zero2": (
        "grpo", ZERO3, ZERO2, "was made with DeepSpeed ZeRO-3, this launch has DeepSpeed ZeRO-2;",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=needs_deepspeed if "zero" in n else ()) for n in REFUSED]
)
def test_refused_in_one_line(launch, name):
    stage, before, after, message = REFUSED[name]
    codes, logs, folder = launch(stage, before, die_at=DIE_AT)
    assert codes == [DIED] * before[0], logs
    files = sorted(path.name for path in folder.iterdir())
    codes, logs, _ = launch(stage, after)
    assert codes == [2] * after[0], logs
    lines = [line for line in logs[0].splitlines() if line.startswith("error: ")]
    assert len(lines) == 1 and lines[0].startswith(
        f"error: {folder}/checkpoint-{DIE_AT}: {message}"
    )
    assert "Traceback" not in logs[0]
    # Nothing is lost: started as before it would go on.
    assert sorted(path.name for path in folder.iterdir()) == files
    assert not folder.with_name("resumed.previous").exists()


def test_a_named_checkpoint_is_looked_at_too(launch):
    codes, logs, folder = launch("sft", TWO, "first", die_at=DIE_AT)
    assert codes == [DIED] * 2, logs
    checkpoint = Path(folder) / f"checkpoint-{DIE_AT}"
    codes, logs, _ = launch("sft", SAME_RECIPE, resume_from_checkpoint=str(checkpoint))
    assert codes == [2]
    assert f"error: {checkpoint}: was made with 2 processes and 16 rows a step" in logs[0]
    codes, logs, folder = launch("sft", ONE, resume_from_checkpoint=str(checkpoint))
    assert codes == [0], logs
    assert min(
        json.loads(p.read_text())["global_step"] for p in folder.glob("*/trainer_state.json")
    )
