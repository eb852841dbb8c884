"""What needs all rows of a data file: duplicates, contradictions, samples and the mix.

The rows come in their order, whatever process checked them. `mix: {grpo: {easy: 0.2, medium: 0.5,
hard: 0.3, size: 10000}}` draws a set with these shares of the bands that `difficulty` gives its
sources; without it, `mix: {grpo: {gsm8k: 0.3, math: 0.7}}` gives each source a share by its name.
"""

import random
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from data_prep.builder.duplicates import Collector
from data_prep.builder.filters import Checked
from data_prep.builder.recipe import TRAINING, DataArguments, Source, id_parts, shares_of
from data_prep.builder.rows import Job, Workers
from data_prep.builder.write import Outputs, SetReport, Spool, counts_text
from data_prep.schema import Problem, grpo_row, sft_row
from data_prep.sources.base import Drop
from pipeline.console import notice
from pipeline.errors import UserError


def build_set(
    key: str, sources: list[Source], args: DataArguments, workers: Workers, outputs: Outputs
) -> SetReport:
    """Build one data file; its counts."""
    report = SetReport(key, sources)
    render = sft_row if key == "sft" else grpo_row
    prompt, form = args.prompt_of(key), args.form_of(key)

    def make_row(problem: Problem) -> dict[str, Any]:
        return render(problem, prompt, form, args.grader)

    parts = id_parts(sources)
    with tempfile.TemporaryFile(dir=args.output_dir) as file:
        spool = Spool(file, make_row)
        collector = Collector(spool, args.grader, form)
        for number, (source, part) in enumerate(zip(sources, parts, strict=True)):
            collect(number, Job(source, part, key, args), collector, workers, outputs, report)
        for number, found in collector.finish():
            outputs.drop(report, number, found)
        for number, part in enumerate(parts):
            draw_sample(number, part, args.seed, collector, report)
        if key in args.mix:
            mix(args.mix[key], args.seed, collector, outputs, report)
        order = collector.left()
        if not order:
            outputs.keep_logs()
            raise report.nothing_left()
        if key in TRAINING:
            random.Random(f"{args.seed}-{key}").shuffle(order)
        outputs.write(key, map(spool.line, order))
        for number in order:
            report.rows_out_of[collector.sources[number]] += 1
    report.warn()
    return report


def collect(
    number: int,
    job: Job,
    collector: Collector,
    workers: Workers,
    outputs: Outputs,
    report: SetReport,
) -> None:
    """Take in the rows of one source; `number` is its place in the list of sources."""
    num_bad, first_bad = 0, ""
    for found in workers.check(job):
        report.rows_in_of[number] += 1
        if isinstance(found, Checked):
            repeat = collector.add(found, number)
            if repeat is None:
                report.notes_of[number].update(found.notes)
                continue
            found = repeat
        outputs.drop(report, number, found)
        if found.drop.reason == "bad_row":
            num_bad += 1
            first_bad = first_bad or found.drop.detail
    if num_bad:
        what = f"{num_bad:,} rows cannot be used and are left out"
        notice(f"{job.key}: {job.source.name}: {what}; the first: {first_bad}")


def draw_sample(number: int, part: str, seed: int, collector: Collector, report: SetReport) -> None:
    """Leave as many problems of a source as its `sample` says."""
    source = report.sources[number]
    if not source.sample or source.name == "synthetic":  # which has made as many
        return
    left = collector.sample(number, source.sample, f"{seed}-{report.key}-{source.name}-{part}")
    if left > source.sample:
        report.dropped_of[number]["not_sampled"] = left - source.sample
    elif 0 < left < source.sample:
        what = f"sample: {source.sample:,} is more than the {left:,} problems left"
        notice(f"{report.key}: {source.name}: {what}; all are taken")


def mix(
    shares: Mapping[str, float],
    seed: int,
    collector: Collector,
    outputs: Outputs,
    report: SetReport,
) -> None:
    """Leave out the problems that exceed the set's shares of difficulties or sources."""
    for number in collector.left():
        if not collector.bands[number]:
            outputs.drop(report, *collector.leave_out(number, Drop("unknown_difficulty")))
    cleaned = sum(report.dropped_of, Counter())
    known = collector.left()
    if not known:
        return  # the error of a set without problems says why
    bands = [collector.bands[number] for number in known]
    chosen = choose_mix(bands, shares, f"{seed}-{report.key}-mix")
    for index, number in enumerate(known):
        if index not in chosen:
            outputs.drop(report, *collector.leave_out(number, Drop("not_in_mix")))
    if not chosen:
        there = f"left are {counts_text(Counter(bands))}, cleaning dropped {counts_text(cleaned)}"
        remedy = "change the shares, the bounds or the sources"
        if cleaned.total() > len(known):
            remedy = f"{report.remedy_of(cleaned)}, or change the shares"
        raise UserError(f"mix: {report.key}: these shares cannot be met: {there}; {remedy}")
    report.bands = dict(sorted(Counter(bands[index] for index in chosen).items()))
    if len(chosen) < shares.get("size", 0):
        what = f"{len(chosen):,} problems instead of {shares['size']:,}"
        notice(f"mix: {report.key}: {what}; there are only {counts_text(Counter(bands))}")


def plan_counts(available: Mapping[str, int], mix: Mapping[str, float]) -> dict[str, int]:
    """How many problems of each band, or of each source, a set with these shares can have at most.

        N = min over bands b with share_b > 0 of floor(available_b / share_b), and at most `size`

    Counts are share x N, rounded by largest remainders so that they add up to N.
    """
    wanted = {band: share for band, share in shares_of(dict(mix)).items() if share > 0}
    # The small addend: 3 / 0.3 is 10, and not 9.99….
    total = min(int(available.get(band, 0) / share + 1e-9) for band, share in wanted.items())
    total = min(total, int(mix.get("size", total)))
    exact = {band: share * total for band, share in wanted.items()}
    counts = {band: int(number + 1e-9) for band, number in exact.items()}
    by_remainder = sorted(wanted, key=lambda band: (counts[band] - exact[band], band))
    for band in by_remainder[: total - sum(counts.values())]:
        counts[band] += 1
    # Rounding up may ask a band for one more than it has.
    return {band: min(number, available.get(band, 0)) for band, number in counts.items()}


def choose_mix(bands: Sequence[str], mix: Mapping[str, float], seed: str) -> set[int]:
    """Indices of the problems of a mix, drawn at random within each band; see `plan_counts`."""
    counts = plan_counts(Counter(bands), mix)
    members = {band: [i for i, each in enumerate(bands) if each == band] for band in counts}
    rng = random.Random(seed)
    return {index for band, n in counts.items() for index in rng.sample(members[band], n)}
