"""Seconds of a GRPO step with TRL as it is and with pad-per-minibatch.diff, on the same rollouts.

    python benchmark_padding.py --stock FOLDER --patched FOLDER [--turns 8]

FOLDER holds a copy of the package `trl`. The two run in processes of their own that stay alive and
take turns, the other one first each time; a turn is one optimizer step of new rollouts, the same in
both. Random weights; prompts of 60 to 150 tokens; completions log-normal, median 100 tokens, sigma
0.7, 512 at most. On a CPU time is the process's own (one thread), on a GPU the wall clock's.
"""

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

T95 = {4: 3.182, 6: 2.571, 8: 2.365, 10: 2.262, 16: 2.131, 20: 2.093}  # Student's t by turns


def draw(turn, num_prompts, num_generations):
    """Prompts of letters, and lengths of their completions."""
    rng = random.Random(turn)
    letters = "abcdefghijklmnopqrstuvwxyz"
    prompts = ["".join(rng.choices(letters, k=rng.randint(60, 150))) for _ in range(num_prompts)]
    rows = num_prompts * num_generations
    lengths = [min(512, max(2, round(rng.lognormvariate(math.log(100), 0.7)))) for _ in range(rows)]
    return prompts, lengths


def child(args):
    """Answer each turn on standard input with seconds, loss, gradient norm and padding."""
    import torch
    from datasets import Dataset
    from transformers.trainer_callback import PrinterCallback
    from trl import GRPOConfig, GRPOTrainer

    from tiny import build_model, build_tokenizer

    torch.set_num_threads(1)
    has_gpu, tokenizer = torch.cuda.is_available(), build_tokenizer()
    count = {"columns": 0, "tokens": 0}

    def now():
        if has_gpu:
            torch.cuda.synchronize()
        return time.perf_counter() if has_gpu else time.process_time()

    def record(module, args, kwargs):
        count["columns"] += kwargs["attention_mask"].numel()
        count["tokens"] += int(kwargs["attention_mask"].sum())

    with tempfile.TemporaryDirectory() as folder:
        build_model(tokenizer, args.hidden_size, args.num_layers).save_pretrained(folder)
        for line in sys.stdin:
            turn = int(line)
            prompts, lengths = draw(turn, args.num_prompts, args.num_generations)
            rng = random.Random(turn)
            ids = [[*rng.choices(range(26), k=n - 1), tokenizer.eos_token_id] for n in lengths]

            def rollout_func(texts, trainer, ids=ids):
                found = tokenizer(texts, add_special_tokens=False)["input_ids"]
                return {"prompt_ids": found, "completion_ids": ids, "logprobs": None}

            rows = args.num_prompts * args.num_generations
            config = GRPOConfig(
                output_dir=folder, max_steps=1, per_device_train_batch_size=args.batch_size,
                gradient_accumulation_steps=rows // args.batch_size, beta=args.beta,
                num_generations=args.num_generations, max_completion_length=512, logging_steps=1,
                use_cpu=not has_gpu, bf16=has_gpu, gradient_checkpointing=False, report_to="none",
                disable_tqdm=True, save_strategy="no", shuffle_dataset=False,
            )  # fmt: skip
            trainer = GRPOTrainer(
                model=folder, args=config, processing_class=tokenizer, rollout_func=rollout_func,
                train_dataset=Dataset.from_dict({"prompt": prompts}),
                reward_funcs=lambda completion_ids, **_: [sum(x) % 7 / 7 for x in completion_ids],
            )  # fmt: skip
            trainer.remove_callback(PrinterCallback)
            trainer.model.register_forward_pre_hook(record, with_kwargs=True)
            count.update(columns=0, tokens=0)
            begin = now()
            trainer.train()
            answer = {"seconds": now() - begin, "padding": 1 - count["tokens"] / count["columns"]}
            log = trainer.state.log_history[0]
            answer |= {"loss": log["loss"], "grad_norm": log["grad_norm"]}
            print("answer", json.dumps(answer), flush=True)


def start(folder, words):
    """A process that answers turns with the copy of TRL in `folder`."""
    here = os.path.dirname(os.path.abspath(__file__))
    env = os.environ | {"PYTHONPATH": f"{folder}:{here}", "TRL_EXPERIMENTAL_SILENCE": "1"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, __file__, "--child", *words], env=env, **pipes)


def ask(process, turn):
    """What a process answers to a turn."""
    process.stdin.write(f"{turn}\n")
    process.stdin.flush()
    for line in process.stdout:
        if line.startswith("answer "):
            return json.loads(line.removeprefix("answer "))
    raise SystemExit("a process ended; its error is above")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--stock", help="folder with TRL as it is")
    parser.add_argument("--patched", help="folder with TRL and the diff")
    parser.add_argument("--turns", type=int, default=8, choices=T95)
    parser.add_argument("--first", type=int, default=0, help="number of the first turn")
    parser.add_argument("--batch_size", type=int, default=4, help="rows of a minibatch")
    parser.add_argument("--num_prompts", type=int, default=4)
    parser.add_argument("--num_generations", type=int, default=8)
    parser.add_argument("--hidden_size", type=int, default=128)
    parser.add_argument("--num_layers", type=int, default=4)
    parser.add_argument("--beta", type=float, default=0.0, help="above 0: with a reference model")
    args = parser.parse_args()
    if args.child:
        return child(args)
    kept = ("batch_size", "num_prompts", "num_generations", "hidden_size", "num_layers", "beta")
    words = [word for key in kept for word in (f"--{key}", str(getattr(args, key)))]
    names = {"stock": args.stock, "patched": args.patched}
    processes = {name: start(folder, words) for name, folder in names.items()}
    for process in processes.values():
        ask(process, 1_000_000)  # warm
    found = {name: [] for name in names}
    for turn in range(args.first, args.first + args.turns):
        for name in list(names)[:: 1 if turn % 2 else -1]:
            found[name].append(ask(processes[name], turn))
        a, b = (found[name][-1] for name in names)
        for key in ("loss", "grad_norm"):
            # The same step: else no ratio is given
            assert abs(a[key] - b[key]) <= 1e-3 * max(0.1, abs(a[key])), (key, a, b)
        print(f"turn {turn}: {a['seconds']:.2f} s, patched {b['seconds']:.2f} s", file=sys.stderr)
    for process in processes.values():
        process.stdin.close()
        process.wait()
    pairs = zip(found["stock"], found["patched"], strict=True)
    logs = [math.log(a["seconds"] / b["seconds"]) for a, b in pairs]
    mean, half = statistics.mean(logs), T95[args.turns] * statistics.stdev(logs) / args.turns**0.5
    for name, turns in found.items():
        seconds, padding = (statistics.mean(t[key] for t in turns) for key in ("seconds", "padding"))
        print(f"{name}: {seconds:.2f} s a step, {100 * padding:.0f} % of the columns are padding")
    low, high = math.exp(mean - half), math.exp(mean + half)
    print(f"stock / patched: {math.exp(mean):.2f} [{low:.2f}, {high:.2f}], {args.turns} turns")


if __name__ == "__main__":
    main()
