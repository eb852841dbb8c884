"""Build the data files of a recipe: the first stage of the pipeline.

    python -m data_prep.build --config configs/tiny-cpu/data.yaml
    python -m data_prep.build --config configs/grpo7b/data.yaml --data_root DIR

Reads the sources that `sft`, `grpo`, `validation` and `test` list, cleans them, and writes
sft_train.jsonl, grpo_train.jsonl, validation.jsonl and test.jsonl (those that are listed), what was
left out (dropped.jsonl), the pairs that decontamination found (contamination.jsonl), and
manifest.json last. One source is a mapping:

    {name: gsm8k, hub: openai/gsm8k, config: main, file: gsm8k/train.jsonl, split: train}

`file` is read below `data_root` if that is set, or as a path where there is no `hub`; otherwise
the hub is asked. `sample: N` takes N rows at random. docs/data.md explains every key.
"""

import contextlib
import dataclasses
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_prep import manifest
from data_prep.build.build_output import Outputs, SetReport, check_folder
from data_prep.build.clean import Collector
from data_prep.build.data_arguments import DataArguments, check_data
from data_prep.build.eval_sets import (
    benchmark_files,
    find_benchmark_inputs,
    load_benchmarks,
    read_questions,
)
from data_prep.build.mixing import choose_mix
from data_prep.build.prepare import Dropped, Job, Kept
from data_prep.build.recipe import FILES, TRAINING, Source, find_file, id_parts
from data_prep.build.rows import SourceRows
from data_prep.build.spool import Spool
from data_prep.build.workers import Workers, count_workers
from data_prep.config import UserError, parse, run_cli
from data_prep.decontamination.contamination import EvalQuestion
from data_prep.sampling.pass_rates import load_pass_counts


def collect(
    key: str, sources: list[Source], args: DataArguments, workers: Workers, spool: Spool,
    outputs: Outputs, report: SetReport,
) -> Collector:  # fmt: skip
    """Read and check the rows of every source of one file, in order, and find the duplicates."""
    collector = Collector(spool)
    named: dict[str, str] = {}  # where the rows with measured pass rates are
    is_training = key in TRAINING
    for number, (source, part) in enumerate(zip(sources, id_parts(sources), strict=True)):
        job = Job(
            source, part, args.policies(key),
            checks_contamination=is_training or key == "validation",
            skips_bad_rows=args.on_bad_row == "skip",
            finds_near_duplicates=is_training and args.near_duplicates == "drop",
        )  # fmt: skip
        rows = SourceRows(source, part, key, args)
        num_bad, first_bad = 0, ""
        for found in workers.prepare(job, rows, report.seconds):
            started = time.perf_counter()
            check_rated_id(found, named, args.pass_rates)
            drop = found if isinstance(found, Dropped) else collector.add(found, number)
            if drop:
                outputs.drop(report, number, drop)
            if drop and drop.reason == "bad_row":
                num_bad, first_bad = num_bad + drop.num_rows, first_bad or drop.detail
            report.seconds["duplicates"] += time.perf_counter() - started
        report.add_rows(number, rows.num_read, rows.num_read - rows.num_taken)
        report.seconds["read"] += rows.seconds
        if num_bad:
            sys.stderr.write(
                f"notice: {key}: {source.name}: {num_bad:,} rows cannot be used and are left "
                f"out, the first: {first_bad}\n"
            )
    started = time.perf_counter()
    report.num_rated = len(named)
    for number, drop in collector.finish():
        outputs.drop(report, number, drop)
    report.seconds["near duplicates"] += time.perf_counter() - started
    return collector


def check_rated_id(found: Kept | Dropped, named: dict[str, str], pass_rates: str | None) -> None:
    """Refuse an id that stands for two rows, where pass rates are known by ids."""
    name = found.id if isinstance(found, Dropped) else found.problem.id
    if pass_rates is None or not found.is_rated:
        return
    if name in named:
        raise UserError(
            f"{found.where}: the id {name!r} is also that of {named[name]}, so pass_rates cannot "
            "tell them apart; correct the ids or leave pass_rates out"
        )
    named[name] = found.where


def mix(key: str, args: DataArguments, collector: Collector, outputs: Outputs, report: SetReport):
    """Take out what the set's shares of easy, medium and hard problems leave over."""
    shares = args.find_mix(key)
    if shares is None:
        return
    known = []
    for number in collector.left():
        if collector.band(number):
            known.append(number)
        else:
            outputs.drop(report, *collector.leave_out(number, "unknown_difficulty"))
    bands = [collector.band(number) for number in known]
    chosen = choose_mix(bands, shares, f"{args.seed}-{key}-mix")
    for index, number in enumerate(known):
        if index not in chosen:
            outputs.drop(report, *collector.leave_out(number, "not_in_mix"))
    if not chosen:
        raise UserError(
            f"mix: {key}: no set has these shares: there are {dict(Counter(bands)) or 'no'} "
            "problems; change the shares, the bounds or the sources"
        )
    report.bands = dict(sorted(Counter(bands[index] for index in chosen).items()))
    if shares.size and len(chosen) < shares.size:
        sys.stderr.write(
            f"notice: mix: {key}: {len(chosen):,} problems instead of {shares.size:,}: there are "
            f"only {dict(sorted(Counter(bands).items()))}\n"
        )


def build_set(
    key: str, sources: list[Source], args: DataArguments, workers: Workers, outputs: Outputs
) -> SetReport:
    """Build one data file; its counts."""
    report = SetReport(key, sources)
    with outputs.spool(key) as spool:
        collector = collect(key, sources, args, workers, spool, outputs, report)
        mix(key, args, collector, outputs, report)
        order = collector.left()
        if not order:
            raise UserError(
                f"{key}: no problem is left of {report.rows_in} rows; dropped "
                f"{dict(report.dropped)}"
            )
        if key in TRAINING:
            random.Random(f"{args.seed}-{key}").shuffle(order)
        started = time.perf_counter()
        outputs.write(report, collector, spool, order)
        report.seconds["write"] += time.perf_counter() - started
    report.check()
    return report


def warn_of_no_decontamination(
    sources: dict[str, list[Source]], benchmarks: dict[str, Any]
) -> None:
    """Say so where real training data is checked against no benchmark."""
    real = [
        source.name
        for key in TRAINING
        for source in sources.get(key, ())
        if source.name != "synthetic"
    ]
    if real and not any(isinstance(count, int) for count in benchmarks.values()):
        sys.stderr.write(
            f"notice: {', '.join(dict.fromkeys(real))} may hold problems of benchmarks, and none "
            "is checked; set decontaminate: [gsm8k, math500, aime24, aime25]\n"
        )


def main() -> None:
    """Check the recipe, build every set, put the files in place, write the manifest."""
    (args,) = parse(__doc__, DataArguments, check=check_data)
    sources = check_data(vars(args))
    listed = [source for entries in sources.values() for source in entries]
    files = [path for source in listed if (path := find_file(source, args.data_root))]
    check_folder(args.output_dir, [*files, *benchmark_files(args)])
    try:
        with ended_by_signal():
            build(args, sources)
    except OSError as error:
        raise UserError(
            f"output_dir: {error.filename or args.output_dir}: {error.strerror or error}; check "
            "the disk and its permissions, or choose another folder"
        ) from error


@contextlib.contextmanager
def ended_by_signal() -> Iterator[None]:
    """Let SIGTERM end the build as an error does: workers end, half-written files go."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def build(args: DataArguments, sources: dict[str, list[Source]]) -> None:
    """Build every set of a checked recipe."""
    started = manifest.start(args.output_dir)
    number = count_workers(args.num_workers)
    with Outputs(args.output_dir, args.system_prompt) as outputs:
        held_out, benchmarks = load_benchmarks(args)
        warn_of_no_decontamination(sources, benchmarks)
        counts = load_pass_counts(args.pass_rates) if args.pass_rates else {}
        rates = {name: right / samples for name, (right, samples) in counts.items()}
        reports: dict[str, SetReport] = {}
        # Evaluation sets first, each checked against those before it.
        own: list[EvalQuestion] = []
        for key in ("test", "validation"):
            if key in sources:
                with Workers(number, own, rates) as workers:
                    reports[key] = build_set(key, sources[key], args, workers, outputs)
                own = [*own, *read_questions(key, outputs.path(key))]
        with Workers(number, [*held_out, *own], rates) as workers:
            for key in TRAINING:
                if key in sources:
                    reports[key] = build_set(key, sources[key], args, workers, outputs)
        if args.pass_rates and not any(report.num_rated for report in reports.values()):
            raise UserError(
                f"pass_rates: {args.pass_rates} has none of the ids of this recipe's problems; "
                "measure them with `make difficulty`"
            )
        outputs.finish()
        write_manifest(args, sources, reports, benchmarks, started)
        outputs.keep()


def write_manifest(
    args: DataArguments,
    sources: dict[str, list[Source]],
    reports: dict[str, SetReport],
    benchmarks: dict[str, Any],
    started: float,
) -> None:
    """Write the manifest with its totals, and say on one line what was done."""
    listed = [source for entries in sources.values() for source in entries]
    inputs = [find_file(s, args.data_root) or s.hub for s in listed if s.name != "synthetic"]
    inputs += [
        *find_benchmark_inputs(args, benchmarks),
        *([args.pass_rates] if args.pass_rates else []),
    ]
    rows_in = sum(report.rows_in for report in reports.values())
    rows_out = sum(report.rows_out for report in reports.values())
    dropped = sum((report.dropped for report in reports.values()), Counter())
    seconds = sum((report.seconds for report in reports.values()), Counter())
    assert rows_in == rows_out + dropped.total()
    manifest.write(
        args.output_dir,
        "data",
        dataclasses.asdict(args),
        manifest.hash_inputs(inputs),
        {Path(FILES[key]).stem: report.rows_out for key, report in reports.items()},
        started,
        rows_in=rows_in,
        rows_out=rows_out,
        dropped=dict(sorted(dropped.items())),
        outputs={FILES[key]: report.summary() for key, report in reports.items()},
        decontamination=benchmarks,
        seconds={step: round(spent, 2) for step, spent in seconds.items()},
    )
    files = ", ".join(f"{FILES[key]} {report.rows_out:,}" for key, report in reports.items())
    lost = ", ".join(f"{reason} {n:,}" for reason, n in dropped.most_common()) or "none"
    sys.stdout.write(
        f"data: read {rows_in:,} rows of {len(listed)} sources, wrote {rows_out:,} problems "
        f"({files}) to {args.output_dir}; dropped {rows_in - rows_out:,}: {lost}\n"
    )


if __name__ == "__main__":
    run_cli(main)
