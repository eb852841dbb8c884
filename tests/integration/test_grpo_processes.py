"""One process and two over gloo do the same: groups, rewards, advantages, loss, curriculum."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.recorders import read_steps
from tests.integration.rollout_checks import check_advantages, check_logs, check_step

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]


@pytest.fixture
def train(fork_server, write_recipe, pool, tmp_path):
    """Train with 4 groups a batch, beta 0.1; returns each rank's steps, its curriculum, the twin.

    Completions are made of prompt and number in the group, in all processes alike.
    """
    from stages.arguments import GrpoArguments
    from stages.trainer.curriculum import build_curriculum

    def call(num_processes, verdicts="by problem", **settings):
        folder = tmp_path / f"{num_processes} processes"
        values = {"per_device_train_batch_size": 16 // num_processes, "max_steps": 4, "beta": 0.1}
        values |= {"train_file": str(pool[0]), "output_dir": str(folder)} | settings
        recipe = write_recipe("grpo", **values)
        codes, logs = fork_server.run(recipe, num_processes, rollouts=verdicts)
        assert codes == [0] * num_processes, logs[0]
        found = [read_steps(f"{folder}.rank{rank}.jsonl") for rank in range(num_processes)]
        keys = {key: settings[key] for key in ("curriculum",) if key in settings}
        twin = build_curriculum([*pool[1].values()], GrpoArguments(train_file="", **keys), 4, 0)
        return [steps[:-1] for steps in found], [steps[-1]["curriculum"] for steps in found], twin

    return call


CASES = {
    "off": ({}, "by problem", 0, "group"),
    "predictive": ({"curriculum": "predictive", "max_steps": 6}, "by problem", 0, "group"),
    # Every first group is uniform and no second one: else the ranks need unlike numbers, and
    # two processes generate more than one.
    "refill": (
        {"curriculum": "predictive+refill", "scale_rewards": "batch"}, "second round", 2,
        "batch",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_two_processes_do_what_one_does(train, pool, name):
    settings, verdicts, max_rounds, kind = CASES[name]
    (one,), (curriculum,), twin = train(1, verdicts, **settings)
    two, curricula, _ = train(2, verdicts, **settings)
    assert len(one) == len(two[0]) == len(two[1]) == settings.get("max_steps", 4)
    for step, *ranks in zip(one, *two, strict=True):
        batch, _ = check_step([step], pool[1], twin, max_rounds)
        check_advantages([step], batch, [1.0, 0.5, 1.0], kind)
        assert texts_of(ranks) == texts_of([step]) == [t for one in batch for t in one["texts"]]
        for key in ("given", "advantages"):
            assert [x for part in ranks for x in part[key]] == step[key], key
        for key in ("num_items", "num_completions", "table"):
            assert ranks[0][key] == ranks[1][key] == step[key], key
        for number, alone in enumerate(step["rounds"]):
            both = [part["rounds"][number] for part in ranks]
            assert both[0]["ids"] + both[1]["ids"] == alone["ids"]
            assert both[0]["rewards"] == both[1]["rewards"] == alone["rewards"]
        losses = [part["losses"][0] for part in ranks]
        assert sum(losses) / 2 == pytest.approx(step["losses"][0], abs=1e-6)
        assert losses[0] != losses[1]
        for key in ("loss", "rollout/rewards", "rollout/uniform_groups", "frac_reward_zero_std"):
            assert ranks[0]["logs"][key] == pytest.approx(step["logs"][key], abs=1e-6), key
    assert curricula == [curriculum] * 2 == [twin.state_dict() if twin else None] * 2
    assert any(step["losses"][0] != one[0]["losses"][0] for step in one)


def texts_of(ranks):
    return [row["text"] for step in ranks for row in step["rows"]]


def test_ranks_with_unlike_numbers_of_uniform_groups_stay_together(train, pool):
    """Each generates as many as the one with most, and keeps what it needs."""
    settings = {"curriculum": "refill", "max_refill_rounds": 3, "max_steps": 6}
    ranks, curricula, twin = train(2, **settings)
    unlike = 0
    for both in zip(*ranks, strict=True):
        batch, generated = check_step(both, pool[1], twin, 3)
        check_advantages(both, batch, [1.0, 0.5, 1.0])
        check_logs(both, batch, generated, [1.0, 0.5, 1.0])
        bad = [group["is_uniform"] for group in generated[:4]]
        unlike += sum(bad[:2]) != sum(bad[2:])
        assert both[0]["num_completions"] == both[1]["num_completions"]
    num_rounds = {len(step["rounds"]) for step in ranks[0]}
    assert unlike > 1 and len(num_rounds) > 1 and max(num_rounds) > 2
    assert curricula == [twin.state_dict()] * 2


REFUSED = """
import sys
from data_prep.config import run_cli
from stages import grpo
try:
    run_cli(grpo.main)
except SystemExit as end:
    print(end.code, "torch" in sys.modules)
"""


def test_groups_across_ranks_are_refused_at_once(write_recipe):
    """Two processes with 6 each hold three groups of 4, one of them half here and half there."""
    recipe = write_recipe("grpo", per_device_train_batch_size=6)
    command = [sys.executable, "-c", REFUSED, "--config", str(recipe)]
    env = os.environ | {"PYTHONPATH": str(ROOT), "WORLD_SIZE": "2", "RANK": "0"}
    found = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert found.stdout.split() == ["2", "False"], found
    assert "num_generations: 4 does not divide the 6 completions of one process" in found.stderr
    assert "use per_device_train_batch_size 4 or 8, or num_generations 3" in found.stderr
    assert len(found.stderr.splitlines()) == 1
