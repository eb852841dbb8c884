"""Keys of difficulty.yaml, distill.yaml and eval.yaml that only one backend reads."""

from collections.abc import Sequence

from pipeline.errors import UserError
from pipeline.settings import Settings

READ_BY = {
    "hf": ("batch_size", "fast_generation"),
    "vllm": ("vllm_gpu_memory_utilization", "vllm_max_model_length"),
    "openai": ("concurrency", "timeout_s"),
}


def check_sampling(settings: Settings) -> None:
    """Refuse keys of another backend."""
    check_backends(settings, [settings.backend])


def check_backends(settings: Settings, backends: Sequence[str]) -> None:
    """Refuse keys that none of these backends reads, but for those that an override left over."""
    for backend, keys in READ_BY.items():
        for key in keys if backend not in backends else ():
            if settings.asks_for(key) and not settings.is_overruled(key):
                raise UserError(
                    f"{key}: {settings[key]!r} would have no effect without backend: {backend}; "
                    "remove it"
                )
