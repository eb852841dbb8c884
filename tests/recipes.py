"""What this project ships under `configs/`. What a user adds there is not tested."""

SHIPPED = (
    "grpo7b", "grpo7b-published", "justrl-1.5b", "llama3.1-8b", "own-problems", "perplexity",
    "perplexity-gsm8k", "perplexity-mixed", "perplexity-sft-gsm8k", "perplexity-sft-math",
    "qwen2.5-0.5b", "qwen2.5-1.5b", "qwen3-1.7b", "rlinf-1.5b", "rlinf-7b", "rlite",
    "rlite-packing", "skewed-cpu", "smollm2-135m", "tiny-cpu",
)  # fmt: skip
ON_CPU = ("skewed-cpu", "smollm2-135m", "tiny-cpu")
FULL = tuple(name for name in SHIPPED if name not in ON_CPU)  # for a GPU, with a README
SCORING = ("evaluate",)  # which score models and train nothing
LAUNCHES = (
    "cpu", "ddp", "fsdp2", "multi_node", "single_gpu", "zero2", "zero3", "zero3_offload",
)  # fmt: skip
