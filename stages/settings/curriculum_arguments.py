"""Keys of `grpo.yaml` that say which problems are used and how a group becomes a gradient."""

from dataclasses import dataclass, field
from typing import Any

from data_prep.config import UserError

MODES = ("off", "offline", "predictive", "refill", "predictive+refill")
ADVANTAGES = ("group", "none", "batch", "posterior")
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
    """The curriculum, the advantage and the early stop of minibatches."""

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
    advantage: str = field(
        default="group",
        metadata={
            "help": "of a rollout over its group: group (mean and std), none (mean), batch (group "
            "mean, batch std), posterior (the problem's posterior pass rate is the baseline)"
        },
    )
    max_mean_ratio: float | None = field(
        default=None,
        metadata={"help": "drop a minibatch whose mean importance ratio is above, such as 5.0"},
    )

    def __post_init__(self) -> None:
        if self.curriculum is False:  # YAML reads a bare `off` as false
            self.curriculum = "off"
        for key, choices in (("curriculum", MODES), ("advantage", ADVANTAGES)):
            if getattr(self, key) not in choices:
                raise ValueError(f"{key}: {getattr(self, key)!r} is none of {', '.join(choices)}")
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
        return self.curriculum not in ("off", "offline") or self.advantage == "posterior"


def check_curriculum(values: dict[str, Any]) -> None:
    """Refuse keys that the chosen mode would not read."""
    mode = values.get("curriculum") or "off"  # YAML reads a bare `off` as false
    advantage = values.get("advantage", "group")
    for key, modes in _READ_BY.items():
        is_read = mode in modes or (key == "half_life" and advantage == "posterior")
        if mode in MODES and not is_read and values.get(key) is not None:
            raise UserError(
                f"{key}: {values[key]!r} would have no effect with curriculum: {mode}; remove the "
                f"key, or set curriculum to {' or '.join(modes)}"
            )
    if mode in ("off", "refill") and values.get("pass_rates") and advantage != "posterior":
        raise UserError(
            f"pass_rates: {values['pass_rates']} would have no effect with curriculum: {mode}; set "
            "curriculum: offline or predictive"
        )
    if values.get("scale_rewards") is not None:
        raise UserError(
            f"scale_rewards: {values['scale_rewards']!r} would have no effect: `advantage` (group, "
            "none, batch, posterior) sets it; remove the key"
        )
    if values.get("multi_objective_aggregation") == "normalize_then_sum":
        for key, value, is_own in (
            ("curriculum", mode, "refill" in mode),
            ("advantage", advantage, advantage != "group"),
        ):
            if is_own:
                raise UserError(
                    "multi_objective_aggregation: normalize_then_sum would have no effect with "
                    f"{key}: {value}, which starts from the sum of the rewards; remove one of them"
                )
