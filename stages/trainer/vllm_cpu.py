"""vLLM inside the trainer on a host without CUDA: what TRL's colocate mode needs to run there.

With `use_vllm: true` such a host generates with vLLM's CPU build in the training process. TRL's own
start would halve the precision and compile for most of a minute, and its weight sync fails: for the
CPU vLLM packs the weights of linear layers, and packed ones take no new values. Here every sync
unpacks, loads and packs again. Where there is CUDA nothing of this is active.
"""

import os
from functools import partial
from typing import Any

import torch
from trl.generation import vllm_generation
from trl.trainer import grpo_trainer

from data_prep.config import UserError
from data_prep.quiet import VLLM_ENVIRONMENT, quiet_loggers
from data_prep.sampling.vllm import held_stderr as hushed
from stages.trainer.evaluation import random_state_kept

SETTINGS = {
    "dtype": "float32",  # the trainer's own on a CPU; by itself vLLM would take bfloat16
    "enforce_eager": True,  # compiling takes 40 s and gains nothing
}


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


def generate_on_cpu() -> None:
    """Let GRPO trainers that are built from now on have vLLM on a CPU, where there is no CUDA."""
    if not torch.cuda.is_available():
        vllm_generation.LLM = partial(vllm_generation.LLM, **SETTINGS)
        grpo_trainer.VLLMGeneration = CpuGeneration
