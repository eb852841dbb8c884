"""Keys whose value is a mapping: the names within it, which TRL and transformers do not check.

`generation_kwargs: {banana: 3}` would have no effect, and a temperature there would sample from
another distribution than the one whose log-probs the loss compares.
"""

import ast
import functools
from collections.abc import Callable

from pipeline.errors import UserError
from pipeline.settings import Settings, source_classes
from stages.launch import is_installed

# Of generation_kwargs, what a recipe sets by its own keys, or what would break groups.
TAKEN = {
    "max_new_tokens": "max_completion_length",
    "max_tokens": "max_completion_length",
    "max_length": "max_completion_length",
    "n": "num_generations",
    "num_return_sequences": "num_generations",
    "num_beams": "num_generations",
    "do_sample": "temperature",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "cache_implementation": "cache_implementation",
    "structured_outputs": "vllm_structured_outputs_regex",
}
# Of generation_kwargs, what nothing in a recipe may set, and why.
REFUSED = dict.fromkeys(
    (
        *("eos_token_id", "pad_token_id", "bos_token_id", "stop_token_ids", "disable_compile"),
        *("return_dict_in_generate", "detokenize", "output_kind", "logprobs", "prompt_logprobs"),
    ),
    "is decided by TRL or the tokenizer",
) | {
    "watermarking_config": "would mark every rollout",
    "token_healing": "no rollout gets the tokenizer that it needs",
    "stop_strings": (
        "no rollout can end at a text, but at a token: add it to eos_token_id in the model's "
        "generation_config.json, or teach the EOS by SFT"
    ),
}
# Of model_init_kwargs, what a recipe sets by its own keys, and what makes from_pretrained return
# something else than a model.
MODEL_TAKEN = {
    "dtype": "dtype",
    "torch_dtype": "dtype",
    "attn_implementation": "attn_implementation",
    "revision": "model_revision",
    "trust_remote_code": "trust_remote_code",
    "quantization_config": "load_in_4bit or load_in_8bit",
    "load_in_4bit": "load_in_4bit",
    "load_in_8bit": "load_in_8bit",
    "subfolder": "model_name_or_path",
    "cache_dir": "HF_HOME in your environment",
}
MODEL_REFUSED = dict.fromkeys(
    ("output_loading_info", "state_dict", "config", "device_map", "use_safetensors", "from_tf"),
    "is decided by the stage",
)
CHECKPOINTING = (
    "use_reentrant preserve_rng_state determinism_check debug early_stop selective every_n_layers "
    "offload"
)


@functools.cache
def fields_of(package: str, file: str, name: str) -> frozenset[str]:
    """The fields of an installed package's dataclass, and what its `__init__` takes from kwargs."""
    found = set()
    for node in ast.walk(source_classes(package, file)[name]):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "kwargs.pop":
            found.add(str(ast.literal_eval(node.args[0])))
    return frozenset(name for name in found if not name.startswith("_"))


def _generation_names(settings: Settings) -> frozenset[str]:
    if not settings.use_vllm:
        return fields_of("transformers", "generation/configuration_utils.py", "GenerationConfig")
    if is_installed("vllm"):
        return fields_of("vllm", "sampling_params.py", "SamplingParams")
    return frozenset(settings.generation_kwargs)  # the run is refused for another reason


OWN = {
    "generation_kwargs": (TAKEN, REFUSED),
    "model_init_kwargs": (MODEL_TAKEN, MODEL_REFUSED),
}
# None: transformers refuses unknown names itself, others set the model's configuration.
NAMES: dict[str, Callable[[Settings], frozenset[str]] | None] = {
    "model_init_kwargs": None,
    "generation_kwargs": _generation_names,
    "gradient_checkpointing_kwargs": lambda _: frozenset(CHECKPOINTING.split()),
    "accelerator_config": lambda _: fields_of(
        "transformers", "trainer_pt_utils.py", "AcceleratorConfig"
    ),
    "transformers_continuous_batching_config": lambda _: fields_of(
        "transformers", "generation/configuration_utils.py", "ContinuousBatchingConfig"
    ),
}


def check_mappings(settings: Settings) -> None:
    """Refuse names within a mapping that nothing reads, or that a key of the recipe sets."""
    for key, names in NAMES.items():
        given = settings.get(key)
        if not isinstance(given, dict):
            continue
        for name in given:
            taken, refused = OWN.get(key, ({}, {}))
            if name in taken:
                raise UserError(f"{key}: {name}: belongs to the recipe; set {taken[name]}")
            if name in refused:
                raise UserError(f"{key}: {name}: {refused[name]}; remove it")
            if names is not None and name not in names(settings):
                raise UserError(f"{key}: {name!r} is read by nothing; remove it, or correct it")
