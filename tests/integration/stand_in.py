"""Run a stage on a CPU with what it lacks put in: the stand-ins of `make gpu-check`.

    python -m tests.integration.stand_in stages.sft --config ...

FSDP 2 that really shards where the launch asks for FSDP; vLLM's CPU build where the recipe asks for
vLLM on the command line; torch's `varlen_attn` for a benchmark; else the reference of
FlashAttention's kernels.
"""

import importlib
import os
import sys

import pytest

from pipeline.errors import run_cli


def main():
    sys.argv = sys.argv[1:]
    if os.environ.get("ACCELERATE_USE_FSDP") == "true":
        from tests.integration.trainer.fsdp_on_cpu import shard_on_cpu

        shard_on_cpu()
    elif "--use_vllm" in sys.argv:
        from tests.integration.trainer.vllm_on_cpu import install

        install(pytest.MonkeyPatch())
    elif sys.argv[0].startswith("benchmarks."):
        from tests.integration.varlen_on_cpu import install

        install(pytest.MonkeyPatch())
    else:
        from tests.integration.flash_on_cpu import install

        install(pytest.MonkeyPatch())
    importlib.import_module(sys.argv[0]).main()


if __name__ == "__main__":
    run_cli(main)
