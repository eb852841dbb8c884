"""A `rollout_func` of TRL with its own copy of the weights, as a vLLM server has, without vLLM."""

import copy
from typing import Any

import torch


class Engine:
    """Samples with a copy of the weights: the first one if stale, else the trained one."""

    def __init__(self, is_stale: bool) -> None:
        self.is_stale, self._model = is_stale, None

    def __call__(self, prompts: list, trainer: Any) -> dict[str, list]:
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
        return {"prompt_ids": prompt_ids, "completion_ids": completions, "logprobs": logps}
