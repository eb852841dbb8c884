"""Pass rates: the share of correct completions of a checkpoint for each problem of a set.

    python -m stages.difficulty --config configs/tiny-cpu/difficulty.yaml
    accelerate launch -m stages.difficulty --config configs/grpo7b/difficulty.yaml

Samples `num_samples` completions per problem and grades them. `pass_rates.jsonl` has one row for
each problem; `stages.grpo` and the builder filter by it. Each finished sample is stored in
`output_dir/samples` under a hash of the checkpoint, the prompt and the settings. So a killed run
resumes where it stopped, and more samples extend those there. Another checkpoint starts from
scratch.
"""

import json
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from data_prep.sampling import ProblemSetArguments, check_inputs
from data_prep.sampling.hashes import shorten
from data_prep.sampling.keys import check_sampling
from data_prep.sampling.problems import SampledSet, load_problems, prepare
from data_prep.sampling.store import Processes, SampleStore, fill
from data_prep.schema import grader_files
from pipeline import manifest
from pipeline.errors import run_cli
from pipeline.launched import in_launch
from pipeline.settings import Settings, parse

RESULT = "pass_rates.jsonl"


def check_settings(settings: Settings) -> None:
    """Refuse keys of another backend and missing inputs, before torch is imported."""
    check_sampling(settings)
    check_inputs(settings)


def main() -> None:
    """Sample what is not sampled yet, grade, then put the result and the manifest in place."""
    (args,) = parse(__doc__, ProblemSetArguments, check=check_settings, owns="output_dir")
    rows = load_problems(args.problems_file, args.limit)
    processes = Processes.from_environment()
    folder = Path(args.output_dir)
    asked = {"config": asdict(args), "defaults": manifest.defaults_of(args)}
    if processes.ask_main(lambda: manifest.is_current(folder, **asked)):
        return
    files = [args.model_name_or_path, args.problems_file, *grader_files(rows)]
    inputs = manifest.hash_inputs(files)
    checkpoint, model, problems, open_engine = prepare(args, rows, processes)
    started = manifest.start(folder) if processes.is_main else 0.0
    store = SampleStore(folder / "samples", model, processes.rank)
    fill(store, problems.all_requests(), open_engine, processes, "difficulty")
    if processes.is_main:
        counts = write_rates(folder / RESULT, problems, store, shorten(checkpoint))
        end: dict[str, Any] = {"started": started, "files": [RESULT], "checkpoint": checkpoint}
        manifest.write(folder, "difficulty", asdict(args), inputs, counts, **end)
        histogram = counts["num_right_histogram"]
        shares = ", ".join(
            f"{n} of {args.num_samples} correct: {c:,}" for n, c in histogram.items()
        )
        sys.stdout.write(
            f"difficulty: {counts['problems']:,} problems ({shares}), "
            f"{counts['cut_off_share']:.1%} of the completions cut off -> {folder / RESULT}\n"
        )
    processes.meet()  # the main process holds the others' key-value store


def write_rates(
    path: Path, problems: SampledSet, store: SampleStore, checkpoint: str
) -> dict[str, Any]:
    """Write a row for each problem; returns the manifest's counts."""
    num_samples = problems.args.num_samples
    histogram = dict.fromkeys(map(str, range(num_samples + 1)), 0)
    verdicts: Counter[str] = Counter()
    num_cut_off = num_tokens = 0
    with manifest.open_whole(path) as file:
        for row, completions, grades in problems.grade(store):
            found = Counter(grade.verdict for grade in grades)
            cut_off = sum(one.cut_off for one in completions)
            result = {
                "id": row["id"],
                "num_right": found["right"],
                "num_samples": num_samples,
                "num_cut_off": cut_off,
                "verdicts": dict(sorted(found.items())),
                "checkpoint": checkpoint,
            }
            file.write(json.dumps(result) + "\n")
            histogram[str(found["right"])] += 1
            verdicts += found
            num_cut_off += cut_off
            num_tokens += sum(one.num_tokens for one in completions)
    return {
        "problems": len(problems.rows),
        "num_right_histogram": histogram,
        "verdicts": dict(verdicts.most_common()),
        "cut_off_share": round(num_cut_off / (len(problems.rows) * num_samples), 4),
        "tokens": num_tokens,
    }


if __name__ == "__main__":
    run_cli(in_launch(main))
