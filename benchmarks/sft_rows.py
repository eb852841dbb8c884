"""Memory and time of SFT until its first step, on long traces; no weights or network are needed.

    python -m benchmarks.sft_rows --tokens 10000000 --processes 2

Writes traces of 1,100 to 7,300 tokens and a tiny model to a folder, and starts `stages.sft` there
twice, as far as the trainer. A line a process has the peak of its memory, its CPU time and the wall
time, imports among them. `--folder` keeps the files for another start.
"""

import argparse
import json
import os
import random
import resource
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WORDS = ["so", "we", "have", "that", "the", "sum", "of", "two", "is", "equal", "therefore", "wait"]
TOKENS_A_LINE = 18.3  # of the tiny model's tokenizer


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


def start(folder: Path, flags: list[str]) -> None:
    """Run SFT in this process as far as its first step, and print what that took."""
    from pipeline.console import quiet_imports

    quiet_imports()
    began = time.monotonic()
    from stages import sft
    from stages.run import training

    def stop(trainer: object, name: str, checkpoint: str | None) -> None:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        sys.stdout.write(
            f"process {os.environ.get('RANK', '0')}: "
            f"peak {usage.ru_maxrss / 2**20:.2f} GiB, "
            f"{usage.ru_utime + usage.ru_stime:.1f} CPU s, {time.monotonic() - began:.1f} s\n"
        )
        sys.stdout.flush()
        os._exit(0)

    training.train = stop
    sys.argv = [
        "sft", "--model_name_or_path", str(folder / "base"), "--output_dir", str(folder / "sft"),
        "--train_file", str(folder / "rows.jsonl"), "--use_cpu", "true", "--bf16", "false",
        "--report_to", "none", "--max_length", "32768", "--max_steps", "1", *flags,
    ]  # fmt: skip
    sft.main()


def run(folder: Path, num_processes: int, flags: list[str]) -> None:
    """Start SFT in so many processes, and wait for them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = []
    for rank in range(num_processes):
        env = dict(os.environ)
        if num_processes > 1:
            env |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(num_processes)}
            env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        command = [sys.executable, __file__, "--start", "--folder", str(folder), *flags]
        started.append(subprocess.Popen(command, env=env))
    codes = [process.wait() for process in started]
    if any(codes):
        sys.exit("sft_rows: a process failed")


def main() -> None:
    """Read the command line, write the files, start SFT twice."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tokens", type=int, default=10_000_000)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--folder", help="keeps the files")
    parser.add_argument("--start", action="store_true", help=argparse.SUPPRESS)
    args, flags = parser.parse_known_args()
    if args.start:
        start(Path(args.folder), flags)
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(args.folder or scratch)
        folder.mkdir(parents=True, exist_ok=True)
        measure(folder, args, flags)


def measure(folder: Path, args: argparse.Namespace, flags: list[str]) -> None:
    """Write the files where they are missing, and start SFT twice."""
    if not (folder / "base").is_dir():
        write_traces(folder / "rows.jsonl", args.tokens)
        write_model(folder / "base", folder / "rows.jsonl")
    for name in ("first", "second"):
        sys.stdout.write(f"{name} start\n")
        sys.stdout.flush()
        run(folder, args.processes, flags)


if __name__ == "__main__":
    main()
