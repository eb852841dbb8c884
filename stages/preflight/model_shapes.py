from stages.preflight.memory import SHAPES, load_shape  # noqa: F401  # shim


def build_config(shape):
    from transformers import AutoConfig

    return AutoConfig.for_model(**shape)
