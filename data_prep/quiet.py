"""Third-party chatter kept off the terminal, in one place; errors still show."""

import logging
import os
import warnings

# Both tell every stage of GPUs that are not there, as soon as transformers or accelerate find them.
_AT_IMPORT = ("torchao", "torch.utils._pytree")
# vLLM reads its level when it is imported, in its child processes too, so these are set before.
VLLM_ENVIRONMENT = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_NO_USAGE_STATS": "1",
    "TQDM_DISABLE": "1",  # read by the engine's child process
}


def quiet_loggers(*names: str) -> None:
    """Let these loggers tell of errors only; a library may set its level again when imported."""
    for name in names:
        logging.getLogger(name).setLevel(logging.ERROR)


def quiet_imports() -> None:
    """Silence what speaks while it is imported; call it before torch is."""
    quiet_loggers(*_AT_IMPORT)
    logging.getLogger("DeepSpeed").addFilter(
        lambda record: record.filename != "real_accelerator.py"
    )


def quiet_transformers() -> None:
    """Silence log lines and progress bars of transformers and the hub."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from transformers.utils import logging as hf_logging

    hf_logging.disable_progress_bar()
    quiet_loggers("transformers", "huggingface_hub")


def quiet_evaluation() -> None:
    """Silence transformers, the harness and the bars of datasets; evaluation has its own bar."""
    quiet_transformers()
    import datasets

    datasets.disable_progress_bars()
    quiet_loggers("lm_eval")


def quiet_harness() -> None:
    """Silence the harness's bar for building prompts, which is over at once."""
    import lm_eval.api.task

    lm_eval.api.task.tqdm = lambda items, **_: items


def quiet() -> None:
    """Silence warnings and progress bars of the Hugging Face libraries; a stage has its own bar."""
    warnings.filterwarnings("ignore", category=UserWarning)
    warnings.filterwarnings("ignore", category=FutureWarning)
    quiet_evaluation()
    quiet_loggers("trl", "datasets")
