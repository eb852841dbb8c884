"""Engines: what completes prompts, how samples are kept, and what decides them.

An engine is one checkpoint in transformers (`hf`) or in vLLM (`vllm`), or a server's model
(`openai`); `store` keeps each completion under a hash of all that decides it (`hashes`) and lets an
engine generate what is missing; `problems` loads an engine and grades a problem set's samples. Here
are the keys that all recipes which sample share, checked before torch is imported.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from data_prep.config import UserError

DTYPES = ("float32", "bfloat16", "float16")


@dataclass(kw_only=True)
class SamplingArguments:
    """How completions are sampled and graded; recipes add where problems and models are."""

    backends: ClassVar[tuple[str, ...]] = ("hf", "vllm")

    backend: str = field(default="hf", metadata={"help": "hf (transformers) or vllm"})
    vllm_gpu_memory_utilization: float = field(
        default=0.9, metadata={"help": "share of the GPU's memory that vLLM may take"}
    )
    vllm_max_model_length: int | None = field(
        default=None, metadata={"help": "context that vLLM makes room for; the model's by default"}
    )
    num_samples: int = field(default=4, metadata={"help": "completions per problem"})
    temperature: float = field(default=1.0, metadata={"help": "of the samples, above 0"})
    top_p: float = field(default=1.0, metadata={"help": "nucleus of the samples, 0..1"})
    max_new_tokens: int = field(default=2048, metadata={"help": "a longer completion is cut off"})
    batch_size: int = field(default=64, metadata={"help": "completions generated at once (hf)"})
    final_number: bool = field(
        default=False,
        metadata={"help": "where there is no box, the plain number at the end is the answer"},
    )
    dtype: str = field(default="bfloat16", metadata={"help": ", ".join(DTYPES)})
    seed: int = field(default=0, metadata={"help": "of the samples"})
    limit: int | None = field(default=None, metadata={"help": "only the first so many problems"})

    def __post_init__(self) -> None:
        self.check_one_of("dtype", DTYPES)
        self.check_one_of("backend", self.backends)

    def check_one_of(self, key: str, known: tuple[str, ...]) -> None:
        """Refuse a value that is not known."""
        if getattr(self, key) not in known:
            raise UserError(
                f"{key}: must be one of {', '.join(known)} (got {getattr(self, key)!r})"
            )


@dataclass(kw_only=True)
class ProblemSetArguments(SamplingArguments):
    """How one checkpoint samples one file of problems."""

    model_name_or_path: str = field(metadata={"help": "checkpoint folder or hub id"})
    problems_file: str = field(metadata={"help": "JSON lines as data_prep.build writes for GRPO"})
    output_dir: str = field(metadata={"help": "where the result and the samples go"})


def check_problems_file(values: dict[str, Any]) -> None:
    """Refuse a missing file before torch is imported."""
    if not Path(values["problems_file"]).is_file():
        raise UserError(
            f"problems_file: {values['problems_file']} does not exist; run `make data` first"
        )
