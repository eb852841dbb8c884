"""What a step asks of the device: while it waits for an answer, the GPU gets no further work.

Each question that code of this project asks is counted, by the function that asks. What TRL asks
itself, several times a micro-batch for its log, is not.
"""

import pytest
from trl import GRPOTrainer

from benchmarks.host_waits import ON_HOST, OTHERS, Questions
from stages.trainer.guards import GUARDS

pytestmark = pytest.mark.integration

STEPS = 2
# Their tensors lie on the host, or they generate and have to know which completions have ended.
NOT_ASKING = ON_HOST | {
    "GuardActions._is_graded", "decode", "draw", "FiniteNumbers.on_train_begin", OTHERS,
}  # fmt: skip


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


@pytest.mark.usefixtures("graded_by_chance")
@pytest.mark.parametrize("case", CASES)
def test_questions_of_two_steps(run_stage, monkeypatch, case):
    settings, each_step, others = CASES[case]
    questions, train = Questions(NOT_ASKING), GRPOTrainer.train

    def counted(self, *args, **kwargs):
        with questions:
            return train(self, *args, **kwargs)

    monkeypatch.setattr(GRPOTrainer, "train", counted)
    always = {
        "update_tokens": "auto", "curriculum": "predictive", "prompt_components": 0,
        "gradient_accumulation_steps": 2, "per_device_train_batch_size": 4, "max_steps": STEPS,
    }  # fmt: skip
    run_stage("grpo", **always | settings)
    assert questions.counts == dict.fromkeys(each_step, STEPS) | others
