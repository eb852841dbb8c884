"""What a stage shows while it trains: one bar, and metrics under the names that we give them."""

import sys
from typing import Any

from tqdm.auto import tqdm
from transformers import TrainerCallback
from transformers.integrations import integration_utils


class StageProgress(TrainerCallback):
    """One bar per stage with a few live metrics, in place of a printed dict per logging step."""

    SHOWN = {  # noqa: RUF012 - never changed
        "loss": "loss",
        "mean_token_accuracy": "token accuracy",
        "rollout/rewards": "reward",
        "rollout/correctness": "correct",
        "rollout/response_length": "tokens",
        "rollout/uniform_groups": "uniform groups",
    }

    def __init__(self, name: str) -> None:
        self.name = name
        self.bar: tqdm | None = None

    def on_train_begin(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            # Without a terminal every refresh is a line in a log: one in ten seconds is enough.
            self.bar = tqdm(
                total=state.max_steps,
                initial=state.global_step,
                desc=self.name,
                unit="step",
                mininterval=0.5 if sys.stderr.isatty() else 10,
                dynamic_ncols=True,
            )

    def on_step_end(self, args, state, control, **kwargs):
        if self.bar is not None:
            self.bar.update(state.global_step - self.bar.n)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if self.bar is not None and logs:
            shown = {s: f"{float(logs[k]):.3g}" for k, s in self.SHOWN.items() if k in logs}
            if shown:
                self.bar.set_postfix(shown, refresh=False)

    def on_train_end(self, args, state, control, **kwargs):
        if self.bar is not None:
            self.bar.close()
            self.bar = None


def keep_metric_names() -> None:
    """Log `rollout/…`, `train/…` and `guard/…` under just these names in TensorBoard and W&B.

    Both callbacks push every key through `rewrite_logs`, which would put `train/` before it.
    """
    rewrite = integration_utils.rewrite_logs
    if getattr(rewrite, "keeps_names", False):
        return

    def rewrite_logs(logs: dict[str, Any]) -> dict[str, Any]:
        named = {k: v for k, v in logs.items() if k.startswith(("rollout/", "train/", "guard/"))}
        return rewrite({k: v for k, v in logs.items() if k not in named}) | named

    rewrite_logs.keeps_names = True
    integration_utils.rewrite_logs = rewrite_logs
