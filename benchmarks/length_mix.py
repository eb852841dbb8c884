"""Token lengths of the real training rows, kept as numbers so that the benchmark needs no data.

    python -m benchmarks.bench_throughput_lengths --data_root DIR --out benchmarks/length_mix.json

Rows are built as the data stage builds them (question in the recipe's prompt; worked solution in
`<think>`, then the box) and rendered with a ChatML template. No tokenizer of a real model is at
hand without a hub: a byte-level BPE with Qwen2's pre-tokenizer, trained on the same text, stands in
for one. `length_mix.json` says how many characters a token of it has.
"""

import gzip
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_prep.config import parse, run_cli
from data_prep.prompts import build_completion, build_prompt, render_prompt
from data_prep.schema import Problem
from data_prep.sources.builders import build_problems

MIX = Path(__file__).with_name("length_mix.json")
FILES = {
    "gsm8k": "gsm8k/train.jsonl",
    "numinamath": "numinamath_cot/numina_cot_2k.upstream_schema.jsonl.gz",
}
SFT_ROWS = {"gsm8k": 7473, "numinamath": 20000}  # as configs/grpo7b/data.yaml mixes them


@dataclass
class LengthArguments:
    """Keys of the command line; there is no YAML for this one."""

    data_root: str = field(metadata={"help": "folder with gsm8k/ and numinamath_cot/"})
    out: str = field(default=str(MIX), metadata={"help": "file to write"})
    num_pairs: int = field(default=500, metadata={"help": "lengths to keep of each data set"})
    vocab_size: int = field(default=16000, metadata={"help": "of the tokenizer that stands in"})


def read_texts(data_root: str | Path, source: str) -> list[tuple[str, str]]:
    """Rendered prompt and completion of each usable row of a data set, without EOS."""
    from stages.tiny_model import CHAT_TEMPLATE

    path = Path(data_root) / FILES[source]
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        rows = [(n, f"{path}, line {n + 1}", json.loads(line)) for n, line in enumerate(file)]
    found = build_problems(source, "train", rows)
    return [
        (
            render_prompt(build_prompt(problem.question, "think"), _Template(CHAT_TEMPLATE)),
            build_completion(problem.solution, problem.answer),
        )
        for _, problem in found
        if isinstance(problem, Problem) and problem.solution
    ]


class _Template:
    """Renders a chat template without a tokenizer."""

    def __init__(self, template: str) -> None:
        import jinja2

        self._template = jinja2.Template(template)

    def apply_chat_template(self, messages: list, tokenize: bool, **kwargs: Any) -> str:
        assert not tokenize
        return self._template.render(messages=messages, **kwargs)


def train_tokenizer(texts: list[str], vocab_size: int) -> Any:
    """A byte-level BPE with Qwen2's pre-tokenizer (digits apart) and ChatML's special tokens."""
    from tokenizers import pre_tokenizers, trainers
    from transformers import Qwen2Tokenizer

    backend = Qwen2Tokenizer()._tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    backend.train_from_iterator(texts, trainer)
    backend.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    return backend


def joint_quantiles(pairs: list[tuple[int, int]], count: int) -> list[tuple[int, int]]:
    """`count` of the pairs, evenly spread over their order by sum, in that order.

    Args:
        pairs: prompt and completion length of each row, tokens.
    """
    ordered = sorted(pairs, key=lambda pair: (sum(pair), pair))
    return [ordered[int((n + 0.5) * len(ordered) / count)] for n in range(count)]


def measure(args: LengthArguments) -> dict[str, Any]:
    """The file's content: for each data set its lengths, means and characters per token."""
    texts = {source: read_texts(args.data_root, source) for source in FILES}
    every = [text for rows in texts.values() for pair in rows for text in pair]
    backend = train_tokenizer(every, args.vocab_size)
    mix = {"vocab_size": backend.get_vocab_size(), "sets": {}}
    for source, rows in texts.items():
        sides = [[len(item.ids) for item in backend.encode_batch(list(side))]
                 for side in zip(*rows, strict=True)]  # fmt: skip
        pairs = [(prompt, completion + 1) for prompt, completion in zip(*sides, strict=True)]  # EOS
        characters = sum(len(text) for row in rows for text in row)
        mix["sets"][source] = {
            "file": FILES[source],
            "rows": len(rows),
            "characters_per_token": round(characters / sum(map(sum, sides)), 3),
            "mean_prompt": round(sum(p for p, _ in pairs) / len(pairs), 1),
            "mean_completion": round(sum(c for _, c in pairs) / len(pairs), 1),
            "pairs": joint_quantiles(pairs, args.num_pairs),
        }
    return mix


def main() -> None:
    """Measure and write."""
    (args,) = parse(__doc__, LengthArguments)
    text = json.dumps(measure(args), indent=1)
    # Ten pairs on a line, not a number.
    text = re.sub(r"\[\s+(\d+),\s+(\d+)\s+\]", r"[\1, \2]", text)
    text = re.sub(r"((?:\[\d+, \d+\],\s+){10})", lambda m: " ".join(m[1].split()) + "\n    ", text)
    Path(args.out).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    run_cli(main)
