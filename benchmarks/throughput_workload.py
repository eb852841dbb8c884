"""What the throughput benchmark runs on: real lengths, random tokens, random weights.

Lengths come from `length_mix.json`, see `benchmarks.length_mix`; nothing else is read.
A group's prompt is one string of letters, each of which is a token, so that its length is the one
of the table; completions are as long as those of problems with a prompt of about that length.
"""

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.length_mix import MIX, SFT_ROWS
from data_prep.prompts import build_completion
from data_prep.sources import synthetic
from stages.preflight.inputs import load_shape

LETTERS = "abcdefghijklmnopqrstuvwxyz"
EOS, PAD = "<|im_end|>", "<|endoftext|>"
NEAR = 10  # rows of the table on either side that a group's completions are drawn from


@dataclass(frozen=True)
class Group:
    """A group of rollouts as numbers.

    Args:
        prompt: its text, of as many letters as it has tokens.
        lengths: of the completions, tokens, EOS among them.
        rewards: one for each; all equal in a uniform group, whose advantages are 0.
    """

    prompt: str
    lengths: tuple[int, ...]
    rewards: tuple[float, ...]


def length_pairs(source: str) -> list[tuple[int, int]]:
    """Prompt and completion lengths of a data set, tokens: equally likely, EOS among the second."""
    mix = json.loads(MIX.read_text(encoding="utf-8"))
    return [(prompt, completion) for prompt, completion in mix["sets"][source]["pairs"]]


def draw_groups(num_groups: int, size: int, uniform_share: float, seed: int) -> list[Group]:
    """Groups with GSM8K's lengths.

    Args:
        size: rollouts in a group.
        uniform_share: share of groups, the nearest whole number of them, whose rewards are equal.
    """
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
        lengths = tuple(rng.choice(near)[1] for _ in range(size))
        groups.append(Group(name + letters, lengths, tuple(rewards)))
    return groups


def draw_sft_rows(num_rows: int, max_length: int, seed: int) -> list[dict[str, list[int]]]:
    """Tokenized rows as `stages.sft` makes them, with the lengths of GSM8K + NuminaMath-CoT.

    Args:
        num_rows: rows, in the recipe's proportions; longer ones than `max_length` are drawn anew.
    """
    rng = random.Random(seed)
    sources = list(SFT_ROWS)
    pairs = {source: length_pairs(source) for source in sources}
    rows: list[dict[str, list[int]]] = []
    while len(rows) < num_rows:
        (source,) = rng.choices(sources, weights=[SFT_ROWS[name] for name in sources])
        prompt, completion = rng.choice(pairs[source])
        if prompt + completion <= max_length:
            ids = rng.choices(range(len(LETTERS)), k=prompt + completion - 1)
            rows.append(
                {
                    "input_ids": [*ids, len(LETTERS)],  # EOS
                    "completion_mask": [0] * prompt + [1] * completion,
                }
            )
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


def save_model(shape: str, folder: Path, tokenizer: Any, dtype: str) -> Any:
    """Write a random-init model of a named shape where `from_pretrained` finds it; its config."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

    config = AutoConfig.for_model(**load_shape(shape))
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    # Larger than usual: else tokens hardly change what others are told, and a row that sees
    # another one's tokens would have the same loss.
    wide = {"initializer_range": 1.6 / config.hidden_size**0.5}
    config.update(ends | wide | {"bos_token_id": None})
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
    model.generation_config = GenerationConfig(**ends)
    model.save_pretrained(folder)
    return config


class Rollouts:
    """Stands in for generation: `rollout_func` and reward function of both trainers."""

    def __init__(self, groups: list[Group], tokenizer: Any, seed: int) -> None:
        rng = random.Random(seed)
        self.groups, self.tokenizer = groups, tokenizer
        self._by_prompt = {group.prompt: group for group in groups}
        self._problems = list(synthetic.load("train", 64, seed=seed))
        self._completions = {
            group.prompt: [
                [*rng.choices(range(len(LETTERS)), k=length - 1), tokenizer.eos_token_id]
                for length in group.lengths
            ]
            for group in groups
        }

    def rows(self, prompts: list[str], values: str) -> list[Any]:
        """The rollouts' values ("lengths" or "rewards") for prompts in groups."""
        size = len(self._by_prompt[prompts[0]].lengths)
        return [
            value
            for prompt in prompts[::size]
            for value in getattr(self._by_prompt[prompt], values)
        ]

    def generate(self, prompts: list[str], trainer: Any) -> dict[str, list]:
        """TRL's `rollout_func`: the tokens of each rollout, the prompts' in groups."""
        size = len(self._by_prompt[prompts[0]].lengths)
        return {
            "prompt_ids": self.tokenizer(prompts, add_special_tokens=False)["input_ids"],
            "completion_ids": [
                ids for prompt in prompts[::size] for ids in self._completions[prompt]
            ],
            "logprobs": None,
        }

    def forced_reward(self, prompts: list[str], **_: Any) -> list[float]:
        """The reward each rollout was given beforehand."""
        return self.rows(prompts, "rewards")

    def graded_reward(self, prompts: list[str], **_: Any) -> list[float]:
        """The same rewards, found by grading texts that earn them: random letters cost nothing."""
        from data_prep.grading.grade import grade_rollouts

        is_right = self.rows(prompts, "rewards")
        problems = [self._problems[row % len(self._problems)] for row in range(len(is_right))]
        grades = grade_rollouts(
            [
                build_completion(
                    problem.solution, problem.answers[0] if right else problem.answers[0] + "1"
                )
                for problem, right in zip(problems, is_right, strict=True)
            ],
            [problem.answers for problem in problems],
            ["box"] * len(problems),
            think_prefilled=False,
            final_number=False,
        )
        return [float(grade.verdict == "right") for grade in grades]

    def force_lengths(self, model: Any) -> None:
        """Make `model.generate` end each completion at its length: random weights would not."""
        generate = model.generate

        def forced(input_ids: Any, **kwargs: Any) -> Any:
            letters = [self.tokenizer.convert_ids_to_tokens(row) for row in input_ids.tolist()]
            prompts = ["".join(token for token in row if token != PAD) for row in letters]
            ends = EndAt(
                self.rows(prompts, "lengths"), input_ids.size(1), self.tokenizer.eos_token_id
            )
            return generate(input_ids=input_ids, logits_processor=[ends], **kwargs)

        model.generate = forced


class EndAt:
    """Logits processor that ends each row at its length, not before and not after."""

    def __init__(self, lengths: list[int], prompt_length: int, eos_token_id: int) -> None:
        self._lengths, self._prompt_length, self._eos = lengths, prompt_length, eos_token_id

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        import torch

        now = input_ids.size(1) - self._prompt_length + 1  # tokens with the next one
        ends = torch.tensor([length == now for length in self._lengths], device=scores.device)
        scores[:, self._eos] = float("-inf")
        scores[ends] = float("-inf")
        scores[ends, self._eos] = 0.0
        return scores
