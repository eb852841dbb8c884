"""Token lengths of the real training rows, kept as numbers so that the benchmark needs no data.

    python -m benchmarks.length_mix --data_root DIR

Rows are built as the data stage builds them (question in the recipe's prompt; worked solution in
`<think>`, then the box) and rendered with a ChatML template. No tokenizer of a real model is at
hand without a hub: a byte-level BPE with Qwen2's pre-tokenizer, trained on the same text, stands in
for one. `length_mix.json` says how many characters a token of it has.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_prep.config import parse, run_cli
from data_prep.prompts import build_completion, build_prompt, render_prompt
from data_prep.reading.rows import read_rows
from data_prep.schema import Problem
from data_prep.sources.registry import build_problems

MIX = Path(__file__).with_name("length_mix.json")
FILES = {
    "gsm8k": "gsm8k/train.jsonl",
    "numinamath": "numinamath_cot/numina_cot_2k.upstream_schema.jsonl.gz",
}
SFT_ROWS = {"gsm8k": 7473, "numinamath": 20000}  # as configs/grpo7b/data.yaml mixes them
NUM_PAIRS = 500  # lengths kept of each data set
VOCAB_SIZE = 16_000


@dataclass
class LengthArguments:
    """Keys of the command line."""

    data_root: str = field(metadata={"help": "folder with gsm8k/ and numinamath_cot/"})
    out: str = field(default=str(MIX), metadata={"help": "file to write"})


def read_texts(path: Path, source: str, tokenizer: Any) -> list[tuple[str, str]]:
    """Rendered prompt and completion of each usable row of a data set, without EOS."""
    rows = ((number, where, row) for number, (where, row) in enumerate(read_rows(path)))
    return [
        (
            render_prompt(build_prompt(problem.question, "think"), tokenizer),
            build_completion(problem.solution, problem.answers[0]),
        )
        for _, problem in build_problems(source, "train", rows)
        if isinstance(problem, Problem) and problem.solution
    ]


def joint_quantiles(pairs: list[tuple[int, int]], count: int) -> list[tuple[int, int]]:
    """`count` of the pairs, evenly spread over their order by sum, in that order.

    Args:
        pairs: prompt and completion length of each row, tokens.
    """
    ordered = sorted(pairs, key=lambda pair: (sum(pair), pair))
    return [ordered[int((n + 0.5) * len(ordered) / count)] for n in range(count)]


def measure(data_root: str | Path) -> dict[str, Any]:
    """The file's content: for each data set its lengths, means and characters per token."""
    from tokenizers import pre_tokenizers, trainers
    from transformers import Qwen2Tokenizer

    from stages.tiny_model import CHAT_TEMPLATE

    tokenizer = Qwen2Tokenizer()  # its pre-tokenizer takes digits apart
    tokenizer.chat_template = CHAT_TEMPLATE
    texts = {
        source: read_texts(Path(data_root) / file, source, tokenizer)
        for source, file in FILES.items()
    }
    backend = tokenizer._tokenizer
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE, show_progress=False, initial_alphabet=alphabet
    )
    every = (text for rows in texts.values() for pair in rows for text in pair)
    backend.train_from_iterator(every, trainer)
    backend.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    mix = {"vocab_size": backend.get_vocab_size(), "sets": {}}
    for source, rows in texts.items():
        prompts, completions = (
            [len(item.ids) for item in backend.encode_batch(list(side))]
            for side in zip(*rows, strict=True)
        )
        characters = sum(len(text) for row in rows for text in row)
        completions_and_eos = [length + 1 for length in completions]
        mix["sets"][source] = {
            "file": FILES[source],
            "rows": len(rows),
            "characters_per_token": round(characters / sum(prompts + completions), 3),
            "mean_prompt": round(sum(prompts) / len(rows), 1),
            "mean_completion": round(sum(completions_and_eos) / len(rows), 1),
            "pairs": joint_quantiles(
                list(zip(prompts, completions_and_eos, strict=True)), NUM_PAIRS
            ),
        }
    return mix


def main() -> None:
    """Measure and write."""
    (args,) = parse(__doc__, LengthArguments)
    Path(args.out).write_text(json.dumps(measure(args.data_root)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    run_cli(main)
