"""GRPO with verifiable rewards on the SFT checkpoint.

    python -m stages.grpo --config configs/tiny-cpu/grpo.yaml
    accelerate launch -m stages.grpo --config configs/grpo7b/grpo.yaml

Reads `grpo_train.jsonl` and, where the recipe names one, the SFT model's `pass_rates.jsonl`; trains
`MathGRPOTrainer` with the recipe's rewards on problems that its curriculum chooses. How the
defaults differ from the GRPO paper (arXiv:2402.03300): loss averaged over tokens instead of over
completions (as DAPO, arXiv:2503.14476), and k3 as the KL estimator only where `beta` is not 0.
"""

from typing import Any

from data_prep import manifest
from data_prep.config import UserError, parse, run_cli
from data_prep.prompts import prefills_think, render_prompt
from data_prep.schema import read_problems
from stages.arguments import DEFAULTS, GrpoArguments, check_grpo
from stages.curriculum import build_curriculum, keep_by_pass_rate, load_pass_counts

COLUMNS = ("id", "prompt", "answer")  # TRL hands every column to every reward function


def select(
    rows: list[dict], args: GrpoArguments, tokenizer: Any
) -> tuple[list[dict], dict[str, int]]:
    """Rows inside the prompt limit and the pass-rate band, and how many each test dropped."""
    dropped = {}
    if args.max_prompt_length:
        before = len(rows)
        prompts = [render_prompt(row["prompt"], tokenizer) for row in rows]
        lengths = map(len, tokenizer(prompts, add_special_tokens=False)["input_ids"])
        rows = [r for r, n in zip(rows, lengths, strict=True) if n <= args.max_prompt_length]
        dropped["over_max_prompt_length"] = before - len(rows)
    if args.curriculum == "offline":
        before = len(rows)
        counts = load_pass_counts(args.pass_rates)
        rows = keep_by_pass_rate(rows, counts, args.min_pass_rate, args.max_pass_rate)
        dropped["outside_pass_rate_band"] = before - len(rows)
    return rows, dropped


def has_ratio(grpo: Any) -> bool:
    """Whether the importance ratio can differ from 1: TRL keeps the old log-probs only then."""
    uses = grpo.steps_per_generation * grpo.num_iterations
    is_corrected = grpo.use_vllm and grpo.vllm_importance_sampling_correction
    return is_corrected or grpo.gradient_accumulation_steps % uses != 0


def build_trainer(
    problems: list[dict], args: GrpoArguments, grpo: Any, model: Any, tokenizer: Any
) -> Any:
    """The trainer that a recipe asks for.

    Args:
        problems: selected rows; grpo, model: TRL's `GRPOConfig` and `ModelConfig`.
    """
    from datasets import Dataset

    from stages import run
    from stages.grpo_trainer import MathGRPOTrainer
    from stages.guards import Guards
    from stages.rewards import build_rewards

    grpo.scale_rewards = "none" if args.advantage == "posterior" else args.advantage
    think_prefilled = prefills_think(render_prompt(problems[0]["prompt"], tokenizer))
    return MathGRPOTrainer(
        reward_funcs=build_rewards(args, grpo, think_prefilled),
        train_dataset=Dataset.from_list([{key: row[key] for key in COLUMNS} for row in problems]),
        processing_class=tokenizer,
        curriculum=build_curriculum(problems, args, grpo.num_generations, grpo.seed),
        max_refill_rounds=args.max_refill_rounds if "refill" in args.curriculum else 0,
        advantage=args.advantage,
        max_mean_ratio=args.max_mean_ratio,
        guards=Guards(args.guard_settings()),
        rollback_lr_factor=args.guard_rollback_lr_factor,
        max_rollbacks=args.guard_max_rollbacks,
        **run.trainer_kwargs(model, grpo),
    )


def main() -> None:
    """Parse, select problems, train, save, write the manifest."""
    args, grpo, model = parse(
        __doc__, GrpoArguments, ("GRPOConfig", "ModelConfig"), check_grpo, defaults=DEFAULTS
    )
    rows = list(read_problems(args.train_file))

    from stages import run

    run.quiet()
    tokenizer = run.load_tokenizer(model, grpo, padding_side="left")
    problems, dropped = select(rows, args, tokenizer)
    per_step = grpo.generation_batch_size // grpo.num_generations
    if len(problems) < per_step:
        raise UserError(
            f"{args.train_file}: {len(problems)} of {len(rows)} problems are left "
            f"({', '.join(f'{n} {why}' for why, n in dropped.items()) or 'none dropped'}), one "
            f"generation batch needs {per_step}; drop fewer, or add problems"
        )
    config = run.effective_config(args, grpo, model)
    files = [args.train_file, model.model_name_or_path, args.pass_rates]
    inputs = manifest.hash_inputs([file for file in files if file])
    started, checkpoint = run.prepare(grpo.output_dir, config, inputs)
    run.say(
        f"grpo: {len(problems):,} of {len(rows):,} problems of {args.train_file}"
        + "".join(f", {count:,} {reason}" for reason, count in dropped.items())
        + f"; curriculum: {args.curriculum}"
    )
    if args.max_mean_ratio is not None and not has_ratio(grpo):
        run.say(
            f"grpo: max_mean_ratio: {args.max_mean_ratio} drops only what is not finite here: the "
            "ratio is 1 as long as gradient_accumulation_steps uses up a generation batch; a "
            "greater steps_per_generation gives it several optimizer steps"
        )
    trainer = build_trainer(problems, args, grpo, model, tokenizer)
    run.train(trainer, "grpo", checkpoint)

    if run.is_main_process():
        manifest.write(
            grpo.output_dir,
            "grpo",
            config,
            inputs,
            {
                "problems": len(problems),
                "steps": trainer.state.global_step,
                "completions": trainer.num_completions,
            },
            started,
            rows_in=len(rows),
            rows_out=len(problems),
            dropped=dropped,
        )  # fmt: skip
    run.say(
        f"grpo: {trainer.state.global_step} steps, "
        f"reward {run.last_logged(trainer, 'rollout/rewards'):.3f}, "
        f"correct {run.last_logged(trainer, 'rollout/correctness'):.3f} -> {grpo.output_dir}"
    )
    run.finish(trainer)


if __name__ == "__main__":
    run_cli(main)
