"""Sampling that depends on the sample and on nothing else.

transformers draws every row of a batch from one global generator, so that a sample depends on what
shares its batch. Here each sample has numbers of its own: an evaluation that was killed, split over
more processes or batched otherwise draws the same samples, up to the arithmetic of the model.
"""

from collections.abc import Sequence

import torch
from transformers import (
    LogitsProcessor,
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopPLogitsWarper,
)


class SeededSampler(LogitsProcessor):
    """Draws each row's next token by inverting its cumulative distribution.

        token = min { v : P(0) + ... + P(v) > u }        u ~ U[0, 1), one for each row and step

    It leaves that token the only one possible, so generation must be greedy.

    Args:
        seeds: one for each row, below 2**63.
        prompt_length: P, to tell which step it is.
        max_new_tokens: the most steps there can be.
    """

    def __init__(self, seeds: Sequence[int], prompt_length: int, max_new_tokens: int) -> None:
        rows = [
            torch.rand(max_new_tokens, generator=torch.Generator().manual_seed(seed))
            for seed in seeds
        ]
        self._uniform = torch.stack(rows).double()  # (B, C)
        self._prompt_length = prompt_length

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Scores (B, V) as 0 for the token that is drawn and -inf for all others."""
        step = input_ids.shape[1] - self._prompt_length
        cumulative = scores.double().softmax(-1).cumsum(-1)  # (B, V)
        uniform = self._uniform[:, step, None].to(scores.device)  # (B, 1)
        token = torch.searchsorted(cumulative, uniform * cumulative[:, -1:], right=True)
        drawn = torch.full_like(scores, -torch.inf)
        return drawn.scatter_(1, token.clamp_(max=scores.shape[1] - 1), 0.0)


def build_sampler(
    temperature: float, top_p: float, seeds: Sequence[int], prompt_length: int, max_new_tokens: int
) -> LogitsProcessorList:
    """Temperature, then nucleus, then the draw; empty for temperature 0, which is greedy."""
    if temperature == 0:
        return LogitsProcessorList()
    warpers = [TemperatureLogitsWarper(temperature)]
    if top_p < 1:
        warpers.append(TopPLogitsWarper(top_p))
    return LogitsProcessorList([*warpers, SeededSampler(seeds, prompt_length, max_new_tokens)])
