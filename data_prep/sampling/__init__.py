"""Engines: what completes prompts, how samples are kept, and what decides them.

`stages.difficulty`, `stages.distill` and `eval` sample through these. An engine is one
checkpoint in transformers (`hf`) or in vLLM (`vllm`), or a server's model (`openai`);
`store` keeps each completion under a hash of all that decides it (`hashes`) and lets an engine
generate what is missing; `processes` share the work; `problems` grades a problem set's samples.
"""

from typing import Any

from data_prep.sampling.settings import SamplingArguments


def load_engine(checkpoint: str, key: str, args: SamplingArguments, local_rank: int) -> Any:
    """The checkpoint in the backend that the recipe names, hf or vllm.

    Args:
        checkpoint: model folder, hub id or peft adapter folder.
        key: the YAML key that names it, for messages.
        local_rank: this process's number on its host, which is that of its GPU.

    Raises:
        UserError: the checkpoint or a setting cannot be used.
    """
    if args.backend == "vllm":
        from data_prep.sampling.vllm import VllmEngine

        return VllmEngine(
            checkpoint,
            args.dtype,
            gpu_memory_utilization=args.vllm_gpu_memory_utilization,
            max_model_len=args.vllm_max_model_length,
            device_index=local_rank,
        )
    from data_prep.sampling.hf import HfEngine

    return HfEngine(
        checkpoint, args.dtype, key=key, batch_size=args.batch_size, device_index=local_rank
    )
