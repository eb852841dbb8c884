"""Collapse guards of GRPO: they notice a run that goes wrong, and act.

Each guard has a statistic, a limit and an action that the recipe chooses. The trainer passes the
statistics of every step to `Guards.observe`. It carries out the actions that it gets back, and
writes each as a line of `events.jsonl`. A statistic covers this process's share of a batch or a
model; the caller gathers it. Importing this needs no torch.
"""

import copy
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_args

from pydantic import Field

from pipeline.key_types import own_keys, validated
from pipeline.prompts import ANSWER_CLOSE, ANSWER_OPEN, THINK_CLOSE, THINK_OPEN
from pipeline.settings import setting
from pipeline.values import Count, Natural, NotNegative, Share

if TYPE_CHECKING:
    import torch

TAG = re.compile("|".join(map(re.escape, (THINK_OPEN, THINK_CLOSE, ANSWER_OPEN, ANSWER_CLOSE))))
# `</answer><answer>`, or a tag twice among tags without text between: `</answer></think></answer>`.
DOUBLED = re.compile(rf"</(think|answer)>\s*<\1>|({TAG.pattern})\s*(?:(?:{TAG.pattern})\s*)*?\2")
RECENT = 10  # steps too young for the reference
SPAN = 40  # steps of the reference

Action = Literal["off", "warn", "rollback", "stop"]
ACTIONS = get_args(Action)
# Verdicts on completions that have no answer to compare.
UNGRADABLE = ("no_think", "unclosed_think", "no_answer", "several_answers", "unparseable")
# Shares of a step's completions, or groups, that tell why its groups are not informative.
CAUSES = ("signal", "cut_off_rate", "correctness", *UNGRADABLE)


class Rule(NamedTuple):
    """The setting that limits a guard's value (`min_...` from below), what it is, what helps."""

    limit: str
    value: str
    remedy: str
    statistic: str = ""  # where the value is a single one


RULES = {
    "repetition": Rule(
        "max_repetitive_share",
        "share of repetitive completions",
        "lower learning_rate or add repetition_penalty to reward_funcs",
        "repetition",
    ),
    "eos": Rule(
        "cut_off_rise",
        "rise of the cut-off rate since the best reward",
        "lower learning_rate, or raise beta or max_completion_length",
    ),
    "entropy": Rule(
        "min_entropy",
        "entropy in nats per token",
        "lower learning_rate, or raise epsilon_high, temperature or beta",
        "entropy",
    ),
    "length": Rule(
        "max_length_growth",
        "growth of the mean length",
        "lower learning_rate or add soft_length_penalty or overlong to reward_funcs",
    ),
    "alignment": Rule(
        "max_logp_mismatch",
        "mean exp|log-prob difference| of sampler and trainer",
        "check that the sampler has the trainer's weights, precision and temperature",
        "logp_mismatch",
    ),
    "weights": Rule(
        "min_moved_share",
        "share of weights that moved",
        "keep the weights in float32 or raise learning_rate",
        "moved_share",
    ),
    "no_signal": Rule("min_signal", "share of informative groups", ""),  # see `why_no_signal`
}
GUARDS = tuple(RULES)


@dataclass(frozen=True)
class GuardSettings:
    """The action and the limit of each guard. A recipe's key is `guard_` and the name here.

    "rollback" goes back to the last healthy checkpoint. Shares and rates are in [0, 1].
    """

    repetition: Action = setting("warn", "if many completions repeat: off, warn, rollback, stop")
    eos: Action = setting("warn", "if completions no longer end: off, warn, rollback, stop")
    entropy: Action = setting("warn", "if the policy gets deterministic: off, warn, rollback, stop")
    length: Action = setting("warn", "if completions grow suddenly: off, warn, rollback, stop")
    alignment: Action = setting(
        "warn", "if sampler and trainer disagree on log-probs: off, warn, rollback, stop"
    )
    weights: Action = setting("warn", "if most weights do not move: off, warn, rollback, stop")
    # A run that never learned has no checkpoint that is better than another.
    no_signal: Literal["off", "warn", "stop"] = setting(
        "warn", "if almost all groups have zero variance: off, warn, stop"
    )
    # `repeated_ngram_share` says why not fewer; a healthy run's entropy may end near 0.02.
    repetition_ngram: Count = setting(8, "repetition: n of the n-grams, in tokens")
    max_repetition: Share = setting(
        0.5, "repetition: score above which a completion is repetitive, 0..1"
    )
    max_repetitive_share: Share = setting(
        0.2, "repetition: limit for the share of repetitive completions, 0..1"
    )
    cut_off_rise: Share = setting(0.2, "eos: limit for the rise of the cut-off rate, 0..1")
    min_entropy: NotNegative = setting(0.002, "entropy: least mean, nats per token")
    max_length_growth: Annotated[float, Field(ge=1)] = setting(
        2.0, "length: limit for recent mean / reference mean"
    )
    max_logp_mismatch: Annotated[float, Field(ge=1)] = setting(
        1.05, "alignment: limit for the mean of exp|log-prob difference|"
    )
    min_moved_share: Share = setting(
        0.05, "weights: least share that an optimizer step must move, 0..1"
    )
    min_signal: Annotated[float, Field(gt=0, le=1)] = setting(
        0.05, "no_signal: least share of informative groups, 0..1"
    )
    patience: Annotated[int, Field(ge=1, le=RECENT)] = setting(
        3, "violating steps in a row before a guard acts"
    )
    baseline_steps: Annotated[int, Field(ge=1, le=SPAN)] = setting(
        5, "steps before eos and length judge"
    )
    rollback_lr_factor: Annotated[float, Field(ge=1e-6, le=1)] = setting(
        0.5, "a roll-back multiplies learning_rate by this, 0..1"
    )
    max_rollbacks: Natural = setting(3, "most roll-backs; the next one stops the run")

    def __post_init__(self) -> None:
        for name, key in own_keys(GuardSettings).items():
            validated(key.annotation, f"guard_{name}", getattr(self, name))


@dataclass(frozen=True)
class Firing:
    """A guard's request for its action.

    `since` is the first step that looks unhealthy, of the streak or of the steps whose mean is
    judged, without the run's baseline. Checkpoints from there on are not trusted.
    """

    guard: str
    step: int
    value: float
    limit: float
    action: str
    since: int
    message: str


class Guards:
    """Streaks of violating steps, one per guard.

    A guard that has found `patience` violating steps in a row fires, once per streak. A statistic
    that is missing or NaN neither adds to a streak nor ends it. An entropy that is not finite is a
    violation. `length` looks at `length_growth`, `eos` at the last 10 steps:

        mean cut-off rate > `best_reference`'s + `cut_off_rise`  and  mean reward < its

    `no_signal` looks at the last 10 steps, or at more, until they have 3 / `min_signal` groups. If
    none of these is informative, that is not by chance (95 %, the rule of three). A step whose
    completions are all cut off counts at once.
    """

    def __init__(self, settings: GuardSettings) -> None:
        self.settings = settings
        self._state: dict[str, Any] = {
            "streaks": {},
            "best": None,  # cut-off rate and reward of the best reference
            "eos_trace": [],  # [step, cut-off rate, reward] of the last steps
            "length_trace": [],  # [step, length]
            "signal_trace": [],  # step and `CAUSES` of each
        }
        self.values: dict[str, float] = {}  # the last that each guard has judged

    def observe(self, step: int, statistics: dict[str, Any]) -> list[Firing]:
        """The actions to take now, in the order of `GUARDS`, after a step's statistics.

        Args:
            step: optimizer steps behind the weights that wrote the completions, so that the
                checkpoint of this very number counts as unhealthy.
            statistics: some of `reward`, `length` in tokens, those of `CAUSES` and `RULES`; means
                over all completions of all processes. With `signal`: `num_groups`, and the limit of
                a completion as `max_length`, None where there is none.
        """
        measured = self._measure(step, statistics)
        firings = []
        for name in GUARDS:
            action = getattr(self.settings, name)
            if name not in measured or action == "off":
                continue
            value, limit, is_violation, first = measured[name]
            self.values[name] = value
            streak = self._state["streaks"].setdefault(name, {"count": 0, "since": 0})
            streak["count"] = streak["count"] + 1 if is_violation else 0
            if streak["count"] == 1:
                streak["since"] = first
            if streak["count"] == self.settings.patience:
                rule, since = RULES[name], streak["since"]
                message = (
                    f"{name}: {rule.value} is {value:.4g}, guard_{rule.limit} {limit:g}, "
                    f"since step {since}; {rule.remedy or self._remedy}"
                )
                firings.append(Firing(name, step, value, limit, action, since, message))
        return firings

    def state_dict(self) -> dict[str, Any]:
        """All that later verdicts and logs depend on, ready for JSON, which has no NaN."""
        values = {name: str(value) for name, value in self.values.items()}
        return copy.deepcopy(self._state | {"values": values})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue as the guards that gave `state` would have, with the same settings."""
        self._state |= copy.deepcopy(state)  # an older version's lacks what is new
        self.values = {name: float(x) for name, x in self._state.pop("values", {}).items()}

    def _measure(
        self, step: int, statistics: dict[str, Any]
    ) -> dict[str, tuple[float, float, bool, int]]:
        """`{guard: (value, limit, is a violation, first step looked at)}` of those to be judged."""
        s, measured = self.settings, {}
        for name, rule in RULES.items():
            value, limit = statistics.get(rule.statistic, math.nan), getattr(s, rule.limit)
            if name == "entropy" and "entropy" in statistics:
                measured[name] = (value, limit, not limit <= value < math.inf, step)
            elif not math.isnan(value):
                is_bad = value < limit if rule.limit.startswith("min_") else value > limit
                measured[name] = (value, limit, is_bad, step)

        if steps := self._trace("eos_trace", step, statistics, "cut_off_rate", "reward"):
            _, cut_off_rates, rewards = zip(*self._state["eos_trace"], strict=True)
            best = best_reference(cut_off_rates, rewards, s.baseline_steps, self._state["best"])
            rise = fmean(cut_off_rates[-RECENT:]) - best[0]
            is_bad = rise > s.cut_off_rise and fmean(rewards[-RECENT:]) < best[1]
            first = steps[max(len(steps) - RECENT, s.baseline_steps)]
            measured["eos"] = (rise, s.cut_off_rise, is_bad, first)
            self._state["best"] = best
        if steps := self._trace("length_trace", step, statistics, "length"):
            lengths = [length for _, length in self._state["length_trace"]]
            growth = length_growth(lengths, s.patience, s.baseline_steps)
            if not math.isnan(growth):
                first = steps[max(len(steps) - s.patience, s.baseline_steps)]
                limit = s.max_length_growth
                measured["length"] = (growth, limit, growth > limit, first)
        if math.isfinite(statistics.get("signal", math.nan)):
            measured["no_signal"] = self._signal(step, statistics)
        return measured

    def _signal(self, step: int, statistics: dict[str, Any]) -> tuple[float, float, bool, int]:
        """Whether groups are informative, as `_measure` gives it; sets `_remedy`."""
        least, limit = self.settings.min_signal, statistics["max_length"]
        size = max(RECENT, math.ceil(3 / (least * statistics["num_groups"])))
        row = {key: x for key in CAUSES if math.isfinite(x := statistics.get(key, math.nan))}
        trace = [*self._state["signal_trace"], {"step": step} | row][-size:]
        self._state["signal_trace"] = trace
        is_cut_off = limit is not None and statistics["length"] >= limit
        if is_cut_off and row.get("cut_off_rate") == 1:
            self._remedy = f"every completion hit {limit} tokens: raise max_completion_length"
            return 0.0, least, True, step
        known = [key for key in CAUSES if all(key in past for past in trace)]
        means = {key: fmean(past[key] for past in trace) for key in known}
        self._remedy = why_no_signal(means)
        is_bad = means["signal"] < least and len(trace) == size
        return means["signal"], least, is_bad, trace[0]["step"]

    def _trace(self, name: str, step: int, statistics: dict[str, Any], *keys: str) -> list[int]:
        """Steps of a trace with these statistics added; none where they do not get a verdict."""
        row = [statistics.get(key, math.nan) for key in keys]
        if not all(map(math.isfinite, row)):
            return []
        self._state[name] = [*self._state[name], [step, *row]][-RECENT - SPAN :]
        steps = [step for step, *_ in self._state[name]]
        return steps if len(steps) > self.settings.baseline_steps else []


def repeated_ngram_share(ids: list[int], ngram_size: int) -> float:
    """Share of a completion's n-grams that it has written before.

        1 - distinct n-grams / all n-grams

    A loop of p tokens that fills the last L of N tokens gives about (L - p) / N, whatever n is.
    Healthy text depends on n and on its length, as it repeats formulas and tables of cases. Of 732
    worked solutions of MATH and NuminaMath with at least 512 tokens, 7.8 % are above 0.5 with
    n = 4, but only 0.3 % with n = 8, the default.
    """
    ngrams = list(zip(*(ids[start:] for start in range(ngram_size)), strict=False))
    return 1 - len(set(ngrams)) / len(ngrams) if ngrams else 0.0


def repeated_tag_share(text: str) -> float:
    """Share of a text's characters that lie in tag blocks after the first; 1 with a `DOUBLED` tag.

    The text is cut before each `<think>`, `</think>`, `<answer>` and `</answer>`; a piece whose tag
    has come before counts. One thought and one answer score 0, k equal blocks (k - 1) / k.
    """
    if DOUBLED.search(text):
        return 1.0
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

    From 0 to 1: near 0 for honest work, near 1 for a loop. Ids are without padding.
    """
    pairs = zip(completion_ids, texts, strict=True)
    return [max(repeated_ngram_share(ids, ngram_size), repeated_tag_share(t)) for ids, t in pairs]


def logp_mismatch(
    reference_logps: "torch.Tensor", sampling_logps: "torch.Tensor", mask: "torch.Tensor"
) -> "torch.Tensor":
    """How far the sampler's log-probs are from the trainer's, for each completion.

        mean over tokens of exp(|logp_rollout - logp_train|)        range [1, inf]

    After NeMo RL's "multiplicative probability error" (`token_mult_prob_error`), whose tests ask
    for less than 1.05. The absolute value keeps differences of both signs from cancelling. Inputs
    have shape (B, C); tokens whose `sampling_logps` are NaN are left out. Shape (B,): NaN for a row
    without tokens, infinity where the trainer's log-prob is NaN.
    """
    counts = mask.bool() & ~sampling_logps.isnan()  # (B, C)
    ratio = (reference_logps.float() - sampling_logps.float()).abs().exp()
    ratio = ratio.nan_to_num(nan=math.inf, posinf=math.inf)
    return ratio.where(counts, 0.0).sum(dim=1) / counts.sum(dim=1)


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
    300 it is not. NaN until there are more than `num_baseline` steps, or if the reference is 0.
    """
    if len(lengths) <= num_baseline:
        return math.nan
    reference = fmean(reference_window(lengths, num_baseline))
    return fmean(lengths[-num_recent:]) / reference if reference else math.nan


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
    """
    found = [fmean(reference_window(values, num_baseline)) for values in (cut_off_rates, rewards)]
    is_whole = len(rewards) >= RECENT + SPAN
    return list(best) if best and is_whole and found[1] < best[1] else found


def why_no_signal(means: dict[str, float]) -> str:
    """The likely cause of groups that are not informative, and what helps; means of `CAUSES`."""
    right, cut_off = means.get("correctness"), means.get("cut_off_rate", 0.0)
    ungradable = {name: means.get(name, 0.0) for name in UNGRADABLE}
    most = max(ungradable, key=ungradable.__getitem__)
    if right is not None and right > 0.9:
        return "nearly all are correct: problems too easy, or learned by now"
    if cut_off > 0.5:
        return f"{cut_off:.0%} of the completions are cut off: raise max_completion_length"
    if right is None:
        return "the rewards of a group are equal, or None: check reward_funcs"
    if sum(ungradable.values()) > 0.5:
        return f"most completions have no answer to compare ({most}): check the answer form"
    if right < 0.1:
        return "nearly none are correct: SFT first, easier problems, check answer form and reward"
    return "each group is all-correct or all-wrong: curriculum: predictive, or a higher temperature"


def sample_weights(model: Any, max_elements: int = 1_000_000) -> list["torch.Tensor"]:
    """Views of every k-th element of the trainable weights, counted through them all.

    Of a sharded weight this process's part. About `max_elements` at most; k is odd, so that it
    shares no factor with the usual row lengths and meets every column.
    """
    weights = [p.detach() for p in model.parameters() if p.requires_grad]
    flat = [(w.to_local() if hasattr(w, "to_local") else w).flatten() for w in weights]
    stride = -(-sum(part.numel() for part in flat) // max_elements) | 1
    views, skip = [], 0
    for part in flat:
        views.append(part[skip::stride])
        skip = (skip - part.numel()) % stride
    return views


def moved_share(before: list["torch.Tensor"], after: list["torch.Tensor"]) -> float:
    """Share, 0..1, of the elements that an optimizer step has changed; NaN of none.

    In bf16 an update below half the distance to the next number is rounded away. AdamW with a
    learning rate of 5e-7 moves 1 % of bf16 weights around 0.02, but nearly all float32 weights. A
    low share is harmless where DeepSpeed keeps float32 copies, or the rounding is stochastic.
    """
    total = sum(part.numel() for part in before)
    if not total:
        return math.nan
    moved = sum((old != new).sum() for old, new in zip(before, after, strict=True))
    return int(moved) / total
