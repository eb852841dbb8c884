"""The trainers of the throughput benchmark, which take turns, and what they train on.

A turn is new weights from one folder, the same rows and the same rollouts for each trainer. No
ratio is given where losses or gradients differ by more than rounding. Lengths are those of real
rows, kept in `length_mix.json`; tokens and weights are random. A group's prompt is one string of
letters, each of which is a token. Its completions are as long as those of problems with such a
prompt.

On a GPU time is the wall clock's, read when the device has finished. On a CPU it is the process's
own time on one thread, which other load on the machine hardly touches.
"""

import gc
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import TrainerCallback
from transformers.trainer_callback import PrinterCallback, ProgressCallback
from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer, pack_dataset

from pipeline.errors import UserError
from stages.packed_rows import use_varlen
from stages.preflight.inputs import load_shape
from stages.trainer import rows_apart
from stages.trainer.grpo_trainer import MathGRPOTrainer
from stages.trainer.guards import GuardSettings

MIX = Path(__file__).with_name("length_mix.json")
SFT_ROWS = {"gsm8k": 7473, "numinamath": 20000}  # as configs/grpo7b/data.yaml mixes them
LETTERS = "abcdefghijklmnopqrstuvwxyz"
EOS, PAD = "<|im_end|>", "<|endoftext|>"
NEAR = 10  # rows of the table on either side that a group's completions are drawn from
UNIFORM_SHARE = 0.63  # of the groups of the published run this project starts from
# Relative difference that is put down to rounding: of the mean loss of an SFT pass, and of the loss
# and gradient norm of a GRPO step.
SFT_TOLERANCE = {"float32": 1e-4, "bfloat16": 1e-3}
GRPO_TOLERANCE = {"float32": 1e-3, "bfloat16": 3e-2}
TRAINERS = {"stock": GRPOTrainer, "ours": MathGRPOTrainer, "ours, by row": MathGRPOTrainer}


@dataclass(frozen=True)
class Group:
    """A group of rollouts as numbers."""

    prompt: str  # as many letters as it has tokens
    completions: list[list[int]]  # tokens, EOS at the end
    rewards: list[float]  # all equal in a zero-variance group


def length_pairs(source: str) -> list[tuple[int, int]]:
    """Prompt and completion lengths of a data set, tokens: equally likely, EOS among the second."""
    mix = json.loads(MIX.read_text(encoding="utf-8"))
    return [(prompt, completion) for prompt, completion in mix["sets"][source]["pairs"]]


def draw_tokens(rng: random.Random, length: int) -> list[int]:
    """Random letters, and EOS."""
    return [*rng.choices(range(len(LETTERS)), k=length - 1), len(LETTERS)]


def draw_groups(num_groups: int, size: int, uniform_share: float, seed: int) -> list[Group]:
    """Groups of `size` rollouts with GSM8K's lengths; all rewards are equal in the given share."""
    rng = random.Random(seed)
    pairs = sorted(length_pairs("gsm8k"))
    uniform = set(rng.sample(range(num_groups), round(uniform_share * num_groups)))
    groups = []
    for number in range(num_groups):
        place = rng.randrange(len(pairs))
        near = pairs[max(0, place - NEAR) : place + NEAR + 1]
        num_right = size if number in uniform else rng.randint(1, size - 1)
        rewards = [1.0] * num_right + [0.0] * (size - num_right)
        rng.shuffle(rewards)
        # The number makes it unlike all other prompts.
        name = "".join(LETTERS[number // 26**n % 26] for n in range(4))
        letters = "".join(rng.choices(LETTERS, k=pairs[place][0] - len(name)))
        completions = [draw_tokens(rng, rng.choice(near)[1]) for _ in range(size)]
        groups.append(Group(name + letters, completions, rewards))
    return groups


def draw_sft_rows(num_rows: int, max_length: int, seed: int) -> list[dict[str, list[int]]]:
    """Tokenized rows of at most `max_length`, with the lengths of GSM8K + NuminaMath-CoT."""
    rng = random.Random(seed)
    pairs = {source: length_pairs(source) for source in SFT_ROWS}
    rows: list[dict[str, list[int]]] = []
    while len(rows) < num_rows:
        (source,) = rng.choices([*SFT_ROWS], weights=[*SFT_ROWS.values()])
        prompt, completion = rng.choice(pairs[source])
        if prompt + completion <= max_length:
            mask = [0] * prompt + [1] * completion
            rows.append({"input_ids": draw_tokens(rng, len(mask)), "completion_mask": mask})
    return rows


def build_tokenizer() -> Any:
    """A tokenizer with a token for each letter, EOS and PAD, in that order."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: number for number, token in enumerate([*LETTERS, EOS, PAD])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token=PAD))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token=EOS, pad_token=PAD, padding_side="left"
    )


def save_model(shape: str, folder: Path, tokenizer: Any, dtype: str) -> None:
    """Write a random-init model of a named shape where `from_pretrained` finds it."""
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

    config = AutoConfig.for_model(**load_shape(shape))
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    # Larger than usual: else tokens hardly change what others are told, and a row that sees
    # another one's tokens would have the same loss.
    wide = {"initializer_range": 1.6 / config.hidden_size**0.5}
    config.update(ends | wide | {"bos_token_id": None})
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
    model.generation_config = GenerationConfig(**ends)
    model.save_pretrained(folder)


class Rollouts:
    """Stands in for generation: `rollout_func` and reward function of both trainers."""

    def __init__(self, groups: list[Group], tokenizer: Any) -> None:
        self.groups, self.tokenizer = groups, tokenizer
        self._by_prompt = {group.prompt: group for group in groups}

    def _of(self, prompts: list[str]) -> list[Group]:
        """The groups of prompts, of which each is there once for each of its rollouts."""
        return [self._by_prompt[p] for p in prompts[:: len(self.groups[0].rewards)]]

    def generate(self, prompts: list[str], trainer: Any) -> dict[str, list | None]:
        """TRL's `rollout_func`: the tokens of each rollout, the prompts' in groups."""
        return {
            "prompt_ids": self.tokenizer(prompts, add_special_tokens=False)["input_ids"],
            "completion_ids": [ids for group in self._of(prompts) for ids in group.completions],
            "logprobs": None,
        }

    def reward(self, prompts: list[str], **_: Any) -> list[float]:
        """The reward each rollout was given beforehand."""
        return [reward for group in self._of(prompts) for reward in group.rewards]


def now() -> float:
    """Seconds: see the module's docstring."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


class StepClock(TrainerCallback):
    """Seconds of a trainer's steps, from the first minibatch to behind the optimizer."""

    seconds = 0.0

    def on_step_begin(self, args, state, control, **kwargs):
        self.seconds -= now()

    def on_step_end(self, args, state, control, **kwargs):
        self.seconds += now()


def train(trainer: Any) -> dict[str, Any]:
    """Train to the end; `memory` is bytes, the most that a GPU had allocated, None on a CPU."""
    clock = StepClock()
    for callback in (ProgressCallback, PrinterCallback):
        trainer.remove_callback(callback)
    trainer.add_callback(clock)
    if has_gpu := torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    trainer.train()
    logs = [log for log in trainer.state.log_history if "loss" in log]
    return {
        "seconds": clock.seconds,
        "losses": [log["loss"] for log in logs],
        "grad_norms": [log["grad_norm"] for log in logs],
        "memory": torch.cuda.max_memory_allocated() if has_gpu else None,
        "attention": trainer.model.config._attn_implementation,
    }


def check_equal(
    what: str, runs: dict[str, dict[str, Any]], keys: tuple[str, ...], tolerance: float
) -> float:
    """The greatest relative difference to the first trainer in lists of numbers.

    Raises:
        UserError: it is above the tolerance, or a number is missing: no ratio may be given.
    """
    greatest = 0.0
    first, *others = runs
    for name in others:
        for key in keys:
            mine, theirs = runs[name][key], runs[first][key]
            # At least 0.1: a loss near 0 may be the difference of great terms.
            far = [abs(a - b) / max(abs(b), 0.1) for a, b in zip(mine, theirs, strict=False)]
            is_whole = len(mine) == len(theirs) > 0
            if not is_whole or not all(one <= tolerance for one in far):  # NaN is never below
                raise UserError(
                    f"{what}: {key} of {name} are {mine}, those of {first} {theirs}; no ratio is "
                    f"given above a relative difference of {tolerance:g}"
                )
            greatest = max(greatest, *far)
    return greatest


def take_turns(kinds: dict[str, Any], run: Callable, num_turns: int, check: Callable) -> dict:
    """`runs` of each kind, one a turn, and `difference`, the greatest that `check` found in one."""
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in kinds}
    greatest, names = 0.0, list(kinds)
    for turn in range(num_turns):
        shift = turn % len(names)  # none is always first
        for name in names[shift:] + names[:shift]:
            gc.collect()  # the last trainer, before the next one is loaded
            runs[name].append(run(kinds[name], turn))
        greatest = max(greatest, check({name: runs[name][-1] for name in names}))
    return {"runs": runs, "difference": greatest}


class RecordedSFT(SFTTrainer):
    """`SFTTrainer` that sums the loss over all completion tokens it has seen, on the device."""

    nll: Any = 0.0
    num_scored: Any = 0

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        loss = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        self.nll = self.nll + loss.detach() * num_items_in_batch  # TRL has divided by it
        self.num_scored = self.num_scored + (inputs["labels"][:, 1:] != -100).sum()
        return loss


def build_sft(
    packed_length: int | None, rows: list[dict], args: Any, folder: Path, tokenizer: Any
) -> Any:
    """A trainer for one pass over the rows, in as many optimizer steps whatever the packing.

    A packed row is a micro-batch; without packing `sft_batch_size` rows are padded to their
    longest. On a GPU packed rows may take `varlen`, as in our stage. The learning rate is 0, so
    that the loss over all completion tokens of the pass is the same whatever shares a batch, unless
    packed rows see each other.
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
    trainer = RecordedSFT(
        model=str(folder / "model"),
        args=config,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
    )
    if packed_length:
        use_varlen(trainer)
    return trainer


def measure_sft(args: Any, folder: Path, tokenizer: Any) -> dict[str, Any]:
    """Packed and padded rows, new ones in each turn: `take_turns`, and their `tokens`."""
    rows = [
        draw_sft_rows(args.sft_rows, args.sft_max_length, turn) for turn in range(args.num_turns)
    ]
    kinds = {"padded": None} | {f"packed to {length:,}": length for length in args.packed_lengths}

    def run(length: int | None, turn: int) -> dict[str, Any]:
        trainer = build_sft(length, rows[turn], args, folder, tokenizer)
        found = train(trainer)
        mean = [float(trainer.nll / trainer.num_scored)]
        return found | {"mean_losses": mean, "num_scored": [int(trainer.num_scored)]}

    def check(runs: dict[str, dict[str, Any]]) -> float:
        check_equal("SFT", runs, ("num_scored",), 0.0)
        return check_equal("SFT", runs, ("mean_losses",), SFT_TOLERANCE[args.precision])

    tokens = sum(len(row["input_ids"]) for turn in rows for row in turn)
    return {"tokens": tokens} | take_turns(kinds, run, args.num_turns, check)


def build_grpo(name: str, args: Any, folder: Path, rollouts: Rollouts) -> Any:
    """A trainer (of `TRAINERS`) for one generation batch, which is one optimizer step."""
    tokens = args.update_tokens
    longest = max(len(ids) for group in rollouts.groups for ids in group.completions)
    config = GRPOConfig(
        output_dir=str(folder / "grpo"),
        num_generations=args.num_generations,
        per_device_train_batch_size=args.grpo_batch_size,
        gradient_accumulation_steps=args.num_groups * args.num_generations // args.grpo_batch_size,
        max_steps=1,
        beta=args.beta,
        max_completion_length=longest,
        loss_type="dapo",
        **args.training(),
    )
    trainer = TRAINERS[name](
        model=str(folder / "model"),
        args=config,
        reward_funcs=rollouts.reward,
        train_dataset=Dataset.from_list([{"prompt": group.prompt} for group in rollouts.groups]),
        processing_class=rollouts.tokenizer,
        rollout_func=rollouts.generate,
        **({} if name == "stock" else {"guards": GuardSettings(), "update_tokens": tokens}),
    )
    if name == "ours, by row":
        for model in filter(None, (trainer.model, trainer.ref_model)):
            rows_apart.set_attention(model, rows_apart.BY_ROW)
    return trainer


def measure_grpo(part: str, args: Any, folder: Path, tokenizer: Any) -> dict[str, Any]:
    """A step of TRL's trainer and ours, new rollouts in each turn; returns as `measure_sft`."""
    share = UNIFORM_SHARE if part == "uniform" else 0.0
    rollouts = [
        Rollouts(draw_groups(args.num_groups, args.num_generations, share, turn), tokenizer)
        for turn in range(args.num_turns)
    ]

    def run(name: str, turn: int) -> dict[str, Any]:
        return train(build_grpo(name, args, folder, rollouts[turn]))

    def check(runs: dict[str, dict[str, Any]]) -> float:
        # On policy the ratio is 1: the loss is the same whatever the model says, the norm is not.
        tolerance = GRPO_TOLERANCE[args.precision]
        return check_equal(f"GRPO, {part}", runs, ("losses", "grad_norms"), tolerance)

    groups = [group for turn in rollouts for group in turn.groups]
    tokens = sum(len(group.prompt) + len(ids) for group in groups for ids in group.completions)
    on = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    has_varlen = rows_apart.has_varlen(on, getattr(torch, args.precision))
    kinds = {name: name for name in TRAINERS if has_varlen or name != "ours, by row"}
    return {"tokens": tokens} | take_turns(kinds, run, args.num_turns, check)
