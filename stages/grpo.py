"""GRPO with verifiable rewards on the SFT checkpoint.

    python -m stages.grpo --config configs/tiny-cpu/grpo.yaml
    accelerate launch -m stages.grpo --config configs/grpo7b/grpo.yaml

Reads `grpo_train.jsonl` and, where the recipe names one, the SFT model's `pass_rates.jsonl`. Trains
`MathGRPOTrainer` with the recipe's rewards on problems that its curriculum chooses. The defaults
differ from the GRPO paper (arXiv:2402.03300). The loss is averaged over tokens instead of over
completions (as DAPO, arXiv:2503.14476). There is a KL term (k3) only where `beta` is not 0.
"""

import hashlib
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from data_prep.sampling.fastest import uses_ours
from data_prep.sampling.problems import load_pass_counts
from data_prep.schema import COLUMNS, grader_files, question_of, read_problems
from grading.own_grader import COLUMN
from pipeline.console import hide_trackers, is_main_process, quiet, say
from pipeline.errors import UserError, run_cli
from pipeline.launched import in_launch
from pipeline.models import dropout
from pipeline.models.checkpoints import loading
from pipeline.models.generation import describe_ignored
from pipeline.own_code import is_own, own_files
from pipeline.prompts import prefills_think, raw_text, render_prompt
from pipeline.settings import parse
from stages.arguments import DEFAULTS, GRPO, GrpoArguments, completion_room, keeps_old_logps
from stages.blame import blamed
from stages.held_out import LEAST_PROBLEMS, key_of
from stages.host import check_grpo, engine_keys
from stages.run.launch import launched
from stages.trainer.curriculum import build_curriculum, keep_by_pass_rate
from stages.trainer.guards import GuardSettings
from stages.trainer.logprobs import why_not_compared

Rows = list[dict[str, Any]]


def sample_problems(rows: Rows, num: int | None, seed: int) -> Rows:
    """`num` different problems (None: all), drawn by a hash of seed and question.

    The order of the rows does not matter. A greater `num` only adds problems; more rows change few.
    """
    different = {key_of(row): row for row in reversed(rows)}  # of copies the first

    def rank(key: str) -> bytes:
        return hashlib.sha256(f"{seed} {key}".encode()).digest()

    return [different[key] for key in sorted(different, key=rank)[:num]]


def hold_out(rows: Rows, args: GrpoArguments, seed: int) -> tuple[Rows, Rows]:
    """Split the rows into those to train on and those held out."""
    if args.eval_file:
        problems = list(read_problems(args.eval_file))
        return rows, sample_problems(problems, args.eval_problems, seed)
    if not args.eval_problems:
        return rows, []
    held_out = sample_problems(rows, args.eval_problems, seed)
    keys = {key_of(row) for row in held_out}
    return [row for row in rows if key_of(row) not in keys], held_out


def short_prompts(rows: list[dict], limit: int | None, tokenizer: Any) -> list[dict]:
    """The rows whose rendered prompt has at most `limit` tokens; all where there is no limit."""
    if not limit or not rows:
        return rows
    lengths = prompt_lengths(rows, tokenizer)
    return [row for row, length in zip(rows, lengths, strict=True) if length <= limit]


def prompt_lengths(rows: Rows, tokenizer: Any) -> list[int]:
    """Tokens of each row's rendered prompt."""
    prompts = [render_prompt(row["prompt"], tokenizer) for row in rows]
    return [len(ids) for ids in tokenizer(prompts, add_special_tokens=False)["input_ids"]]


def split(
    rows: Rows, args: GrpoArguments, seed: int, tokenizer: Any
) -> tuple[Rows, Rows, dict[str, int]]:
    """Rows to train on, rows to evaluate on, and how many of the first are dropped, by reason."""
    to_train, chosen = hold_out(rows, args, seed)
    held_out = short_prompts(chosen, args.max_prompt_length, tokenizer)
    if chosen and len(held_out) < LEAST_PROBLEMS:
        raise UserError(
            f"max_prompt_length: {args.max_prompt_length} leaves {len(held_out)} of "
            f"{len(chosen)} validation problems; raise it, or raise eval_problems"
        )
    dropped = {"held_out": len(rows) - len(to_train)} if chosen and not args.eval_file else {}
    problems = short_prompts(to_train, args.max_prompt_length, tokenizer)
    if args.max_prompt_length:
        dropped["over_max_prompt_length"] = len(to_train) - len(problems)
    if args.curriculum == "offline" and args.pass_rates:
        counts, before = load_pass_counts(args.pass_rates), len(problems)
        problems = keep_by_pass_rate(problems, counts, args.min_pass_rate, args.max_pass_rate)
        dropped["outside_pass_rate_band"] = before - len(problems)
    return problems, held_out, dropped


def limit_completions(
    rows: Rows, args: GrpoArguments, grpo: Any, model: Any, tokenizer: Any
) -> None:
    """Put a number in place of `max_completion_length: null`: what the model's context leaves.

    Without one transformers would end each completion after 20 tokens, and a vLLM server after 16.
    """
    from stages.run.training import load_config

    if grpo.max_completion_length is not None:
        return
    positions = getattr(load_config(model, grpo), "max_position_embeddings", None)
    longest = args.max_prompt_length or max(prompt_lengths(rows, tokenizer))
    room = completion_room(grpo, positions, longest)
    if room is None:
        raise UserError(
            f"max_completion_length: null, and {model.model_name_or_path} does not say how long "
            "its context is; set a number of tokens"
        )
    grpo.max_completion_length = room
    say(f"grpo: max_completion_length: null: {room:,} tokens, up to the end of the model's context")


def taken_columns(rows: Rows, reward_funcs: list[str]) -> list[str]:
    """Columns hidden from a reward of the user's own: TRL or the trainer uses their names."""
    from stages.rewards import TAKEN

    has_own = any(map(is_own, reward_funcs))
    return sorted(TAKEN & {key for row in rows for key in row}) if has_own else []


def trainer_rows(rows: Sequence[dict], tokenizer: Any) -> Rows:
    """The rows with the columns that all have; Arrow cannot hold every value of the others.

    Raises:
        UserError: raw prompts and messages stand side by side, which TRL would take for one kind;
            or raw prompts that begin the thought and others, which the rewards would.
    """
    keys = (*COLUMNS, COLUMN) if any(row.get(COLUMN) for row in rows) else COLUMNS
    found = [{key: row.get(key) for key in keys} | {"question": question_of(row)} for row in rows]
    raw = [row for row in found if isinstance(row["prompt"], str)]
    if raw and len(raw) < len(found):
        raise UserError(
            f"train_file: {len(raw)} prompts are raw text, such as that of {raw[0]['id']}, and "
            f"{len(found) - len(raw)} are messages; set apply_chat_template alike for all sets"
        )
    begun = [row["id"] for row in raw if prefills_think(str(row["prompt"]))]
    if begun and len(begun) < len(raw):
        raise UserError(
            f"train_file: {len(begun)} raw prompts end with <think>, such as that of {begun[0]}, "
            f"and {len(raw) - len(begun)} do not; the rewards read all alike: keep one kind"
        )
    for row in raw:
        row["prompt"] = raw_text(str(row["prompt"]), tokenizer)
    return found


def guards_of(args: GrpoArguments, grpo: Any) -> GuardSettings:
    """The recipe's guards, without that of alignment where there is nothing to compare."""
    settings = args.guard_settings()
    return replace(settings, alignment="off") if why_not_compared(grpo) else settings


def build_trainer(
    problems: list[dict],
    args: GrpoArguments,
    grpo: Any,
    model: Any,
    tokenizer: Any,
    held_out: Sequence[dict] = (),
) -> Any:
    """The trainer that a recipe asks for; `grpo`, `model`: TRL's `GRPOConfig`, `ModelConfig`."""
    from datasets import Dataset

    from stages.rewards import BatchGrader, build_rewards, reward_columns
    from stages.run import training
    from stages.trainer import grpo_trainer

    if grpo.use_vllm:
        from stages.trainer.vllm import use_vllm

        use_vllm(args.vllm_call_timeout, engine_keys(grpo, model.dtype))
    think_prefilled = prefills_think(render_prompt(problems[0]["prompt"], tokenizer))
    grader = BatchGrader(think_prefilled, args.final_number)
    held_out_rows = trainer_rows(held_out, tokenizer)
    to_evaluate = [row | {"held_out": number} for number, row in enumerate(held_out_rows)]
    built = grpo_trainer.MathGRPOTrainer(
        reward_funcs=build_rewards(args, grpo, think_prefilled, grader),
        train_dataset=Dataset.from_list(trainer_rows(problems, tokenizer)),
        eval_dataset=Dataset.from_list(to_evaluate) if to_evaluate else None,
        columns=reward_columns(problems, held_out),
        grader=grader,
        processing_class=tokenizer,
        curriculum=build_curriculum(problems, args, grpo.num_generations, grpo.seed),
        max_mean_ratio=args.max_mean_ratio,
        update_tokens=args.update_tokens,
        guards=guards_of(args, grpo),
        keeps_best=not args.validate_only,
        eval_sampling=args.eval_sampling(),
        dead_groups=args.dead_groups,
        fast_generation=not grpo.use_vllm and uses_ours(args.fast_generation, grpo.device, "grpo"),
        **training.trainer_kwargs(model, grpo),
    )
    if args.disable_dropout is not False and not dropout.is_asked(grpo.model_init_kwargs):
        leave_out_dropout(built)
    return built


def load_trainer(
    problems: Rows, held_out: Rows, args: GrpoArguments, grpo: Any, model: Any, tokenizer: Any
) -> Any:
    """Load the model; the trainer that `trainer.train` is called of."""
    from stages.adapters import adapting
    from stages.trainer.update import use_stochastic_rounding
    from stages.trial import try_sampling

    limit_completions([*problems, *held_out], args, grpo, model, tokenizer)
    with loading("model", model.model_name_or_path, "model_name_or_path"), adapting(model):
        trainer = build_trainer(problems, args, grpo, model, tokenizer, held_out)
    try_sampling(trainer)
    if args.stochastic_rounding:
        use_stochastic_rounding(trainer)
    return trainer


def leave_out_dropout(trainer: Any) -> None:
    """Train without the dropout of the model's config.json, which would spoil ratio and KL.

    The saved config.json keeps the rates, as of any base model.
    """
    trainer.turned_off = dropout.turn_off(trainer.model)
    if trainer.turned_off:
        say(
            f"grpo: the model's dropout is off ({dropout.describe(trainer.turned_off)}), as it "
            "would spoil ratio and KL; disable_dropout: false keeps it"
        )


def blamed_curriculum(name: str, trainer: Any) -> AbstractContextManager:
    """Turn what a curriculum of the user's own raises into one line; `name`: the recipe's key."""
    from stages.own_reward import at_step

    if ":" not in name:
        return nullcontext()

    def where() -> str:
        return at_step(trainer.state.global_step, trainer.args.output_dir)

    return blamed("curriculum", name, type(trainer.curriculum), where, is_all_own=False)


def check_enough(path: str, rows: Rows, problems: Rows, dropped: dict[str, int], grpo: Any) -> None:
    """Refuse fewer problems than one generation batch needs."""
    needed = grpo.generation_batch_size // grpo.num_generations
    if len(problems) < needed:
        reasons = ", ".join(f"{count} {reason}" for reason, count in dropped.items())
        raise UserError(
            f"{path}: {len(problems)} of {len(rows)} problems are left "
            f"({reasons or 'none dropped'}), one generation batch needs {needed}; add problems, "
            "or drop fewer"
        )


def describe_start(
    rows: Rows,
    problems: Rows,
    held_out: Rows,
    dropped: dict[str, int],
    args: GrpoArguments,
    grpo: Any,
) -> None:
    """Print the training problems, the evaluation, and keys that will hardly have an effect."""
    reasons = "".join(f", {count:,} {reason}" for reason, count in dropped.items())
    say(
        f"grpo: {len(problems):,} of {len(rows):,} problems of {args.train_file}{reasons}; "
        f"curriculum: {args.curriculum}"
    )
    if taken := taken_columns(rows, args.reward_funcs):
        say(
            f"grpo: {args.train_file}: rewards are not given the columns {', '.join(taken)}: "
            "TRL or the trainer uses these names; rename them to use them"
        )
    if held_out:
        how = "".join(f", {name} {value:g}" for name, value in args.eval_sampling().items())
        say(
            f"grpo: avg@{grpo.num_generations_eval or grpo.num_generations} every "
            f"{grpo.eval_steps:g} steps on {len(held_out)} validation problems of "
            f"{args.eval_file or args.train_file}{how}"
        )
    if (why := why_not_compared(grpo)) and args.guard_alignment != "off":
        say(f"grpo: guard_alignment is off: {why}; set temperature: 1 to have it")
    # Without old log-probs the importance ratio is 1.
    if args.max_mean_ratio is not None and not keeps_old_logps(grpo, grpo.steps_per_generation):
        say(
            f"grpo: max_mean_ratio: {args.max_mean_ratio} drops only losses that are not finite: "
            "the ratio is always 1, as each generation batch has one optimizer step; raise "
            "steps_per_generation for several"
        )


def describe_end(trainer: Any, best: dict[str, Any] | None, folder: str) -> None:
    """Print the run's last step, and its best model if it kept one."""
    from stages.run import training
    from stages.trainer.evaluation import NAME

    say(
        f"grpo: {trainer.state.global_step} steps, "
        f"reward {training.last_logged(trainer, 'rollout/rewards'):.3f}, "
        f"correct {training.last_logged(trainer, 'rollout/correctness'):.3f} -> {folder}"
    )
    if best is not None:
        say(
            f"grpo: best {best['metric']} {best['value']:.3f} ± {best['stderr']:.3f} at step "
            f"{best['step']} -> {folder}/{NAME}"
        )


def main() -> None:
    """Read the settings, choose problems, begin the run, train, save, write the manifest."""
    args, grpo, model = parse(
        __doc__, GrpoArguments, GRPO, launched(check_grpo), defaults=DEFAULTS, owns="output_dir"
    )
    hide_trackers(grpo.report_to)
    rows = list(read_problems(args.train_file))

    from stages.run import training
    from stages.trainer.evaluation import read_best
    from stages.trial import own_model

    quiet()
    tokenizer = training.load_tokenizer(model, grpo, padding_side="left")
    training.check_start(args, grpo, model, tokenizer)
    problems, held_out, dropped = split(rows, args, grpo.seed, tokenizer)
    check_enough(args.train_file, rows, problems, dropped, grpo)

    files = [args.train_file, model.model_name_or_path, args.pass_rates, args.eval_file]
    files += own_files([*args.reward_funcs, args.curriculum])
    files += grader_files([*problems, *held_out])
    run = training.begin("grpo", files, args, grpo, model)
    if run is None:
        return
    describe_start(rows, problems, held_out, dropped, args, grpo)
    trainer = load_trainer(problems, held_out, args, grpo, model, tokenizer)
    if ignored := describe_ignored(own_model(trainer).generation_config):
        path = model.model_name_or_path
        say(f"grpo: rollouts follow the recipe alone; {path} would have set {ignored}")
    with blamed_curriculum(args.curriculum, trainer):
        training.train(trainer, "grpo", run.checkpoint)
    training.save(trainer)

    counts = {"problems": len(problems), "steps": trainer.state.global_step}
    counts["completions"] = trainer.num_completions
    numbers: dict[str, Any] = {"rows_in": len(rows), "rows_out": len(problems), "dropped": dropped}
    best = None
    if held_out:
        counts["held_out_problems"] = len(held_out)
        best = read_best(run.work) if is_main_process() else None
    if best is not None:
        numbers["best"] = best
    training.conclude(run, counts, **numbers)
    describe_end(trainer, best, run.folder)
    training.finish(trainer)


if __name__ == "__main__":
    run_cli(in_launch(main))
