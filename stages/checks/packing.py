"""SFT's packing: whole rows side by side that do not see each other."""

from collections.abc import Mapping
from typing import Any

from pipeline.errors import UserError
from pipeline.settings import Settings
from stages.checks.lora import read_config

# Layers whose mask transformers cuts where the positions begin anew. Others carry a state on, or
# count their chunks from the packed row's start.
MASKED_LAYERS = ("full_attention", "sliding_attention")

# Model types, or parts of their names, whose layers the configuration does not name so.
STATE_MODELS = ("mamba", "bamba", "jamba", "zamba", "nemotron_h", "rwkv", "xlstm")
# Model types that build masks or positions themselves, and do not look where positions begin anew.
OWN_MASKS = (
    *("opt", "bloom", "mpt", "falcon", "biogpt", "xglm", "recurrent_gemma", "falcon_h1", "doge"),
)


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


def check_packed_model(settings: Settings) -> None:
    """Refuse to pack rows for a local model whose layers read across them."""
    if settings.packing or settings.padding_free:
        model = str(settings.model_name_or_path)
        check_layers(read_config(model, settings.model_revision))


def check_layers(config: Mapping[str, Any]) -> None:
    """Refuse layers, of a config.json, that do not keep packed rows apart."""
    inner = config.get("text_config") or config
    name = str(inner.get("model_type"))
    types = [str(one) for one in inner.get("layer_types") or ()]
    types += [kind for kind in STATE_MODELS if kind in str(config.get("model_type"))]
    types += [name] if name in OWN_MASKS else []
    others = [one for one in types if one not in MASKED_LAYERS]
    if others:
        raise rows_see_each_other(f"layers of kind {others[0]} do")


def rows_see_each_other(what: str) -> UserError:
    """The error of a model that does not keep packed rows apart; `what`: of it, with "do"."""
    return UserError(
        f"packing: the model's {what} not keep packed rows apart, so they would see each other; "
        "set packing: false, without padding_free"
    )
