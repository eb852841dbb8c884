"""SFT before GRPO: teach the format and the worked solutions, with the loss on completions only.

    python -m stages.sft --config configs/tiny-cpu/sft.yaml
    accelerate launch -m stages.sft --config configs/grpo7b/sft.yaml

Reads the builder's `sft_train.jsonl` and writes a checkpoint that `stages.grpo` starts from.
Prompt and completion of a row are tokenized apart, exactly as generation will see them. A row over
`max_length` is dropped and counted: a cut row would lose its answer and its EOS.
All parameters are trained by default, LoRA with `use_peft: true`; `packing: true` packs whole rows.
"""

import math
from typing import Any

from pipeline.console import hide_trackers, quiet, say
from pipeline.errors import run_cli
from pipeline.launched import in_launch
from pipeline.models.checkpoints import loading
from pipeline.models.tokenizer import load_template
from pipeline.settings import parse
from stages.arguments import DEFAULTS, SFT, SftArguments
from stages.host import check_sft
from stages.run.launch import check_started, launched


def keep_mask(sft: Any) -> None:
    """Let the loss be on completions alone, unless the recipe says otherwise.

    TRL decides by the columns' names, and for tokenized rows it would ignore their mask.
    """
    if sft.completion_only_loss is None:
        sft.completion_only_loss = True


def load_sft_tokenizer(sft: Any, model: Any) -> Any:
    """The checkpoint's tokenizer, with the recipe's template where it names one."""
    from stages.run import training

    template = None
    if sft.chat_template_path:
        template = load_template(sft.chat_template_path)
    return training.load_tokenizer(model, sft, template)


def build_trainer(
    rows: Any, args: SftArguments, sft: Any, model: Any, tokenizer: Any, held_out: Any = None
) -> Any:
    """TRL's trainer over tokenized rows; `sft`, `model`: TRL's `SFTConfig`, `ModelConfig`."""
    from stages.adapters import adapting
    from stages.run import training
    from stages.run.saving import SavedSFTTrainer

    # The tokenizer is whole: TRL would clone a folder's special tokens after rows are tokenized.
    sft.chat_template_path = None
    max_length = sft.max_length
    if not sft.packing:
        sft.max_length = None  # no row is longer: TRL would copy them all through Python lists
    with loading("model", model.model_name_or_path, "model_name_or_path"), adapting(model):
        trainer = SavedSFTTrainer(
            train_dataset=rows,
            eval_dataset=held_out,
            processing_class=tokenizer,
            **training.trainer_kwargs(model, sft),
        )
    sft.max_length = max_length
    training.check_full_batch(trainer)
    if sft.packing or sft.padding_free:
        from stages.packed_rows import check_rows_apart, use_varlen

        check_rows_apart(trainer)
        use_varlen(trainer)
    if args.stochastic_rounding:
        from stages.trainer.update import use_stochastic_rounding

        use_stochastic_rounding(trainer)
    return trainer


def main() -> None:
    """Read the settings, tokenize, begin the run, train, save, write the manifest."""
    args, sft, model = parse(
        __doc__, SftArguments, SFT, launched(check_sft), defaults=DEFAULTS, owns="output_dir"
    )
    keep_mask(sft)
    hide_trackers(sft.report_to)

    from stages import sft_rows
    from stages.run import training

    quiet()
    check_started(bool(sft.use_cpu))
    tokenizer = load_sft_tokenizer(sft, model)
    training.check_start(args, sft, model, tokenizer)
    rows, num_tokens, num_long = sft_rows.load(args.train_file, tokenizer, sft)
    held_out, num_held_out_long = None, 0
    if args.eval_file:
        held_out, _, num_held_out_long = sft_rows.load(args.eval_file, tokenizer, sft)

    files = [args.train_file, args.eval_file, model.model_name_or_path, sft.chat_template_path]
    run = training.begin("sft", files, args, sft, model)
    if run is None:
        return
    say(f"sft: {len(rows):,} rows of {args.train_file}, {num_long:,} over max_length dropped")
    if held_out:
        say(
            f"sft: {len(held_out):,} held-out rows of {args.eval_file}, {num_held_out_long:,} over "
            "max_length dropped"
        )

    trainer = build_trainer(rows, args, sft, model, tokenizer, held_out)
    training.train(trainer, "sft", run.checkpoint)
    training.save(trainer)

    num_steps = trainer.state.global_step
    counts = {"rows": len(rows), "tokens": num_tokens, "steps": num_steps}
    if held_out:
        counts["held_out_rows"] = len(held_out)
    measured = {}
    eval_loss = training.last_logged(trainer, "eval_loss")
    if not math.isnan(eval_loss):
        measured["eval_loss"] = eval_loss
    training.conclude(
        run,
        counts,
        rows_in=len(rows) + num_long,
        rows_out=len(rows),
        dropped={"over_max_length": num_long},
        **measured,
    )
    losses = describe_losses(trainer, is_resumed=bool(run.checkpoint))
    say(f"sft: {num_steps} steps{losses} -> {run.folder}")
    training.finish(trainer)


def describe_losses(trainer: Any, is_resumed: bool) -> str:
    """The last losses and the accuracy that were logged: ", loss 1.2345, token accuracy 0.678"."""
    from stages.run.training import last_logged

    # A run shorter than logging_steps has logged nothing but its mean loss. Of a resumed run that
    # mean divides the loss of the new steps by all steps.
    keys = ("loss",) if is_resumed else ("loss", "train_loss")
    loss = last_logged(trainer, *keys)
    eval_loss = last_logged(trainer, "eval_loss")
    accuracy = last_logged(trainer, "mean_token_accuracy")
    text = ""
    if not math.isnan(loss):
        text += f", loss {loss:.4f}"
    if not math.isnan(eval_loss):
        text += f", held-out loss {eval_loss:.4f}"
    if not math.isnan(accuracy):
        text += f", token accuracy {accuracy:.3f}"
    return text


if __name__ == "__main__":
    run_cli(in_launch(main))
