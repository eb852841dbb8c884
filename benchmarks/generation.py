"""Generation without vLLM: ours, transformers' `generate` and its `generate_batch`, on one model.

    python -m benchmarks.generation --model FOLDER --problems runs/x/data/grpo_train.jsonl

TRL calls `generate`, or `generate_batch` where the recipe asks for continuous batching. The three
take turns in one process, on the same prompts, in batches of several sizes. Compared is the CPU
time of the process for each generated token; on a GPU it is the wall time. First all complete the
prompts greedily, which shows whether they write the same. Random weights hardly ever write the end
token, so `end_share` lets other tokens end a completion, too. `keep` writes what was found to where
stages on such a device read it (`data_prep.sampling.fastest`).
"""

from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Literal

from benchmarks.table import about, publish, ratio_interval, show_interval, tell, wrap
from data_prep.sampling.fastest import BATCHED, LOOPS, OURS, THEIRS, device_name, keep_finding
from data_prep.schema import read_problems
from pipeline.console import quiet_imports
from pipeline.errors import UserError, run_cli
from pipeline.models.tokenizer import load_tokenizer
from pipeline.prompts import render_prompt
from pipeline.settings import parse, setting
from pipeline.values import Count


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
    num_threads: Count = setting(2, "threads of torch")
    dtype: Literal["float32", "bfloat16"] = setting("float32", "of the weights: float32, bfloat16")
    memory: float = setting(0.5, "share of the memory that generate_batch takes; TRL's by default")
    keep: bool = setting(False, "whether stages on such a device may follow what is found")


@dataclass(frozen=True)
class Turn:
    """What one call took, seconds as the module says, and how much it generated."""

    seconds: float
    num_tokens: int


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
        import torch
        from transformers import AutoModelForCausalLM, GenerationConfig

        torch.set_num_threads(args.num_threads)
        self.tokenizer = load_tokenizer(args.model, "model")
        self.tokenizer.padding_side = "left"
        problems = list(islice(read_problems(args.problems), max(args.sizes)))
        if len(problems) < max(args.sizes):
            raise UserError(f"problems: {args.problems} has {len(problems)} rows; lower sizes")
        self._texts = [render_prompt(row["prompt"], self.tokenizer) for row in problems]
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        dtype = getattr(torch, args.dtype)
        model = AutoModelForCausalLM.from_pretrained(args.model, dtype=dtype)
        self.model = model.to(self.device)
        end = self.tokenizer.eos_token_id
        self.model.generation_config = GenerationConfig(pad_token_id=end)
        num_ends = round(args.end_share * model.config.vocab_size)
        self.ends, self._memory = {end}, args.memory
        if num_ends:
            self.ends |= {*range(0, model.config.vocab_size, model.config.vocab_size // num_ends)}
        self._how = {
            "eos_token_id": sorted(self.ends), "pad_token_id": end,
            "max_new_tokens": args.max_new_tokens, "disable_compile": True,
        }  # fmt: skip

    def complete(
        self, loop: str, num_prompts: int, num_rollouts: int, seed: int | None = None
    ) -> tuple[Turn, list[list[int]]]:
        """Call one of `LOOPS` once, sampling with a seed or greedily.

        Raises:
            RuntimeError: `generate_batch` did not finish, for a reason that it has logged.
        """
        import torch
        from transformers import ContinuousBatchingConfig, GenerationConfig

        from benchmarks.throughput_runs import now
        from data_prep.sampling.generate import generate

        texts = [text for text in self._texts[:num_prompts] for _ in range(num_rollouts)]
        sampling = {"do_sample": False} if seed is None else {"do_sample": True, "top_k": 0}
        config = GenerationConfig(**self._how, **sampling)
        torch.manual_seed(seed or 0)
        start = now()
        if loop == BATCHED:
            ids = self.tokenizer(texts, add_special_tokens=False)["input_ids"]
            room = ContinuousBatchingConfig(max_memory_percent=self._memory)
            with torch.no_grad():
                found = self.model.generate_batch(
                    ids, generation_config=config, continuous_batching_config=room
                )
            rows = [one.generated_tokens for one in found.values()]
        else:
            given = self.tokenizer(
                texts, add_special_tokens=False, padding=True, return_tensors="pt"
            ).to(self.device)
            call = generate if loop == OURS else type(self.model).generate
            self.model.train()  # as TRL leaves it
            sequences = call(
                self.model, input_ids=given["input_ids"], attention_mask=given["attention_mask"],
                generation_config=config,
            )  # fmt: skip
            rows = sequences[:, given["input_ids"].size(1) :].tolist()
        seconds = now() - start
        if len(rows) < len(texts):
            raise RuntimeError(f"{len(rows)} of {len(texts)} completions")
        rows = [cut(row, self.ends) for row in rows]
        return Turn(seconds, sum(map(len, rows))), rows


def compare(generator: Generator, num_prompts: int) -> dict[str, str]:
    """Which loops work, and how many of their greedy completions equal transformers'."""
    found, theirs = {}, []
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


def main() -> None:
    """Measure, and write the table."""
    (args,) = parse(__doc__, BenchArguments)
    quiet_imports()
    generator = Generator(args)
    equal = compare(generator, min(args.sizes))
    turns: dict[str, dict[int, list[Turn]]] = {loop: {n: [] for n in args.sizes} for loop in equal}
    for size in args.sizes:
        for number in range(args.num_turns):
            for loop in [*equal][:: 1 if number % 2 else -1]:
                turn, _ = generator.complete(loop, size, args.num_rollouts, number)
                turns[loop][size].append(turn)
                tell(f"{loop}, {size} prompts: {turn.num_tokens} tokens in {turn.seconds:.2f} s")
    rows, speeds = [], {}
    for loop, sizes in turns.items():
        for size, found in sizes.items():
            seconds = [one.seconds / one.num_tokens for one in found]
            first = [one.seconds / one.num_tokens for one in turns[THEIRS][size]]
            ratios = [a / b for a, b in zip(first, seconds, strict=True)]
            rows.append(
                {
                    "prompts": str(size),
                    "generation": loop,
                    "tokens/s": f"{len(seconds) / sum(seconds):,.1f}",
                    "speed": show_interval(ratio_interval(ratios)),
                    "greedy completions equal": equal[loop],
                }
            )
        every = [one for found in sizes.values() for one in found]
        speeds[loop] = sum(one.num_tokens for one in every) / sum(one.seconds for one in every)
    rows.sort(key=lambda row: int(row["prompts"]))
    name = device_name(generator.device)
    how = (
        f"Batches of prompts x {args.num_rollouts} completions of up to {args.max_new_tokens} "
        f"tokens, {args.num_turns} turns. Weights are {args.dtype}. Seconds are "
        + (f"wall time on {name}. " if name != "cpu" else "the process's CPU time. ")
        + "Speed is the ratio to the first, geometric mean [95 % interval]."
    )
    figures = {"about": about(), "tokens_per_second": speeds, "turns": {}}
    figures["turns"] = {
        loop: {size: [asdict(one) for one in found] for size, found in sizes.items()}
        for loop, sizes in turns.items()
    }
    publish(args.out, "Generation without vLLM", wrap(how), rows, figures)
    if args.keep:
        tell(f"{keep_finding(name, speeds)} is written")


if __name__ == "__main__":
    run_cli(main)
