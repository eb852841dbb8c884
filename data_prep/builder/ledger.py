"""The copies of benchmark questions that a build left out, as hashes and ids, to publish.

    python -m data_prep.builder.ledger --data runs/tiny-cpu/data

Writes `<run>/contamination-ledger/ledger.jsonl` from the pairs that the build found, and, last,
`manifest.json`. A line names one row, the benchmark's question that it repeats, and a hash of each
text (`text.question_hash`). The texts themselves are not in it.
"""

import json
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

from data_prep.builder.write import CONTAMINATION
from pipeline import manifest
from pipeline.errors import UserError, run_cli
from pipeline.rows import read_rows
from pipeline.settings import parse

STAGE = "contamination-ledger"
LEDGER = "ledger.jsonl"
COLUMNS = (
    "file",
    "source",
    "id",
    "benchmark",
    "benchmark_id",
    "kind",
    "score",
    "question_sha256",
    "benchmark_sha256",
)


@dataclass
class LedgerArguments:
    """Keys of the command line; there is no YAML for this one."""

    data: str = field(metadata={"help": "folder of a data build"})


def main() -> None:
    (args,) = parse(__doc__, LedgerArguments)
    data = Path(args.data)
    build = manifest.read_made(data, "data")
    folder = data.resolve().parent / STAGE
    started = manifest.start(folder)
    number = 0
    with manifest.open_whole(folder / LEDGER) as ledger:
        for where, pair in read_rows(data / CONTAMINATION):
            # The recipe's own test and validation sets are no benchmarks.
            if pair["benchmark"] not in build["decontamination"]:
                continue
            if missing := [column for column in COLUMNS if column not in pair]:
                raise UserError(f"{where}: {missing[0]}: missing; FORCE=1 make data writes it")
            ledger.write(json.dumps({column: pair[column] for column in COLUMNS}) + "\n")
            number += 1
    inputs = manifest.hash_inputs([data / CONTAMINATION])
    manifest.write(folder, STAGE, asdict(args), inputs, {"copies": number}, started, [LEDGER])
    sys.stdout.write(f"{STAGE}: {number:,} copies of benchmark questions in {folder / LEDGER}\n")


if __name__ == "__main__":
    run_cli(main)
