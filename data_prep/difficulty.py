"""Offline pass rates: how often a checkpoint solves each problem of a set.

    python -m data_prep.difficulty --config configs/tiny-cpu/difficulty.yaml

Samples `num_samples` completions per problem and grades them; `pass_rates.jsonl` (one row per
problem: id, num_right, num_samples) is what `stages.grpo` filters by. Finished problems are
appended as they come, so a killed run goes on where it stopped, if checkpoint, problems and
settings are still the same.
"""

import json
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from data_prep import manifest
from data_prep.checkpoints import check_checkpoint
from data_prep.config import UserError, parse, run_cli
from data_prep.prompts import prefills_think, render_prompt
from data_prep.rollouts import grade_rollouts
from data_prep.schema import read_problems

RESULT, PARTIAL, RUN_FILE = "pass_rates.jsonl", "pass_rates.jsonl.partial", "run.json"


@dataclass
class DifficultyArguments:
    """Keys of `difficulty.yaml`."""

    model_name_or_path: str = field(metadata={"help": "checkpoint folder or hub id to measure"})
    problems_file: str = field(metadata={"help": "JSON lines with id, prompt and answer"})
    output_dir: str = field(metadata={"help": "where pass_rates.jsonl goes"})
    num_samples: int = field(default=4, metadata={"help": "completions per problem"})
    temperature: float = field(default=1.0, metadata={"help": "sampling temperature, above 0"})
    top_p: float = field(default=1.0, metadata={"help": "nucleus, 0..1"})
    max_new_tokens: int = field(default=2048, metadata={"help": "longest completion, tokens"})
    batch_size: int = field(default=64, metadata={"help": "problems per generation batch"})
    limit: int | None = field(default=None, metadata={"help": "measure only the first problems"})
    final_number: bool = field(
        default=False,
        metadata={"help": "where there is no box, the plain number at the end is the answer"},
    )
    dtype: str = field(default="bfloat16", metadata={"help": "weights' type: float32, bfloat16"})
    seed: int = field(default=0, metadata={"help": "seed of the sampling"})

    def __post_init__(self) -> None:
        for key in ("num_samples", "max_new_tokens", "batch_size"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key}: {getattr(self, key)} must be at least 1")
        if not self.temperature > 0:
            raise ValueError(f"temperature: {self.temperature} must be above 0 to sample")


def check(values: dict[str, Any]) -> None:
    """Refuse missing inputs before torch is imported."""
    if not Path(values["problems_file"]).is_file():
        raise UserError(
            f"problems_file: {values['problems_file']} does not exist; run `make data` first"
        )
    check_checkpoint(values["model_name_or_path"], "model_name_or_path", "sft")


def sample_completions(
    model: Any, tokenizer: Any, prompts: list[str], args: DifficultyArguments
) -> list[str]:
    """`num_samples` completions (decoded, without special tokens) of each prompt, in its order."""
    import torch

    batch = tokenizer(
        prompts, return_tensors="pt", padding=True, padding_side="left", add_special_tokens=False
    ).to(model.device)
    with torch.inference_mode():
        ids = model.generate(
            **batch,
            do_sample=True,
            temperature=args.temperature,
            top_p=args.top_p,
            top_k=0,  # else the checkpoint's generation_config would have its say
            repetition_penalty=1.0,
            max_new_tokens=args.max_new_tokens,
            num_return_sequences=args.num_samples,
        )  # (B * num_samples, P + C)
    return tokenizer.batch_decode(ids[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)


def main() -> None:
    """Measure what is not measured yet, then put the result and the manifest in place."""
    (args,) = parse(__doc__, DifficultyArguments, check=check)
    rows = list(read_problems(args.problems_file))[: args.limit]
    folder = Path(args.output_dir)
    inputs = manifest.hash_inputs([args.model_name_or_path, args.problems_file])
    started = manifest.start(folder)

    run = {"config": asdict(args), "inputs": inputs}
    partial, run_file = folder / PARTIAL, folder / RUN_FILE
    if not run_file.is_file() or json.loads(run_file.read_text(encoding="utf-8")) != run:
        partial.unlink(missing_ok=True)
        manifest.write_json(run_file, run)
    done = read_partial(partial)
    todo = [row for row in rows if row["id"] not in done]
    if done:
        sys.stdout.write(f"difficulty: resuming, {len(done):,} problems are measured already\n")

    import torch
    from rich.console import Console
    from rich.progress import track
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging as hf_logging

    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = AutoTokenizer.from_pretrained(args.model_name_or_path)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token  # Llama has none
    model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path, dtype=args.dtype)
    model = model.to(device).eval()

    batches = range(0, len(todo), args.batch_size)
    console = Console(stderr=True)
    with partial.open("a", encoding="utf-8") as file:
        for start in track(batches, "pass rates", console=console, disable=not console.is_terminal):
            batch = todo[start : start + args.batch_size]
            # Keyed on the problem, so that a resumed run samples what an uninterrupted one would.
            torch.manual_seed(args.seed * 1_000_003 + rows.index(batch[0]))
            prompts = [render_prompt(row["prompt"], tokenizer) for row in batch]
            sampled = [row for row in batch for _ in range(args.num_samples)]
            grades = grade_rollouts(
                [row["prompt"] for row in sampled],
                sample_completions(model, tokenizer, prompts, args),
                [row["answer"] for row in sampled],
                think_prefilled=prefills_think(prompts[0]),
                final_number=args.final_number,
            )
            verdicts = [grade.verdict for grade in grades]
            lines = []
            for number, row in enumerate(batch):
                first = number * args.num_samples
                done[row["id"]] = verdicts[first : first + args.num_samples].count("right")
                result = {
                    "id": row["id"],
                    "num_right": done[row["id"]],
                    "num_samples": args.num_samples,
                }
                lines.append(json.dumps(result) + "\n")
            # In one piece: half a batch on disk would shift the later batches and their samples.
            file.write("".join(lines))
            file.flush()

    partial.replace(folder / RESULT)
    histogram = {str(n): list(done.values()).count(n) for n in range(args.num_samples + 1)}
    manifest.write(
        folder, "difficulty", asdict(args), inputs,
        {"problems": len(done), "num_right_histogram": histogram}, started,
    )  # fmt: skip
    shares = ", ".join(f"{n} of {args.num_samples} right: {c}" for n, c in histogram.items())
    sys.stdout.write(f"difficulty: {len(done):,} problems ({shares}) -> {folder / RESULT}\n")


def read_partial(path: Path) -> dict[str, int]:
    """`{id: num_right}` of the rows already written; a last line cut short is cut off the file."""
    if not path.is_file():
        return {}
    lines = path.read_text(encoding="utf-8").split("\n")
    whole = lines[:-1]  # the text after the last newline is empty, or a line cut short
    path.write_text("".join(line + "\n" for line in whole), encoding="utf-8")
    return {row["id"]: row["num_right"] for row in map(json.loads, whole)}


if __name__ == "__main__":
    run_cli(main)
