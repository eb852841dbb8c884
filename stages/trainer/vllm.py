"""vLLM behind TRL's trainer: an engine or server that fails, and colocate mode without CUDA.

TRL waits for a server without end, and takes completions from one that was restarted with other
weights. `Watched` ends such a run before it trains on them, so that the same command resumes it.

On a host without CUDA vLLM's CPU build runs in the training process. TRL's own start would halve
the precision and compile for most of a minute, and its weight sync fails: for the CPU vLLM packs
the weights of linear layers, and packed ones take no new values. `CpuGeneration` unpacks, loads and
packs again at every sync.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.distributed import DistError
from trl.generation import vllm_generation
from trl.trainer import grpo_trainer

from data_prep.sampling.vllm import held_stderr as hushed
from pipeline.console import VLLM_ENVIRONMENT, one_line, quiet_loggers
from pipeline.errors import LOST, LostError, UserError
from stages.trainer.evaluation import random_state_kept

SETTINGS = {
    "dtype": "float32",  # the trainer's own on a CPU; by itself vLLM would take bfloat16
    "enforce_eager": True,  # compiling takes 40 s and gains nothing
}
REMEDY = "with it up again, the same command resumes from the last checkpoint"


class Watched(vllm_generation.VLLMGeneration):
    """TRL's `VLLMGeneration`, each of whose calls ends: in time, or with one line and code 75."""

    seconds = 1200.0  # for one call

    def _init_vllm(self) -> None:
        super()._init_vllm()
        self._first_instance = self._instance()

    def generate(self, *args: Any, **kwargs: Any) -> tuple:
        with self._bounded("generation"):
            found = super().generate(*args, **kwargs)
            self._refuse_restarted()
        return found

    def sync_weights(self) -> None:
        with self._bounded("weight sync"):
            self._refuse_restarted()  # NCCL would wait for the workers that are gone
            super().sync_weights()

    def _is_client(self) -> bool:
        """Whether this process is the one that talks with a server."""
        return self.mode == "server" and self.accelerator.is_main_process

    def _instance(self) -> str | None:
        """The name of the server's start, after which its weights were those from disk."""
        return self.vllm_client.get_server_info().get("instance_id") if self._is_client() else None

    def _refuse_restarted(self) -> None:
        if (found := self._instance()) != self._first_instance:
            raise LostError(
                f"{self._name()} was restarted ({self._first_instance} is now {found}) and has not "
                f"the trainer's weights; nothing was trained on its completions; {REMEDY}"
            )

    @contextmanager
    def _bounded(self, what: str) -> Iterator[None]:
        """End the process where the block takes too long, name the engine where it fails."""
        if self.mode == "server" and not self._is_client():
            yield  # waits for the main process
            return
        timer = threading.Timer(self.seconds, self._give_up, [what])
        timer.daemon = True
        timer.start()
        try:
            yield
        except Exception as error:
            if not self._is_fault(error):
                raise
            line = f"{self._name()} failed at a {what} ({type(error).__name__}: {error})"
            if str(error).startswith("Request failed: 4"):  # it would refuse it again
                raise UserError(f"{line}; change the recipe, or the server's flags") from error
            raise LostError(f"{line}; {REMEDY}") from error
        finally:
            timer.cancel()

    def _is_fault(self, error: Exception) -> bool:
        """Whether the engine failed: no other rank is gone, and memory not too small."""
        if isinstance(error, DistError | torch.OutOfMemoryError) or "gloo" in str(error):
            return False
        if self.mode == "server" and (isinstance(error, OSError) or type(error) is Exception):
            return True  # of TRL's client
        is_dead = type(error).__name__ in ("EngineDeadError", "EngineGenerateError")
        return is_dead or isinstance(error, RuntimeError)

    def _give_up(self, what: str) -> None:
        late = f"has not ended a {what} within {self.seconds:g} s (vllm_call_timeout)"
        os.write(2, f"\nerror: {one_line(f'{self._name()} {late}; {REMEDY}')}\n".encode())
        os._exit(LOST)  # the main thread may wait in NCCL, where nothing reaches it

    def _name(self) -> str:
        if self.mode == "colocate":
            return "use_vllm: the vLLM engine"
        url = self.server_base_url or f"http://{self.server_host}:{self.server_port}"
        return f"vllm_server_host: the vLLM server at {url}"


class CpuGeneration(vllm_generation.VLLMGeneration):
    """TRL's `VLLMGeneration` in colocate mode, for one process or several on CPUs."""

    def _init_vllm(self) -> None:
        for name, value in VLLM_ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        quiet_loggers("vllm")  # it may have been imported before
        set_num_threads = torch.set_num_threads
        # vLLM seeds all random numbers with the number of the process, whatever the recipe's seed.
        with hushed(), random_state_kept(self.accelerator.device):
            try:
                super()._init_vllm()
            except ValueError as error:
                raise UserError(
                    f"use_vllm: vLLM does not start with {self.model.name_or_path} (of the host's "
                    f"memory it has vllm_gpu_memory_utilization, {self.gpu_memory_utilization:g}): "
                    f"{' '.join(str(error).split())}"
                ) from error
        torch.set_num_threads = set_num_threads  # vLLM leaves a stub in its place

    def sync_weights(self) -> None:
        runner = self.llm.llm_engine.model_executor.driver_worker.model_runner
        # Clones, because vLLM holds tensors back until it has the whole of a layer, and peft takes
        # the merged adapter out of them again.
        clones = ((name, weight.detach().clone()) for name, weight in self._iter_named_params())
        runner.reload_weights(weights_iterator=clones)
        pack_tied_head(runner.get_model())
        self.llm.reset_prefix_cache()


def pack_tied_head(model: Any) -> None:
    """Pack a head again that has its weights from the embeddings: a reload forgets it."""
    if model.config.tie_word_embeddings:
        model.lm_head.quant_method.process_weights_after_loading(model.lm_head)


class WatchedOnCpu(Watched, CpuGeneration):
    """Both."""


def use_vllm(mode: str, seconds: float) -> None:
    """Let GRPO trainers built from now on have a watched vLLM; one call may take `seconds`."""
    Watched.seconds, grpo_trainer.VLLMGeneration = seconds, Watched
    if mode == "colocate" and not torch.cuda.is_available():
        vllm_generation.LLM = partial(vllm_generation.LLM, **SETTINGS)
        grpo_trainer.VLLMGeneration = WatchedOnCpu
