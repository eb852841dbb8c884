"""Build the data files of a recipe: the first stage of the pipeline.

    python -m data_prep.builder --config configs/tiny-cpu/data.yaml
    python -m data_prep.builder --config configs/grpo7b/data.yaml --data_root DIR

Reads and cleans the sources that `sft`, `grpo`, `validation` and `test` list. Writes
sft_train.jsonl, grpo_train.jsonl, validation.jsonl and test.jsonl, and for a teacher
distill_train.jsonl. The rows that are left out go to dropped.jsonl, the copies of benchmark
questions to contamination.jsonl; manifest.json is last. One source is a mapping:

    {name: gsm8k, hub: openai/gsm8k, config: main, file: gsm8k/train.jsonl, split: train}

`file` is a file, a folder or a glob in `data_root`. It is used if `data_root` is set, or if the
source has no `hub`; otherwise the hub's data set is used. docs/data.md explains every key.
"""

import signal
import sys
import time
from pathlib import Path

from data_prep.builder.recipe import (
    TRAINING,
    DataArguments,
    Source,
    check_data,
    check_settings,
    local_files,
)
from data_prep.builder.rows import Workers
from data_prep.builder.sets import build_set
from data_prep.builder.write import Outputs, SetReport, check_folder, write_manifest
from data_prep.decontamination.index import load_questions, read_questions
from data_prep.schema import Problem
from grading.worker import count_cpus
from pipeline import manifest
from pipeline.console import notice
from pipeline.errors import run_cli
from pipeline.own_code import own_files
from pipeline.settings import parse


def main() -> None:
    """Check the recipe, build every set, put the files in place, write the manifest."""
    (args,) = parse(__doc__, DataArguments, check=check_settings, owns="output_dir")
    sources = check_data(vars(args))
    inputs = local_files(vars(args))
    check_folder(args.output_dir, inputs)
    known = (manifest.read(args.output_dir) or {}).get("inputs", {})  # a folder may have got files
    inputs += own_files([args.grader or ""])
    asked = {"config": vars(args), "defaults": manifest.defaults_of(args)}
    if {*map(str, inputs)} <= known.keys() and manifest.is_current(args.output_dir, **asked):
        return
    # SIGTERM ends the build as an error does: workers end, half-written files go.
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        build(args, sources)
    finally:
        signal.signal(signal.SIGTERM, before)


def build(args: DataArguments, sources: dict[str, list[Source]]) -> None:
    """Build every set of a checked recipe."""
    started = time.time()
    Path(args.output_dir).mkdir(parents=True, exist_ok=True)
    number = args.num_workers or count_cpus()
    with Outputs(args.output_dir) as outputs:
        held_out, benchmarks = load_questions(
            args.decontaminate, args.decontaminate_if_found, args.data_root
        )
        warn_of_no_decontamination(sources, benchmarks)
        reports: dict[str, SetReport] = {}
        # Evaluation sets first, each checked against those before it.
        own: list[Problem] = []
        for key in [key for key in sources if key not in TRAINING]:
            with Workers(number, own) as workers:
                reports[key] = build_set(key, sources[key], args, workers, outputs)
            own = [*own, *read_questions(key, outputs.path(key))]
        with Workers(number, [*held_out, *own]) as workers:
            for key in TRAINING:
                if key in sources:
                    reports[key] = build_set(key, sources[key], args, workers, outputs)
        outputs.finish()
        write_manifest(args, reports, benchmarks, started)


def warn_of_no_decontamination(
    sources: dict[str, list[Source]], benchmarks: dict[str, int | str]
) -> None:
    """Write a notice where real training data is checked against no benchmark."""
    names = dict.fromkeys(source.name for key in TRAINING for source in sources.get(key, ()))
    names.pop("synthetic", None)
    if names and not any(isinstance(count, int) for count in benchmarks.values()):
        remedy = "set decontaminate: [gsm8k, math500, aime24, aime25]"
        names_text = ", ".join(names)
        notice(f"{names_text} may hold problems of benchmarks, and no benchmark is set; {remedy}")


if __name__ == "__main__":
    run_cli(main)
