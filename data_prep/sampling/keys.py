"""Keys of difficulty.yaml, distill.yaml and eval.yaml that only one backend reads."""

from data_prep.sampling import SamplingArguments
from pipeline.settings import Settings
from pipeline.switches import Switch, check_switched

SWITCHES = (
    Switch({"backend": ("hf",)}, "batch_size fast_generation"),
    Switch({"backend": ("vllm",)}, "vllm_gpu_memory_utilization vllm_max_model_length"),
    Switch({"backend": ("openai",)}, "concurrency timeout_s"),
)


def check_sampling(settings: Settings) -> None:
    """Refuse keys of another backend; the stage itself refuses a backend that it does not know."""
    if settings.backend in SamplingArguments.backends:
        check_switched(settings, SWITCHES)
