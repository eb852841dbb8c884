"""Hidden states of the prompts, by which the curriculum compares problems.

The trainer makes one forward pass over each prompt, before the first step. Problems with similar
states are about equally hard for the model. So the curriculum learns from one problem about others
(linear probes of hidden states, arXiv:1610.01644).
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from pipeline.console import say
from pipeline.errors import UserError
from pipeline.manifest import open_whole
from pipeline.prompts import render_prompt
from stages.trainer.guard_actions import of_main_process

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
            raise UserError(f"{file}: is missing; start a new run in another output_dir")
        return of_main_process(np.load(file) if is_main else None)
    states = prompt_states(trainer)
    components = principal_components(states, num).numpy() if is_main else None
    if is_main:
        file.parent.mkdir(parents=True, exist_ok=True)
        with open_whole(file, "wb") as opened:
            np.save(opened, components)
        say(f"grpo: {num} components of the model's states of {len(states):,} prompts -> {file}")
    return of_main_process(components)


def prompt_states(trainer: Any) -> torch.Tensor:
    """States of all prompts of `train_dataset`, (N, 4 * hidden size), on the main process.

    Of the middle and the last layer, the mean over the tokens and the state of the last token.
    """
    accelerator, tokenizer = trainer.accelerator, trainer.processing_class
    texts = [render_prompt(row, tokenizer) for row in trainer.train_dataset["prompt"]]
    size = BATCH_SIZE * accelerator.num_processes
    by_length = sorted(range(len(texts)), key=lambda number: len(texts[number]))
    padded = by_length + by_length[-1:] * (-len(texts) % size)  # whole batches for every process
    model, was_training = trainer.model_wrapped, trainer.model.training
    model.eval()
    parts = []
    for start in range(0, len(padded), size):
        first = start + accelerator.process_index * BATCH_SIZE
        batch = tokenizer(
            [texts[number] for number in padded[first : first + BATCH_SIZE]],
            return_tensors="pt",
            padding=True,
            padding_side="right",
            add_special_tokens=False,  # they are in the text
        ).to(accelerator.device)
        with torch.no_grad():
            outputs = model(**batch, output_hidden_states=True, logits_to_keep=1, use_cache=False)
        layers = outputs.hidden_states
        mask = batch["attention_mask"].unsqueeze(-1)  # (B, P, 1)
        last = mask.sum(dim=1, keepdim=True).expand(-1, -1, layers[-1].size(-1)) - 1  # (B, 1, H)
        states = []
        for layer in (layers[len(layers) // 2], layers[-1]):  # (B, P, H)
            states += (layer * mask).sum(dim=1) / mask.sum(dim=1), layer.gather(1, last).squeeze(1)
        gathered = accelerator.gather(torch.cat(states, dim=1).float())
        if accelerator.is_main_process:
            parts.append(gathered.cpu())
    model.train(was_training)
    if not parts:
        return torch.empty(0)
    return torch.cat(parts)[: len(texts)][torch.tensor(by_length).argsort()]


def principal_components(states: torch.Tensor, num: int) -> torch.Tensor:
    """Of standardised columns, each of variance 1: shape (N, H) -> (N, num). NaN: not finite."""
    if not states.isfinite().all():
        return torch.full((len(states), num), torch.nan)  # for all processes to see
    states = (states - states.mean(dim=0)) / (states.std(dim=0) + 1e-6)
    num_found = min(num, *states.shape)
    with torch.random.fork_rng(devices=[]):  # the algorithm is a random one
        torch.manual_seed(0)
        left, sizes, _ = torch.pca_lowrank(states, q=num_found, niter=4)
    left = left * (sizes > 1e-4 * sizes.max())  # what is smaller is rounding
    return torch.nn.functional.pad(left * len(states) ** 0.5, (0, num - num_found))
