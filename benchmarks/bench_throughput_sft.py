"""SFT's part of the throughput benchmark: packed rows beside padded ones, on the same rows.

Both are TRL's `SFTTrainer`, as `stages.sft` uses it; `packing: true` is a key of the recipe. The
learning rate is 0, so that the loss over all completion tokens of the pass is the same whatever
shares a batch, unless packed rows see each other.
"""

from functools import partial
from typing import Any

from datasets import Dataset
from trl import SFTConfig, SFTTrainer, pack_dataset

from benchmarks.bench_throughput_steps import take_turns, train
from benchmarks.bench_throughput_workload import draw_sft_rows
from data_prep.config import UserError

TOLERANCE = {"float32": 1e-4, "bfloat16": 1e-3}  # relative, of the mean loss of a pass


class Recorded(SFTTrainer):
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


def build_trainer(
    packed_length: int | None, rows: list[dict], args: Any, folder: Any, tokenizer: Any
) -> Any:
    """A trainer for one pass over the rows, in as many optimizer steps whatever the packing.

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
    return Recorded(
        model=str(folder / "model"),
        args=config,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
    )


def check_equal(runs: dict[str, dict[str, Any]], tolerance: float) -> float:
    """The greatest relative difference in the mean loss of the pass to "padded".

    Raises:
        UserError: it is above the tolerance, or other tokens were scored.
    """
    padded, greatest = runs["padded"], 0.0
    for name, run in runs.items():
        difference = abs(run["loss"] - padded["loss"]) / padded["loss"]
        if run["num_scored"] != padded["num_scored"] or not difference <= tolerance:
            raise UserError(
                f"SFT: {name} has loss {run['loss']} on {run['num_scored']} tokens, padded "
                f"{padded['loss']} on {padded['num_scored']}; no ratio is given above a relative "
                f"difference of {tolerance:g}"
            )
        greatest = max(greatest, difference)
    return greatest


def measure(args: Any, folder: Any, tokenizer: Any) -> dict[str, Any]:
    """Take turns on new rows each.

    Returns:
        `rows` of each turn as (prompt, completion) lengths, `runs` by kind, `difference`.
    """
    rows = [
        draw_sft_rows(args.sft_rows, args.sft_max_length, turn) for turn in range(args.num_turns)
    ]
    kinds = {"padded": None} | {f"packed to {length:,}": length for length in args.packed_lengths}

    def run(length: int | None, turn: int) -> dict[str, Any]:
        trainer = build_trainer(length, rows[turn], args, folder, tokenizer)
        found = train(trainer, {})
        return found | {
            "num_scored": trainer.num_scored, "loss": trainer.nll / trainer.num_scored,
            "steps": trainer.state.global_step,
        }  # fmt: skip

    check = partial(check_equal, tolerance=TOLERANCE[args.precision])
    runs, difference = take_turns(kinds, run, args.num_turns, check)
    return {
        "rows": [
            [(row["completion_mask"].count(0), sum(row["completion_mask"])) for row in turn]
            for turn in rows
        ],
        "runs": runs,
        "difference": difference,
    }
