"""Keys that the chosen curriculum would not read, and a curriculum of the user's own."""

from pipeline.own_code import check_own
from pipeline.settings import PointlessKey, Settings
from stages.arguments import MODES

READ_BY = {
    "min_pass_rate": ("offline",),
    "max_pass_rate": ("offline",),
    "prompt_components": ("predictive", "predictive+refill"),
    "explore_share": ("predictive", "predictive+refill"),
    "rest_batches": ("predictive", "refill", "predictive+refill"),
    "half_life": ("predictive", "predictive+refill"),
    "max_refill_rounds": ("refill", "predictive+refill"),
    "pass_rates": ("offline", "predictive", "predictive+refill"),
}


def check_curriculum(settings: Settings) -> None:
    """Refuse keys that the chosen mode would not read, and own code that nobody allowed."""
    mode = settings.curriculum
    if ":" in mode:
        from stages.trainer.curriculum import Curriculum  # late: numpy costs every other run time

        check_own(settings, "curriculum", Curriculum)
    is_known = mode in MODES or ":" in mode
    for key, modes in READ_BY.items():
        if key in settings and is_known and mode not in modes:
            why = f"{settings[key]!r} is read by curriculum: {' or '.join(modes)}; remove the key"
            raise PointlessKey(key, why, ("curriculum",))
