"""Stages as real processes: one server imports everything once and forks each of them.

A run costs two seconds instead of twelve. `Server.start` gives handles at once, so that a test may
kill them; `Server.run` waits. An order names what its process does before the stage begins:

    setup    a function, or (function, *arguments), which each process calls first
    die_at   step behind whose checkpoint the process ends at once, with code `DIED`
"""

import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "configs" / "accelerate"
DIED = 9


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


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


class Server:
    """Starts a stage as one process, or as several that share a recipe."""

    def __init__(self):
        env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        command = [sys.executable, "-m", "tests.integration.fork_server"]
        self.process = subprocess.Popen(command, env=env, cwd=ROOT, **pipes)
        self.alive = set()

    def _ask(self, **order):
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def start(
        self, recipe, num_processes=1, *, stage="grpo", config=None, envs=(), setup=None, **order
    ):
        """Pids of the processes.

        Args:
            config: name of a file of configs/accelerate/; None for a start without a launcher.
            envs: more environment for some ranks, by number.
            setup, order: see above.
        """
        if setup is not None:
            function, *arguments = setup if isinstance(setup, tuple) else (setup,)
            order["setup"] = [function.__module__, function.__name__, *arguments]
        port, pids, envs = free_port(), [], dict(envs)
        for rank in range(num_processes):
            env = launch_env(config, num_processes) if config else {}
            if config or num_processes > 1:
                env |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_PORT": port}
                env |= {"WORLD_SIZE": str(num_processes), "MASTER_ADDR": "127.0.0.1"}
                env |= {"LOCAL_WORLD_SIZE": str(num_processes)}
            env |= envs.get(rank, {})
            argv = [stage, "--config", str(recipe)]
            pids.append(self._ask(argv=argv, env=env, log=f"{recipe}.{rank}.log", **order))
        self.alive.update(pids)
        return pids

    def run_module(self, module, argv, folder, log, env=()):
        """The exit code of `python -m module ARGV` in a folder, and what it has printed."""
        order = {"module": module, "argv": [module, *argv], "folder": str(folder), "log": str(log)}
        code = self.wait(self._ask(env=dict(env), **order))
        return code, Path(log).read_text()

    def run(self, recipe, num_processes=1, **order):
        """Exit codes of the processes, and what each has printed."""
        codes = [self.wait(pid) for pid in self.start(recipe, num_processes, **order)]
        return codes, [Path(f"{recipe}.{rank}.log").read_text() for rank in range(num_processes)]

    def finish(self, recipe, num_processes=1, **order):
        """What each process has printed, as lines; fails unless all of them end well."""
        codes, logs = self.run(recipe, num_processes, **order)
        assert codes == [0] * num_processes, "\n".join(logs)
        return [log.splitlines() for log in logs]

    def wait(self, pid, seconds=120):
        """The exit code of a process; None if it runs on."""
        deadline = time.monotonic() + seconds
        while (code := self._ask(poll=pid)) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        if code is not None:
            self.alive.discard(pid)
        return code

    def kill(self, pids):
        for pid in self.alive.intersection(pids):
            os.kill(pid, signal.SIGKILL)
        for pid in self.alive.intersection(pids):
            self.wait(pid)

    def close(self):
        self.kill(self.alive)
        self.process.stdin.close()
        self.process.kill()  # it takes long to unload its libraries, and leaves nothing
        self.process.wait()


def run(order):
    """One process of a run."""
    from pipeline.errors import run_cli
    from stages.run.saving import SavedRun

    os.environ.update(order["env"])
    sys.argv = order["argv"]
    if "setup" in order:
        module, name, *arguments = order["setup"]
        getattr(importlib.import_module(module), name)(*arguments)
    save = SavedRun._save_checkpoint

    def save_and_die(self, *args):
        save(self, *args)
        if self.state.global_step == order["die_at"]:
            self.accelerator.wait_for_everyone()
            os._exit(DIED)

    if order.get("die_at"):
        SavedRun._save_checkpoint = save_and_die
    os.chdir(order.get("folder", "."))
    run_cli(importlib.import_module(order.get("module", f"stages.{sys.argv[0]}")).main)


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


def compile_nothing():
    """Let DeepSpeed do without the operation that it compiles at its first use ever, for a minute.

    Inference alone asks for it: where it is missing, DeepSpeed takes torch's.
    """
    with contextlib.suppress(ImportError):  # by name: its attribute `torch` is PyTorch itself
        importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None


def serve():
    """Fork a process for each order on standard input; answer with its pid, or its exit code."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # DeepSpeed prints as it is imported

    import pytest  # noqa: F401 - what tests with a `setup` import
    import trl.trainer.sft_trainer  # noqa: F401

    import stages.trainer.grpo_trainer  # noqa: F401 - what takes long

    gc.freeze()  # else every collection in a child copies all that they share
    for line in sys.stdin:
        order = json.loads(line)
        if "ACCELERATE_USE_DEEPSPEED" in order.get("env", {}):
            compile_nothing()
        if "poll" in order:
            pid, status = os.waitpid(order["poll"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        elif (answer := os.fork()) == 0:
            signal.alarm(120)  # a deadlock ends here
            file = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for number in (1, 2):
                os.dup2(file, number)
            leave(order)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve()
