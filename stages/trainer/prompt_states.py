"""Hidden states of the prompts, by which the curriculum compares problems.

Problems with similar states are about equally hard for the model. So the curriculum learns from one
problem about others (linear probes of hidden states, arXiv:1610.01644). The trainer makes one
forward pass over each prompt, when its problem may be chosen for the first time. The first prompts
fix the directions of the components. Later ones are projected on them, so a weight of the
curriculum keeps its meaning. A later prompt is read by the model of that step.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from pipeline.console import say
from pipeline.errors import UserError
from pipeline.prompts import render_prompt
from stages.trainer.curriculum import check_choice
from stages.trainer.guard_actions import of_main_process

BATCH_SIZE = 16  # prompts of one forward pass
ARRAYS = ("directions", "origin")  # of a saved state


class PromptReader:
    """Reads the prompts of the problems that a trainer's curriculum may choose.

    The results of reading are part of every checkpoint, for an exact resume.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer, self._num = trainer, trainer.curriculum.num_components
        self._read: list[int] = []  # problems
        self._components = np.zeros((0, self._num), dtype=np.float32)  # (N, num), 0: not read
        self._directions, self._origin = self._components, self._components  # not known

    def read(self, problems: Sequence[int]) -> None:
        """Read the prompts of problems, but for those read before, and show them to the curriculum.

        A collective call: the same on all processes.

        Raises:
            UserError: a problem is no row, or a state is not finite.
        """
        curriculum, num_rows = self._trainer.curriculum, len(self._trainer.train_dataset)
        new = np.setdiff1d(problems, self._read).tolist()
        check_choice(f"{type(curriculum).__name__}.candidates", new, len(new), num_rows)
        if not new:
            return
        states, found = prompt_states(self._trainer, new), None
        if self._trainer.accelerator.is_main_process and states.isfinite().all():
            if self._read:
                found = states.numpy() @ self._directions - self._origin
            else:
                say(f"grpo: {self._num} components of the model's states of {len(new):,} prompts")
                found = principal_components(states, self._num)
        found = of_main_process(found)
        if found is None:
            raise UserError(
                "model_name_or_path: the model's states of the prompts are not finite; fix its "
                "weights or dtype, or lower learning_rate"
            )
        if not self._read:
            found, self._directions, self._origin = found
            self._components = np.zeros((num_rows, self._num), dtype=np.float32)
        self._components[new] = found
        self._read += new
        curriculum.see(self._components)

    def state_dict(self) -> dict[str, Any]:
        """What was read, and the directions, as JSON takes it."""
        found = {name: getattr(self, f"_{name}").tolist() for name in ARRAYS}
        components = self._components[self._read].tolist()
        return found | {
            "num_rows": len(self._components), "read": self._read, "components": components
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the values of `state_dict()` back, and show them to the curriculum."""
        self._read = state["read"]
        for name in ARRAYS:
            setattr(self, f"_{name}", np.array(state[name], dtype=np.float32))
        if self._read:
            self._components = np.zeros((state["num_rows"], self._num), dtype=np.float32)
            self._components[self._read] = state["components"]
            self._trainer.curriculum.see(self._components)


def prompt_states(trainer: Any, problems: Sequence[int]) -> torch.Tensor:
    """States of the prompts of some rows of `train_dataset`, (n, 4 * hidden size), in their order.

    On the main process; empty on the others.

    Of the middle and the last layer, the mean over the tokens and the state of the last token.
    """
    accelerator, tokenizer = trainer.accelerator, trainer.processing_class
    prompts = trainer.train_dataset["prompt"]
    texts = [render_prompt(prompts[number], tokenizer) for number in problems]
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
        states: list[torch.Tensor] = []
        for layer in (layers[len(layers) // 2], layers[-1]):  # (B, P, H)
            states += (layer * mask).sum(dim=1) / mask.sum(dim=1), layer.gather(1, last).squeeze(1)
        gathered = accelerator.gather(torch.cat(states, dim=1).float())
        if accelerator.is_main_process:
            parts.append(gathered.cpu())
    model.train(was_training)
    if not parts:
        return torch.empty(0)
    return torch.cat(parts)[: len(texts)][torch.tensor(by_length).argsort()]


def principal_components(
    states: torch.Tensor, num: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Principal components of states, (n, H), whose columns are standardised first.

    Returns:
        The components, (n, num), each of mean 0 and variance 1; 0 where the states have fewer. Then
        directions, (H, num), and origin, (num,), with which `states @ directions - origin` are the
        components, but for rounding.
    """
    mean, deviation = states.mean(dim=0), states.std(dim=0).nan_to_num() + 1e-6
    standard = (states - mean) / deviation
    num_found = min(num, *states.shape)
    with torch.random.fork_rng(devices=[]):  # the algorithm is a random one
        torch.manual_seed(0)
        left, sizes, right = torch.pca_lowrank(standard, q=num_found, niter=4)
    is_kept = sizes > 1e-4 * sizes.max()  # what is smaller is rounding
    scale = len(states) ** 0.5
    directions = right / deviation.unsqueeze(1) * torch.where(is_kept, scale / sizes, 0)
    missing = (0, num - num_found)
    components, directions = (
        torch.nn.functional.pad(part, missing) for part in (left * is_kept * scale, directions)
    )
    return components.numpy(), directions.numpy(), (mean @ directions).numpy()
