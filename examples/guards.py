"""The guards on TRL's own trainer: a callback that warns, or stops a run that goes wrong.

    python guards.py [MODEL]

They judge the logs: length, cut-off rate, entropy, groups without signal, weights that bfloat16
rounds away. Each firing is a line of `out-guards/events.jsonl`.
"""

import sys

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from stages.trainer import GuardCallback, GuardSettings

MODEL = sys.argv[1] if len(sys.argv) > 1 else "Qwen/Qwen2.5-0.5B-Instruct"
rows = [{"prompt": f"Name a number above {n}."} for n in range(64)]


def pays_for_nothing(completions, **_):  # every group is without signal: a guard stops the run
    return [0.0] * len(completions)


args = GRPOConfig(
    "out-guards", max_steps=40, num_generations=8, per_device_train_batch_size=16,
    max_completion_length=16, logging_steps=1, report_to="none",
    use_cpu=not torch.cuda.is_available(),
)  # fmt: skip
guards = GuardCallback(GuardSettings(no_signal="stop", length="stop"))
trainer = GRPOTrainer(MODEL, pays_for_nothing, args, Dataset.from_list(rows), callbacks=[guards])
trainer.train()
print(f"ended at step {trainer.state.global_step} of {args.max_steps}")
for firing in guards.firings:
    print(f"step {firing.step}: {firing.message}")
