"""The curriculum inside TRL's trainer: problems are chosen before they are generated.

`CurriculumGRPO` changes what goes into `_generate_and_score_completions`, may call it again for
groups that came out uniform, and then gives advantages and token count of the whole batch anew.
Every process holds the same curriculum, fed with gathered results, and takes its own part of the
choice: whole groups, the same number of rounds on every rank.
"""

from collections import deque
from dataclasses import dataclass
from typing import Any

import torch
from trl import GRPOTrainer

from stages.settings.reward_arguments import GRADED
from stages.trainer.advantages import advantages, sum_rewards
from stages.trainer.curriculum import Curriculum
from stages.trainer.rollout_batch import (
    Groups,
    is_uniform,
    num_loss_tokens,
    pair_groups,
    replace_rows,
    rows_of,
)

EXTREMES = {"min_": min, "max_": max}  # of completions/min_length and the like


@dataclass
class Count:
    """Completions generated so far, by all processes; saved with every checkpoint."""

    num_completions: int = 0

    def state_dict(self) -> dict[str, int]:
        """For the checkpoint."""
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, int]) -> None:
        """From the checkpoint."""
        self.num_completions = state["num_completions"]


class CurriculumGRPO(GRPOTrainer):
    """`GRPOTrainer` that trains on the problems a `Curriculum` chooses.

    Args:
        curriculum: follows the pass rates; None leaves everything to TRL.
        max_refill_rounds: times that uniform groups of a batch are replaced by groups of other
            problems, 0 for never.
        advantage: one of `ADVANTAGES`; "posterior" needs a curriculum,
            the others agree with the config's `scale_rewards`.
    """

    def __init__(
        self,
        *args: Any,
        curriculum: Curriculum | None = None,
        max_refill_rounds: int = 0,
        advantage: str = "group",
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._curriculum, self._advantage = curriculum, advantage
        self._max_refill_rounds = max_refill_rounds
        self._groups: Groups | None = None  # of the last call of `_calculate_rewards`
        self._count = Count()
        self._graded = [i for i, name in enumerate(self.reward_func_names) if name in GRADED]
        self._index: dict[str, int] = {}
        if curriculum is not None:
            self._index = {key: index for index, key in enumerate(self.train_dataset["id"])}

    @property
    def num_completions(self) -> int:
        """Completions generated for training so far, by all processes."""
        return self._count.num_completions

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        if not self.model.training or self._curriculum is None:
            return super()._generate_and_score_completions(inputs)
        self._curriculum.start_batch()
        if self._curriculum.is_predictive:
            num_groups = len(inputs) // self.num_generations * self.accelerator.num_processes
            inputs = self._rows(self._curriculum.choose(num_groups))
        num_logged = {name: len(values) for name, values in self._metrics["train"].items()}
        batch = super()._generate_and_score_completions(inputs)
        groups = self._groups
        if self._max_refill_rounds:
            batch, groups, sizes = self._refill(batch, groups)
            self._log_rounds(groups, sizes, num_logged)
        if self._max_refill_rounds or self._advantage == "posterior":
            batch["advantages"] = self._local_advantages(groups)
            batch["num_items_in_batch"] = self.accelerator.gather(num_loss_tokens(batch)).sum()
        return batch

    def _rows(self, problems: list[int]) -> list[dict[str, Any]]:
        """This process's part of the problems, each repeated for its rollouts."""
        num_mine = len(problems) // self.accelerator.num_processes
        first = self.accelerator.process_index * num_mine
        mine = [self.train_dataset[index] for index in problems[first : first + num_mine]]
        return [row for row in mine for _ in range(self.num_generations)]

    def _refill(
        self, batch: dict[str, Any], groups: Groups
    ) -> tuple[dict[str, Any], Groups, list[int]]:
        """Replace uniform groups by useful ones of other problems, for a bounded number of rounds.

        Every rank generates as many groups as the rank with most uniform ones, so that all go
        through the same collective calls; groups do not move between ranks.

        Returns:
            Batch and groups to train on, and how many groups each round has generated, the first
            included.
        """
        world, rank = self.accelerator.num_processes, self.accelerator.process_index
        taken, sizes = groups.problems.tolist(), [len(groups.problems)]
        for _ in range(self._max_refill_rounds):
            is_bad = is_uniform(groups.correctness, groups.size).view(world, -1)
            num_new = int(is_bad.sum(dim=1).max())
            if not num_new:
                break
            problems = self._curriculum.choose(num_new * world, taken)
            table = [list(column) for column in self._table()]
            new_batch = super()._generate_and_score_completions(self._rows(problems))
            new, taken = self._groups, [*taken, *problems]
            sizes.append(len(problems))
            is_good = ~is_uniform(new.correctness, new.size).view(world, num_new)
            old_ones, new_ones = pair_groups(is_bad, is_good)
            groups = groups.replaced(new, old_ones, new_ones)
            self._replace_in_table(
                table, rows_of(old_ones, groups.size), rows_of(new_ones, groups.size)
            )
            num_local = is_bad.size(1)
            is_mine = old_ones // num_local == rank
            rows = (old_ones[is_mine] % num_local, new_ones[is_mine] % num_new)
            batch = replace_rows(
                batch,
                new_batch,
                *(rows_of(index, groups.size) for index in rows),
                self._tokenizer.pad_token_id,
            )
        return batch, groups, sizes

    def _table(self) -> list[deque]:
        """Columns of TRL's table of completions: a row for each of the batch, of all processes."""
        logs = self._logs
        columns = [*logs["rewards"].values(), *logs["extra"].values()]
        return [logs["prompt"], logs["completion"], *columns]

    def _replace_in_table(
        self, table: list[list], old_rows: torch.Tensor, new_rows: torch.Tensor
    ) -> None:
        """Make the table what it was before this round, with the rows that are replaced."""
        for values, column in zip(table, self._table(), strict=True):
            # TRL keeps as many rows as a batch has, so the new ones have pushed others out.
            new = list(column)
            first = len(new) - self._groups.rewards.size(0)
            for old_row, new_row in zip(old_rows.tolist(), new_rows.tolist(), strict=True):
                values[old_row] = new[first + new_row]
            column.extend(values)

    def _log_rounds(self, groups: Groups, sizes: list[int], num_logged: dict[str, int]) -> None:
        """One value a batch: over all that was generated or, of uniform groups, trained on too.

        Args:
            groups: that are trained on.
            sizes: groups that each round has generated.
            num_logged: values that each metric had before the batch.
        """
        metrics = self._metrics["train"]
        for name, values in metrics.items():
            first = num_logged.get(name, 0)
            rounds = torch.tensor(values[first:], dtype=torch.float64)
            if len(rounds) == len(sizes) > 1 and (pick := EXTREMES.get(name[12:16])):
                values[first:] = [pick(values[first:])]
            elif len(rounds) == len(sizes) > 1:  # num_tokens counts on and has one
                weights = torch.tensor(sizes) * ~rounds.isnan()
                values[first:] = [((rounds.nan_to_num() * weights).sum() / weights.sum()).item()]
        is_bad = is_uniform(groups.correctness, groups.size)
        metrics["train/uniform_groups"].append(is_bad.float().mean().item())
        rewards = sum_rewards(groups.rewards, self.reward_weights.to(groups.rewards.device))
        std = rewards.view(-1, groups.size).std(dim=1)
        is_zero = torch.isclose(std, torch.zeros_like(std))
        metrics["frac_reward_zero_std"][-1] = is_zero.float().mean().item()

    def _local_advantages(self, groups: Groups) -> torch.Tensor:
        """Advantages of this process's rows, shape (B,), by the recipe's `advantage`."""
        weights = self.reward_weights.tolist()
        values = advantages(
            self._advantage,
            sum_rewards(groups.rewards, self.reward_weights.to(groups.rewards.device)),
            groups.size,
            correctness=groups.correctness,
            pass_rates=groups.pass_rates,
            correctness_weight=sum(
                weights[i] * GRADED[self.reward_func_names[i]] for i in self._graded
            ),
        )
        self._logs["advantages"].extend(values.tolist())  # pushes TRL's own out
        return values.chunk(self.accelerator.num_processes)[self.accelerator.process_index]

    def _calculate_rewards(
        self,
        inputs: list[dict[str, Any]],
        prompts: list,
        completions: list,
        completion_ids_list: list[list[int]],
    ) -> torch.Tensor:
        # Gathered over processes, shape (N*G, number of reward functions).
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        if not self.model.training:
            return rewards
        if self._graded:
            correctness = (rewards[:, self._graded[0]] > 0).float()  # (N*G,)
            metrics = self._metrics["train"]
            metrics["rollout/correctness"].append(correctness.mean().item())
            num_uniform = is_uniform(correctness, self.num_generations).float().mean().item()
            metrics["rollout/uniform_groups"].append(num_uniform)
        self._count.num_completions += len(rewards)
        if self._curriculum is not None:
            self._groups = self._follow(inputs[:: self.num_generations], rewards, correctness)
        return rewards

    def _follow(
        self, rows: list[dict[str, Any]], rewards: torch.Tensor, correctness: torch.Tensor
    ) -> Groups:
        """Tell the curriculum what the groups of these rows, one each, have shown."""
        mine = torch.tensor([self._index[row["id"]] for row in rows], device=rewards.device)
        problems = self.accelerator.gather(mine)  # (N,)
        rates = torch.tensor(self._curriculum.pass_rates(problems.tolist()), device=rewards.device)
        num_right = correctness.view(len(problems), -1).sum(dim=1).int().tolist()
        self._curriculum.update(problems.tolist(), num_right, self.num_generations)
        return Groups(problems, rates, rewards, correctness)
