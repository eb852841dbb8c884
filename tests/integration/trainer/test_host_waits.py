"""What a step asks of the device: while it waits for an answer, the GPU gets no further work.

Each question that code of this project asks is counted, by the function that asks. What TRL asks
itself, several times a micro-batch for its log, is not.
"""

import pytest
import torch
from trl import GRPOTrainer

from benchmarks.host_waits import ON_HOST, OTHERS, Questions
from stages.trainer import grpo_trainer, rows_apart, update
from stages.trainer.grpo_trainer import MathGRPOTrainer
from stages.trainer.guard_actions import GuardActions
from stages.trainer.guards import GUARDS

pytestmark = pytest.mark.integration

STEPS = 2
# Their tensors lie on the host, or they generate and have to know which completions have ended.
NOT_ASKING = ON_HOST | {
    "GuardActions._is_graded", "decode", "draw", "FiniteNumbers.on_train_begin", OTHERS,
}  # fmt: skip


@pytest.fixture
def asked(run_stage, graded_by_chance, monkeypatch):
    """Train two steps of the stage; returns the questions of its steps."""

    def call(**settings):
        questions, train = Questions(NOT_ASKING), GRPOTrainer.train

        def counted(self, *args, **kwargs):
            with questions:
                return train(self, *args, **kwargs)

        monkeypatch.setattr(GRPOTrainer, "train", counted)
        run_stage("grpo", max_steps=STEPS, report_to="none", **settings)
        return questions.counts

    return call


# Once a generation: the answers' lengths and the curriculum's, the guards', the update's plan.
GENERATION = {
    "MathGRPOTrainer._calculate_rewards", "GuardActions._repetition", "means_of_all",
    "rows_on_host",
}  # fmt: skip
# Once an optimizer step, when it is over.
STEP = {"moved_share", "FiniteNumbers.on_step_end"}
CASES = {
    "a generation each step": ({}, GENERATION | STEP, {}),
    "padded": ({"attn_implementation": "eager"}, GENERATION | STEP, {}),
    "guards off": (
        {f"guard_{name}": "off" for name in GUARDS},
        {"MathGRPOTrainer._calculate_rewards", "rows_on_host", "FiniteNumbers.on_step_end"},
        {},
    ),
    # The reference's rows are asked about, too; TRL asks several times around `_drop_if_far`.
    "one generation for two steps": (
        {"beta": 0.1, "max_mean_ratio": 5.0, "num_iterations": 2},
        STEP,
        dict.fromkeys(GENERATION, 1)
        | {"rows_on_host": 3, "MathGRPOTrainer._drop_if_far": 4}
        | {"MathGRPOTrainer._get_grad_norm": 2},
    ),
}


def settings_of(case):
    sizes = {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 4}
    return {
        "update_tokens": "auto",
        "curriculum": "predictive",
        "prompt_components": 0,
        **sizes,
        **CASES[case][0],
    }


@pytest.mark.parametrize("case", CASES)
def test_questions_of_two_steps(asked, case):
    _, each_step, others = CASES[case]
    assert asked(**settings_of(case)) == dict.fromkeys(each_step, STEPS) | others


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (MathGRPOTrainer, "_choose"), (MathGRPOTrainer, "_prepare_inputs"),
        (MathGRPOTrainer, "compute_loss"), (update, "sort_rows"), (update.Layout, "inputs"),
        (update.PackedForward, "__call__"), (rows_apart, "model_inputs"),
        (GuardActions, "note_entropy"), (GuardActions, "on_step_end"),
    ],
)  # fmt: skip
def test_one_more_question_is_noticed(asked, monkeypatch, owner, name):
    function = getattr(owner, name)

    def asking(*args, **kwargs):
        torch.ones(1).item()
        return function(*args, **kwargs)

    case = "a generation each step"
    monkeypatch.setattr(owner, name, asking)
    for module in (grpo_trainer, update):  # that have imported it
        if hasattr(module, name):
            monkeypatch.setattr(module, name, asking)
    assert sum(asked(**settings_of(case)).values()) > STEPS * len(CASES[case][1])
