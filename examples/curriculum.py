"""The curriculum: each batch from the problems whose rollouts will likely differ.

    python curriculum.py [MODEL]

`MathGRPOTrainer` takes what `GRPOTrainer` takes. `correctness` names the reward that is above 0
for a correct answer. `peers` says which rows are alike: here those with as many digits.
"""

import sys

import torch
from datasets import Dataset
from trl import GRPOConfig

from stages.trainer import GuardSettings, MathGRPOTrainer, PredictiveCurriculum, Refill

MODEL = sys.argv[1] if len(sys.argv) > 1 else "Qwen/Qwen2.5-0.5B-Instruct"
rows = [{"prompt": f"{a} * {b} =", "product": a * b} for a in range(2, 40) for b in range(2, 40)]


def is_correct(completions, product, **_):
    return [float(str(one) in text) for text, one in zip(completions, product, strict=True)]


args = GRPOConfig(
    "out-curriculum", max_steps=4, num_generations=4, per_device_train_batch_size=8,
    max_completion_length=16, logging_steps=1, report_to="none",
    use_cpu=not torch.cuda.is_available(),
)  # fmt: skip
peers = [len(str(row["product"])) for row in rows]
chooses = PredictiveCurriculum(peers, args.num_generations, args.seed)
trainer = MathGRPOTrainer(
    MODEL, is_correct, args, Dataset.from_list(rows), correctness="is_correct",
    guards=GuardSettings(), curriculum=Refill(chooses, max_rounds=1),
)  # fmt: skip
trainer.train()
seen = [n for n, batch in enumerate(chooses.state_dict()["last_used"]) if batch >= 0]
rates = chooses.pass_rates(range(len(rows)))
print(f"{len(seen)} problems used; expected pass rates {min(rates):.2f} to {max(rates):.2f}")
