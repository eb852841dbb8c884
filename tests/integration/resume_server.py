"""Runs of the GRPO stage that can be killed, for `test_exact_resume`.

Run as a program this file imports everything once and forks a process per run, so that a run costs
two seconds instead of twelve. `record` builds the trainer that writes down what it does.
"""

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import time
import zlib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def grade_by_checksum(prompts, completions, golds, **_):
    """In place of `stages.rewards.grade_rollouts`: the model writes noise, and half of it is right.

    Which half is a matter of every single character.
    """
    from data_prep.grading.answers import Grade

    is_right = [zlib.crc32(text.encode()) % 2 for text in completions]
    return [Grade("right" if right else "wrong", None) for right in is_right]


class Seen:
    """Extra state: the ids of all problems that completions were generated for."""

    def __init__(self):
        self.ids = []

    def state_dict(self):
        return {"ids": self.ids}

    def load_state_dict(self, state):
        self.ids = state["ids"]


def record(*bases):
    """A trainer that writes down its steps, and kills itself where the variable DIE says.

    A micro-step is a line of `<output_dir>.rank<n>.jsonl`: number, ids of the loader's problems,
    completions used, loss.
    """
    from accelerate.utils import gather_object

    class Recorder(*bases):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.seen = Seen()
            self.__dict__.get("extra_state", {})["seen"] = self.seen

        def die_at(self, place):
            if os.environ.get("DIE") == f"{place} {self.state.global_step}":
                os.kill(os.getpid(), signal.SIGKILL)

        def _generate_and_score_completions(self, inputs):
            output = super()._generate_and_score_completions(inputs)
            self.die_at("generating")
            return output

        def _calculate_rewards(self, inputs, *args):
            self.seen.ids += gather_object([row["id"] for row in inputs[:: self.num_generations]])
            return super()._calculate_rewards(inputs, *args)

        def training_step(self, model, inputs, num_items_in_batch):
            step, ids = self._step, [row["id"] for row in inputs]
            loss = super().training_step(model, inputs, num_items_in_batch)
            used = self._buffered_inputs[step % self.args.steps_per_generation]["completion_ids"]
            with open(f"{self.args.output_dir}.rank{self.args.process_index}.jsonl", "a") as file:
                file.write(json.dumps([step, ids, used.tolist(), loss.item()]) + "\n")
            return loss

        def _save_rng_state(self, output_dir):
            self.die_at("saving")  # weights and optimizer are written
            super()._save_rng_state(output_dir)

        def _save_generation_state(self, folder):
            self.die_at("buffering")  # the state of the random numbers is written too
            super()._save_generation_state(folder)

        def _save_checkpoint(self, model, trial):
            super()._save_checkpoint(model, trial)
            self.die_at("saved")

    return Recorder


def exact(trainer):
    """Bases of the stage's trainer with `ExactResume` among them."""
    from stages.trainer.exact_resume import ExactResume

    return (trainer,) if issubclass(trainer, ExactResume) else (ExactResume, trainer)


class Server:
    """Starts the stage as one process, or as two that share a recipe."""

    def __init__(self):
        env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([sys.executable, __file__], env=env, **pipes)
        self.alive = set()

    def ask(self, **order):
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def start(self, recipe, num_processes, die="", rank=0):
        """Pids of the processes; that of `rank` kills itself at `die`."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        pids = []
        for index in range(num_processes):
            env = {"DIE": die if index == rank else ""}
            if num_processes > 1:
                env |= {"RANK": str(index), "LOCAL_RANK": str(index), "MASTER_PORT": port}
                env |= {"WORLD_SIZE": str(num_processes), "MASTER_ADDR": "127.0.0.1"}
            pids.append(self.ask(recipe=str(recipe), env=env, log=f"{recipe}.{index}.log"))
        self.alive.update(pids)
        return pids

    def wait(self, pid, seconds=120):
        """The exit code of a process; None if it runs on."""
        deadline = time.monotonic() + seconds
        while (code := self.ask(poll=pid)) is None and time.monotonic() < deadline:
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
        self.process.wait(timeout=20)


def serve():
    """Fork a run per order on standard input; answer with its pid, or with a run's exit code."""
    from data_prep.config import run_cli
    from stages import grpo, rewards
    from stages.trainer import grpo_trainer

    rewards.grade_rollouts = grade_by_checksum
    grpo_trainer.MathGRPOTrainer = record(*exact(grpo_trainer.MathGRPOTrainer))
    gc.freeze()  # or every collection of a run would look through all that was imported
    for line in sys.stdin:
        order = json.loads(line)
        if "poll" in order:
            pid, status = os.waitpid(order["poll"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        elif (answer := os.fork()) == 0:
            file = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for number in (1, 2):
                os.dup2(file, number)
            os.environ.update(order["env"])
            sys.argv = ["grpo", "--config", order["recipe"]]
            return run_cli(grpo.main)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
