"""The GRPO trainer: TRL's, with curriculum, guards, a quicker update, exact resume and more.

Thin by rule. Each part is a subclass of TRL's trainer in a file of its own, whose overrides call
`super()` and only choose what goes in, or look at and add to what comes out; with a part switched
off its overrides pass everything through, and with all of them off every step is TRL's.
"""

from typing import Any

from stages.trainer.curriculum import Curriculum
from stages.trainer.curriculum_trainer import CurriculumGRPO
from stages.trainer.early_stop import MinibatchEarlyStop
from stages.trainer.efficient_update import EfficientUpdate
from stages.trainer.eval_trainer import EvaluatedGRPO
from stages.trainer.exact_resume import ExactResume
from stages.trainer.guarded_trainer import GuardedGRPO
from stages.trainer.guards import Guards

# Our name -> TRL's. Both are logged; ours are what the report and the dashboards read.
METRIC_NAMES = {
    "rollout/rewards": "reward",
    "rollout/response_length": "completions/mean_length",
    "rollout/cut_off_rate": "completions/clipped_ratio",
    "train/entropy_loss": "entropy",
}


class MathGRPOTrainer(
    GuardedGRPO, CurriculumGRPO, MinibatchEarlyStop, EfficientUpdate, EvaluatedGRPO, ExactResume
):
    """TRL's `GRPOTrainer` with all the parts, and `rollout/*`, `train/*` and `guard/*` metrics.

    Args:
        curriculum, max_refill_rounds, advantage: see `CurriculumGRPO`.
        guards, rollback_lr_factor, max_rollbacks: see `GuardedGRPO`.
        max_mean_ratio: see `MinibatchEarlyStop`.
        update_tokens: see `EfficientUpdate`.
        grader: see `EvaluatedGRPO`.
    """

    def __init__(
        self,
        *args: Any,
        curriculum: Curriculum | None = None,
        guards: Guards | None = None,
        max_mean_ratio: float | None = None,
        update_tokens: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, curriculum=curriculum, guards=guards, **kwargs)
        self.max_mean_ratio, self.update_tokens = max_mean_ratio, update_tokens
        self.extra_state["count"] = self._count
        if curriculum is not None:
            self.extra_state["curriculum"] = curriculum
        if guards is not None:
            self.extra_state["guards"] = self

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        metrics = self._metrics["train"]
        for ours, theirs in METRIC_NAMES.items():
            if self.model.training and theirs in metrics:
                metrics[ours] = list(metrics[theirs])
        super().log(logs, start_time)
