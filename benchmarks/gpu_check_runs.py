"""What `make gpu-check` starts besides stages and benchmarks.

python -m benchmarks.gpu_check_runs server <module> <model> ...   GRPO with a vLLM server of its own
python -m benchmarks.gpu_check_runs killed <module> ...   a stage, killed and started again
python -m benchmarks.gpu_check_runs varlen <page>   torch's `varlen_attn` beside SDPA
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.table import publish
from pipeline import manifest
from pipeline.errors import UserError, run_cli
from stages.run.folders import SEAL

DIFFERENCES = ("varlen", "by_row")
PORT = "8765"
SERVE = (
    "--max-model-len 512 --gpu-memory-utilization 0.5 --enable-scale-out --logprobs-mode "
    'processed_logprobs --weight-transfer-config {"backend":"nccl"} --port ' + PORT
)
# Head size, heads, heads of keys and values, window (0: none): Qwen2.5's, and others'.
HEADS = [
    (64, 14, 2, 0), (128, 12, 2, 0), (128, 28, 4, 0), (64, 8, 8, 0), (96, 8, 8, 0), (256, 8, 4, 0),
    (64, 14, 2, 64),
]  # fmt: skip
# Tokens of pieces end to end, and the piece that each sees before itself.
APART, SHARED = ([300, 1, 77, 128], [-1] * 4), ([100, 30, 200, 64], [-1, 0, 0, -1])


def server(module: str, model: str, *flags: str) -> None:
    """Serve a checkpoint on the second GPU while GRPO, which waits for it, trains on the first."""
    python, env = [sys.executable, "-m"], os.environ | {"VLLM_SERVER_DEV_MODE": "1"}
    serve = [*python, "vllm.entrypoints.cli.main", "serve", model, *SERVE.split()]
    engine = subprocess.Popen(serve, env=env | {"CUDA_VISIBLE_DEVICES": "1"})
    try:
        train = [*python, module, *flags, "--vllm_server_port", PORT]
        done = subprocess.run(train, env=os.environ | {"CUDA_VISIBLE_DEVICES": "0"}, check=False)
        sys.exit(done.returncode)
    finally:
        engine.terminate()
        engine.wait(60)


def killed(module: str, *flags: str) -> None:
    """Kill a stage when its first checkpoint is whole, and run it to its end from there."""
    words, env = [sys.executable, "-m", module, *flags], os.environ | {"CUDA_VISIBLE_DEVICES": "0"}
    folder = Path(flags[flags.index("--output_dir") + 1])
    stage = subprocess.Popen(words, env=env)
    while stage.poll() is None and not list(folder.glob(f"checkpoint-*/{SEAL}")):
        time.sleep(0.05)
    stage.kill()
    if stage.wait() != -signal.SIGKILL:
        raise UserError(f"{module} ended before it could be killed")
    done = subprocess.run(words, env=env, check=False)
    if not done.returncode and not json.loads((folder / manifest.NAME).read_text())["resumed"]:
        raise UserError(f"{module} was killed and started from scratch")
    sys.exit(done.returncode)


def try_heads(size: int, heads: int, key_heads: int, window: int, shares: bool) -> dict[str, Any]:
    """One case: what the trial says, and differences of both ways to SDPA in float32.

    Differences are of outputs and of the gradients of queries, keys and values, relative to the
    largest value; None where torch refuses.
    """
    import torch

    from stages.trainer.rows_apart import Trial, by_row, by_varlen, model_inputs

    is_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if is_gpu else "cpu")
    exact = Trial(device, torch.float32)
    trial = Trial(device, torch.bfloat16 if is_gpu else torch.float32)
    inputs = model_inputs(*(SHARED if shares else APART), device)
    num_tokens, mask = sum(inputs["pieces"].lengths), torch.tensor([window])
    module = SimpleNamespace(
        is_causal=True, training=False, num_key_value_groups=heads // key_heads
    )
    torch.manual_seed(0)
    parts = [torch.randn(1, n, num_tokens, size) for n in (heads, key_heads, key_heads)]
    expected = exact._outputs_and_gradients(by_row, parts, module, mask, **inputs)

    def difference(attend: Any) -> float:
        found = trial._outputs_and_gradients(attend, parts, module, mask, **inputs)
        pairs = zip(found, expected, strict=True)
        return max(float((a.float() - b).abs().max() / b.abs().max()) for a, b in pairs)

    name = f"head size {size}, {heads} / {key_heads} heads"
    name += f", window {window}" if window else ""
    name += ", one start" if shares else ""
    case = {"name": name, "by_row": difference(by_row), "varlen": None, "is_equal": False}
    try:
        case["varlen"] = difference(by_varlen)
    except (RuntimeError, ValueError, NotImplementedError):
        return case
    query, key, value = (part.to(device, trial.dtype) for part in parts)
    trial.attend(module, query, key, value, mask, pieces=inputs["pieces"])
    return case | {"is_equal": trial.is_equal}


def varlen(out: str) -> None:
    """Whether `varlen_attn` does as SDPA row by row, where rows are apart and where they share."""
    cases = [try_heads(*one, shares=False) for one in HEADS]
    cases += [try_heads(*one, shares=True) for one in HEADS if not one[-1]]
    rows = []
    for case in cases:
        cells = {key: "refused" if case[key] is None else f"{case[key]:.1e}" for key in DIFFERENCES}
        rows.append({"case": case["name"], "trial": "equal" if case["is_equal"] else "no"} | cells)
    how = "Relative differences to SDPA in float32, of outputs and gradients."
    publish(out, "varlen_attn beside SDPA", how, rows, {"cases": cases})


def main() -> None:
    """Run what the first word names."""
    name, *words = sys.argv[1:]
    runs: dict[str, Callable[..., None]] = {"server": server, "killed": killed, "varlen": varlen}
    runs[name](*words)


if __name__ == "__main__":
    run_cli(main)
