"""Two real processes: what rewards log is averaged, and the random control is not repeated."""

import json
import math

import pytest

pytestmark = pytest.mark.integration

SOURCE = """
import os, random
from data_prep.grading.grade import Grade
from data_prep.config import run_cli
from stages import grpo, rewards

# Rank 0 finds one completion right and makes the grader time out on the rest; rank 1 none of both.
verdicts = [["right"] + ["timeout"] * 7, ["wrong"] * 8][int(os.environ["RANK"])]
rewards.grade_rollouts = lambda *_, **__: [Grade(verdict, None) for verdict in verdicts]
random_reward = rewards.random_reward

def spy(completions, **kwargs):
    random.seed(0)  # as vLLM does on every rank
    tosses = random_reward(completions, **kwargs)
    print("tosses", *(int(toss) for toss in tosses), flush=True)
    return tosses

spy.__name__ = "random_reward"
rewards.REWARDS["random_reward"] = spy
run_cli(grpo.main)
"""


def read_logs(folder):
    history = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    return [log for log in history if "rollout/rewards" in log]


def test_rewards_of_two_processes(write_recipe, run_two_processes, tmp_path):
    settings = {"reward_funcs": ["random_reward", "rlinf_reward"], "reward_weights": [1.0, 0.0]}
    settings |= {"max_steps": 4, "save_steps": 2, "max_completion_length": 4, "seed": 5}

    def tosses(**changes):
        recipe = write_recipe("grpo", **settings | changes)
        lines = run_two_processes(SOURCE, "--config", recipe)
        return [[line for line in found if line.startswith("tosses")] for found in lines]

    straight = tosses()
    assert [len(found) for found in straight] == [4, 4]
    assert straight[0] != straight[1] and straight[0][:2] != straight[0][2:]
    logs = read_logs(tmp_path / "grpo")
    for step, log in enumerate(logs):
        paid = [int(toss) for found in straight for toss in found[step].split()[1:]]
        # The weight of 0 leaves the reward alone and still shows what was right.
        assert log["rollout/rewards"] == pytest.approx(sum(paid) / 16)
        assert log["rollout/correctness"] == pytest.approx(1 / 16)
        assert log["rollout/grader_timeout_rate"] == pytest.approx(7 / 16)
        verdicts = {key: log[key] for key in log if key.startswith("rollout/verdict/")}
        assert verdicts.pop("rollout/verdict/timeout") == pytest.approx(7 / 16)
        assert verdicts.pop("rollout/verdict/wrong") == pytest.approx(8 / 16)
        assert verdicts and not any(verdicts.values())
        assert not any(math.isnan(value) for value in log.values())

    checkpoint = str(tmp_path / "grpo" / "checkpoint-2")
    resumed = tosses(output_dir=str(tmp_path / "resumed"), resume_from_checkpoint=checkpoint)
    assert resumed == [found[2:] for found in straight]
