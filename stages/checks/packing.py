"""SFT's packing: whole rows side by side that do not see each other."""

from pipeline.errors import UserError
from pipeline.settings import Settings


def check_packing(settings: Settings) -> None:
    """Refuse packing that cuts rows or lets them see each other, and packing without a length."""
    if settings.eval_packing and not settings.packing:
        raise UserError(
            "eval_packing: true without packing: the held-out rows would see each other; remove it"
        )
    if not settings.packing:
        return
    if settings.max_length is None:
        raise UserError(
            "max_length: null, but it is the length of a packed row; set it, or packing: false"
        )
    if settings.packing_strategy == "wrapped":
        raise UserError(
            "packing_strategy: wrapped cuts rows wherever a packed row is full, and they see each "
            "other; use bfd"
        )


def rows_see_each_other(what: str) -> UserError:
    """The error of a model that does not keep packed rows apart; `what`: of it, with "do"."""
    return UserError(
        f"packing: the model's {what} not keep packed rows apart, so they would see each other; "
        "set packing: false, without padding_free"
    )
