"""What `make gpu-check` starts besides stages and benchmarks.

python -m benchmarks.gpu_check_runs server <module> <model> ...   GRPO with a vLLM server of its own
python -m benchmarks.gpu_check_runs killed <module> ...   a stage, killed and started again
python -m benchmarks.gpu_check_runs split --shape 7B ...  seconds of the parts of a GRPO step
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.table import publish
from benchmarks.throughput import BenchArguments
from pipeline import manifest
from pipeline.console import quiet
from pipeline.errors import UserError, run_cli
from pipeline.settings import parse

PORT = "8765"
SERVE = (
    "--max-model-len 512 --gpu-memory-utilization 0.5 --enable-scale-out --logprobs-mode "
    'processed_logprobs --weight-transfer-config {"backend":"nccl"} --port ' + PORT
)
PROMPT = 100  # tokens
PARTS = {
    "_generate": "generation",
    "_calculate_rewards": "rewards",
    "training_step": "update",
    "_generate_and_score_completions": "scoring",
}


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
    """Kill a stage when its first checkpoint is there, and run it to its end from there."""
    words, env = [sys.executable, "-m", module, *flags], os.environ | {"CUDA_VISIBLE_DEVICES": "0"}
    folder = Path(flags[flags.index("--output_dir") + 1])
    stage = subprocess.Popen(words, env=env)
    while stage.poll() is None and not list(folder.glob("checkpoint-*/trainer_state.json")):
        time.sleep(0.05)
    stage.kill()
    if stage.wait() != -signal.SIGKILL:
        raise UserError(f"{module} ended before it could be killed")
    done = subprocess.run(words, env=env, check=False)
    if not done.returncode and not json.loads((folder / manifest.NAME).read_text())["resumed"]:
        raise UserError(f"{module} was killed and started from scratch")
    sys.exit(done.returncode)


@dataclass
class SplitArguments(BenchArguments):
    """Keys of the command line: those of the throughput benchmark that GRPO reads, and these."""

    num_steps: int = field(default=3, metadata={"help": "steps; the first is left out"})
    completion_length: int = field(default=512, metadata={"help": "of every completion, tokens"})


def time_parts(trainer: Any) -> list[Counter[str]]:
    """The seconds so far of each part at each log; what a part calls counts for that alone."""
    from benchmarks.throughput_runs import now

    seconds, logs, log = Counter[str](), [], trainer.log

    def wrap(owner: Any, name: str, part: str) -> None:
        method = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            start, inner = now(), seconds.total()
            result = method(*args, **kwargs)
            seconds[part] += now() - start - (seconds.total() - inner)
            return result

        setattr(owner, name, timed)

    for name, part in PARTS.items():
        wrap(trainer, name, part)
    if trainer.use_vllm:
        wrap(trainer.vllm_generation, "sync_weights", "weight sync")
    trainer.log = lambda *args: (logs.append(seconds | {"step": now()}), log(*args))
    return logs


def split(*words: str) -> None:
    """Time GRPO's steps with real generation, by vLLM where there are a GPU and vLLM."""
    (args,) = parse(__doc__ or "", SplitArguments, argv=[*words])
    quiet()
    import torch
    from datasets import Dataset
    from trl import GRPOConfig

    from benchmarks.throughput_runs import LETTERS, build_tokenizer, save_model
    from stages.run.launch import is_installed
    from stages.trainer.grpo_trainer import MathGRPOTrainer

    rng, tokenizer, length = random.Random(0), build_tokenizer(), args.completion_length
    rows = args.num_groups * args.num_generations
    engine: dict[str, Any] = {"generation_kwargs": {"min_new_tokens": length}}
    if torch.cuda.is_available() and is_installed("vllm"):
        engine = {
            "use_vllm": True, "vllm_mode": "colocate", "vllm_enable_sleep_mode": True,
            "vllm_gpu_memory_utilization": 0.35, "vllm_max_model_length": length + PROMPT,
            "generation_kwargs": {"min_tokens": length},
        }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "model")
        save_model(args.shape, model, tokenizer, args.dtype)
        tokenizer.save_pretrained(model)
        config = GRPOConfig(
            output_dir=folder, max_steps=args.num_steps, num_generations=args.num_generations,
            per_device_train_batch_size=args.grpo_batch_size, max_completion_length=length,
            gradient_accumulation_steps=rows // args.grpo_batch_size, beta=args.beta,
            loss_type="dapo", **args.training(), **engine,
        )  # fmt: skip
        prompts = ["".join(rng.choices(LETTERS, k=PROMPT)) for _ in range(rows * args.num_steps)]
        trainer = MathGRPOTrainer(
            model=str(model), args=config, processing_class=tokenizer,
            reward_funcs=lambda completions, **_: [rng.random() for _ in completions],
            train_dataset=Dataset.from_dict({"prompt": prompts}), update_tokens=args.update_tokens,
        )  # fmt: skip
        logs = time_parts(trainer)
        trainer.train()
    first, last = logs[0], logs[args.num_steps - 1]
    seconds = {part: (last[part] - first[part]) / (args.num_steps - 1) for part in last}
    parts = sum(value for part, value in seconds.items() if part != "step")
    seconds["optimizer and rest"] = seconds["step"] - parts
    name = "vLLM" if trainer.use_vllm else "transformers"
    how = f"{rows * length:,} tokens a step by {name}; seconds of each part."
    row = {part: f"{value:.2f}" for part, value in seconds.items()}
    publish(args.out, f"Parts of a GRPO step, {args.shape}", how, [row], seconds, how)


def main() -> None:
    """Run what the first word names."""
    name, *words = sys.argv[1:]
    {"server": server, "killed": killed, "split": split}[name](*words)


if __name__ == "__main__":
    run_cli(main)
