"""Build the data files of a recipe: the first stage of the pipeline.

    python -m data_prep.build --config configs/tiny-cpu/data.yaml
    python -m data_prep.build --config configs/grpo7b/data.yaml --data_root DIR

Reads the sources that `sft`, `grpo`, `validation` and `test` list, cleans them, and writes
sft_train.jsonl, grpo_train.jsonl, validation.jsonl and test.jsonl (those that are listed) and
manifest.json into `output_dir`. One source is a mapping:

    {name: gsm8k, hub: openai/gsm8k, config: main, file: gsm8k/train.jsonl, split: train}

`file` is read below `data_root` if that is set, or as a path where there is no `hub`; otherwise
the hub is asked. `sample: N` takes N rows at random; `options` go to the synthetic generator.
"""

import contextlib
import dataclasses
import json
import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_prep import manifest, synthetic
from data_prep.clean import clean, normalise_question
from data_prep.config import UserError, parse, run_cli
from data_prep.prompts import SYSTEM_PROMPTS
from data_prep.reading import Row, load_hub, read_rows
from data_prep.recipe import FILES, Source, build_problems, check_sources, find_file
from data_prep.schema import Problem, grpo_row, sft_row
from data_prep.sources import Drop


@dataclass
class DataArguments:
    """Keys of `data.yaml`."""

    output_dir: str = field(metadata={"help": "folder of the data files and the manifest"})
    sft: list[dict] = field(default_factory=list, metadata={"help": "sources of sft_train.jsonl"})
    grpo: list[dict] = field(default_factory=list, metadata={"help": "sources of grpo_train.jsonl"})
    validation: list[dict] = field(
        default_factory=list, metadata={"help": "sources of validation.jsonl"}
    )
    test: list[dict] = field(default_factory=list, metadata={"help": "sources of test.jsonl"})
    system_prompt: str = field(
        default="none", metadata={"help": f"one of {', '.join(SYSTEM_PROMPTS)}"}
    )
    seed: int = field(default=0, metadata={"help": "seed of samples, shuffles and generators"})
    data_root: str | None = field(default=None, metadata={"help": "folder of the local files"})


def sample_rows(
    rows: Iterable[tuple[str, Row]], size: int | None, seed: str
) -> tuple[list[tuple[int, str, Row]], int]:
    """Draw `size` rows in one pass (reservoir sampling, Vitter's algorithm R); None takes all.

    Returns:
        The rows as (position from 0, where, row) in file order, and the number of rows read.
    """
    rng = random.Random(seed)
    kept: list[tuple[int, str, Row]] = []
    position = -1
    for position, (where, row) in enumerate(rows):
        if size is None or position < size:
            kept.append((position, where, row))
        elif (slot := rng.randrange(position + 1)) < size:
            kept[slot] = (position, where, row)
    return sorted(kept, key=lambda item: item[0]), position + 1


def load_problems(
    source: Source, key: str, args: DataArguments
) -> tuple[list[Problem], int, Counter[str]]:
    """Read one source: its problems, the number of rows read, and the rows dropped by reason."""
    if source.name == "synthetic":
        try:
            found = synthetic.load(source.split, source.sample, args.seed, **source.options)
            problems = list(track(found, f"{key}: synthetic"))
        except (TypeError, ValueError) as error:  # an option unknown or out of range
            raise UserError(f"{key}: synthetic: {error}; fix its options or split") from error
        return problems, len(problems), Counter()
    path = find_file(source, args.data_root)
    rows = read_rows(path) if path else load_hub(source.hub, source.split, source.config)
    # Seeded by what is sampled, not by its place in the list: adding a source changes no other.
    seed = f"{args.seed}-{key}-{source.name}-{source.split}"
    sampled, num_rows = sample_rows(
        track(rows, f"{key}: reading {source.name}"), source.sample, seed
    )
    if not num_rows:
        raise UserError(f"{key}: {source.name}: {path or source.hub} has no rows; check the file")
    if source.sample is not None and num_rows < source.sample:
        sys.stderr.write(
            f"notice: {key}: {source.name} has {num_rows} rows, fewer than sample "
            f"{source.sample}: all are taken\n"
        )
    dropped = Counter({"not_sampled": num_rows - len(sampled)})
    problems = []
    tracked = track(sampled, f"{key}: building {source.name}")
    for _, built in build_problems(source.name, source.split, tracked):
        if isinstance(built, Drop):
            dropped[built.reason] += 1
        else:
            problems.append(built)
    return problems, num_rows, dropped


def track(items: Iterable, description: str) -> Iterator:
    """A progress bar on stderr; silent when that is not a terminal."""
    from rich.console import Console
    from rich.progress import track as rich_track

    console = Console(stderr=True)
    quiet = not console.is_terminal
    return iter(rich_track(items, description, console=console, transient=True, disable=quiet))


def build_set(
    key: str, sources: list[Source], args: DataArguments, eval_questions: set[str]
) -> tuple[list[Problem], dict[str, Any]]:
    """The problems of one output file, and its `{rows_in, rows_out, dropped}`."""
    problems: list[Problem] = []
    rows_in, dropped = 0, Counter()
    for source in sources:
        found, num_rows, lost = load_problems(source, key, args)
        problems += found
        rows_in += num_rows
        dropped += lost
    problems, lost = clean(problems, eval_questions, needs_solution=key == "sft")
    dropped += lost
    if not problems:
        raise UserError(f"{key}: no problem is left of {rows_in} rows; dropped {dict(dropped)}")
    doubled = [name for name, n in Counter(p.id for p in problems).items() if n > 1]
    if doubled:
        raise UserError(
            f"{key}: two problems have the id {doubled[0]!r}; give its sources different splits"
        )
    assert not eval_questions & {normalise_question(p.question) for p in problems}
    if key in ("sft", "grpo"):
        random.Random(f"{args.seed}-{key}").shuffle(problems)
    return problems, {
        "rows_in": rows_in,
        "rows_out": len(problems),
        "dropped": dict(sorted(dropped.items())),
    }


def write_files(sets: dict[str, list[Problem]], args: DataArguments) -> None:
    """Write every data file under a temporary name, then put all of them in place."""
    partials = {}
    for key, problems in sets.items():
        path = Path(args.output_dir, FILES[key])
        partials[path] = path.with_name(path.name + ".partial")
        make_row = sft_row if key == "sft" else grpo_row
        with partials[path].open("w", encoding="utf-8") as file:
            for problem in problems:
                # Escaped: U+2028 in GSM8K breaks readers that split lines as Unicode does.
                file.write(json.dumps(make_row(problem, args.system_prompt)) + "\n")
    for path, partial in partials.items():
        partial.replace(path)


def remove_files(output_dir: str) -> None:
    """Remove the data files and their temporary forms, and no other file."""
    for name in FILES.values():
        for path in (Path(output_dir, name), Path(output_dir, name + ".partial")):
            path.unlink(missing_ok=True)


def main() -> None:
    """Check the recipe, build every set, write the files, write the manifest."""
    (args,) = parse(__doc__, DataArguments, check=check_sources)
    sources = check_sources(vars(args))
    try:
        started = manifest.start(args.output_dir)
    except OSError as error:
        raise UserError(
            f"output_dir: {args.output_dir}: {error.strerror}; choose another"
        ) from error
    with contextlib.ExitStack() as on_error:
        on_error.callback(remove_files, args.output_dir)
        remove_files(args.output_dir)  # those of a former recipe
        sets, outputs, eval_questions = {}, {}, set()
        for key in FILES:
            if key not in sources:
                continue
            sets[key], outputs[FILES[key]] = build_set(key, sources[key], args, eval_questions)
            if key in ("test", "validation"):
                eval_questions |= {normalise_question(p.question) for p in sets[key]}
        write_files(sets, args)
        write_manifest(args, sources, outputs, started)
        on_error.pop_all()


def write_manifest(
    args: DataArguments,
    sources: dict[str, list[Source]],
    outputs: dict[str, dict[str, Any]],
    started: float,
) -> None:
    """Write the manifest with its totals, and say on one line what was done."""
    listed = [source for entries in sources.values() for source in entries]
    inputs = [find_file(s, args.data_root) or s.hub for s in listed if s.name != "synthetic"]
    rows_in = sum(output["rows_in"] for output in outputs.values())
    rows_out = sum(output["rows_out"] for output in outputs.values())
    dropped = sum((Counter(output["dropped"]) for output in outputs.values()), Counter())
    assert rows_in == rows_out + dropped.total()
    manifest.write(
        args.output_dir,
        "data",
        dataclasses.asdict(args),
        manifest.hash_inputs(inputs),
        {Path(name).stem: output["rows_out"] for name, output in outputs.items()},
        started,
        rows_in=rows_in,
        rows_out=rows_out,
        dropped=dict(sorted(dropped.items())),
        outputs=outputs,
    )
    files = ", ".join(f"{name} {output['rows_out']:,}" for name, output in outputs.items())
    lost = ", ".join(f"{reason} {n:,}" for reason, n in dropped.most_common()) or "none"
    sys.stdout.write(
        f"data: read {rows_in:,} rows of {len(listed)} sources, wrote {rows_out:,} problems "
        f"({files}) to {args.output_dir}; dropped {rows_in - rows_out:,}: {lost}\n"
    )


if __name__ == "__main__":
    run_cli(main)
