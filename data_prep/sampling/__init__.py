"""Engines that complete prompts, and the store of their samples.

An engine is one checkpoint in transformers (`hf`) or in vLLM (`vllm`), or a server's model
(`openai`). `store` keeps each completion under a hash of all that decides it (`hashes`), and an
engine generates the missing ones. `problems` loads an engine and grades a problem set's samples.
Here are the keys that all sampling recipes share, checked before torch is imported.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pipeline.errors import UserError
from pipeline.models.checkpoints import check_checkpoint
from pipeline.settings import setting
from pipeline.values import Count, Natural, OneOf

NO_VLLM = "vLLM is not installed; run `make gpu-env` on a GPU host"
Dtype = Literal["float32", "bfloat16", "float16"]
DTYPES = get_args(Dtype)


@dataclass(kw_only=True)
class SamplingArguments:
    """How completions are sampled and graded; subclasses add problems and models."""

    backend: Annotated[str, OneOf(("hf", "vllm"))] = setting("hf", "hf (transformers) or vllm")
    vllm_gpu_memory_utilization: float = setting(0.9, "vllm: share of the GPU's memory to use")
    vllm_max_model_length: int | None = setting(
        None, "vllm: context, tokens; the model's by default"
    )
    num_samples: Natural = setting(4, "completions per problem")
    temperature: float = setting(1.0, "sampling temperature, above 0")
    top_p: float = setting(1.0, "nucleus sampling, 0..1")
    max_new_tokens: Count = setting(2048, "longest completion, tokens")
    batch_size: Count = setting(64, "hf: completions generated at once")
    fast_generation: bool | None = setting(
        None,
        "hf: shared prompts read once, ended completions dropped; unset: if faster",
    )
    final_number: bool = setting(
        False, "where there is no box, the number at the end of the text is the answer"
    )
    dtype: Dtype = setting("bfloat16", f"precision of the weights: {', '.join(DTYPES)}")
    seed: int = setting(0, "seed of the samples")
    limit: Count | None = setting(None, "use only the first so many problems")


@dataclass(kw_only=True)
class ProblemSetArguments(SamplingArguments):
    """How one checkpoint samples one file of problems."""

    model_name_or_path: str = field(metadata={"help": "checkpoint folder or hub id"})
    problems_file: str = field(metadata={"help": "JSON lines with the columns of grpo_train.jsonl"})
    output_dir: str = field(metadata={"help": "folder for the result and the samples"})
    num_samples: Count = setting(4, "completions per problem")


def check_inputs(values: dict[str, Any]) -> None:
    """Refuse a missing file or checkpoint before torch is imported."""
    path = values["problems_file"]
    if not Path(path).is_file():
        raise UserError(f"problems_file: {path} does not exist; run `make data` first")
    if values.get("backend") != "openai":
        check_checkpoint(values["model_name_or_path"], "model_name_or_path")
