"""Evaluation during GRPO: avg@k on held-out problems, beside the reward, and the best model kept.

`EvaluatedGRPO` is TRL's own evaluation (`eval_dataset`, `eval_strategy`, `num_generations_eval`)
with three things added. Every problem counts once, where TRL averages over batches and over the
copies that fill up the last one when several processes share the problems; right is what the
project's grader calls right, whatever the rewards are; and the training goes on as if nothing had
been evaluated: random numbers, table of completions and mode of the model are put back.
"""

import copy
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from accelerate.utils import broadcast_object_list
from tqdm.auto import tqdm
from trl import GRPOTrainer

from stages.rewards import BatchGrader
from stages.run import is_main_process
from stages.settings.held_out import average_at_k
from stages.trainer.best_model import is_better, read_best, write_best

NUMBER = "held_out"  # column of the evaluation's rows: the problem's number among them


@contextmanager
def random_state_kept(device: torch.device) -> Iterator[None]:
    """Afterwards the random numbers of Python, numpy and torch go on as they would have before.

    Not those of a vLLM server, which is another process.
    """
    state, numpy_state = random.getstate(), np.random.get_state()
    devices = [] if device.type == "cpu" else [device]
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(state)
        np.random.set_state(numpy_state)


class EvaluatedGRPO(GRPOTrainer):
    """`GRPOTrainer` that measures avg@k on its `eval_dataset`, whose rows have a `held_out` number.

    Logs `eval_avg@<k>`, `eval_avg@<k>_stderr` (see `average_at_k`), `eval_cut_off_rate` and
    `eval_response_length` (tokens), over all completions; TRL's own `eval_*` are means of its
    batches.

    Args:
        grader: that of the rewards, so that a batch is graded once; None where there is no
            `eval_dataset`.
    """

    def __init__(self, *args: Any, grader: BatchGrader | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._grader = grader
        # Problem -> right, cut-off completions and tokens, of all its completions.
        self._held_out: dict[int, tuple[int, int, int]] = {}

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        if resume_from_checkpoint:
            self.args.eval_on_start = False  # the run has started before
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        was_training, table, writes_table = self.model.training, self._logs, self.log_completions
        # TRL would write it over the training's of this step.
        self._logs, self.log_completions = copy.deepcopy(table), False
        try:
            with random_state_kept(self.accelerator.device):
                metrics = super().evaluate(*args, **kwargs)
                is_best = self._keep_if_best(metrics)
        finally:
            self._logs, self.log_completions = table, writes_table
            self.model.train(was_training)
        self._tell_evaluation(metrics, is_best)
        return metrics

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        self._held_out.clear()
        output = super().evaluation_loop(*args, **kwargs)
        num_right, num_cut, num_tokens = zip(*self._held_out.values(), strict=True)
        mean, stderr = average_at_k(list(num_right), self.num_generations_eval)
        num_completions = len(num_right) * self.num_generations_eval
        output.metrics[self._avg_name] = mean
        output.metrics[f"{self._avg_name}_stderr"] = stderr
        output.metrics["eval_cut_off_rate"] = sum(num_cut) / num_completions
        output.metrics["eval_response_length"] = sum(num_tokens) / num_completions
        return output

    def prediction_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> tuple:
        # TRL's would go on to a loss: another forward pass over the whole batch, for a number that
        # says nothing, as the advantages of a group sum to zero.
        self._prepare_inputs(inputs)
        return None, None, None

    def _calculate_rewards(
        self,
        inputs: list[dict[str, Any]],
        prompts: list,
        completions: list,
        completion_ids_list: list[list[int]],
    ) -> torch.Tensor:
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        if not self.model.training:
            verdicts = self._grader.verdicts(
                prompts,
                completions,
                [row["answer"] for row in inputs],
                log_metric=lambda name, value: None,  # where no reward has asked, none is logged
                log_extra=lambda name, values: None,
            )
            self._count_held_out(inputs, verdicts, completion_ids_list)
        return rewards

    def _count_held_out(
        self, inputs: list[dict[str, Any]], verdicts: list[str], completions: list[list[int]]
    ) -> None:
        """Note what the groups of all processes have shown, of copies of a problem one."""
        ends, k = {*self.eos_token_ids, self._tokenizer.pad_token_id}, self.num_generations_eval
        counts = [
            [verdict == "right", ids[-1] not in ends, len(ids)]
            for verdict, ids in zip(verdicts, completions, strict=True)
        ]
        mine = torch.tensor(counts, device=self.accelerator.device).view(-1, k, 3).sum(dim=1)
        numbers = torch.tensor([[row[NUMBER]] for row in inputs[::k]], device=mine.device)
        for number, *sums in self.accelerator.gather(torch.cat([numbers, mine], dim=1)).tolist():
            self._held_out.setdefault(number, tuple(sums))

    @property
    def _avg_name(self) -> str:
        return f"eval_avg@{self.num_generations_eval}"

    def _keep_if_best(self, metrics: dict[str, float]) -> bool:
        """Save the model to `<output_dir>/best` where it is the best so far."""
        value, step = metrics[self._avg_name], self.state.global_step
        # The main process's: disks may differ, the way through the code must not.
        (best,) = broadcast_object_list(
            [read_best(self.args.output_dir) if is_main_process() else None]
        )
        if not is_better(value, step, best):
            return False
        record = {"metric": self._avg_name.removeprefix("eval_"), "value": value}
        record |= {"stderr": metrics[f"{self._avg_name}_stderr"], "step": step}
        write_best(
            self.args.output_dir,
            record,
            lambda folder: self.save_model(folder, _internal_call=True),  # else to the hub too
            self.args.should_save,
            self.accelerator.wait_for_everyone,
        )
        return True

    def _tell_evaluation(self, metrics: dict[str, float], is_best: bool) -> None:
        """One line on the terminal, beside the progress bar."""
        if is_main_process():
            tqdm.write(
                f"grpo: step {self.state.global_step}: {self._avg_name.removeprefix('eval_')} "
                f"{metrics[self._avg_name]:.3f} ± {metrics[f'{self._avg_name}_stderr']:.3f} on "
                f"{len(self._held_out)} held-out problems, "
                f"{metrics['eval_response_length']:.0f} tokens, "
                f"{metrics['eval_cut_off_rate']:.1%} cut off"
                + ("; the best so far" if is_best else "")
            )
            sys.stdout.flush()
