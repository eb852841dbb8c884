"""The model under evaluation: the harness's Hugging Face model with its own `generate_until`.

Differences from `HFLM.generate_until`: prompts are tokenised without adding special tokens (the
chat template already wrote them), generation stops on token ids only (the harness decodes every
row at every step to look for the end-of-sequence *text*), and each completion keeps its token
count and whether it was cut off, which the harness throws away.
"""

import json
from collections import defaultdict
from pathlib import Path

import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from tqdm import tqdm

from data_prep.config import UserError
from eval.scoring import Completion


class CompletionLM(HFLM):
    """`HFLM` whose `generate_until` returns `Completion`s; causal models, one process."""

    label = ""  # shown at the progress bar

    def generate_until(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[Completion]:
        """Generate one completion per request.

        Args:
            requests: arguments are (rendered prompt, generation kwargs); equal prompts may repeat.

        Returns:
            Completions in the order of `requests`.

        Raises:
            UserError: a prompt and `max_gen_toks` together exceed the model's context.
        """
        groups = defaultdict(list)  # equal generation kwargs go into one batch
        for index, request in enumerate(requests):
            groups[json.dumps(request.args[1], sort_keys=True)].append(index)
        prompt_ids = self.tokenizer([r.args[0] for r in requests], add_special_tokens=False)
        prompt_ids = prompt_ids["input_ids"]
        completions: list[Completion | None] = [None] * len(requests)
        with tqdm(
            total=len(requests), desc=self.label, unit=" completions", disable=disable_tqdm
        ) as bar:
            for kwargs_json, indices in groups.items():
                kwargs = json.loads(kwargs_json)
                assert kwargs.pop("until") == [], "the tasks stop on end-of-sequence only"
                # Longest first: an out-of-memory error comes at the start, and padding is small.
                indices.sort(key=lambda i: -len(prompt_ids[i]))
                for start in range(0, len(indices), self.batch_size):
                    batch = indices[start : start + self.batch_size]
                    for i, completion in zip(
                        batch, self._complete([prompt_ids[i] for i in batch], **kwargs), strict=True
                    ):
                        completions[i] = completion
                    bar.update(len(batch))
        return completions

    def _complete(
        self, prompt_ids: list[list[int]], max_gen_toks: int, **kwargs
    ) -> list[Completion]:
        """Generate one batch; `prompt_ids` are B lists of token ids, padded left to P here."""
        padded = self.tokenizer.pad(
            {"input_ids": prompt_ids}, padding_side="left", return_tensors="pt"
        ).to(self.device)
        prompt_length = padded["input_ids"].shape[1]
        if prompt_length + max_gen_toks > self.max_length:
            raise UserError(
                f"max_new_tokens: {max_gen_toks} and a prompt of {prompt_length} tokens exceed the "
                f"model's context of {self.max_length}; lower max_new_tokens"
            )
        eos_ids = eos_token_ids(self)
        sequences = self.model.generate(
            **padded,
            max_new_tokens=max_gen_toks,
            eos_token_id=sorted(eos_ids),
            pad_token_id=self.tokenizer.pad_token_id,
            **kwargs,
        )  # (B, P + C)
        completions = []
        for row in sequences[:, prompt_length:].tolist():
            # The first end-of-sequence token ends the row, also where it doubles as padding.
            end = next((i for i, token in enumerate(row) if token in eos_ids), None)
            text = self.tokenizer.decode(row[:end], skip_special_tokens=True)
            num_tokens = len(row) if end is None else end + 1
            completions.append(Completion(text, num_tokens, cut_off=end is None))
        return completions


def eos_token_ids(model: HFLM) -> set[int]:
    """The tokenizer's end-of-sequence id and those of the checkpoint's generation config."""
    configured = model.model.generation_config.eos_token_id
    configured = configured if isinstance(configured, list) else [configured]
    return {i for i in (*configured, model.tokenizer.eos_token_id) if i is not None}


def base_and_adapter(checkpoint: str) -> tuple[str, str | None]:
    """`(base model, adapter folder)` of a peft checkpoint, `(checkpoint, None)` of any other."""
    config = Path(checkpoint) / "adapter_config.json"
    if not config.is_file():
        return checkpoint, None
    return json.loads(config.read_text(encoding="utf-8"))["base_model_name_or_path"], checkpoint


def tokenizer_path(checkpoint: str) -> str:
    """Where the checkpoint's tokenizer is: an adapter folder may leave it to its base model."""
    base, adapter = base_and_adapter(checkpoint)
    has_own = adapter and (Path(adapter) / "tokenizer_config.json").is_file()
    return adapter if has_own else base


def load_model(checkpoint: str, label: str, dtype: str, batch_size: int) -> CompletionLM:
    """Load a model folder, hub id or peft adapter folder onto the GPU, or the CPU without one."""
    base, adapter = base_and_adapter(checkpoint)
    model = CompletionLM(
        pretrained=base,
        peft=adapter,
        tokenizer=tokenizer_path(checkpoint),
        dtype=dtype,
        batch_size=batch_size,
        device="cuda" if torch.cuda.is_available() else "cpu",
    )
    model.label = label
    return model
