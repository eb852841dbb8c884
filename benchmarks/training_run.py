"""One GRPO run of a benchmark: train to a budget, test on the way, write figures.

Started by `benchmarks.curriculum` and `benchmarks.time_to_accuracy`, one process a run. Every mode
trains the same recipe from the same checkpoint; "stock" is TRL's own `GRPOTrainer`, the others are
this project's trainer. Tokens are counted, and groups judged, in the reward function, which sees
every rollout of every mode. The clock, seconds of this process on all cores, stops during the
tests.
"""

import json
import time
from dataclasses import dataclass, field
from functools import update_wrapper
from itertools import groupby
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

    mode: str = field(metadata={"help": "name of the mode in the table"})
    test_file: str = field(metadata={"help": "held-out problems"})
    token_budget: int | None = field(
        default=None,
        metadata={"help": "train until so many tokens are generated; else max_steps ends the run"},
    )
    num_tests: int = setting(10, "tests on the way, evenly in the token budget")
    test_steps: list[int] | None = field(
        default=None,
        metadata={"help": "optimizer steps after which it tests, instead of num_tests; 0: before"},
    )
    test_samples: int = setting(2, "completions a held-out problem, on the way")
    last_samples: int = setting(2, "completions a held-out problem, at the end; 0: no test there")
    only_test: bool = setting(False, "true: the test at the end, without training")
    num_threads: int | None = setting(None, "of torch; by default all cores")
    every_row_has_gradient: bool = setting(
        False, "true: rows without advantage go through the backward pass, too"
    )


class Recorder:
    """The correctness reward, with a note of what every call has cost and shown."""

    def __init__(self, reward: Any, num_generations: int) -> None:
        self._reward, self._size = reward, num_generations
        self.tokens = 0
        self.groups: list[float] = []  # correct of G, of each group or part of one in this step
        update_wrapper(self, reward)

    def __call__(self, **batch: Any) -> list[float]:
        values = self._reward(**batch)
        self.tokens += sum(map(len, batch["completion_ids"]))
        for _, group in groupby(zip(batch["id"], values, strict=True), lambda pair: pair[0]):
            self.groups.append(self._size * fmean(value > 0 for _, value in group))
        return values


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
    Path(args.pass_rates).parent.mkdir(parents=True, exist_ok=True)
    Path(args.pass_rates).write_text("".join(lines), encoding="utf-8")
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
    """Clock, tests and the end of the budget; `tests` and `steps` are what a result holds."""

    def __init__(
        self, trainer: Any, recorder: Recorder, args: RunArguments, problems: list
    ) -> None:
        self.trainer, self.recorder, self.args, self.problems = trainer, recorder, args, problems
        self.tests: list[dict[str, Any]] = []
        self.steps: list[dict[str, Any]] = []
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
        cost = {"tokens": self.recorder.tokens, "seconds": self.seconds}
        self.tests.append(cost | {"accuracy": fmean(rates[:NUM_TESTED]), "samples": num_samples})
        return rates

    def on_train_begin(self, args, state, control, **kwargs):
        self.seconds = self.seconds_before = time.process_time() - self.since
        if self.args.test_steps is None or 0 in self.args.test_steps:
            self.test(self.problems[:NUM_TESTED], self.args.test_samples)
        self.since = time.process_time()

    def on_step_end(self, args, state, control, **kwargs):
        self.seconds += time.process_time() - self.since
        recorder, budget = self.recorder, self.args.token_budget
        if recorder.groups:  # generated for; another pass over the batch has none
            self.steps.append({"groups": recorder.groups})
        self.steps[-1] |= {
            "tokens": recorder.tokens, "seconds": self.seconds, "generating": self.generating,
        }  # fmt: skip
        recorder.groups = []
        steps, is_due = self.args.test_steps, False
        if budget and recorder.tokens >= budget:
            control.should_training_stop = True
        elif steps is not None:
            is_due = state.global_step in steps and state.global_step < state.max_steps
        elif budget:
            is_due = recorder.tokens >= len(self.tests) * budget / self.args.num_tests
        if is_due:
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
    if args.num_threads:
        torch.set_num_threads(args.num_threads)
    scoring = {"tokens": 0, "seconds": 0.0}
    if args.curriculum == "offline":
        scoring = score(args, grpo, model, rows)
    name = args.reward_funcs[0]
    rewards.REWARDS[name] = recorder = Recorder(rewards.REWARDS[name], grpo.num_generations)
    tokenizer = training.load_tokenizer(model, grpo, padding_side="left")
    problems, _, _ = grpo_stage.split(rows, args, grpo.seed, tokenizer)
    build = build_stock if args.mode == "stock" else grpo_stage.build_trainer
    trainer = build(problems, args, grpo, model, tokenizer)
    if args.every_row_has_gradient:
        trainer._has_gradient = lambda batch: batch["advantages"].isfinite()  # of all rows
    for callback in (ProgressCallback, PrinterCallback):
        trainer.remove_callback(callback)
    watch = Watch(trainer, recorder, args, tests)
    trainer.add_callback(watch)
    if not args.only_test:
        trainer.train()
    final: dict[str, float] = {}
    if args.last_samples:
        rates = watch.test(tests, args.last_samples)
        final = dict(zip([row["id"] for row in tests], rates, strict=True))
    logs = [log for log in trainer.state.log_history if "frac_reward_zero_std" in log]
    for step, log in zip(watch.steps, logs, strict=True):
        step["zero_std"] = log["frac_reward_zero_std"]
    result = {
        "mode": args.mode, "seed": grpo.seed, "scoring": scoring, "tests": watch.tests,
        "steps": watch.steps, "final": final, "problems": len(problems),
        "seconds_before": watch.seconds_before,
        "groups_per_step": grpo.generation_batch_size // grpo.num_generations,
        "num_generations": grpo.num_generations, "commit": manifest.git_commit(),
    }  # fmt: skip
    manifest.write_json(Path(grpo.output_dir) / "result.json", result)


if __name__ == "__main__":
    run_cli(main)
