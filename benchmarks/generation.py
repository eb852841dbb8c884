"""Generation without vLLM, ours against transformers' `generate`, which TRL calls, on one batch.

    python -m benchmarks.generation --model FOLDER --problems runs/x/data/grpo_train.jsonl

The two take turns in one process, on the same prompts. Compared is the CPU time of the process
(user and system) for each generated token, as other jobs change the wall time. On a GPU it is the
wall time. First both complete
the prompts greedily, which shows whether they write the same. A model that has not learned to end
its answers gets an `end_bias`, added to the logit of the end in both.
"""

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

from benchmarks.table import Interval, about, publish, ratio_interval, show_interval, tell, wrap
from data_prep.schema import read_problems
from pipeline.console import quiet_imports
from pipeline.errors import UserError, run_cli
from pipeline.models.tokenizer import load_tokenizer
from pipeline.prompts import render_prompt
from pipeline.settings import parse, setting
from pipeline.values import Count

NAMES = ("transformers", "ours")


@dataclass
class BenchArguments:
    """Keys of the command line."""

    model: str = field(metadata={"help": "a model's folder"})
    problems: str = field(metadata={"help": "JSON lines with the columns of grpo_train.jsonl"})
    out: str = setting("runs/results/generation.md", "the page to write")
    num_prompts: Count = setting(16, "prompts of a batch")
    num_rollouts: Count = setting(8, "completions of each")
    max_new_tokens: Count = setting(48, "longest completion, tokens")
    end_bias: float = setting(0.0, "added to the logit of the end token")
    num_turns: Count = setting(5, "turns, in each of which both generate")
    num_threads: Count = setting(2, "threads of torch")
    dtype: Literal["float32", "bfloat16"] = setting("float32", "of the weights: float32, bfloat16")


@dataclass(frozen=True)
class Turn:
    """What one call took, in CPU seconds of the process, and how much it generated.

    On a GPU all seconds are wall time, and none of them is `system`.
    """

    user: float
    system: float
    num_tokens: int

    @property
    def per_token(self) -> float:
        """Seconds a token."""
        return (self.user + self.system) / self.num_tokens


def completions(sequences: Any, width: int, end: int) -> list[list[int]]:
    """The tokens behind a prompt of `width` as far as the end token, which counts."""
    rows = sequences[:, width:].tolist()
    return [row[: row.index(end) + 1] if end in row else row for row in rows]


def clock() -> tuple[float, float]:
    """User and system seconds of the process; on a GPU the wall time, when its work is done."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
        return time.perf_counter(), 0.0
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime, used.ru_stime


def measure(call: Callable[[], Any], width: int, end: int) -> tuple[Turn, list[list[int]]]:
    """Call once; returns what it took, and the completions."""
    before = clock()
    sequences = call()
    after = clock()
    rows = completions(sequences, width, end)
    return Turn(after[0] - before[0], after[1] - before[1], sum(map(len, rows))), rows


def load(args: BenchArguments) -> tuple[Any, dict[str, Any], int]:
    """The model, the inputs of a batch and the id of the end token."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(args.num_threads)
    tokenizer = load_tokenizer(args.model, "model")
    problems = list(islice(read_problems(args.problems), args.num_prompts))
    if len(problems) < args.num_prompts:
        raise UserError(
            f"problems: {args.problems} has only {len(problems)} rows; lower num_prompts"
        )
    texts = [render_prompt(row["prompt"], tokenizer) for row in problems]
    each = [text for text in texts for _ in range(args.num_rollouts)]
    tokenizer.padding_side = "left"
    inputs = dict(tokenizer(each, add_special_tokens=False, padding=True, return_tensors="pt"))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = getattr(torch, args.dtype)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=dtype).to(device)
    kept = {name: inputs[name].to(device) for name in ("input_ids", "attention_mask")}
    return model.train(), kept, tokenizer.eos_token_id  # TRL leaves the model in training mode


def measure_all(args: BenchArguments) -> tuple[dict[str, list[Turn]], str, int]:
    """The turns of each, which greedy completions are equal, and the tokens of a prompt."""
    import torch
    from transformers import GenerationConfig

    from data_prep.sampling.generate import generate

    model, inputs, end = load(args)
    model.generation_config = GenerationConfig(pad_token_id=end)
    width = inputs["input_ids"].size(1)
    ends = {"eos_token_id": end, "pad_token_id": end, "max_new_tokens": args.max_new_tokens}
    if args.end_bias:
        ends["sequence_bias"] = {(end,): args.end_bias}
    greedy = GenerationConfig(do_sample=False, **ends)
    sampled = GenerationConfig(do_sample=True, top_k=0, disable_compile=True, **ends)

    def call(name: str, config: Any, step: int = 1) -> tuple[Turn, list[list[int]]]:
        loop = generate if name == "ours" else type(model).generate
        some = {key: rows[::step] for key, rows in inputs.items()}
        return measure(lambda: loop(model, **some, generation_config=config), width, end)

    # Greedy rollouts of a prompt are alike: two are enough.
    step = max(1, args.num_rollouts // 2)
    (_, theirs), (_, ours) = (call(name, greedy, step) for name in NAMES)
    num_equal = sum(one == other for one, other in zip(theirs, ours, strict=True))
    tell(f"greedy: {num_equal} of {len(ours)} completions are equal")
    turns: dict[str, list[Turn]] = {name: [] for name in NAMES}
    for number in range(args.num_turns):
        for name in NAMES if number % 2 else reversed(NAMES):
            torch.manual_seed(number)
            turns[name].append(call(name, sampled)[0])
            tell(f"{name}: {turns[name][-1]}")
    return turns, f"{num_equal} of {len(ours)}", width


def ratio(turns: dict[str, list[Turn]]) -> Interval:
    """Seconds a token, transformers' over ours: geometric mean and 95 % interval."""
    pairs = zip(turns["transformers"], turns["ours"], strict=True)
    return ratio_interval([one.per_token / other.per_token for one, other in pairs])


def main() -> None:
    """Measure, and write the table."""
    (args,) = parse(__doc__, BenchArguments)
    quiet_imports()
    import torch

    turns, num_equal, width = measure_all(args)
    is_gpu, rows = torch.cuda.is_available(), []
    unit, time_is = ("s", "time") if is_gpu else ("CPU s", "CPU time")
    for name in NAMES:
        total = [sum(getattr(one, key) for one in turns[name]) for key in ("user", "system")]
        num_tokens = sum(one.num_tokens for one in turns[name])
        num_rows = args.num_turns * args.num_prompts * args.num_rollouts
        share = {} if is_gpu else {"of it system": f"{total[1] / sum(total):.0%}"}
        rows.append(
            {
                "generation": name,
                f"{unit} a batch": f"{sum(total) / args.num_turns:.1f}",
                **share,
                f"tokens a {unit}": f"{num_tokens / sum(total):.1f}",
                "tokens a completion": f"{num_tokens / num_rows:.1f}",
            }
        )
    speed = ratio(turns)
    how = (
        f"{args.num_prompts} prompts x {args.num_rollouts} completions of up to "
        f"{args.max_new_tokens} tokens, {args.num_turns} turns. Prompts have up to {width} tokens. "
        f"Weights are {args.dtype}. "
        + (f"{torch.cuda.get_device_name()}, wall time." if is_gpu else "")
        + ("" if is_gpu else f"CPU time is that of the process, with {args.num_threads} threads.")
    )
    note = (
        f"transformers' {time_is} a token is {show_interval(speed)} times ours "
        f"(95 % interval). Greedy, {num_equal} completions are equal."
    )
    figures = {"about": about(), "ratio": speed, "equal": num_equal, "turns": turns}
    figures["turns"] = {name: [vars(one) for one in found] for name, found in turns.items()}
    publish(args.out, "Generation without vLLM", wrap(how), rows, figures, wrap(note))


if __name__ == "__main__":
    run_cli(main)
