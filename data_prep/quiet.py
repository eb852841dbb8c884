"""Third-party chatter kept off the terminal, in one place; errors still show."""

import logging
import os
import warnings

# Both tell every stage of GPUs that are not there, as soon as transformers or accelerate find them.
_AT_IMPORT = ("torchao", "torch.utils._pytree")
_LIBRARIES = ("trl", "transformers", "datasets", "huggingface_hub", "lm_eval")


def quiet_imports() -> None:
    """Silence what speaks while it is imported; call it before torch is."""
    for name in _AT_IMPORT:
        logging.getLogger(name).setLevel(logging.ERROR)
    logging.getLogger("DeepSpeed").addFilter(
        lambda record: record.filename != "real_accelerator.py"
    )


def quiet() -> None:
    """Silence warnings and progress bars of the Hugging Face libraries; a stage has its own bar."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    warnings.filterwarnings("ignore", category=UserWarning)
    warnings.filterwarnings("ignore", category=FutureWarning)

    import datasets
    from transformers.utils import logging as hf_logging

    hf_logging.disable_progress_bar()
    datasets.disable_progress_bars()
    for name in _LIBRARIES:  # importing transformers sets its level again
        logging.getLogger(name).setLevel(logging.ERROR)
