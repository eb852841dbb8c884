"""GRPO with vLLM's CPU build in the training process, which the product refuses.

TRL's own start would halve the precision and compile for most of a minute, and its weight sync
fails: for the CPU vLLM packs the weights of linear layers, and packed ones take no new values.
`CpuGeneration` unpacks, loads and packs again at every sync.
"""

import os
from functools import partial

import torch
from trl.generation import vllm_generation

from pipeline.console import VLLM_ENVIRONMENT, quiet_loggers
from stages.trainer import vllm
from stages.trainer.evaluation import random_state_kept

SETTINGS = {
    "dtype": "float32",  # the trainer's own on a CPU; by itself vLLM would take bfloat16
    "enforce_eager": True,  # compiling takes 40 s and gains nothing
}


class CpuGeneration(vllm_generation.VLLMGeneration):
    """TRL's `VLLMGeneration` in colocate mode, for one process or several on CPUs."""

    def _init_vllm(self):
        for name, value in VLLM_ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        quiet_loggers("vllm")  # it may have been imported before
        set_num_threads, start = torch.set_num_threads, vllm_generation.LLM
        vllm_generation.LLM = partial(start, **SETTINGS)
        try:
            # vLLM seeds all random numbers with the number of the process, whatever the seed is.
            with random_state_kept(self.accelerator.device):
                super()._init_vllm()
        finally:
            vllm_generation.LLM = start
            torch.set_num_threads = set_num_threads  # vLLM leaves a stub in its place

    def sync_weights(self):
        runner = self.llm.llm_engine.model_executor.driver_worker.model_runner
        # Clones, because vLLM holds tensors back until it has the whole of a layer, and peft takes
        # the merged adapter out of them again.
        clones = ((name, weight.detach().clone()) for name, weight in self._iter_named_params())
        runner.reload_weights(weights_iterator=clones)
        pack_tied_head(runner.get_model())
        self.llm.reset_prefix_cache()


def pack_tied_head(model):
    """Pack a head again that has its weights from the embeddings: a reload forgets it."""
    if model.config.tie_word_embeddings:
        model.lm_head.quant_method.process_weights_after_loading(model.lm_head)


class WatchedOnCpu(vllm.Watched, CpuGeneration):
    """The product's watch over the CPU's engine."""


def install(monkeypatch):
    """Let GRPO stages of this process run vLLM on a CPU."""
    monkeypatch.setattr("stages.host.check_vllm", lambda settings: None)
    monkeypatch.setattr(vllm, "Watched", WatchedOnCpu)
