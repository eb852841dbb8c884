"""Optimizers and learning-rate schedules: which keys each reads, and what it needs."""

from dataclasses import dataclass
from typing import Any

from pipeline.errors import UserError
from pipeline.settings import Settings


@dataclass(frozen=True)
class Optimizer:
    """One value of `optim`.

    Args:
        packages: that it needs, all of them.
        has_betas, has_epsilon: whether it reads `adam_beta1` and `adam_beta2`, `adam_epsilon`.
        takes_args: whether it reads `optim_args`.
        needs_targets: whether it needs `optim_target_modules`.
    """

    packages: tuple[str, ...] = ()
    has_betas: bool = True
    has_epsilon: bool = True
    takes_args: bool = False
    needs_targets: bool = False


def _galore(*packages: str) -> Optimizer:
    return Optimizer(("galore-torch", *packages), False, False, True, True)


_BNB = ("bitsandbytes",)
_ADAM_8BIT = Optimizer(_BNB)
_ADEMAMIX = Optimizer(_BNB, takes_args=True)
_LION = Optimizer(_BNB, has_epsilon=False)
_PLAIN = Optimizer((), False, False, True)
_RMSPROP_8BIT = Optimizer(_BNB, False, False, True)
_APOLLO = Optimizer(("apollo-torch",), takes_args=True, needs_targets=True)
_LOMO = Optimizer(("lomo-optim",), False, False)
_SCHEDULE_FREE = Optimizer(("schedulefree",), takes_args=True)
OPTIMIZERS = {
    "adamw_torch": Optimizer(),
    "adamw_torch_fused": Optimizer(),
    "adamw_torch_xla": Optimizer(("torch-xla",)),
    "adamw_torch_npu_fused": Optimizer(("torch-npu",)),
    "adafactor": Optimizer((), False, False),
    "adamw_anyprecision": Optimizer(("torchdistx",), takes_args=True),
    "adamw_torch_4bit": Optimizer(("torchao",), takes_args=True),
    "adamw_torch_8bit": Optimizer(("torchao",), takes_args=True),
    "ademamix": _ADEMAMIX,
    "ademamix_8bit": _ADEMAMIX,
    "paged_ademamix_32bit": _ADEMAMIX,
    "paged_ademamix_8bit": _ADEMAMIX,
    "sgd": _PLAIN,
    "adagrad": _PLAIN,
    "rmsprop": _PLAIN,
    "adamw_bnb_8bit": _ADAM_8BIT,
    "adamw_8bit": _ADAM_8BIT,
    "paged_adamw_32bit": _ADAM_8BIT,
    "paged_adamw_8bit": _ADAM_8BIT,
    "lion_8bit": _LION,
    "lion_32bit": _LION,
    "paged_lion_32bit": _LION,
    "paged_lion_8bit": _LION,
    "rmsprop_bnb": _RMSPROP_8BIT,
    "rmsprop_bnb_8bit": _RMSPROP_8BIT,
    "rmsprop_bnb_32bit": _RMSPROP_8BIT,
    "galore_adamw": _galore(),
    "galore_adamw_8bit": _galore(*_BNB),
    "galore_adafactor": _galore(),
    "galore_adamw_layerwise": _galore(),
    "galore_adamw_8bit_layerwise": _galore(*_BNB),
    "galore_adafactor_layerwise": _galore(),
    "lomo": _LOMO,
    "adalomo": _LOMO,
    "grokadamw": Optimizer(("grokadamw",), False, False, True),
    "schedule_free_radam": _SCHEDULE_FREE,
    "schedule_free_adamw": _SCHEDULE_FREE,
    "schedule_free_sgd": Optimizer(("schedulefree",), False, False, True),
    "apollo_adamw": _APOLLO,
    "apollo_adamw_layerwise": _APOLLO,
    "stable_adamw": Optimizer(("torch-optimi",), takes_args=True),
}


@dataclass(frozen=True)
class Schedule:
    """One value of `lr_scheduler_type`.

    Args:
        keys: that `lr_scheduler_kwargs` may have, as one text.
        needs: of these exactly one.
        warms_up: whether it reads `warmup_steps`.
    """

    keys: str = ""
    needs: tuple[str, ...] = ()
    warms_up: bool = True


_MIN_LR = ("min_lr", "min_lr_rate")
SCHEDULERS = {
    "linear": Schedule(),
    "cosine": Schedule("num_cycles"),
    "cosine_with_restarts": Schedule("num_cycles"),
    "polynomial": Schedule("lr_end power"),
    "constant": Schedule(warms_up=False),
    "constant_with_warmup": Schedule(),
    "inverse_sqrt": Schedule("timescale"),
    "reduce_lr_on_plateau": Schedule(
        "mode factor patience threshold threshold_mode cooldown min_lr eps", warms_up=False
    ),
    "cosine_with_min_lr": Schedule("num_cycles min_lr min_lr_rate", _MIN_LR),
    "cosine_warmup_with_min_lr": Schedule("num_cycles min_lr min_lr_rate warmup_lr_rate", _MIN_LR),
    "warmup_stable_decay": Schedule(
        "num_decay_steps num_stable_steps warmup_type decay_type min_lr_ratio num_cycles",
        ("num_decay_steps",),
    ),
    "greedy": Schedule(
        "mode factor patience threshold threshold_mode cooldown warmup min_lr max_lr eps verbose "
        "smooth window_size reset_start",
        warms_up=False,
    ),
}
# The values of `lr_scheduler_kwargs` that are no numbers.
_RAMPS = ("linear", "cosine", "1-sqrt")
_WORDS: dict[str, tuple[Any, ...]] = {
    "mode": ("min", "max"),
    "threshold_mode": ("rel", "abs"),
    "warmup_type": _RAMPS,
    "decay_type": _RAMPS,
    "verbose": (True, False),
    "smooth": (True, False),
}
FOLLOWS_A_LOSS = ("reduce_lr_on_plateau", "greedy")


def optimizer_of(settings: Settings) -> str:
    """The `optim` of a recipe; transformers' default is a kind of AdamW."""
    return settings.get("optim") or "adamw_torch"


def check_optimizer(settings: Settings) -> None:
    """Refuse `optim` without what it needs, and `optim_args` that cannot be read."""
    name = optimizer_of(settings)
    row = OPTIMIZERS.get(name, Optimizer())  # of a later version
    if row.needs_targets and not settings.optim_target_modules:
        raise UserError(f"optim_target_modules: missing; optim: {name} needs it, e.g. all-linear")
    for pair in (settings.optim_args or "").replace(" ", "").split(","):
        if pair and pair.count("=") != 1:
            raise UserError(f"optim_args: {pair!r} is not key=value; write a=1,b=2")


def check_schedule(settings: Settings) -> None:
    """Refuse `lr_scheduler_kwargs` that the schedule does not take, or lacks."""
    name, given = settings.lr_scheduler_type, settings.lr_scheduler_kwargs or {}
    row = SCHEDULERS.get(name)
    if row is None:  # of a later version
        return
    for key, value in given.items():
        if key not in row.keys.split():
            raise UserError(
                f"lr_scheduler_kwargs: {name} has no {key!r}; it takes "
                f"{', '.join(row.keys.split()) or 'none'}"
            )
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if key in _WORDS and value not in _WORDS[key]:
            known = ", ".join(map(str, _WORDS[key]))
            raise UserError(f"lr_scheduler_kwargs: {key}: {value!r} is not one of {known}")
        if key not in _WORDS and not (is_number and value >= 0):
            raise UserError(f"lr_scheduler_kwargs: {key}: {value!r} is not a number from 0 up")
    if row.needs and len([key for key in row.needs if key in given]) != 1:
        raise UserError(
            f"lr_scheduler_kwargs: lr_scheduler_type: {name} needs one of "
            f"{', '.join(row.needs)}; set lr_scheduler_kwargs: {{{row.needs[0]}: <number>}}"
        )
    if name not in FOLLOWS_A_LOSS:
        least = "lr_end" if name == "polynomial" else "min_lr"
        end = given.get(least, 1e-7 if name == "polynomial" else None)
        if end is not None and end >= settings.learning_rate:
            raise UserError(
                f"lr_scheduler_kwargs: {least}: {end} is not below learning_rate, "
                f"{settings.learning_rate}; lower it"
            )
