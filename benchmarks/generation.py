"""Generation without vLLM: ours, transformers' `generate` and its `generate_batch`, on one model.

    python -m benchmarks.generation --model FOLDER --problems runs/x/data/grpo_train.jsonl

TRL calls `generate`, or `generate_batch` where the recipe asks for continuous batching. The three
take turns in one process, on the same prompts, in batches of several sizes. Compared is the CPU
time of the process for each generated token; on a GPU it is the wall time. First all complete the
prompts greedily, which shows whether they write the same. Random weights hardly ever write the end
token, so `end_share` lets other tokens end a completion, too. `keep` writes what was found to where
stages on such a device read it (`data_prep.sampling.fastest`).
"""

from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

import torch
from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig

from benchmarks.table import publish, ratio_interval, show_interval, tell, wrap
from benchmarks.throughput_runs import now
from data_prep.sampling.fastest import BATCHED, LOOPS, OURS, THEIRS, device_name, keep_finding
from data_prep.sampling.generate import generate
from data_prep.schema import read_problems
from pipeline.console import quiet
from pipeline.errors import UserError, run_cli
from pipeline.models.tokenizer import load_tokenizer
from pipeline.prompts import render_prompt
from pipeline.settings import parse, setting
from pipeline.values import Count

HOW = """Batches of prompts x {num_rollouts} completions of up to {max_new_tokens} tokens,
{num_turns} turns on {device}. Weights are {dtype}. Speed is the ratio to the first, geometric mean
[95 % interval], of wall time, on a CPU of the process's time."""


@dataclass
class BenchArguments:
    """Keys of the command line."""

    model: str = field(metadata={"help": "a model's folder"})
    problems: str = field(metadata={"help": "JSON lines with the columns of grpo_train.jsonl"})
    out: str = setting("runs/results/generation.md", "the page to write")
    sizes: list[Count] = setting([16], "prompts of a batch, of each size")
    num_rollouts: Count = setting(8, "completions of each")
    max_new_tokens: Count = setting(48, "longest completion, tokens")
    end_share: float = setting(0.0, "share of all tokens that end a completion, 0..1")
    num_turns: Count = setting(5, "turns of each size, in each of which all generate")
    dtype: Literal["float32", "bfloat16"] = setting("float32", "of the weights: float32, bfloat16")
    memory: float = setting(0.5, "share of the memory that generate_batch takes; TRL's by default")
    keep: bool = setting(False, "whether stages on such a device may follow what is found")


def cut(row: list[int], ends: set[int]) -> list[int]:
    """A completion's tokens as far as its first end, which counts."""
    end = next((place for place, token in enumerate(row) if token in ends), len(row))
    return row[: end + 1]


class Generator:
    """A model that completes the same problems by each loop.

    Raises:
        UserError: there are too few problems.
    """

    def __init__(self, args: BenchArguments) -> None:
        self.tokenizer = load_tokenizer(args.model, "model")
        self.tokenizer.padding_side = "left"
        problems = list(islice(read_problems(args.problems), max(args.sizes)))
        if len(problems) < max(args.sizes):
            raise UserError(f"problems: {args.problems} has {len(problems)} rows; lower sizes")
        self._texts = [render_prompt(row["prompt"], self.tokenizer) for row in problems]
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model = AutoModelForCausalLM.from_pretrained(args.model, dtype=getattr(torch, args.dtype))
        self.model = model.to(self.device)
        end, size = self.tokenizer.eos_token_id, model.config.vocab_size
        self.model.generation_config = GenerationConfig(pad_token_id=end)
        self.ends, self._memory = {end}, args.memory
        if num_ends := round(args.end_share * size):
            self.ends |= {*range(0, size, size // num_ends)}
        self._how = {
            "eos_token_id": sorted(self.ends), "pad_token_id": end,
            "max_new_tokens": args.max_new_tokens, "disable_compile": True,
        }  # fmt: skip

    def complete(
        self, loop: str, num_prompts: int, num_rollouts: int, seed: int | None = None
    ) -> tuple[float, list[list[int]]]:
        """Call one of `LOOPS` once, sampling with a seed or greedily: seconds, completions.

        Raises:
            RuntimeError: `generate_batch` did not finish, for a reason that it has logged.
        """
        texts = [text for text in self._texts[:num_prompts] for _ in range(num_rollouts)]
        sampling = {"do_sample": False} if seed is None else {"do_sample": True, "top_k": 0}
        config = GenerationConfig(**self._how, **sampling)
        torch.manual_seed(seed or 0)
        start = now()
        rows = (
            self._batched(texts, config) if loop == BATCHED else self._padded(loop, texts, config)
        )
        seconds = now() - start
        if len(rows) < len(texts):
            raise RuntimeError(f"{len(rows)} of {len(texts)} completions")
        return seconds, [cut(row, self.ends) for row in rows]

    def _batched(self, texts: list[str], config: GenerationConfig) -> list[list[int]]:
        """By `generate_batch`, in no order."""
        ids = self.tokenizer(texts, add_special_tokens=False)["input_ids"]
        room = ContinuousBatchingConfig(max_memory_percent=self._memory)
        with torch.no_grad():
            found = self.model.generate_batch(
                ids, generation_config=config, continuous_batching_config=room
            )
        return [one.generated_tokens for one in found.values()]

    def _padded(self, loop: str, texts: list[str], config: GenerationConfig) -> list[list[int]]:
        """By `generate` with our loop or with transformers' own."""
        given = self.tokenizer(texts, add_special_tokens=False, padding=True, return_tensors="pt")
        call = generate if loop == OURS else type(self.model).generate
        self.model.train()  # as TRL leaves it
        ids, mask = (given[name].to(self.device) for name in ("input_ids", "attention_mask"))
        found = call(self.model, input_ids=ids, attention_mask=mask, generation_config=config)
        return found[:, ids.size(1) :].tolist()


def compare(generator: Generator, num_prompts: int) -> dict[str, str]:
    """Which loops work, and how many of their greedy completions equal transformers'."""
    found: dict[str, str] = {}
    theirs: list[list[int]] = []
    for loop in LOOPS:
        try:
            rows = generator.complete(loop, num_prompts, 2)[1]  # all rollouts of a prompt are alike
        except (RuntimeError, ValueError, ImportError) as error:
            if loop != BATCHED:
                raise
            tell(f"{loop} does not work here: {' '.join(str(error).split())}")
            continue
        theirs = theirs or rows
        equal = sum(one == other for one, other in zip(theirs, rows, strict=True))
        found[loop] = f"{equal} of {len(rows)}"
    return found


def measure(generator: Generator, args: BenchArguments, loops: list[str]) -> dict[str, Any]:
    """By loop and size the (seconds, tokens) of each turn; none is always first."""
    turns: dict[str, Any] = {loop: {size: [] for size in args.sizes} for loop in loops}
    for size in args.sizes:
        for number in range(args.num_turns):
            for loop in loops[:: 1 if number % 2 else -1]:
                seconds, rows = generator.complete(loop, size, args.num_rollouts, number)
                num_tokens = sum(map(len, rows))
                turns[loop][size].append((seconds, num_tokens))
                tell(f"{loop}, {size} prompts: {num_tokens} tokens in {seconds:.2f} s")
    return turns


def main() -> None:
    """Measure, and write the table."""
    (args,) = parse(__doc__, BenchArguments)
    quiet()
    generator = Generator(args)
    equal = compare(generator, min(args.sizes))
    turns, rows = measure(generator, args, [*equal]), []
    for size in args.sizes:
        for loop in equal:
            costs = [seconds / tokens for seconds, tokens in turns[loop][size]]
            first = [seconds / tokens for seconds, tokens in turns[THEIRS][size]]
            ratios = [theirs / mine for theirs, mine in zip(first, costs, strict=True)]
            rows.append({
                "prompts": str(size),
                "generation": loop,
                "tokens/s": f"{len(costs) / sum(costs):,.1f}",
                "speed": show_interval(ratio_interval(ratios)),
                "greedy completions equal": equal[loop],
            })  # fmt: skip
    speeds = {}
    for loop, sizes in turns.items():
        seconds, tokens = zip(*(turn for found in sizes.values() for turn in found), strict=True)
        speeds[loop] = sum(tokens) / sum(seconds)
    name = device_name(generator.device)
    figures = {"tokens_per_second": speeds, "turns": turns}
    how = HOW.format(device=name, **vars(args))
    publish(args.out, "Generation without vLLM", wrap(how), rows, figures)
    if args.keep:
        tell(f"{keep_finding(name, speeds)} is written")


if __name__ == "__main__":
    run_cli(main)
