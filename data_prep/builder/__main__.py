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

import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from data_prep.builder.duplicates import Collector
from data_prep.builder.filters import choose_mix
from data_prep.builder.recipe import (
    TRAINING,
    DataArguments,
    Source,
    check_data,
    check_settings,
    id_parts,
    local_files,
)
from data_prep.builder.rows import Job, SourceRows, Workers
from data_prep.builder.write import (
    Outputs,
    SetReport,
    Spool,
    check_folder,
    counts_text,
    write_manifest,
)
from data_prep.decontamination.index import load_questions, read_questions
from data_prep.schema import Problem, grpo_row, sft_row
from data_prep.sources.base import Drop
from grading.worker import count_cpus
from pipeline import manifest
from pipeline.console import notice
from pipeline.errors import UserError, run_cli
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


def build_set(
    key: str, sources: list[Source], args: DataArguments, workers: Workers, outputs: Outputs
) -> SetReport:
    """Build one data file; its counts."""
    report = SetReport(key, sources)
    render = sft_row if key == "sft" else grpo_row
    prompt, form = args.prompt_of(key), args.form_of(key)

    def make_row(problem: Problem) -> dict[str, Any]:
        return render(problem, prompt, form, args.grader)

    with tempfile.TemporaryFile(dir=args.output_dir) as file:
        spool = Spool(file, make_row)
        collector = collect(args, workers, spool, outputs, report)
        mix(args, collector, outputs, report)
        order = collector.left()
        if not order:
            outputs.keep_logs()
            raise report.nothing_left()
        if key in TRAINING:
            random.Random(f"{args.seed}-{key}").shuffle(order)
        started = time.perf_counter()
        outputs.write(key, map(spool.line, order))
        for number in order:
            report.rows_out_of[collector.sources[number]] += 1
        report.seconds["write"] += time.perf_counter() - started
    report.warn()
    return report


def collect(
    args: DataArguments, workers: Workers, spool: Spool, outputs: Outputs, report: SetReport
) -> Collector:
    """Read and check the rows of every source of one file, in order, and find the duplicates."""
    collector = Collector(spool, args.grader, args.form_of(report.key))
    parts = id_parts(report.sources)
    for number, (source, part) in enumerate(zip(report.sources, parts, strict=True)):
        job = Job(source, part, report.key, args)
        collect_source(number, job, collector, workers, outputs, report)
    started = time.perf_counter()
    for number, found in collector.finish():
        outputs.drop(report, number, found)
    report.seconds["near duplicates"] += time.perf_counter() - started
    for number, (source, part) in enumerate(zip(report.sources, parts, strict=True)):
        if source.sample and source.name != "synthetic":  # which has made as many
            seed = f"{args.seed}-{report.key}-{source.name}-{part}"
            left = collector.sample(number, source.sample, seed)
            if left > source.sample:
                report.dropped_of[number]["not_sampled"] = left - source.sample
            elif 0 < left < source.sample:
                what = f"sample: {source.sample:,} is more than the {left:,} problems left"
                notice(f"{report.key}: {source.name}: {what}; all are taken")
    return collector


def collect_source(
    number: int,
    job: Job,
    collector: Collector,
    workers: Workers,
    outputs: Outputs,
    report: SetReport,
) -> None:
    """Read and check the rows of one source; `number` is its place in the list of sources."""
    rows = SourceRows(job)
    num_bad, first_bad = 0, ""
    for found in workers.check(job, rows, report.seconds):
        started = time.perf_counter()
        left_out = found if found.drop else collector.add(found, number)
        if not left_out:
            report.notes_of[number].update(found.notes)
        else:
            outputs.drop(report, number, left_out)
            if left_out.drop.reason == "bad_row":
                num_bad += 1
                first_bad = first_bad or left_out.drop.detail
        report.seconds["duplicates"] += time.perf_counter() - started
    report.rows_in_of[number] = rows.num_read
    report.seconds["read"] += rows.seconds
    if num_bad:
        what = f"{num_bad:,} rows cannot be used and are left out"
        notice(f"{job.key}: {job.source.name}: {what}; the first: {first_bad}")


def mix(args: DataArguments, collector: Collector, outputs: Outputs, report: SetReport) -> None:
    """Leave out the problems that exceed the set's shares of difficulties or sources."""
    key = report.key
    shares = args.mix.get(key)
    if shares is None:
        return
    for number in collector.left():
        if not collector.bands[number]:
            outputs.drop(report, *collector.leave_out(number, Drop("unknown_difficulty")))
    cleaned = sum(report.dropped_of, Counter())
    known = collector.left()
    if not known:
        return  # the error of a set without problems says why
    bands = [collector.bands[number] for number in known]
    chosen = choose_mix(bands, shares, f"{args.seed}-{key}-mix")
    for index, number in enumerate(known):
        if index not in chosen:
            outputs.drop(report, *collector.leave_out(number, Drop("not_in_mix")))
    if not chosen:
        there = f"left are {counts_text(Counter(bands))}, cleaning dropped {counts_text(cleaned)}"
        remedy = "change the shares, the bounds or the sources"
        if cleaned.total() > len(known):
            remedy = f"{report.remedy_of(cleaned)}, or change the shares"
        raise UserError(f"mix: {key}: these shares cannot be met: {there}; {remedy}")
    report.bands = dict(sorted(Counter(bands[index] for index in chosen).items()))
    if len(chosen) < shares.get("size", 0):
        what = f"{len(chosen):,} problems instead of {shares['size']:,}"
        notice(f"mix: {key}: {what}; there are only {counts_text(Counter(bands))}")


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
