"""A watch over TRL's vLLM engine or server: a failure ends the run.

TRL waits for a server without end. It also takes completions from a server that was restarted with
other weights. `Watched` ends such a run before it trains on them, so that the same command resumes
it. TRL has no key for a colocated engine's dtype and kind of log-probs; `asking_for` sets them.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, ClassVar

import torch
from trl.generation import vllm_generation
from trl.trainer import grpo_trainer

from pipeline.console import one_line, write_past_locks
from pipeline.errors import LOST, LostError, OutOfMemoryError, UserError
from pipeline.memory import memory_fault
from stages.run.restarts import is_lost_peer

REMEDY = "with it up again, the same command resumes from the last checkpoint"


class Watched(vllm_generation.VLLMGeneration):
    """TRL's `VLLMGeneration`, each of whose calls ends: in time, or with one line and code 75."""

    seconds = 1200.0  # for one call
    asked: ClassVar[dict[str, str]] = {}  # of `vllm.LLM`, beside what TRL asks for

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._frozen: dict[str, torch.Tensor] = {}
        super().__init__(*args, **kwargs)

    def _init_vllm(self) -> None:
        try:
            with asking_for(self.asked) if self.mode == "colocate" else nullcontext():
                super()._init_vllm()
        except ValueError as error:  # too little memory, a model that it does not know
            if self.mode == "server":
                raise
            if why := memory_fault(error):
                share = f"vllm_gpu_memory_utilization: {self.gpu_memory_utilization:g}"
                remedy = "change it, or lower vllm_max_model_length or max_completion_length"
                raise OutOfMemoryError(f"{share}: out of memory ({why}); {remedy}") from error
            raise UserError(
                f"use_vllm: vLLM does not start with {self.model.name_or_path} "
                f"(vllm_gpu_memory_utilization: {self.gpu_memory_utilization:g}): "
                f"{' '.join(str(error).split())}"
            ) from error
        self._first_instance = self._instance()

    def generate(self, *args: Any, **kwargs: Any) -> tuple:
        with self._bounded("generation"):
            found = super().generate(*args, **kwargs)
            self._refuse_restarted()
        return found

    def sync_weights(self) -> None:
        with self._bounded("weight sync"):
            self._refuse_restarted()  # NCCL would wait for the workers that are gone
            with frozen_kept(self.model, self._frozen):
                super().sync_weights()

    def _is_client(self) -> bool:
        """Whether this process is the one that talks with a server."""
        return self.mode == "server" and self.accelerator.is_main_process

    def _instance(self) -> str | None:
        """The name of the server's start, after which its weights were those from disk."""
        return self.vllm_client.get_server_info().get("instance_id") if self._is_client() else None

    def _refuse_restarted(self) -> None:
        found = self._instance()
        if found != self._first_instance:
            raise LostError(
                f"{self._name()} was restarted ({self._first_instance} is now {found}) and lacks "
                f"the trainer's weights; no step was trained on its completions; {REMEDY}"
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
        if memory_fault(error) or is_lost_peer(error):
            return False
        if self.mode == "server" and (isinstance(error, OSError) or type(error) is Exception):
            return True  # of TRL's client
        is_dead = type(error).__name__ in ("EngineDeadError", "EngineGenerateError")
        return is_dead or isinstance(error, RuntimeError)

    def _give_up(self, what: str) -> None:
        late = f"has not ended a {what} within {self.seconds:g} s (vllm_call_timeout)"
        write_past_locks(f"\nerror: {one_line(f'{self._name()} {late}; {REMEDY}')}\n")
        os._exit(LOST)  # the main thread may wait in NCCL, where nothing reaches it

    def _name(self) -> str:
        if self.mode == "colocate":
            return "use_vllm: the vLLM engine"
        url = self.server_base_url or f"http://{self.server_host}:{self.server_port}"
        return f"vllm_server_host: the vLLM server at {url}"


@contextmanager
def asking_for(asked: dict[str, str]) -> Iterator[None]:
    """Let TRL build its engine with what it has no key for: a dtype, "raw" log-probs."""
    build = vllm_generation.LLM
    vllm_generation.LLM = lambda **given: build(**given | asked)
    try:
        yield
    finally:
        vllm_generation.LLM = build


@contextmanager
def frozen_kept(model: Any, copies: dict[str, torch.Tensor]) -> Iterator[None]:
    """Keep the weights below LoRA's as they are while TRL merges adapters and takes them out again.

    (w + d) - d is not w in 16 bits: the frozen weights of a small bfloat16 model were 0.1 % away
    after 20 syncs. `copies`, in host memory, is filled at the first use.
    """
    frozen = {
        name: getattr(weight, "ds_tensor", weight).data  # ZeRO-3's part in this process
        for name, weight in model.named_parameters()
        if ".base_layer." in name and weight.dtype.itemsize < 4
    }
    frozen = {name: w.to_local() if hasattr(w, "to_local") else w for name, w in frozen.items()}
    if not copies:
        copies.update({name: weight.to("cpu", copy=True) for name, weight in frozen.items()})
    yield
    for name, weight in frozen.items():
        weight.copy_(copies[name])


def use_vllm(seconds: float, asked: dict[str, str]) -> None:
    """Let GRPO trainers built from now on have a watched vLLM; one call may take `seconds`.

    `asked`: of a colocated engine, as `stages.host.engine_keys` has it.
    """
    Watched.seconds, Watched.asked = seconds, asked
    grpo_trainer.VLLMGeneration = Watched
