"""GRPO whose completions come from an engine with its own copy of the weights, as a vLLM server's.

    python -m benchmarks.engine --config configs/tiny-cpu/grpo.yaml --steps_per_generation 2

The guards' benchmark and tests need an engine with stale weights, without vLLM. This one keeps its
first weights. With `--fresh` it takes the trained ones at every generation. `--tags` is fresh too,
and from step 10 on another 5 % of a step's completions end in `</answer></answer>`, as in published
runs that a format reward made collapse.
"""

import copy
import functools
import os
import sys
from typing import Any

from pipeline.errors import run_cli
from pipeline.prompts import ANSWER_CLOSE


class Engine:
    """A `rollout_func` of TRL that samples with a copy of the weights, the first one if stale."""

    def __init__(self, is_stale: bool, adds_tags: bool = False) -> None:
        self.is_stale, self.adds_tags, self._model = is_stale, adds_tags, None

    def __call__(self, prompts: list, trainer: Any) -> dict[str, list]:
        import torch

        if self._model is None or not self.is_stale:
            model = trainer.accelerator.unwrap_model(trainer.model)
            # Not deepcopy: a wrapper around the trained model's forward would still call that one.
            self._model = type(model)(copy.deepcopy(model.config)).to(model.device, model.dtype)
            self._model.load_state_dict(model.state_dict())
            self._model.eval()
        prompt_ids, *_ = trainer._tokenize_prompts(prompts)
        inputs = trainer._tokenizer.pad({"input_ids": prompt_ids}, return_tensors="pt")
        with torch.no_grad():
            out = self._model.generate(
                **inputs.to(trainer.accelerator.device),
                generation_config=trainer.generation_config,
                return_dict_in_generate=True,
                output_scores=True,
            )
        ids = out.sequences[:, inputs["input_ids"].size(1) :]  # (B, C)
        # The scores are logits after temperature and top-p: what was sampled from.
        logps = torch.stack(out.scores, dim=1).log_softmax(dim=-1)  # (B, C, V)
        logps = logps.gather(2, ids.unsqueeze(2)).squeeze(2).tolist()
        lengths = []
        for row in ids.tolist():
            ends = [at for at, token in enumerate(row) if token in trainer.eos_token_ids]
            lengths.append(ends[0] + 1 if ends else len(row))
        completions = [row[:n] for row, n in zip(ids.tolist(), lengths, strict=True)]
        logps = [row[:n] for row, n in zip(logps, lengths, strict=True)]
        if self.adds_tags:
            tag = trainer._tokenizer.encode(2 * ANSWER_CLOSE, add_special_tokens=False)
            num_spoiled = max(0, trainer.state.global_step - 9) * len(completions) // 20
            for at, row in enumerate(completions[:num_spoiled]):
                completions[at] = [*row[:-1], *tag, row[-1]]
                logps[at] = [*logps[at][:-1], *[0.0] * len(tag), logps[at][-1]]
        return {"prompt_ids": prompt_ids, "completion_ids": completions, "logprobs": logps}


def main() -> None:
    """Run the GRPO stage with such an engine."""
    flags = {"--fresh", "--tags"} & {*sys.argv}
    sys.argv = [word for word in sys.argv if word not in flags]
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"  # TRL calls rollout_func experimental
    from trl import GRPOTrainer

    from stages import grpo

    build = functools.partialmethod(
        GRPOTrainer.__init__, rollout_func=Engine(not flags, "--tags" in flags)
    )
    GRPOTrainer.__init__ = build
    grpo.main()


if __name__ == "__main__":
    run_cli(main)
