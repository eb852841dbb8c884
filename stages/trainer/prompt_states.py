"""What the policy makes of every problem before it tries one: hidden states of the prompts.

One forward pass over each prompt, before the first step. Problems that the model sees as alike are
about as hard for it, so the curriculum learns from one what to expect of the others (linear probes
of hidden states, arXiv:1610.01644).
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from data_prep.config import UserError
from data_prep.manifest import open_whole
from data_prep.prompts import render_prompt
from stages.trainer.guard_actions import of_main_process, tell

FILE = "prompt_components.npy"  # in the output folder, for a resumed run
BATCH_SIZE = 16  # prompts of one forward pass


def prompt_components(trainer: Any, num: int) -> np.ndarray:
    """Principal components of the hidden states of all prompts of a trainer, (N, num).

    Each has mean 0 and variance 1; 0 where the states have fewer. A collective call: the same on
    all processes. They belong to the model that the run started from, so a resumed run reads them.
    """
    file, is_main = Path(trainer.args.output_dir) / FILE, trainer.accelerator.is_main_process
    if trainer.start_checkpoint:
        if not of_main_process(file.exists()):
            raise UserError(f"{file}: is missing; without it train anew in another output_dir")
        return of_main_process(np.load(file) if is_main else None)
    states = prompt_states(trainer)
    components = principal_components(states, num).numpy() if is_main else None
    if is_main:
        file.parent.mkdir(parents=True, exist_ok=True)
        with open_whole(file, "wb") as opened:
            np.save(opened, components)
        tell(f"grpo: {num} components of what the model makes of {len(states):,} prompts -> {file}")
    return of_main_process(components)


def prompt_states(trainer: Any) -> torch.Tensor:
    """States of all prompts of `train_dataset`, (N, 4 or 6 * hidden size), on the main process.

    Of the middle and the last layer, the mean over the prompt's tokens and the state of its last;
    where rows have `answers`, also the mean over the tokens of the first, put behind the prompt.
    """
    accelerator, tokenizer = trainer.accelerator, trainer.processing_class
    rows = trainer.train_dataset
    texts = [
        text if isinstance(text, str) else render_prompt(text, tokenizer) for text in rows["prompt"]
    ]
    has_golds = "answers" in rows.column_names
    golds = [answers[0] for answers in rows["answers"]] if has_golds else [""] * len(texts)
    prompts, golds = (
        tokenizer(parts, add_special_tokens=False)["input_ids"] if len(parts) else []
        for parts in (texts, golds)
    )
    ids = [[*prompt, *gold] for prompt, gold in zip(prompts, golds, strict=True)]
    size = BATCH_SIZE * accelerator.num_processes
    by_length = sorted(range(len(ids)), key=lambda number: len(ids[number]))
    padded = by_length + by_length[-1:] * (-len(ids) % size)  # whole batches for every process
    model, was_training = trainer.model_wrapped, trainer.model.training
    model.eval()
    found = []
    for start in range(0, len(padded), size):
        first = start + accelerator.process_index * BATCH_SIZE
        numbers = padded[first : first + BATCH_SIZE]
        batch = {"input_ids": [ids[number] for number in numbers]}
        batch = tokenizer.pad(batch, return_tensors="pt", padding_side="right")
        batch = batch.to(accelerator.device)
        with torch.no_grad():
            outputs = model(**batch, output_hidden_states=True, logits_to_keep=1, use_cache=False)
        layers = outputs.hidden_states
        length = torch.tensor([[[len(prompts[number])]] for number in numbers]).to(layers[0].device)
        place = torch.arange(layers[0].size(1), device=layers[0].device)[None, :, None]  # (1, P, 1)
        spans = [place < length, place == length - 1]  # (B, P, 1)
        if has_golds:
            spans.append((place >= length) & batch["attention_mask"].unsqueeze(-1).bool())
        states = [
            (layer * span).sum(dim=1) / span.sum(dim=1).clamp(min=1)  # (B, H)
            for layer in (layers[len(layers) // 2], layers[-1])
            for span in spans
        ]
        gathered = accelerator.gather(torch.cat(states, dim=1).float())
        if accelerator.is_main_process:
            found.append(gathered.cpu())
    model.train(was_training)
    if not found:
        return torch.empty(0)
    return torch.cat(found)[: len(ids)][torch.tensor(by_length).argsort()]


def principal_components(states: torch.Tensor, num: int) -> torch.Tensor:
    """Of standardised columns, each of variance 1: shape (N, H) -> (N, num)."""
    states = (states - states.mean(dim=0)) / (states.std(dim=0) + 1e-6)
    num_found = min(num, *states.shape)
    with torch.random.fork_rng(devices=[]):  # the algorithm is a random one
        torch.manual_seed(0)
        left, _, _ = torch.pca_lowrank(states, q=num_found, niter=4)
    return torch.nn.functional.pad(left * len(states) ** 0.5, (0, num - num_found))
