"""docs/algorithms.md: each row of its table trains, as it says, with our own parts too."""

import re
from pathlib import Path

import pytest
import yaml

from pipeline import manifest
from pipeline.errors import UserError
from tests.integration.trainer.runs import read_logs, weights_of

pytestmark = pytest.mark.integration
PAGE = Path(__file__).parents[3] / "docs/algorithms.md"
CELLS = re.compile(r"^\|([^|]+)\|[^|]*arXiv:\d{4}\.\d{5}[^|]*\|([^|]+)\|[^|]+\|$", re.MULTILINE)
ROWS = {
    name: {k: v for text in re.findall("`(.*?)`", keys) for k, v in yaml.safe_load(text).items()}
    for name, keys in CELLS.findall(PAGE.read_text(encoding="utf-8"))
}
HERE = [name for name, keys in ROWS.items() if "use_vllm" not in keys]
QUICK = ("GSPO", "Off-policy mask")
OURS = {"update_tokens": 48, "max_mean_ratio": 50.0}


def train(run_stage, folder, **settings):
    short = {"max_steps": 3, "save_strategy": "no", "max_completion_length": 8}
    return run_stage("grpo", **short | settings, output_dir=str(folder))


@pytest.fixture(scope="module")
def plain_weights():
    """Weights of runs without a row's keys, by `steps_per_generation`."""
    return {}


def test_the_table_is_read_whole():
    lines = re.findall(r"^\|(?!name|---)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(lines) == len(ROWS) > 12


@pytest.mark.usefixtures("graded_by_chance")
@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in HERE]
)
def test_a_row(run_stage, tmp_path, plain_weights, name):
    # Steps so large that the policy leaves what it sampled from.
    folder = train(run_stage, tmp_path / "row", **ROWS[name], learning_rate=0.03)
    config = manifest.read(folder)["config"]
    for key, value in ROWS[name].items():
        assert config[key] == (float(value) if isinstance(config[key], float) else value), key
    assert [log["step"] for log in read_logs(folder)] == [1, 2, 3]
    steps = ROWS[name].get("steps_per_generation", 1)
    plain = {"steps_per_generation": steps, "learning_rate": 0.03}
    if steps not in plain_weights:
        plain_weights[steps] = weights_of(train(run_stage, tmp_path / "plain", **plain))
    if "entropy_target" in ROWS[name]:  # noise has more entropy than any target: far above it
        reached = ROWS[name] | plain | {"entropy_target": 10.0}
        folder = train(run_stage, tmp_path / "reached", **reached)
    assert weights_of(folder) != plain_weights[steps]


@pytest.mark.slow
@pytest.mark.usefixtures("graded_by_chance")
@pytest.mark.parametrize("name", HERE)
def test_a_row_with_our_parts(run_stage, tmp_path, name):
    import torch
    from safetensors.torch import load_file

    one, other = (
        load_file(train(run_stage, tmp_path / str(n), **ROWS[name], **parts) / "model.safetensors")
        for n, parts in enumerate(({}, OURS))
    )
    torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
    both = ROWS[name] | OURS | {"curriculum": "predictive+refill"}
    if name == "GDPO":
        with pytest.raises(UserError, match="multi_objective_aggregation"):
            train(run_stage, tmp_path / "both", **both)
    else:
        assert len(read_logs(train(run_stage, tmp_path / "both", **both))) == 3
