"""One GRPO run of a benchmark: train to a budget, test on the way, write figures.

Started by `benchmarks.time_to_accuracy`, one process a run. Every arm trains the same recipe from
the same checkpoint; "stock" is TRL's own `GRPOTrainer`, the others are this project's trainer.
Tokens are counted in the reward function, which sees every rollout of every arm. The clock, seconds
of this process on all cores, stops during the tests.
"""

import json
import time
from dataclasses import dataclass, field
from functools import update_wrapper
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, TrainerCallback
from transformers.trainer_callback import PrinterCallback, ProgressCallback
from trl import GRPOTrainer

from data_prep.sampling.generate import generate
from data_prep.schema import question_of, read_problems
from grading.grade import grade_rollouts
from grading.own_grader import COLUMN
from pipeline import manifest
from pipeline.console import quiet
from pipeline.errors import run_cli
from pipeline.key_types import UNSET
from pipeline.models import generation
from pipeline.prompts import prefills_think, render_prompt
from pipeline.settings import Settings, parse, setting
from stages import grpo as grpo_stage
from stages import rewards
from stages.arguments import GrpoArguments
from stages.host import check_grpo
from stages.run import training

NUM_TESTED = 500  # held-out problems of a test on the way; the last one is of all
NUM_SCORING_SAMPLES = 4  # offline: completions a problem that the filter is made of
BATCH_SIZE = 256  # completions of a test or of scoring at a time


@dataclass(kw_only=True)
class RunArguments(GrpoArguments):
    """Keys of one run: those of `grpo.yaml`, and these."""

    is_stock: bool = setting(False, "true: TRL's own trainer")
    test_file: str = field(metadata={"help": "held-out problems"})
    test_steps: list[int] = setting([], "optimizer steps after which it is tested")
    test_samples: int = setting(2, "completions a held-out problem, on the way")
    last_samples: int = setting(2, "the same at the end; 0: no test there")
    only_test: bool = setting(False, "true: the test at the end, without training")
    every_row_has_gradient: bool = setting(
        False, "true: rows without advantage go through the backward pass, too"
    )


class Counter:
    """A reward, with a count of the tokens that it has seen."""

    def __init__(self, reward: Any) -> None:
        self._reward, self.tokens = reward, 0
        update_wrapper(self, reward)

    def __call__(self, **batch: Any) -> list[float]:
        self.tokens += sum(map(len, batch["completion_ids"]))
        return self._reward(**batch)


def count_right(
    model: Any,
    tokenizer: Any,
    rows: list[dict],
    num_samples: int,
    max_tokens: int,
    seed: int,
    final_number: bool,
) -> tuple[list[int], int]:
    """Correct completions of each problem, and tokens generated; torch's stream is restored.

    `final_number`: as the recipe's key.
    """
    prompts = [render_prompt(row["prompt"], tokenizer) for row in rows]
    state, was_training = torch.get_rng_state(), model.training
    torch.manual_seed(seed)
    model.eval()
    texts: list[str] = []
    size = max(1, BATCH_SIZE // num_samples)  # problems
    for start in range(0, len(rows), size):
        batch = tokenizer(
            prompts[start : start + size], return_tensors="pt", padding=True,
            padding_side="left", add_special_tokens=False,
        ).to(model.device)  # fmt: skip
        batch = {name: part.repeat_interleave(num_samples, dim=0) for name, part in batch.items()}
        with torch.inference_mode(), generation.only_ends(model):
            ids = generate(
                model, **batch, do_sample=True, temperature=1.0, top_k=0, max_new_tokens=max_tokens
            )  # (B * num_samples, P + C)
        new = ids[:, batch["input_ids"].shape[1] :]
        texts += tokenizer.batch_decode(new, skip_special_tokens=True)
    torch.set_rng_state(state)
    model.train(was_training)
    each = [row for row in rows for _ in range(num_samples)]
    grades = grade_rollouts(
        texts,
        [row["answers"] for row in each],
        [row["answer_form"] for row in each],
        [question_of(row) for row in each],
        own_graders=[row.get(COLUMN) for row in each],
        think_prefilled=prefills_think(prompts[0]),
        final_number=final_number,
    )
    right = [grade.verdict == "right" for grade in grades]
    num_tokens = sum(map(len, tokenizer(texts)["input_ids"])) + len(texts)  # EOS
    return [sum(right[n : n + num_samples]) for n in range(0, len(right), num_samples)], num_tokens


def score(args: RunArguments, grpo: Any, model: Any, rows: list[dict]) -> dict[str, float]:
    """Write the pass rates that the offline filter needs; returns what that has cost."""
    tokenizer = training.load_tokenizer(model, grpo, padding_side="left")
    policy = AutoModelForCausalLM.from_pretrained(model.model_name_or_path, dtype=model.dtype)
    policy, size = policy.to(grpo.device), NUM_SCORING_SAMPLES
    started = time.process_time()
    found, num_tokens = count_right(
        policy, tokenizer, rows, size, grpo.max_completion_length, grpo.seed, args.final_number
    )
    seconds = time.process_time() - started
    lines = [
        json.dumps({"id": row["id"], "num_right": right, "num_samples": size}) + "\n"
        for row, right in zip(rows, found, strict=True)
    ]
    file = Path(args.pass_rates or "")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(lines), encoding="utf-8")
    return {"tokens": num_tokens, "seconds": seconds}


def build_stock(rows: list[dict], args: RunArguments, grpo: Any, model: Any, tokenizer: Any) -> Any:
    """TRL's own trainer with the recipe's settings and rewards."""
    think_prefilled = prefills_think(render_prompt(rows[0]["prompt"], tokenizer))
    return GRPOTrainer(
        reward_funcs=rewards.build_rewards(args, grpo, think_prefilled),
        train_dataset=Dataset.from_list(grpo_stage.trainer_rows(rows, tokenizer)),
        processing_class=tokenizer,
        **training.trainer_kwargs(model, grpo),
    )


class Watch(TrainerCallback):
    """Clock and tests; `tests` and the columns of `steps` are what a result holds."""

    def __init__(self, trainer: Any, counter: Counter, args: RunArguments, problems: list) -> None:
        self.trainer, self.counter, self.args, self.problems = trainer, counter, args, problems
        self.tests: list[dict[str, Any]] = []
        self.steps: dict[str, list[float]] = {"tokens": [], "seconds": [], "generating": []}
        self.seconds, self.generating, self.seconds_before = 0.0, 0.0, 0.0
        self._time_generation()
        self.since = time.process_time()  # what comes before the first step counts too

    def _time_generation(self) -> None:
        """Count the seconds of `_generate`, the part of a step that writes the completions."""
        inner = self.trainer._generate

        def call(*args: Any, **kwargs: Any) -> Any:
            started = time.process_time()
            found = inner(*args, **kwargs)
            self.generating += time.process_time() - started
            return found

        self.trainer._generate = call

    def test(self, problems: list[dict], num_samples: int) -> list[float]:
        """Accuracy on each of the held-out problems; notes their mean."""
        settings = self.trainer.args
        right, _ = count_right(
            self.trainer.model,
            self.trainer.processing_class,
            problems,
            num_samples,
            settings.max_completion_length,
            seed=1_000_003 * (settings.seed + 1),
            final_number=self.args.final_number,
        )
        rates = [count / num_samples for count in right]
        cost = {"tokens": self.counter.tokens, "seconds": self.seconds}
        self.tests.append(cost | {"accuracy": fmean(rates[:NUM_TESTED]), "samples": num_samples})
        return rates

    def on_train_begin(self, args, state, control, **kwargs):
        self.seconds = self.seconds_before = time.process_time() - self.since
        self.since = time.process_time()

    def on_step_end(self, args, state, control, **kwargs):
        self.seconds += time.process_time() - self.since
        tokens = self.counter.tokens
        if self.steps["tokens"][-1:] == [tokens]:  # another pass over the same completions
            for column in self.steps.values():
                column.pop()
        self.steps["tokens"].append(tokens)
        self.steps["seconds"].append(self.seconds)
        self.steps["generating"].append(self.generating)
        if state.global_step in self.args.test_steps and state.global_step < state.max_steps:
            self.test(self.problems[:NUM_TESTED], self.args.test_samples)
        self.since = time.process_time()


def check(settings: Settings) -> None:
    """What the stage checks, but for the file of pass rates, which `score` writes."""
    check_grpo(settings.replaced(pass_rates=UNSET))


def main() -> None:
    """Score where the mode needs it, train and test, write the result last."""
    args, grpo, model = parse(__doc__, RunArguments, ("GRPOConfig", "ModelConfig"), check)
    rows, tests = list(read_problems(args.train_file)), list(read_problems(args.test_file))
    quiet()
    torch.set_num_threads(1)
    scoring = {"tokens": 0, "seconds": 0.0}
    if args.curriculum == "offline":
        scoring = score(args, grpo, model, rows)
    name = args.reward_funcs[0]
    rewards.REWARDS[name] = counter = Counter(rewards.REWARDS[name])
    tokenizer = training.load_tokenizer(model, grpo, padding_side="left")
    problems, _, _ = grpo_stage.split(rows, args, grpo.seed, tokenizer)
    build = build_stock if args.is_stock else grpo_stage.build_trainer
    trainer = build(problems, args, grpo, model, tokenizer)
    if args.every_row_has_gradient:
        trainer._has_gradient = lambda batch: batch["advantages"].isfinite()  # of all rows
    for callback in (ProgressCallback, PrinterCallback):
        trainer.remove_callback(callback)
    watch = Watch(trainer, counter, args, tests)
    trainer.add_callback(watch)
    if not args.only_test:
        trainer.train()
    final = watch.test(tests, args.last_samples) if args.last_samples else []
    logs = [log for log in trainer.state.log_history if "frac_reward_zero_std" in log]
    zero_std = [log["frac_reward_zero_std"] for log in logs]
    result = {
        "scoring": scoring, "tests": watch.tests, "steps": watch.steps | {"zero_std": zero_std},
        "final": final, "seconds_before": watch.seconds_before,
    }  # fmt: skip
    manifest.write_json(Path(grpo.output_dir) / "result.json", result)


if __name__ == "__main__":
    run_cli(main)
