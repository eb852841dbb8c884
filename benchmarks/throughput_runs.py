"""The trainers of the throughput benchmark, which take turns, with a clock on each part of a step.

SFT: packed rows and padded ones, both with TRL's `SFTTrainer` as `stages.sft` uses it. GRPO: the
update on given rollouts, and the split of a whole step. A turn is new weights from one folder, the
same rows and the same rollouts for each trainer; where losses or gradients differ by more than
rounding no ratio is given.

On a GPU a part's time is the wall clock's, read when the device has finished. On a CPU it is the
process's own time on one thread, which other load on the machine hardly touches.
"""

import gc
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import TrainerCallback
from transformers.trainer_callback import PrinterCallback, ProgressCallback
from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer, pack_dataset

from benchmarks.throughput_workload import Rollouts, draw_groups, draw_sft_rows
from data_prep.config import UserError
from stages.trainer.guards import GuardSettings
from stages.trainer.trainer import MathGRPOTrainer

GRPO_PARTS = {  # method of TRL's trainer -> part of a step
    "_generate": "generate",
    "_calculate_rewards": "reward",
    "_get_per_token_logps_and_entropies": "log-probs",
    "_prepare_inputs": "inputs",
}
ONE_PASS = 10**9  # tokens: a micro-batch is never split
UNIFORM_SHARE = 0.63  # of the groups of the published run this project starts from
# Relative difference that is put down to rounding: of the mean loss of an SFT pass, and of the loss
# and gradient norm of a GRPO step.
SFT_TOLERANCE = {"float32": 1e-4, "bfloat16": 1e-3}
GRPO_TOLERANCE = {"float32": 1e-3, "bfloat16": 3e-2}


def now() -> float:
    """Seconds: see the module's docstring."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


@contextmanager
def peak_memory(found: dict[str, float]) -> Iterator[None]:
    """Put the highest memory within the block into `found["bytes"]`.

    Of a GPU what torch allocated; of a CPU the resident set of the process, whose mark Linux
    forgets where `/proc/self/clear_refs` can be written, and else since the process began.
    """
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        yield
        found["bytes"] = torch.cuda.max_memory_allocated()
        return
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    yield
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    found["bytes"] = int(line.split()[1]) * 1024


class StepClock(TrainerCallback):
    """Seconds of each part of a trainer's steps, and the loss and gradient norm of each step.

    Args:
        trainer: whose methods are timed; `seconds["step"]` is from the first minibatch of an
            optimizer step to behind the optimizer.
        parts: method -> name.
    """

    def __init__(self, trainer: Any, parts: dict[str, str]) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.losses: list[float] = []
        self._started = 0.0
        for method, part in parts.items():
            setattr(trainer, method, self._timed(getattr(trainer, method), part))
        self._whole_step = trainer.training_step
        trainer.training_step = self._training_step
        for callback in (ProgressCallback, PrinterCallback):
            trainer.remove_callback(callback)
        trainer.add_callback(self)

    def _timed(self, method: Callable[..., Any], part: str) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            # The update's own forward pass is no pass for log-probs.
            if part == "log-probs" and torch.is_grad_enabled():
                return method(*args, **kwargs)
            started = now()
            try:
                return method(*args, **kwargs)
            finally:
                self.seconds[part] += now() - started

        return timed

    def _training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        loss = self._whole_step(*args, **kwargs)
        self.losses[-1] += float(loss.detach())
        return loss

    def on_step_begin(self, args, state, control, **kwargs):
        self.losses.append(0.0)
        self._started = now()

    def on_step_end(self, args, state, control, **kwargs):
        self.seconds["step"] += now() - self._started


def train(trainer: Any, parts: dict[str, str]) -> dict[str, Any]:
    """Train to the end.

    Returns:
        `seconds` of the parts and of all steps, `losses` and `grad_norms` of the optimizer steps,
        `memory` in bytes.
    """
    clock = StepClock(trainer, parts)
    memory: dict[str, float] = {}
    with peak_memory(memory):
        trainer.train()
    logs = trainer.state.log_history
    return {
        "seconds": dict(clock.seconds),
        "losses": clock.losses,
        "grad_norms": [float(log["grad_norm"]) for log in logs if "grad_norm" in log],
        "memory": memory["bytes"],
    }


def check_equal(
    what: str, runs: dict[str, dict[str, Any]], keys: tuple[str, ...], tolerance: float
) -> float:
    """The greatest relative difference to the first trainer in lists of numbers.

    On policy the ratio is 1, so GRPO's loss is the same whatever the model says; the norm is not.

    Raises:
        UserError: it is above the tolerance, or a number is missing: no ratio may be given.
    """
    greatest = 0.0
    first, *others = runs
    for name in others:
        for key in keys:
            mine, theirs = runs[name][key], runs[first][key]
            if len(mine) != len(theirs) or not mine:
                raise UserError(f"{what}: {name} has {len(mine)} {key}; no ratio is given")
            for a, b in zip(mine, theirs, strict=True):
                difference = abs(a - b) / max(abs(b), 0.1)  # near 0 of great terms' difference
                if not difference <= tolerance:  # NaN is never below
                    raise UserError(
                        f"{what}: {key} of {name} are {mine}, those of {first} {theirs}; no ratio "
                        f"is given above a relative difference of {tolerance:g}"
                    )
                greatest = max(greatest, difference)
    return greatest


def take_turns(
    kinds: dict[str, Any],
    run: Callable[[Any, int], dict[str, Any]],
    num_turns: int,
    check: Callable[[dict[str, dict[str, Any]]], float],
) -> dict[str, Any]:
    """`runs` of each kind, one a turn, and `difference`, the greatest that `check` found.

    Args:
        run: of a kind and a turn's number -> what was found.
        check: compares the runs of a turn and raises where they must not be compared.
    """
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in kinds}
    greatest, names = 0.0, list(kinds)
    for turn in range(num_turns):
        shift = turn % len(names)  # none is always first
        this = {}
        for name in names[shift:] + names[:shift]:
            gc.collect()  # the last trainer, before the next one is loaded
            this[name] = run(kinds[name], turn)
        greatest = max(greatest, check({name: this[name] for name in names}))
        for name, found in this.items():
            runs[name].append(found)
    return {"runs": runs, "difference": greatest}


class RecordedSFT(SFTTrainer):
    """`SFTTrainer` that sums the loss over all completion tokens it has seen."""

    nll, num_scored = 0.0, 0

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        loss = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        self.nll += float(loss.detach()) * float(num_items_in_batch)  # TRL has divided by it
        self.num_scored += int((inputs["labels"][:, 1:] != -100).sum())
        return loss


def build_sft(
    packed_length: int | None, rows: list[dict], args: Any, folder: Path, tokenizer: Any
) -> Any:
    """A trainer for one pass over the rows, in as many optimizer steps whatever the packing.

    The learning rate is 0, so that the loss over all completion tokens of the pass is the same
    whatever shares a batch, unless packed rows see each other.

    Args:
        packed_length: tokens of a packed row, which then is a micro-batch; None pads
            `sft_batch_size` rows to the longest of them.
    """
    steps = max(1, len(rows) // args.sft_rows_per_step)
    batch_size, num_batches = args.sft_batch_size, len(rows) // args.sft_batch_size
    if packed_length:
        lists = Dataset.from_list([{"input_ids": row["input_ids"]} for row in rows])
        batch_size, num_batches = 1, len(pack_dataset(lists, packed_length, "bfd"))
    config = SFTConfig(
        output_dir=str(folder / "sft"),
        packing=bool(packed_length),
        max_length=packed_length or args.sft_max_length,
        completion_only_loss=True,
        per_device_train_batch_size=batch_size,
        gradient_accumulation_steps=-(-num_batches // steps),
        num_train_epochs=1,
        dataset_num_proc=None,
        **(args.training() | {"learning_rate": 0.0}),
    )
    return RecordedSFT(
        model=str(folder / "model"),
        args=config,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
    )


def measure_sft(args: Any, folder: Path, tokenizer: Any) -> dict[str, Any]:
    """Packed rows and padded ones, in turns on new rows each.

    Args:
        args: the benchmark's arguments.
        folder: holds `model`; takes TRL's output.

    Returns:
        `rows` of each turn as (prompt, completion) lengths, `runs` by kind, `difference`.
    """
    rows = [
        draw_sft_rows(args.sft_rows, args.sft_max_length, turn) for turn in range(args.num_turns)
    ]
    kinds = {"padded": None} | {f"packed to {length:,}": length for length in args.packed_lengths}

    def run(length: int | None, turn: int) -> dict[str, Any]:
        trainer = build_sft(length, rows[turn], args, folder, tokenizer)
        found = train(trainer, {})
        mean = [trainer.nll / trainer.num_scored]
        scored = {"mean_losses": mean, "num_scored": [trainer.num_scored]}
        return found | scored | {"steps": trainer.state.global_step}

    def check(runs: dict[str, dict[str, Any]]) -> float:
        check_equal("SFT", runs, ("num_scored",), 0.0)
        return check_equal("SFT", runs, ("mean_losses",), SFT_TOLERANCE[args.precision])

    lengths = [
        [(row["completion_mask"].count(0), sum(row["completion_mask"])) for row in turn]
        for turn in rows
    ]
    return {"rows": lengths} | take_turns(kinds, run, args.num_turns, check)


class Unsorted(MathGRPOTrainer):
    """Ours without sorting: rows are trimmed to the longest of the micro-batch they fell into."""

    _prepare_inputs = GRPOTrainer._prepare_inputs


class NothingSkipped(MathGRPOTrainer):
    """Ours with a gradient for every row, also where the advantage is 0."""

    def _has_gradient(self) -> None:
        return None


# Part -> name -> trainer, and whether passes are bounded by `update_tokens`; None is TRL as it is.
STOCK, OURS = (GRPOTrainer, None), (MathGRPOTrainer, True)
KINDS: dict[str, dict[str, tuple[type, bool | None]]] = {
    "update": {
        "stock": STOCK,
        "trimmed": (Unsorted, False),
        "sorted": (MathGRPOTrainer, False),
        "ours": OURS,
    },
    "uniform": {"stock": STOCK, "nothing skipped": (NothingSkipped, True), "ours": OURS},
    "step": {"stock": STOCK, "ours": OURS},
}


def build_grpo(
    kind: tuple[type, bool | None], args: Any, folder: Path, rollouts: Rollouts, is_forced: bool
) -> Any:
    """A trainer for one generation batch, which is one optimizer step.

    Args:
        is_forced: rollouts and rewards are given; else the model writes completions of the same
            lengths, and texts are graded.
    """
    trainer_class, is_bounded = kind
    config = GRPOConfig(
        output_dir=str(folder / "grpo"),
        num_generations=args.num_generations,
        per_device_train_batch_size=args.grpo_batch_size,
        gradient_accumulation_steps=args.num_groups * args.num_generations // args.grpo_batch_size,
        max_steps=1,
        beta=args.beta,
        max_completion_length=max(max(group.lengths) for group in rollouts.groups),
        loss_type="dapo",
        **args.training(),
    )
    trainer = trainer_class(
        model=str(folder / "model"),
        args=config,
        reward_funcs=rollouts.forced_reward if is_forced else rollouts.graded_reward,
        train_dataset=Dataset.from_list([{"prompt": group.prompt} for group in rollouts.groups]),
        processing_class=rollouts.tokenizer,
        rollout_func=rollouts.generate if is_forced else None,
        **({} if is_bounded is None else {"guards": GuardSettings()}),
    )
    if is_bounded is not None:
        trainer.update_tokens = args.update_tokens if is_bounded else ONE_PASS
    if not is_forced:
        rollouts.force_lengths(trainer.model)
    return trainer


def split_step(seconds: dict[str, float]) -> dict[str, float]:
    """Parts of the time of GRPO steps that add up to it.

    The update is forward, backward and optimizer; `other` is what TRL and we do besides: padding,
    sorting, advantages, metrics.
    """
    parts = {name: seconds.get(name, 0.0) for name in ("generate", "reward", "log-probs")}
    parts["update"] = seconds["step"] - seconds["inputs"]
    parts["other"] = seconds["inputs"] - parts["generate"] - parts["reward"] - parts["log-probs"]
    return parts


def measure_grpo(part: str, args: Any, folder: Path, tokenizer: Any) -> dict[str, Any]:
    """The trainers of a part, in turns on new rollouts each.

    Args:
        part: a key of `KINDS`; "step" generates for itself.

    Returns:
        As `measure_sft`; the runs with `parts`, the seconds that add up to their step.
    """
    kinds = {name: KINDS[part][name] for name in KINDS[part] if name in ("stock", *args.variants)}
    is_forced = part != "step"
    share = UNIFORM_SHARE if part == "uniform" else 0.0
    num_turns = args.num_turns if is_forced else args.num_step_turns
    rollouts = [
        Rollouts(draw_groups(args.num_groups, args.num_generations, share, turn), tokenizer, turn)
        for turn in range(num_turns)
    ]

    def run(kind: tuple[type, bool | None], turn: int) -> dict[str, Any]:
        found = train(build_grpo(kind, args, folder, rollouts[turn], is_forced), GRPO_PARTS)
        return found | {"parts": split_step(found["seconds"])}

    def check(runs: dict[str, dict[str, Any]]) -> float:
        tolerance = GRPO_TOLERANCE[args.precision]
        return check_equal(f"GRPO, {part}", runs, ("losses", "grad_norms"), tolerance)

    lengths = [
        [(len(group.prompt), length) for group in turn.groups for length in group.lengths]
        for turn in rollouts
    ]
    return {"rows": lengths} | take_turns(kinds, run, num_turns, check)
