"""Offline pass rates: how often a checkpoint solves each problem of a set.

    python -m stages.difficulty --config configs/tiny-cpu/difficulty.yaml
    accelerate launch -m stages.difficulty --config configs/grpo7b/difficulty.yaml

Samples `num_samples` completions per problem and grades them. `pass_rates.jsonl` has one row for
each problem: id, num_right, num_samples, num_cut_off, verdicts, checkpoint (the first digits of its
hash); `stages.grpo` and the builder filter by it. Each finished sample is stored in
`output_dir/samples` under a hash of the checkpoint, the prompt and the settings: a killed run
goes on where it stopped, more samples extend those there, and another checkpoint begins anew.
"""

import json
import sys
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from data_prep import manifest
from data_prep.checkpoints import check_checkpoint
from data_prep.config import UserError, parse, run_cli
from data_prep.prompts import prefills_think, render_prompt
from data_prep.sampling import load_engine, quiet
from data_prep.sampling.arguments import SamplingArguments
from data_prep.sampling.processes import Processes

RESULT, KEY = "pass_rates.jsonl", "model_name_or_path"


@dataclass(kw_only=True)
class DifficultyArguments(SamplingArguments):
    """Keys of `difficulty.yaml`."""

    model_name_or_path: str = field(metadata={"help": "checkpoint folder or hub id to measure"})
    problems_file: str = field(metadata={"help": "JSON lines with id, prompt and answer"})
    output_dir: str = field(metadata={"help": "where pass_rates.jsonl and the samples go"})


def check(values: dict[str, Any]) -> None:
    """Refuse missing inputs before torch is imported."""
    if not Path(values["problems_file"]).is_file():
        raise UserError(
            f"problems_file: {values['problems_file']} does not exist; run `make data` first"
        )
    check_checkpoint(values[KEY], KEY, "sft")


def main() -> None:
    """Sample what is not sampled yet, grade, then put the result and the manifest in place."""
    (args,) = parse(__doc__, DifficultyArguments, check=check)
    from data_prep.sampling.sampled import SampledSet, read_rows

    rows = read_rows(args.problems_file, args.limit)
    processes = Processes.from_environment()
    folder = Path(args.output_dir)
    quiet()
    from data_prep.sampling.filling import fill
    from data_prep.sampling.hashes import hash_checkpoint, hash_engine, shorten
    from data_prep.sampling.hf import load_tokenizer
    from data_prep.sampling.samples import SampleStore

    checkpoint = processes.ask_main(lambda: hash_checkpoint(args.model_name_or_path, KEY))
    started = manifest.start(folder) if processes.is_main else 0.0
    tokenizer = load_tokenizer(args.model_name_or_path, KEY)
    prompts = [render_prompt(row["prompt"], tokenizer) for row in rows]
    problems = SampledSet(rows, prompts, prefills_think(prompts[0]), args)

    model = f"{checkpoint} {hash_engine(args.backend, args.dtype)}"
    store = SampleStore(folder / "samples", model, processes.rank)
    fill(
        store,
        problems.all_requests(),
        lambda: load_engine(args.model_name_or_path, KEY, args, processes.local_rank),
        processes,
        "difficulty",
    )
    if processes.is_main:
        counts = write_rates(folder / RESULT, problems, store, shorten(checkpoint))
        inputs = manifest.hash_inputs([args.model_name_or_path, args.problems_file])
        manifest.write(
            folder, "difficulty", asdict(args), inputs, counts, started, checkpoint=checkpoint
        )
        say(counts, args.num_samples, folder / RESULT)
    processes.meet()  # the main process holds the others' key-value store


def write_rates(path: Path, problems: Any, store: Any, checkpoint: str) -> dict[str, Any]:
    """Write a row for each problem; returns the manifest's counts.

    Args:
        problems: a `SampledSet`, all of whose samples are in `store`.
        checkpoint: name of the checkpoint, for the rows.
    """
    num_samples = problems.args.num_samples
    histogram = dict.fromkeys(map(str, range(num_samples + 1)), 0)
    verdicts: Counter[str] = Counter()
    num_cut_off = num_tokens = 0
    partial = path.with_name(path.name + ".partial")
    with partial.open("w", encoding="utf-8") as file:
        for row, completions, grades in problems.grade(store):
            found = Counter(grade.verdict for grade in grades)
            cut_off = sum(one.cut_off for one in completions)
            result = {
                "id": row["id"], "num_right": found["right"], "num_samples": num_samples,
                "num_cut_off": cut_off, "verdicts": dict(sorted(found.items())),
                "checkpoint": checkpoint,
            }  # fmt: skip
            file.write(json.dumps(result) + "\n")
            histogram[str(found["right"])] += 1
            verdicts += found
            num_cut_off += cut_off
            num_tokens += sum(one.num_tokens for one in completions)
    store.close()
    partial.replace(path)
    return {
        "problems": len(problems.rows),
        "num_right_histogram": histogram,
        "verdicts": dict(verdicts.most_common()),
        "cut_off_share": round(num_cut_off / (len(problems.rows) * num_samples), 4),
        "tokens": num_tokens,
    }


def say(counts: dict[str, Any], num_samples: int, path: Path) -> None:
    """One line about the result."""
    histogram = counts["num_right_histogram"]
    shares = ", ".join(f"{n} of {num_samples} right: {c:,}" for n, c in histogram.items())
    sys.stdout.write(
        f"difficulty: {counts['problems']:,} problems ({shares}), {counts['cut_off_share']:.1%} of "
        f"the completions cut off -> {path}\n"
    )


if __name__ == "__main__":
    run_cli(main)
