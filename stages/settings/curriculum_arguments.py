"""Keys of `grpo.yaml` that say which problems are used and how a group becomes a gradient."""

from dataclasses import dataclass, field
from typing import Any

from data_prep.config import UserError

MODES = ("off", "offline", "predictive", "refill", "predictive+refill")
SCALES = ("group", "none", "batch")  # TRL takes any text and fails at the first batch
# Keys that only some modes read.
_READ_BY = {
    "min_pass_rate": ("offline",),
    "max_pass_rate": ("offline",),
    "explore_share": ("predictive", "predictive+refill"),
    "rest_batches": ("predictive", "refill", "predictive+refill"),
    "half_life": ("predictive", "predictive+refill"),
    "max_refill_rounds": ("refill", "predictive+refill"),
}


@dataclass(kw_only=True)
class CurriculumArguments:
    """The curriculum and the early stop of minibatches."""

    curriculum: str = field(
        default="off",
        metadata={
            "help": "off; offline: only problems within min_pass_rate..max_pass_rate; predictive: "
            "choose by the chance of a useful group; refill: replace uniform groups; "
            "predictive+refill"
        },
    )
    pass_rates: str | None = field(
        default=None,
        metadata={"help": "pass_rates.jsonl of the SFT model; offline needs it, others start from"},
    )
    min_pass_rate: float = field(
        default=0.25, metadata={"help": "offline: least pass rate of a problem, 0..1"}
    )
    max_pass_rate: float = field(
        default=0.5, metadata={"help": "offline: greatest pass rate of a problem, 0..1"}
    )
    explore_share: float = field(
        default=0.05,
        metadata={"help": "share of the choices for the problems not used for longest, 0..1"},
    )
    rest_batches: int = field(
        default=3, metadata={"help": "generation batches for which a used problem is left alone"}
    )
    half_life: float = field(
        default=100.0,
        metadata={"help": "batches after which half of what a problem has shown is forgotten"},
    )
    max_refill_rounds: int = field(
        default=2, metadata={"help": "times that the uniform groups of a batch are replaced"}
    )
    advantage: str | None = field(
        default=None, metadata={"help": "old name of scale_rewards, which is TRL's; refused"}
    )
    max_mean_ratio: float | None = field(
        default=None,
        metadata={"help": "drop a minibatch whose mean importance ratio is above, such as 5.0"},
    )

    def __post_init__(self) -> None:
        if self.curriculum is False:  # YAML reads a bare `off` as false
            self.curriculum = "off"
        if self.curriculum not in MODES:
            raise ValueError(
                f"curriculum: must be one of {', '.join(MODES)} (got {self.curriculum!r})"
            )
        if not 0 <= self.min_pass_rate <= self.max_pass_rate <= 1:
            raise ValueError(
                f"min_pass_rate: {self.min_pass_rate} and max_pass_rate: {self.max_pass_rate} "
                "must be in order within 0..1"
            )
        if not 0 <= self.explore_share <= 1:
            raise ValueError(f"explore_share: {self.explore_share} is not within 0..1")
        for key, least in (("rest_batches", 0), ("max_refill_rounds", 1)):
            if getattr(self, key) < least:
                raise ValueError(f"{key}: {getattr(self, key)} must be at least {least}")
        if not self.half_life > 0:
            raise ValueError(f"half_life: {self.half_life} must be above 0")
        if self.max_mean_ratio is not None and not self.max_mean_ratio > 1:
            raise ValueError(
                f"max_mean_ratio: {self.max_mean_ratio} must be above 1, the ratio of a policy "
                "that has not moved"
            )
        if self.curriculum == "offline" and not self.pass_rates:
            raise ValueError("pass_rates: missing; curriculum: offline needs the file")

    def follows_pass_rates(self) -> bool:
        """Whether the run keeps a posterior of the problems' pass rates."""
        return self.curriculum not in ("off", "offline")


def check_curriculum(values: dict[str, Any]) -> None:
    """Refuse keys that the chosen mode would not read."""
    mode = values.get("curriculum") or "off"  # YAML reads a bare `off` as false
    if values.get("advantage") is not None:
        raise UserError(
            f"advantage: {values['advantage']!r} is now TRL's own key; write scale_rewards: "
            f"{', '.join(SCALES)}"
        )
    for key, modes in _READ_BY.items():
        if mode in MODES and mode not in modes and values.get(key) is not None:
            raise UserError(
                f"{key}: {values[key]!r} would have no effect with curriculum: {mode}; remove the "
                f"key, or set curriculum to {' or '.join(modes)}"
            )
    if mode in ("off", "refill") and values.get("pass_rates"):
        raise UserError(
            f"pass_rates: {values['pass_rates']} would have no effect with curriculum: {mode}; set "
            "curriculum: offline or predictive"
        )
    scale = values.get("scale_rewards", "group")
    if scale not in SCALES:
        raise UserError(f"scale_rewards: must be one of {', '.join(SCALES)} (got {scale!r})")
    if values.get("multi_objective_aggregation") == "normalize_then_sum":
        for key, value, is_own in (
            ("curriculum", mode, "refill" in mode),
            ("scale_rewards", scale, scale != "group"),
        ):
            if is_own:
                raise UserError(
                    "multi_objective_aggregation: normalize_then_sum would have no effect with "
                    f"{key}: {value}, which starts from the sum of the rewards; remove one of them"
                )
