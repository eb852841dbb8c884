"""Stages as several processes of one machine, under the engines of configs/accelerate/.

Run as a program it imports everything once and forks the processes of each order, so that a run
costs two seconds instead of twenty. `Runs` starts it; `launch_env` gives a forked process what
`accelerate launch` would.
"""

import contextlib
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "configs" / "accelerate"
DIED = 9


def launch_env(name, num_processes):
    """The environment that accelerate's launcher makes of a config file, without its own."""
    from accelerate.commands import launch
    from accelerate.utils.launch import prepare_deepspeed_cmd_env, prepare_multi_gpu_env

    flags = ["--config_file", str(CONFIGS / f"{name}.yaml"), "--num_processes", str(num_processes)]
    args = launch.launch_command_parser().parse_args([*flags, "-m", "stages.sft"])
    args, defaults, _ = launch._validate_launch_command(args)
    if args.use_deepspeed:
        args.deepspeed_fields_from_accelerate_config = ",".join(defaults.deepspeed_config)
        env = prepare_deepspeed_cmd_env(args)[1]
    else:
        env = prepare_multi_gpu_env(args)
    return {key: value for key, value in env.items() if os.environ.get(key) != value}


class Runs:
    """Starts stages as processes that share a recipe."""

    def __init__(self):
        env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        # DeepSpeed's ninja may be the environment's own. Behind the system's: another version of
        # ninja does not know what was built and builds it again.
        env |= {"PATH": f"{os.environ['PATH']}:{Path(sys.executable).parent}"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([sys.executable, __file__], env=env, **pipes)

    def run(self, stage, recipe, num_processes=1, config=None, die_at=0):
        """Exit codes of the processes and what each has printed.

        Args:
            config: name of a file of configs/accelerate/; None for a start without a launcher.
            die_at: step behind whose checkpoint all processes end at once, with code `DIED`.
        """
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        orders = []
        for rank in range(num_processes):
            env = launch_env(config, num_processes) if config else {}
            if config:
                env |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1"}
                env |= {"WORLD_SIZE": str(num_processes), "LOCAL_WORLD_SIZE": str(num_processes)}
                env |= {"MASTER_PORT": port}
            order = {"stage": stage, "recipe": str(recipe), "env": env, "die_at": die_at}
            orders.append(order | {"log": f"{recipe}.{rank}.log"})
        self.process.stdin.write(json.dumps(orders) + "\n")
        self.process.stdin.flush()
        codes = json.loads(self.process.stdout.readline())
        return codes, [Path(order["log"]).read_text() for order in orders]

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=20)


def run(order):
    """One process of a run. GRPO's rollouts follow from prompt and number in the group alone."""
    import importlib

    from rollout_recorder import hashed_rollout, record
    from transformers import Trainer

    from data_prep.config import run_cli
    from stages.trainer import grpo_trainer

    os.environ.update(order["env"])
    sys.argv = [order["stage"], "--config", order["recipe"]]
    if order["stage"] == "grpo":
        grpo_trainer.MathGRPOTrainer = record(
            grpo_trainer.MathGRPOTrainer, [], rollout=hashed_rollout
        )
    save = Trainer._save_checkpoint

    def save_and_die(self, *args):
        save(self, *args)
        self.accelerator.wait_for_everyone()
        if self.state.global_step == order["die_at"]:
            os._exit(DIED)

    Trainer._save_checkpoint = save_and_die
    run_cli(importlib.import_module(f"stages.{order['stage']}").main)


def leave(order):
    """Run, and end the process without taking apart what it shares with the others."""
    code = 1
    try:
        run(order)
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def serve():
    """Fork the processes of each line of orders and answer with their exit codes."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # DeepSpeed prints as it is imported

    import trl.trainer.sft_trainer  # noqa: F401

    import stages.trainer.grpo_trainer  # noqa: F401 - what takes long

    with contextlib.suppress(ImportError):
        from deepspeed.accelerator import get_accelerator

        # On the first use ever this takes a minute or more, and a process killed meanwhile would
        # leave a lock behind that all later ones wait for.
        get_accelerator().create_op_builder("ShareMemCommBuilder").load(verbose=False)
    gc.freeze()  # else every collection in a child copies all that they share
    for line in sys.stdin:
        pids = []
        for order in json.loads(line):
            pid = os.fork()
            if pid == 0:
                signal.alarm(120)  # a deadlock ends here
                file = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                for number in (1, 2):
                    os.dup2(file, number)
                leave(order)
            pids.append(pid)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        answers.write(json.dumps(codes) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve()
