"""What the collapse guards measure: of a batch, of the steps behind and of a model.

Pure functions and one probe; `guards` judges. Nothing here talks to other processes: what
is said of a batch or a model is about this process's share, and the caller gathers or averages it.
torch is imported by the probe alone.
"""

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from data_prep.prompts import ANSWER_CLOSE, ANSWER_OPEN, THINK_CLOSE, THINK_OPEN

if TYPE_CHECKING:
    import torch

TAG = re.compile("|".join(map(re.escape, (THINK_OPEN, THINK_CLOSE, ANSWER_OPEN, ANSWER_CLOSE))))
RECENT = 10  # steps too young for the reference
SPAN = 40  # steps of the reference


def repeated_ngram_share(ids: list[int], ngram_size: int) -> float:
    """Share of a completion's n-grams that it has written before.

        1 - distinct n-grams / all n-grams

    A loop of p tokens that fills the last L of N tokens gives about (L - p) / N, whatever n is;
    honest text depends on n, and on its length. Measured on 6,500 worked solutions of MATH and
    NuminaMath (cut by Qwen2's pre-tokenizer), share of the solutions above 0.5:

        n                               4        6        8       12
        512 tokens and more (732)     7.8 %    1.4 %    0.3 %     0
        1,024 tokens and more (65)   23.1 %    4.6 %     0        0

    So 8 is the default: formulas that are written again and tables of cases are no collapse.

    Args:
        ids: token ids without padding.
        ngram_size: n, at least 1.

    Returns:
        A number in [0, 1); 0 for a completion shorter than n.
    """
    ngrams = list(zip(*(ids[start:] for start in range(ngram_size)), strict=False))
    return 1 - len(set(ngrams)) / len(ngrams) if ngrams else 0.0


def repeated_tag_share(text: str) -> float:
    """Share of a text's characters that lie in tag blocks after the first.

    The text is cut before each `<think>`, `</think>`, `<answer>` and `</answer>`; a piece whose tag
    has come before counts. One thought and one answer score 0, k equal blocks (k - 1) / k.

    Returns:
        A number in [0, 1); 0 for an empty text.
    """
    tags = list(TAG.finditer(text))
    ends = [tag.start() for tag in tags[1:]] + [len(text)]
    seen: set[str] = set()
    num_repeated = 0
    for tag, end in zip(tags, ends, strict=False):  # a text without tags has an end all the same
        num_repeated += end - tag.start() if tag.group() in seen else 0
        seen.add(tag.group())
    return num_repeated / len(text) if text else 0.0


def repetition_scores(
    completion_ids: list[list[int]], texts: list[str], ngram_size: int
) -> list[float]:
    """How much of each completion repeats itself, in tokens or in tag blocks, whichever is more.

    Args:
        completion_ids: token ids of each completion, without padding.
        texts: the same completions as text.
        ngram_size: n of the n-grams, tokens.

    Returns:
        One number in [0, 1) a completion: near 0 for honest work, near 1 for a loop.
    """
    return [
        max(repeated_ngram_share(ids, ngram_size), repeated_tag_share(text))
        for ids, text in zip(completion_ids, texts, strict=True)
    ]


def repetitive_share(scores: list[float], max_repetition: float) -> float:
    """Share of the completions that score above `max_repetition`: the guard's `repetition`.

    Not the mean of the scores: that rises with length alone, to 0.2 for honest solutions, and a
    tenth of the batch in loops moves it by less. A score at the limit is not above it.

    Returns:
        A number in [0, 1]; NaN without completions.
    """
    return sum(score > max_repetition for score in scores) / len(scores) if scores else math.nan


def logp_mismatch(
    reference_logps: "torch.Tensor", sampling_logps: "torch.Tensor", mask: "torch.Tensor"
) -> "torch.Tensor":
    """How far the sampler's log-probs are from the trainer's, for each completion.

        mean over tokens of exp(|logp_rollout - logp_train|)        range [1, inf]

    After NeMo RL's "multiplicative probability error" (`token_mult_prob_error`), whose tests ask
    for less than 1.05. The absolute value keeps differences of both signs from cancelling.

    Args:
        reference_logps: log-probs under the weights that train, shape (B, C).
        sampling_logps: log-probs the sampler reported, shape (B, C); NaN tokens are left out.
        mask: non-zero where a token counts, shape (B, C).

    Returns:
        Shape (B,), float32; NaN for a row without tokens, infinity where a log-prob of the trainer
        is NaN.
    """
    counts = mask.bool() & ~sampling_logps.isnan()  # (B, C)
    ratio = (reference_logps.float() - sampling_logps.float()).abs().exp()
    ratio = ratio.nan_to_num(nan=math.inf, posinf=math.inf)
    return ratio.where(counts, 0.0).sum(dim=1) / counts.sum(dim=1)


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean, correctly rounded, so that a resumed run finds the same."""
    return math.fsum(values) / len(values)


def reference_window(values: Sequence[float], num_baseline: int) -> Sequence[float]:
    """The part of a trace, newest value last, that the present is compared with.

        steps t - 50 .. t - 10; of a young run its first `num_baseline` steps at least

    Long, because few completions make a noisy step; late, because what goes wrong takes some steps.
    """
    end = max(num_baseline, len(values) - RECENT)
    return values[max(0, end - SPAN) : end]


def length_growth(lengths: Sequence[float], num_recent: int, num_baseline: int) -> float:
    """Recent mean length over that of the reference window.

        mean(last num_recent steps) / mean(steps t - 50 .. t - 10)

    A reasoning run may lengthen for thousands of steps: doubling within 30 is an explosion, within
    300 it is not.

    Args:
        lengths: mean completion length of each step in tokens, newest last.

    Returns:
        A ratio; NaN until there are more than `num_baseline` steps, or if the reference is 0.
    """
    if len(lengths) <= num_baseline:
        return math.nan
    reference = mean(reference_window(lengths, num_baseline))
    return mean(lengths[-num_recent:]) / reference if reference else math.nan


def best_reference(
    cut_off_rates: Sequence[float],
    rewards: Sequence[float],
    num_baseline: int,
    best: Sequence[float] | None,
) -> list[float]:
    """Mean cut-off rate and mean reward of the reference window with the best reward so far.

    The best, not the last: a slow collapse would pull its reference along. And not the start:
    reward rises first in a run that collapses later. Both means are of the same steps, so length
    that grows and pays off takes its reference along. While the run is younger than a whole window
    the last one counts, as a few lucky steps would else remain the best for long.

    Args:
        cut_off_rates, rewards: means of each step, newest last; at most `RECENT + SPAN` are kept.
        best: what this returned a step ago.

    Returns:
        `[cut-off rate, reward]`.
    """
    found = [mean(reference_window(values, num_baseline)) for values in (cut_off_rates, rewards)]
    is_whole = len(rewards) >= RECENT + SPAN
    return list(best) if best and is_whole and found[1] < best[1] else found


class WeightProbe:
    """The share of a model's weights that an optimizer step really moves.

    In bf16 an update below half the distance to the next number is rounded away: AdamW with a
    learning rate of 5e-7 moves 1 % of weights around 0.02. Weights that hold float32 move nearly
    all. Call `before()` and `after()` right around the optimizer's step.

    A low share is no loss where the exact weights are kept elsewhere (DeepSpeed's float32 copies)
    or the rounding is stochastic, and none at all while the learning rate is 0.

    Args:
        model: its trainable parameters count; of a sharded one, this process's part.
        max_elements: at most about this many are looked at: every k-th of all, k odd, so that
            it shares no factor with the usual row lengths and meets every column.
    """

    def __init__(self, model: Any, max_elements: int = 1_000_000) -> None:
        self._model, self._max_elements = model, max_elements
        self._before: list[torch.Tensor] | None = None

    def before(self) -> None:
        """Copy the sample."""
        self._before = [part.clone() for part in self._sample()]

    def after(self) -> float:
        """Share of the sample whose bits have changed since `before()`.

        Returns:
            A number in [0, 1]; NaN where this process holds no trainable weight.
        """
        assert self._before is not None, "before() comes first"
        import torch

        integers = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
        pairs, self._before = zip(self._before, self._sample(), strict=True), None
        # As integers: -0.0 is not 0.0 then, and a NaN that stays has not moved.
        moved = [
            (old.view(integers[old.element_size()]) != new.view(integers[new.element_size()]))
            for old, new in pairs
        ]
        total = sum(part.numel() for part in moved)
        if not total:
            return math.nan
        counts = [part.sum().to(moved[0].device) for part in moved]
        return torch.stack(counts).sum().item() / total

    def _sample(self) -> list["torch.Tensor"]:
        """Views of every k-th element of the local trainable weights, counted through them all."""
        weights = [p.detach() for p in self._model.parameters() if p.requires_grad]
        flat = [(w.to_local() if hasattr(w, "to_local") else w).flatten() for w in weights]
        stride = -(-sum(part.numel() for part in flat) // self._max_elements) | 1
        views, skip = [], 0
        for part in flat:
            views.append(part[skip::stride])
            skip = (skip - part.numel()) % stride
        return views
