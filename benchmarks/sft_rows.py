"""Memory and time of SFT on long traces, nearly all of it before the first step; no network.

    python -m benchmarks.sft_rows --tokens 10000000 --processes 2

Writes traces of 1,100 to 7,300 tokens and a tiny model to a folder, and runs one step of
`stages.sft` there twice: the second time the tokens are there. A line a start has the peak of the
largest process, the CPU time of all and the wall time, imports among them.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.table import tell
from pipeline.errors import UserError, run_cli
from pipeline.settings import parse, setting
from pipeline.values import Count

WORDS = ["so", "we", "have", "that", "the", "sum", "of", "two", "is", "equal", "therefore", "wait"]
TOKENS_A_LINE = 18.3  # of the tiny model's tokenizer


@dataclass
class RowArguments:
    """Keys of the command line."""

    tokens: Count = setting(10_000_000, "of the traces, about")
    processes: Count = setting(1, "of SFT")


def write_traces(path: Path, num_tokens: int) -> None:
    """Write rows of about so many tokens in all."""
    chance, left = random.Random(0), num_tokens
    with path.open("w", encoding="utf-8") as file:
        while left > 0:
            num_lines = chance.randint(60, 400)
            lines = []
            for _ in range(num_lines):
                one, other = chance.randint(1, 40), chance.randint(1, 40)
                text = " ".join(chance.choices(WORDS, k=12))
                lines.append(f"{text} {one} + {other} = {one + other}.")
            prompt = [{"role": "user", "content": f"What is {one} + {other}?"}]
            thought = "\n".join(lines)
            completion = f"<think>\n{thought}\n</think>\n\n\\boxed{{{one + other}}}"
            file.write(json.dumps({"prompt": prompt, "completion": completion}) + "\n")
            left -= int(num_lines * TOKENS_A_LINE)


def write_model(folder: Path, rows: Path) -> None:
    """Write the tiny model, its tokenizer made of a few of the rows."""
    from stages.tiny_model import ModelArguments, build_model, build_tokenizer

    with rows.open(encoding="utf-8") as file:
        texts = [json.loads(line)["completion"] for line, _ in zip(file, range(20), strict=False)]
    tokenizer = build_tokenizer(texts)
    tokenizer.save_pretrained(folder)
    args = ModelArguments(output_dir=str(folder), train_file=str(rows))
    build_model(args, tokenizer).save_pretrained(folder)


def start(folder: Path, name: str, num_processes: int) -> None:
    """Run one step of SFT, and print what that took."""
    words = ["-m", "stages.sft"]
    if num_processes > 1:
        launcher = "-m stages.run.launch --config_file configs/accelerate/cpu.yaml --num_processes"
        words = [*launcher.split(), str(num_processes), *words]
    keys = {
        "model_name_or_path": folder / "base", "output_dir": folder / f"sft-{name}",
        "train_file": folder / "rows.jsonl", "use_cpu": True, "bf16": False, "report_to": "none",
        "max_length": 32768, "max_steps": 1,
    }  # fmt: skip
    flags = [part for key, value in keys.items() for part in (f"--{key}", str(value))]
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, *words, *flags], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise UserError(f"stages.sft ended with exit code {os.waitstatus_to_exitcode(status)}")
    seconds = usage.ru_utime + usage.ru_stime
    tell(
        f"{name} start: peak {usage.ru_maxrss / 2**20:.2f} GiB, {seconds:.1f} CPU s, "
        f"{time.monotonic() - began:.1f} s"
    )


def main() -> None:
    """Write the files, start SFT twice."""
    (args,) = parse(__doc__, RowArguments)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_traces(folder / "rows.jsonl", args.tokens)
        write_model(folder / "base", folder / "rows.jsonl")
        for name in ("first", "second"):
            start(folder, name, args.processes)


if __name__ == "__main__":
    run_cli(main)
