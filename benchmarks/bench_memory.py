"""The memory plan beside measured training steps.

    python -m benchmarks.bench_memory --shapes tiny small 0.5B --out docs/results/memory.md

Each case runs in a process of its own. The 0.5B cases need 11 GB of memory and about 100 s each on
one core; tiny and small take seconds. Exit code 1 where a plan is more than 15 % off.
"""

import importlib.util
import json
import platform
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.bench_memory_run import Case, measure
from data_prep.config import UserError, parse, run_cli

TOLERANCE = 0.15
SMALL = {
    "hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 8,
    "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 3000,
}  # fmt: skip
LLAMA = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 640, "num_hidden_layers": 6,
    "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 20000,
    "tie_word_embeddings": False,
}  # fmt: skip
LONG, SHORT = {"batch": 4, "length": 256}, {"batch": 1, "length": 16, "prompt": 4}
CASES: dict[str, list[Case]] = {
    "tiny": [
        Case(),
        Case(checkpointing=True),
        Case(batch=8, length=512),
        Case(batch=8, length=512, padded=True),
        Case(batch=8, length=512, checkpointing=True, padded=True, accumulation=2),
        Case(stage="grpo", batch=16, length=160, padded=True),
        Case(stage="grpo", batch=16, length=160, update_tokens=640),
        Case(stage="grpo", batch=16, length=160, update_tokens=640, checkpointing=True),
        Case(batch=4, length=256, packing=True),
        Case(batch=4, length=256, dtype="bfloat16"),
        Case(batch=4, length=256, bf16=True),
    ],
    "small": [
        Case(changes=SMALL, **SHORT),
        Case(changes=SMALL, **SHORT, accumulation=2),
        Case(changes=SMALL, **LONG),
        Case(changes=SMALL, **LONG, checkpointing=True, bf16=True),
        Case(changes=SMALL, **LONG, dtype="bfloat16", checkpointing=True, padded=True),
        Case(changes=SMALL, **LONG, dtype="bfloat16", bf16=True, stochastic_rounding=True),
        Case(changes=SMALL, **LONG, lora_rank=16, lora_dropout=0.05),
        Case(changes=SMALL, **LONG, lora_rank=16, dtype="bfloat16", bf16=True),
        Case(changes=SMALL, **LONG, stage="grpo", update_tokens=512, accumulation=2),
        Case(changes=LLAMA, batch=2, length=64),
        Case(changes=LLAMA, batch=2, length=64, bf16=True, accumulation=2),
    ],
    "0.5B": [
        Case(shape="0.5B", batch=1, length=64),
        Case(shape="0.5B", batch=2, length=256),
        Case(shape="0.5B", batch=2, length=256, checkpointing=True),
        Case(shape="0.5B", batch=2, length=256, checkpointing=True, bf16=True),
        Case(shape="0.5B", batch=2, length=256, stage="grpo", padded=True, accumulation=2),
        Case(shape="0.5B", batch=2, length=256, lora_rank=16, dtype="bfloat16", bf16=True),
    ],
}


@dataclass
class BenchArguments:
    """Keys of the command line."""

    shapes: list[str] = field(
        default_factory=lambda: ["tiny", "small"],
        metadata={"help": f"which cases: {', '.join(CASES)}"},
    )
    out: str | None = field(default=None, metadata={"help": "file of the table (Markdown)"})
    case: str | None = field(
        default=None, metadata={"help": "one case as JSON, run in this process"}
    )

    def __post_init__(self) -> None:
        for name in self.shapes:
            if name not in CASES:
                raise ValueError(f"shapes: {name!r} is none of {', '.join(CASES)}")


def run_case(case: Case) -> dict[str, float]:
    """Measure a case in a process of its own; bytes.

    Raises:
        UserError: the process failed, as when the machine's memory does not suffice.
    """
    command = [sys.executable, "-m", "benchmarks.bench_memory", "--case", json.dumps(asdict(case))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["killed"])[-1]
        raise UserError(
            f"case {describe(case)}: ended with {done.returncode} ({last}); try it alone"
        )
    return json.loads(done.stdout.strip().splitlines()[-1])


def describe(case: Case) -> str:
    """What makes a case different from the default."""
    default, parts = asdict(Case()), []
    for key, value in asdict(case).items():
        if (
            key in ("shape", "stage", "batch", "length", "prompt", "changes")
            or value == default[key]
        ):
            continue
        parts.append(key.replace("_", " ") if value is True else f"{key.replace('_', ' ')} {value}")
    return ", ".join(parts) or "-"


def row(name: str, case: Case, measured: dict[str, float]) -> tuple[str, float]:
    """A line of the table, and plan / measured."""
    plan = case.plan()
    ratio = plan.peak / measured["peak"]
    label = "small Llama" if case.changes.get("model_type") == "llama" else name
    cells: list[Any] = [
        label, case.stage, f"{case.batch} x {case.length}", describe(case),
        f"{measured['peak'] / 1e6:,.1f}", f"{plan.peak / 1e6:,.1f}", f"{ratio:.3f}", plan.moment,
        f"{measured['rss'] / 1e6:,.0f}",
    ]  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |", ratio


COLUMNS = (
    "model", "stage", "rows x tokens", "settings", "measured (MB)", "plan (MB)", "plan / measured",
    "moment", "RSS (MB)",
)  # fmt: skip
HEADER = f"| {' | '.join(COLUMNS)} |\n|---|---|--:|---|--:|--:|--:|---|--:|"


def page(lines: list[str], ratios: list[float], shapes: list[str]) -> str:
    """The whole Markdown page."""
    versions = ", ".join(
        f"{name} {metadata.version(name)}" for name in ("torch", "transformers", "trl", "peft")
    )
    worst = max(ratios, key=lambda ratio: abs(ratio - 1))
    return f"""# Memory: the plan beside measured steps

`python -m benchmarks.bench_memory --shapes {" ".join(shapes)}`; {versions}, Python \
{platform.python_version()}, CPU.

Measured is the highest sum of live tensor bytes in the second optimizer step of TRL's trainer (the
first has no optimizer states yet), from the profiler's allocation events: what
`torch.cuda.max_memory_allocated` counts on a GPU. The plan knows the model's config and the
settings alone. MB are 10^6 bytes. RSS is the highest of the process in that step, with Python, its
libraries (about 600 MB) and what the allocator keeps. `small` is a Qwen2 of 8 layers and 256 wide.

{HEADER}
{chr(10).join(lines)}

{len(ratios)} cases, the worst is {worst:.3f}. How the plan is made, and what could not be measured
here (GPUs, sharding, vLLM): [preflight](../preflight.md).
"""


def main() -> None:
    """Measure all cases of the named shapes, or the one case of this process."""
    (args,) = parse(__doc__, BenchArguments)
    if args.case:
        found = measure(Case(**json.loads(args.case)))
        sys.stdout.write("\n" + json.dumps({"peak": found.peak, "rss": found.rss}) + "\n")
        return
    lines, ratios = [], []
    sys.stdout.write(HEADER + "\n")
    for name in args.shapes:
        for case in CASES[name]:
            if case.stochastic_rounding and importlib.util.find_spec("torchao") is None:
                sys.stderr.write(f"notice: {name}: {describe(case)}: not run, no torchao\n")
                continue
            line, ratio = row(name, case, run_case(case))
            lines.append(line)
            ratios.append(ratio)
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
    if args.out:
        Path(args.out).write_text(page(lines, ratios, args.shapes), encoding="utf-8")
    if max(abs(ratio - 1) for ratio in ratios) > TOLERANCE:
        sys.exit(1)


if __name__ == "__main__":
    run_cli(main)
