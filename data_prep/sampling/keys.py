"""Keys of difficulty.yaml, distill.yaml and eval.yaml that only one backend reads."""

from collections.abc import Sequence

from data_prep.sampling import SamplingArguments
from pipeline.settings import Settings
from pipeline.switches import ON, Switch, check_switched

SWITCHES = (
    # Each teacher of a list can have a backend of its own.
    Switch({"backend": ("hf",), "teachers": ON}, "batch_size fast_generation", "backend: hf"),
    Switch(
        {"backend": ("vllm",), "teachers": ON},
        "vllm_gpu_memory_utilization vllm_max_model_length",
        "backend: vllm",
    ),
    Switch({"backend": ("openai",), "teachers": ON}, "concurrency timeout_s", "backend: openai"),
)


def check_sampling(
    settings: Settings, backends: Sequence[str] = SamplingArguments.backends
) -> None:
    """Refuse keys of another backend; the stage itself refuses a backend that it does not know."""
    if settings.backend in backends:
        check_switched(settings, SWITCHES)
