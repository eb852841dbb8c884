"""The rewards of a recipe on TRL's own trainer: correct answers, their form, their length.

    python rewards.py [MODEL]

A row needs `answers` (any may match) and the `answer_form` of its prompt. For correctness alone
`from grading import correctness_reward` is enough: it finds the gold answers in any column.
"""

import sys

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from pipeline.prompts import build_prompt
from stages.arguments import GrpoArguments
from stages.rewards import build_rewards

MODEL = sys.argv[1] if len(sys.argv) > 1 else "Qwen/Qwen2.5-0.5B-Instruct"
rows = [
    {"prompt": build_prompt(f"{n} + {n} = ?", "think"), "answers": [2 * n], "answer_form": "box"}
    for n in range(64)
]
args = GRPOConfig(
    "out-rewards", max_steps=2, num_generations=4, per_device_train_batch_size=8,
    max_completion_length=64, logging_steps=1, report_to="none", reward_weights=[1.0, 0.2, 1.0],
    use_cpu=not torch.cuda.is_available(),
)  # fmt: skip
keys = GrpoArguments(
    train_file="", reward_funcs=["correctness_reward", "think_format_reward", "overlong"],
    overlong_cache=16,
)  # fmt: skip
rewards = build_rewards(keys, args, think_prefilled=False)
trainer = GRPOTrainer(MODEL, rewards, args, Dataset.from_list(rows))
trainer.train()
for key, value in trainer.state.log_history[0].items():
    if key.startswith(("rewards/", "rollout/verdict")):
        print(f"{key}: {value:.3f}")
