"""The GRPO trainer: TRL's, with curriculum, guards, a faster update, early stop and exact resume.

Every hook calls `super()` and only changes its inputs or outputs. With all parts off every step is
TRL's. Hooks are in the order of a run: the order of problems, a step, checkpoints, evaluation.
Those of a step: choose, generate, reward, generate again, measure, sort rows, log-probs, loss,
gradient, log.
"""

import copy
import math
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from accelerate.utils import is_peft_model
from datasets import Dataset
from transformers.trainer_utils import get_last_checkpoint
from trl import GRPOTrainer

from data_prep.sampling.generate import fast_generate
from grading.own_grader import COLUMN
from pipeline.console import say
from pipeline.errors import UserError
from pipeline.models import generation
from stages.arguments import DEAD_GROUPS, GRADED
from stages.rewards import BatchGrader
from stages.run.saving import SavedRun
from stages.trainer import resume, rollouts, rows_apart
from stages.trainer.curriculum import Curriculum, check_choice
from stages.trainer.evaluation import (
    HeldOutCounts,
    keep_if_best,
    random_state_kept,
    sampling_with,
)
from stages.trainer.guard_actions import GuardActions
from stages.trainer.guards import GuardSettings
from stages.trainer.prompt_states import PromptReader
from stages.trainer.rollouts import Groups
from stages.trainer.update import (
    AUTO,
    PackedForward,
    Pass,
    Planner,
    Row,
    ratio_totals,
    rows_on_host,
    sort_rows,
    zero_loss,
)
from stages.trial import own_model

# Our name -> TRL's. Both are logged; ours are what the report and the dashboards read.
METRIC_NAMES = {
    "rollout/rewards": "reward",
    "rollout/response_length": "completions/mean_length",
    "rollout/cut_off_rate": "completions/clipped_ratio",
    "train/entropy_loss": "entropy",
}
ROW = "curriculum_row"  # a column of `train_dataset`: the number of the row
# Losses that divide by the number of completions, not by that of their tokens.
PER_COMPLETION = ("grpo", "sapo", "dr_grpo", "luspo")


class MathGRPOTrainer(SavedRun, GRPOTrainer):
    """TRL's `GRPOTrainer` with `rollout/*`, `train/*` and `guard/*` metrics.

    Args:
        curriculum: chooses the problems of each generation batch; None leaves them to TRL.
        guards: settings of `GuardActions`; None means no guards.
        max_mean_ratio, update_tokens: see `update`.
        columns: further columns of `train_dataset` and of `eval_dataset`, a dict for each row, of
            any values. The rewards get them too. Rows to evaluate need a column `held_out`.
        grader: that of the rewards, for an `eval_dataset` whose rows have a `held_out`; without it
            the evaluation is TRL's.
        keeps_best: whether the model with the highest avg@k is saved.
        eval_sampling: values of `temperature`, `top_p` and `top_k` with which that is measured,
            where they are not those of training.
        correctness: name of the reward function that is above 0 for correct answers only, which
            the curriculum follows; None: the first of `GRADED`.
        dead_groups: "drop" leaves zero-variance groups (all rewards equal) out of the loss.
        fast_generation: whether generation without vLLM is `data_prep.sampling.generate`'s.

    Attributes:
        extra_state: name -> object whose `state_dict()` gives JSON values, equal on all processes,
            and whose `load_state_dict(state)` takes them back; registered before `train`.
        num_completions: generated for training so far, by all processes.
    """

    train_dataset: Any  # this and the next ones are the Trainer's and TRL's
    log_completions: bool
    _buffered_inputs: Any
    _logs: dict[str, Any]
    _groups: Groups  # of the last call of `_calculate_rewards`

    def __init__(
        self,
        *args: Any,
        curriculum: Curriculum | None = None,
        guards: GuardSettings | None = None,
        max_mean_ratio: float | None = None,
        update_tokens: int | str | None = None,
        columns: Sequence[Sequence[dict[str, Any]]] | None = None,
        grader: BatchGrader | None = None,
        keeps_best: bool = True,
        eval_sampling: dict[str, float] | None = None,
        correctness: str | None = None,
        dead_groups: str = "keep",
        fast_generation: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.curriculum, self.num_completions = curriculum, 0
        self.max_mean_ratio, self.update_tokens = max_mean_ratio, update_tokens
        self.extra_state: dict[str, Any] = {}
        self.start_checkpoint: str | None = None  # of this call of `train`
        self._microbatch: dict[str, Any] | None = None  # whose loss is computed right now
        self._planned: list[tuple[list[Row], list[Pass]]] = []  # of each buffered micro-batch
        self._planned_for: Any = None  # the buffer
        self._shares_prompts = False
        self._logps: torch.Tensor | None = None  # of that micro-batch, with their graph, (B, C)
        self._is_kept: list[bool] = []  # each micro-batch of this optimizer step
        self._columns, self._grader, self._keeps_best = columns, grader, keeps_best
        self._eval_sampling = eval_sampling or {}
        self._rewards = torch.empty(0)  # summed, of the groups to train on, (N*G,)
        names, self.dead_groups = self.reward_func_names, dead_groups
        self.fast_generation = fast_generation
        is_known = update_tokens in (None, AUTO) or isinstance(update_tokens, int)
        if not is_known or (isinstance(update_tokens, int) and update_tokens < 1):
            raise ValueError(f"update_tokens: must be {AUTO!r} or tokens (got {update_tokens!r})")
        if dead_groups not in DEAD_GROUPS:
            raise ValueError(f"dead_groups: must be one of {DEAD_GROUPS} (got {dead_groups!r})")
        wanted = GRADED if correctness is None else (correctness,)
        self._graded = [i for i, name in enumerate(names) if name in wanted]
        if not self._graded and not (correctness is None and curriculum is None):
            raise ValueError(
                f"correctness: must name the reward function that a curriculum follows, one of "
                f"{', '.join(names)} (got {correctness!r})"
            )
        if curriculum is not None:
            if not isinstance(curriculum, Curriculum):
                raise ValueError(f"curriculum: {type(curriculum).__name__} is not a Curriculum")
            asks_again = type(curriculum).next_round is not Curriculum.next_round
            if asks_again and not curriculum.max_rounds:
                raise ValueError(
                    f"curriculum: {type(curriculum).__name__}.next_round would never be called; "
                    "set max_rounds above 0"
                )
            if curriculum.num_components:
                self.extra_state["prompts"] = PromptReader(self)  # a resume loads it first
            self.extra_state["curriculum"] = curriculum
        if curriculum is not None or columns is not None:
            if not isinstance(rows := self.train_dataset, Dataset):
                raise ValueError(f"curriculum: needs a Dataset, not a {type(rows).__name__}")
            self.train_dataset = rows.add_column(ROW, list(range(len(rows))))
        if update_tokens is not None:
            self._lay_rows_end_to_end()
        self.add_callback(resume.LoadAtStart(self._load_checkpoint))
        self.guard_actions: GuardActions | None = None
        if guards is not None:
            actions = GuardActions(self, guards)
            if actions.actions:
                self.guard_actions = self.extra_state["guards"] = actions
                self.add_callback(actions)

    def _lay_rows_end_to_end(self) -> None:
        """Change the models' attention for `update_tokens`, where it would need padding."""
        # Continuous batching knows transformers' own attention alone.
        is_paged = getattr(self.args, "use_transformers_continuous_batching", False)
        model, device = _below_adapters(self.model), self.accelerator.device
        device_and_dtype = device, rows_apart.computed_in(self.args, model)
        is_changed = not is_paged and rows_apart.use(model, *device_and_dtype)
        attention = str(model.config._attn_implementation)
        if is_changed and self.ref_model is not None:  # perhaps an engine's, or sharded already
            rows_apart.set_attention(self.accelerator.unwrap_model(self.ref_model), attention)
        self._shares_prompts = is_changed and rows_apart.shares_prompts(model, *device_and_dtype)
        if not _is_packed(self.model):
            say(f"grpo: update_tokens: with {attention} the rows of a pass are padded")
        elif device.type == "cuda" and attention == rows_apart.BY_ROW:
            say(
                "grpo: update_tokens: each row is an attention call of its own, as torch's "
                "varlen_attn (torch 2.13, 16 bit) does not give the same here"
            )

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        self._check()
        if resume_from_checkpoint is True:
            resume_from_checkpoint = get_last_checkpoint(self.args.output_dir)
        output = self._train_from(resume_from_checkpoint or None, *args, **kwargs)
        guards = self.guard_actions
        while guards is not None and guards.rollback_to is not None:
            checkpoint, guards.rollback_to = guards.rollback_to, None
            self._last_loaded_step = -1  # vLLM's weights may be those of a step that comes again
            output = self._train_from(checkpoint)
        return output

    def _train_from(self, checkpoint: str | None, *args: Any, **kwargs: Any) -> Any:
        if checkpoint:
            self.args.eval_on_start = False  # the run has started before
        self.start_checkpoint = checkpoint
        return super().train(checkpoint, *args, **kwargs)

    def _check(self) -> None:
        """Refuse keys, and states to be saved, that only the built trainer can check."""
        resume.states_of(self.extra_state)
        actions = self.guard_actions.actions.items() if self.guard_actions is not None else ()
        rollback = next((f"guard_{name}" for name, does in actions if does == "rollback"), "")
        if self.is_deepspeed_enabled and (self.max_mean_ratio is not None or rollback):
            raise UserError(
                f"{rollback or 'max_mean_ratio'}: does not work with DeepSpeed, which takes its "
                "step in the backward pass and cannot restart in one process; train with DDP, or "
                + ("use stop" if rollback else "remove the key")
            )
        if self.args.sync_ref_model and (self.is_deepspeed_enabled or self.is_fsdp_enabled):
            raise UserError("sync_ref_model: a sharded reference cannot be saved; train with DDP")
        if rollback and self.args.save_only_model:
            raise UserError(f"{rollback}: rollback needs save_only_model: false")
        drops = self.dead_groups == "drop"
        if self.multi_objective_aggregation == "normalize_then_sum" and (
            drops or self._has_rounds()
        ):
            raise UserError(
                f"{'dead_groups: drop' if drops else 'refill'}: needs summed rewards, which "
                "multi_objective_aggregation: normalize_then_sum does not use; remove one of them"
            )
        if drops and self.loss_type == "bnpo":
            raise UserError(
                "dead_groups: drop does not go with loss_type: bnpo, which divides each "
                "micro-batch by its own tokens; use loss_type: dapo, or dead_groups: keep"
            )
        if drops and self.loss_type in PER_COMPLETION and self._has_other_loss():
            raise UserError(
                f"dead_groups: drop with loss_type: {self.loss_type} would scale the entropy bonus "
                "and the balance of experts too; use loss_type: dapo, or dead_groups: keep"
            )

    # The order of problems

    def _get_train_sampler(self, dataset: Any = None) -> resume.EpochSampler:
        # The state's epoch is an integer at every start of one: the Trainer adds 1.0.
        sampler = super()._get_train_sampler(dataset)
        return resume.EpochSampler(sampler, lambda: int(self.state.epoch))

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: Any) -> tuple:
        # The Trainer looks for the end only after a step: killed behind its last checkpoint, a run
        # would take one step too many.
        if self.state.global_step >= self.state.max_steps:
            return [], None
        return super().get_batch_samples(epoch_iterator, num_batches, device)

    # A step

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]:
        before = self._buffered_inputs
        inputs = super()._prepare_inputs(generation_batch)
        batches = self._buffered_inputs
        if self.update_tokens is None or not self.model.training:
            return inputs
        if batches is not self._planned_for:  # a new one, or a resumed run's
            self._buffered_inputs = self._plan_update(batches, is_new=batches is not before)
            self._planned_for = self._buffered_inputs
        return self._buffered_inputs[self._step % len(batches)]

    def _plan_update(self, batches: list[dict[str, Any]], is_new: bool) -> list[dict[str, Any]]:
        """The micro-batches, sorted if they are new; keeps which passes each will take."""
        names = "prompt_ids", "prompt_mask", "completion_mask"
        ids, prompts, completions = (torch.cat([one[name] for one in batches]) for name in names)
        has_gradient = torch.cat([self._has_gradient(batch) for batch in batches])
        found = rows_on_host(ids, prompts, completions, has_gradient)
        size = len(found) // len(batches)
        rows = [found[first : first + size] for first in range(0, len(found), size)]
        window = math.gcd(len(batches), self.args.gradient_accumulation_steps)
        # Sharded models and engines go backward in every micro-batch.
        needs_all = self.is_deepspeed_enabled or self.is_fsdp_enabled
        by_gradient = self.update_tokens == AUTO and not needs_all
        # Where a row's weight depends on the others of its micro-batch, sorting would change it.
        is_by_entropy = self._has_entropy_bonus() or self.top_entropy_quantile < 1.0
        if is_new and self.loss_type != "bnpo" and not is_by_entropy:
            batches, rows = sort_rows(batches, rows, window, self._shares_prompts, by_gradient)
        # The last one of an optimizer step has every weight's gradient, so that none is missing.
        needs_backward = [not by_gradient or i % window == window - 1 for i in range(len(rows))]
        limit = self.update_tokens if isinstance(self.update_tokens, int) else None
        passes = self._planner(limit).passes(rows, needs_backward)
        self._planned = list(zip(rows, passes, strict=True))
        return batches

    def _planner(self, max_tokens: int | None) -> Planner:
        return Planner(
            max_tokens, not _is_packed(self.model), self._shares_prompts, self._max_of_all
        )

    def _max_of_all(self, numbers: list[list[int]]) -> list[list[int]]:
        """The highest of all processes' numbers, each (N, 2)."""
        if self.accelerator.num_processes == 1:
            return numbers
        mine = rows_apart.on_device([numbers], self.accelerator.device)
        return self.accelerator.gather(mine).amax(dim=0).tolist()

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        if not self.model.training:
            return super()._generate_and_score_completions(inputs)
        num_logged = {name: len(values) for name, values in self._metrics["train"].items()}
        problems = self._choose(len(inputs) // self.num_generations)
        if self.curriculum is not None and self._has_rounds():
            batch = self._generate_in_rounds(self.curriculum, inputs, problems, num_logged)
        else:
            rows = inputs if problems is None else self._rows(problems)
            batch = super()._generate_and_score_completions(rows)
        if self.guard_actions is not None:
            self.guard_actions.measure_batch(batch, num_logged)
        if self.dead_groups == "drop":
            self._drop_dead_groups(batch)
        return batch

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        model = own_model(self)
        is_fast = fast_generate(model) if self.fast_generation else nullcontext()
        # Keys that TRL leaves open would take the base model's values.
        with generation.only_ends(model), is_fast:
            return super()._generate(*args, **kwargs)

    def _has_rounds(self) -> bool:
        return self.curriculum is not None and self.curriculum.max_rounds > 0

    def _choose(self, num_mine: int) -> list[int] | None:
        """The curriculum's problems for all processes; None for those of TRL."""
        if self.curriculum is None:
            return None
        num_groups = num_mine * self.accelerator.num_processes
        self._read_prompts(num_groups)
        problems = self.curriculum.choose(num_groups)
        if problems is not None:
            name = f"{type(self.curriculum).__name__}.choose"
            check_choice(name, problems, num_groups, len(self.train_dataset))
        return problems

    def _read_prompts(self, num_groups: int) -> None:
        """Read the prompts that the curriculum needs for its next choice."""
        if self.curriculum is not None and self.curriculum.num_components:
            self.extra_state["prompts"].read(self.curriculum.candidates(num_groups))

    def _choose_again(self, curriculum: Curriculum, groups: Groups) -> list[int] | None:
        """The curriculum's problems for one more round; None or none: train on `groups`."""
        problems = curriculum.next_round(groups)
        if problems is None or not len(problems):
            return None
        size = self.accelerator.num_processes
        count = math.ceil(len(problems) / size) * size
        name = f"{type(curriculum).__name__}.next_round"
        check_choice(name, problems, count, len(self.train_dataset))
        return problems

    def _rows(self, problems: list[int]) -> list[dict[str, Any]]:
        """This process's part of the problems, each repeated for its rollouts."""
        num_mine = len(problems) // self.accelerator.num_processes
        first = self.accelerator.process_index * num_mine
        mine = problems[first : first + num_mine]
        return [self.train_dataset[i] for i in mine for _ in range(self.num_generations)]

    def _calculate_rewards(
        self, inputs: list[dict], prompts: list, completions: list, completion_ids_list: list
    ) -> torch.Tensor:
        if self._columns is not None:
            inputs = [_whole(row, self._columns) for row in inputs]
        # Gathered over processes, shape (N*G, number of reward functions).
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        if not self.model.training:
            if self._grader is None:
                return rewards
            verdicts = self._grader.verdicts(
                completions,
                [row["answers"] for row in inputs],
                [row["answer_form"] for row in inputs],
                own_grader=[row.get(COLUMN) for row in inputs],
                log_metric=lambda name, value: None,  # where no reward has asked, none is logged
                log_extra=lambda name, values: None,
            )
            self._held_out.add(inputs, verdicts, completion_ids_list, self.accelerator)
            return rewards
        self.num_completions += len(rewards)
        self._rewards = rollouts.sum_rewards(rewards, self.reward_weights)
        if self._graded:
            size = self.num_generations
            correctness = (rewards[:, self._graded[0]] > 0).float()  # (N*G,)
            wanted = [correctness.view(-1, size).sum(dim=1).long()]  # (N,)
            if self.curriculum is not None:
                mine = rows_apart.on_device([row[ROW] for row in inputs[::size]], rewards.device)
                wanted.append(self.accelerator.gather(mine))  # (N,)
            num_right, *problems = torch.stack(wanted).tolist()
            metrics = self._metrics["train"]
            metrics["rollout/correctness"].append(fmean(num_right) / size)
            metrics["rollout/uniform_groups"].append(fmean(n in (0, size) for n in num_right))
            if self.curriculum is not None:
                self.curriculum.observe(problems[0], num_right, size)
                world_size = self.accelerator.num_processes
                self._groups = Groups(wanted[1], rewards, correctness, world_size)
        return rewards

    def _generate_in_rounds(
        self,
        curriculum: Curriculum,
        inputs: list[dict[str, Any]],
        problems: list[int] | None,
        num_logged: dict[str, int],
    ) -> dict[str, Any]:
        """Generate until the curriculum asks for no more, and train on the informative groups.

        Groups do not move between ranks; all ranks make the same calls.
        """
        size, logs, rank = self.num_generations, self._logs, self.accelerator.process_index
        batches, rows = [], inputs
        rounds: list[Groups] = []
        # TRL's own table holds no more than the rows of a batch.
        self._logs = rollouts.empty_table(logs)
        try:
            while True:
                rows = rows if problems is None else self._rows(problems)
                batches.append(super()._generate_and_score_completions(rows))
                rounds.append(self._groups)
                are_uniform = torch.cat([groups.is_uniform() for groups in rounds], dim=1)
                chosen = rollouts.pick_groups(are_uniform, len(inputs) // size)  # (ranks, n)
                picked = rollouts.rows_of(chosen, size)  # (ranks, n*size)
                places = rollouts.gathered(rounds, picked)
                groups = rollouts.merge_groups(rounds, places)
                if len(rounds) > curriculum.max_rounds:
                    break
                if not (problems := self._choose_again(curriculum, groups)):
                    break
        finally:
            table, self._logs = self._logs, logs
        batch = rollouts.merge_batches(batches, picked[rank], self.processing_class.pad_token_id)
        self._rewards = rewards = rollouts.sum_rewards(groups.rewards, self.reward_weights)
        rollouts.add_rows(logs, table, places.tolist())
        self._set_advantages(batch)
        batch["num_items_in_batch"] = self.accelerator.gather(batch["completion_mask"].sum()).sum()
        metrics = self._metrics["train"]
        rollouts.merge_metrics(metrics, num_logged, [len(one.rewards) for one in rounds])
        metrics["rollout/uniform_groups"][-1] = (are_uniform.sum() / are_uniform.numel()).item()
        metrics["train/uniform_groups"].append(groups.is_uniform().float().mean().item())
        std = rewards.view(-1, size).std(dim=1)
        is_zero = std.isclose(torch.zeros_like(std))
        metrics["frac_reward_zero_std"][-1] = is_zero.float().mean().item()
        return batch

    def _set_advantages(self, batch: dict[str, Any]) -> None:
        """Replace TRL's advantages in the batch and in the table of completions."""
        accelerator, size = self.accelerator, self.num_generations
        values = rollouts.advantages(self.scale_rewards, self._rewards, size)  # (N*G,)
        self._logs["advantages"].extend(values.tolist())  # it holds no more than these
        batch["advantages"] = values.chunk(accelerator.num_processes)[accelerator.process_index]

    def _drop_dead_groups(self, batch: dict[str, Any]) -> None:
        """Leave zero-variance groups out of the loss, and out of the number that divides it."""
        is_dead = rollouts.are_dead(self._rewards, self.num_generations)  # (N,), of all processes
        mine = is_dead.chunk(self.accelerator.num_processes)[self.accelerator.process_index]
        is_out = mine.repeat_interleave(self.num_generations).unsqueeze(1)  # (B, 1)
        mask = batch["completion_mask"].masked_fill_(is_out, 0)
        num_tokens = (mask * batch.get("tool_mask", 1)).sum()
        batch["num_items_in_batch"] = self.accelerator.gather(num_tokens).sum()
        if self.loss_type in PER_COMPLETION:
            batch["loss_scale"] = len(is_dead) / (~is_dead).sum().clamp(min=1)

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        self._microbatch = inputs
        try:
            loss = super().compute_loss(model, inputs, *args, **kwargs)
            if self.max_mean_ratio is not None and self.model.training:
                loss = self._drop_if_far(loss, inputs, self.max_mean_ratio)
            if "loss_scale" in inputs:
                loss = loss * inputs["loss_scale"]
        finally:
            self._microbatch = self._logps = None
        if self.guard_actions is not None and self.model.training:
            self.guard_actions.note_entropy(inputs)
        return loss

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> tuple:
        if self.update_tokens is not None:
            width = input_ids.size(1)
            num_prompt = width - logits_to_keep
            if self._microbatch is not None and torch.is_grad_enabled():
                rows, passes = self._planned[self._step % len(self._planned)]
            else:
                masks = attention_mask[:, :num_prompt], attention_mask[:, num_prompt:]
                rows = rows_on_host(input_ids[:, :num_prompt], *masks)
                limit = (batch_size or len(rows)) * width
                if isinstance(self.update_tokens, int):
                    limit = self.update_tokens
                (passes,) = self._planner(limit).passes([rows], [False])
            batch_size = None  # `update_tokens` bounds the passes
            whole = _below_adapters(self.model)
            model = PackedForward(
                model,
                rows,
                passes,
                num_prompt,
                is_packed=_is_packed(self.model),
                backbone=whole.base_model if kwargs.get("compute_aux_loss") else None,
                shares_prompts=self._shares_prompts,
            )
        outputs = super()._get_per_token_logps_and_entropies(
            model, input_ids, attention_mask, logits_to_keep, batch_size, **kwargs
        )
        if self._microbatch is not None:
            self._logps = outputs[0]
        return outputs

    def _has_gradient(self, batch: dict[str, Any]) -> torch.Tensor:
        """Rows of a micro-batch whose gradient can differ from 0, bool, shape (B,)."""
        is_in = batch["completion_mask"].any(dim=1)  # (B,)
        if self._has_other_loss():
            return torch.ones_like(is_in)
        values = batch["advantages"]  # (B,) or (B, C)
        return is_in if self.beta else is_in & values.reshape(len(values), -1).ne(0).any(dim=1)

    def _has_entropy_bonus(self) -> bool:
        return self.entropy_coef != 0.0 or self.use_adaptive_entropy

    def _has_other_loss(self) -> bool:
        """Whether the loss has terms beside those of policy and reference."""
        return self._has_entropy_bonus() or self.aux_loss_enabled

    def _drop_if_far(
        self, loss: torch.Tensor, inputs: dict[str, Any], max_mean_ratio: float
    ) -> torch.Tensor:
        """The loss, or zero where the mean ratio over all processes is above `max_mean_ratio`."""
        old_logps, mask = inputs.get("old_per_token_logps"), inputs["completion_mask"]
        totals = ratio_totals(self._logps, old_logps, mask)
        totals = torch.stack([*totals, (~loss.isfinite()).float()])
        ratio_sum, num_tokens, num_bad = self.accelerator.reduce(totals, reduction="sum").tolist()
        mean_ratio = ratio_sum / num_tokens if num_tokens else 1.0
        # A comparison with NaN is False, so what is not a number is dropped.
        is_kept = num_bad == 0 and mean_ratio <= max_mean_ratio
        self._is_kept.append(is_kept)
        metrics = self._metrics["train"]
        metrics["train/dropped_minibatches"].append(float(not is_kept))
        if math.isfinite(mean_ratio):
            metrics["train/mean_ratio"].append(mean_ratio)
        return loss if is_kept else zero_loss(self._logps).to(loss.dtype)

    def _get_grad_norm(self, model: torch.nn.Module, grad_norm: Any = None) -> Any:
        # The last call before the optimizer step, and the norm is that of all processes' gradients.
        grad_norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        if self.max_mean_ratio is None:
            return grad_norm
        # Micro-batches without a gradient are kept, but give Adam nothing to take a step for.
        has_step = all(self._is_kept) or grad_norm > 0
        is_taken = has_step and math.isfinite(grad_norm)
        self._is_kept.clear()
        self._metrics["train"]["train/skipped_steps"].append(float(not is_taken))
        if is_taken:
            return grad_norm
        # Optimizers pass over parameters without a gradient: no momentum, decay or step count.
        model.zero_grad(set_to_none=True)
        return 0.0

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        metrics = self._metrics["train"]
        for ours, theirs in METRIC_NAMES.items():
            if self.model.training and theirs in metrics:
                metrics[ours] = list(metrics[theirs])
        if self._eval_sampling and not self.model.training:
            held_out = self._metrics["eval"]  # the engine's log-probs are of another temperature
            for name in [name for name in held_out if name.startswith("sampling/")]:
                del held_out[name]
        super().log(logs, start_time)

    # Checkpoints

    def save_more(self, checkpoint: Path) -> None:
        """Write the state of generation, curriculum and guards; every process calls it."""
        resume.save_generation_state(self, checkpoint)

    def _load_checkpoint(self) -> None:
        """Called as training starts, when the Trainer has loaded what it keeps itself."""
        if self.start_checkpoint:
            resume.load_generation_state(self, Path(self.start_checkpoint))
            if self.args.should_save:
                resume.abandon_later_checkpoints(self.args.output_dir, self.state.global_step)
        else:
            self._read_prompts(self.args.generation_batch_size // self.num_generations)

    # Evaluation

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        if self._grader is None:
            return super().evaluate(*args, **kwargs)
        was_training, table, writes_table = self.model.training, self._logs, self.log_completions
        # TRL would write it over the training's of this step.
        self._logs, self.log_completions = copy.deepcopy(table), False
        try:
            with random_state_kept(self.accelerator.device):
                with sampling_with(self, self._eval_sampling):
                    metrics = super().evaluate(*args, **kwargs)
                name = f"avg@{self.num_generations_eval}"
                is_best = self._keeps_best and keep_if_best(self, name, metrics)
        finally:
            self._logs, self.log_completions = table, writes_table
            self.model.train(was_training)
        say(
            f"grpo: step {self.state.global_step}: {name} {metrics[f'eval_{name}']:.3f} ± "
            f"{metrics[f'eval_{name}_stderr']:.3f} on {len(self._held_out)} validation problems, "
            f"{metrics['eval_response_length']:.0f} tokens, "
            f"{metrics['eval_cut_off_rate']:.1%} cut off{'; the best so far' if is_best else ''}"
        )
        return metrics

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        if self._grader is None:
            return super().evaluation_loop(*args, **kwargs)
        ends = {*self.eos_token_ids, self.processing_class.pad_token_id}
        self._held_out = HeldOutCounts(self.num_generations_eval, ends)
        output = super().evaluation_loop(*args, **kwargs)
        output.metrics.update(self._held_out.metrics())
        return output

    def prediction_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> tuple:
        if self._grader is None:
            return super().prediction_step(model, inputs, *args, **kwargs)
        # TRL's would compute a loss: another forward pass over the batch, for a number without
        # meaning, as the advantages of a group sum to zero.
        self._prepare_inputs(inputs)
        return None, None, None


def _whole(row: dict[str, Any], columns: Sequence[Sequence[dict[str, Any]]]) -> dict[str, Any]:
    """The row with the columns that the data set does not hold."""
    is_held_out = "held_out" in row
    return columns[is_held_out][row["held_out" if is_held_out else ROW]] | row


def _is_packed(model: Any) -> bool:
    """Whether a model's attention keeps rows apart that lie end to end."""
    attention = str(_below_adapters(model).config._attn_implementation)
    return "flash" in attention or attention in rows_apart.NAMES


def _below_adapters(model: Any) -> Any:
    """The model of transformers, without LoRA's adapters."""
    return model.get_base_model() if is_peft_model(model) else model
