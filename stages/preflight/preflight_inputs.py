"""Preflight: whether each input of a stage is there, or is an output of another stage."""

from pathlib import Path

from data_prep.build.recipe import FILES
from data_prep.config import UserError
from stages.preflight.memory_model import LINEARS, read_model
from stages.preflight.memory_recipe import is_lora_target, is_on
from stages.preflight.preflight_findings import ERROR, Finding, Recipe, from_error
from stages.preflight.preflight_memory import find_shape
from stages.settings.held_out import check_held_out

INPUTS = (
    "train_file", "eval_file", "test_file", "problems_file", "pass_rates", "model_name_or_path",
    "checkpoints",
)  # fmt: skip
# What a stage writes as a file of its own; training writes folders.
WRITES = {
    "data.yaml": {*FILES.values()},
    "difficulty.yaml": {"pass_rates.jsonl"},
    "distill.yaml": {"traces.jsonl"},
}


def check_inputs(recipe: Recipe) -> list[Finding]:
    """Inputs below the run's folder that are not there, and that no stage of the recipe writes."""
    folders = {
        file: str(values["output_dir"]).rstrip("/")
        for file, values in recipe.values.items()
        if values.get("output_dir")
    }
    found = []
    for file, values in recipe.values.items():
        for key in INPUTS:
            named = values.get(key)
            for name in named if isinstance(named, list) else [named]:
                # Checkpoints are `label=folder`.
                path = str(name).rpartition("=")[2] if key == "checkpoints" else str(name)
                path = path.rstrip("/")
                if not path.startswith(f"{recipe.run}/") or Path(path).exists():
                    continue
                if not any(_writes(stage, folder, path) for stage, folder in folders.items()):
                    text = f"{key}: {path} is not there, and no stage of the recipe writes it"
                    remedy = f"correct it; output_dir: {', '.join(folders.values()) or 'none'}"
                    found.append(Finding(ERROR, file, text, remedy))
    return found


def _writes(stage: str, folder: str, path: str) -> bool:
    """Whether a stage with this output_dir writes a file or folder."""
    if path != folder and not path.startswith(f"{folder}/"):
        return False
    names = WRITES.get(stage)
    return names is None or path.removeprefix(f"{folder}/") in names


def check_problems(recipe: Recipe) -> list[Finding]:
    """Problems held out of the built data, as GRPO itself checks them."""
    values = recipe.values.get("grpo.yaml", {})
    files = [values.get("train_file"), values.get("eval_file") or values.get("train_file")]
    if not all(isinstance(path, str) and Path(path).is_file() for path in files):
        return []
    try:
        check_held_out(values)
    except UserError as error:
        return [from_error("grpo.yaml", error)]
    return []


def check_lora(recipe: Recipe) -> list[Finding]:
    """`lora_target_modules` that fit no module of Qwen2, Llama, Mistral or Qwen3."""
    found = []
    for stage in recipe.stages():
        values = recipe.values[f"{stage}.yaml"]
        asked = values.get("lora_target_modules")
        if not is_on(values.get("use_peft")) or values.get("lora_target_parameters"):
            continue
        try:
            read_model(find_shape(recipe, stage))
        except UserError:  # another family may have other names; its memory is not checked either
            continue
        if any(is_lora_target(asked, name) for name in (*LINEARS, "embed_tokens", "lm_head")):
            continue
        text = f"lora_target_modules: {asked} fits no module of the model"
        if isinstance(asked, list) and len(asked) == 1:
            text += "; a list of one is read as a pattern of the module's whole path"
        remedy = f"all-linear, two or more of {', '.join(LINEARS)}, or a pattern like .*q_proj"
        found.append(Finding(ERROR, f"{stage}.yaml", text, remedy))
    return found
