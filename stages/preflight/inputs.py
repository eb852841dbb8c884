"""Read a recipe as its stages do, and check that each input is there or has a writer."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_prep.build.recipe import FILES, DataArguments, check_data
from data_prep.config import Settings, UserError, build, read_settings, read_yaml, run_check
from data_prep.sampling import ProblemSetArguments
from eval.harness.settings import EvalArguments
from stages.arguments import DEFAULTS, GRPO, SFT, GrpoArguments, SftArguments
from stages.checks import check_grpo_keys, check_held_out, check_sft_keys
from stages.distill import DistillArguments
from stages.launch import check_launch
from stages.preflight.findings import ERROR, OK, Finding, from_error
from stages.preflight.needs import Launch
from stages.preflight.shapes import LINEARS, is_lora_target, load_shape, read_model
from stages.tiny_model import ModelArguments

ACCELERATE = Path(__file__).parents[2] / "configs" / "accelerate"
# Stage -> (our dataclass, Hugging Face's, check that needs no input file).
STAGES: dict[str, tuple[type, tuple[str, ...], Callable | None]] = {
    "data": (DataArguments, (), check_data),
    "model": (ModelArguments, (), None),
    "sft": (SftArguments, SFT, check_sft_keys),
    "difficulty": (ProblemSetArguments, (), None),
    "distill": (DistillArguments, (), None),
    "grpo": (GrpoArguments, GRPO, check_grpo_keys),
    "eval": (EvalArguments, (), None),
}
INPUTS = (
    "train_file", "eval_file", "test_file", "problems_file", "pass_rates", "model_name_or_path",
    "checkpoints",
)  # fmt: skip
# What a stage writes as a file of its own; training writes folders.
WRITES = {
    "data": {*FILES.values()},
    "difficulty": {"pass_rates.jsonl"},
    "distill": {"traces.jsonl"},
}


@dataclass
class Recipe:
    """A recipe's files as read and as parsed.

    Args:
        settings: by stage; a file that cannot be read is missing.
        parsed: the stages whose files have no fault.
        run: the folder of the stages' output.
        accelerate: keys of the accelerate file that starts the processes.
        tokenizer: folder that stands in for the model's tokenizer, or None.
        data_root: folder of the raw data, or None.
    """

    folder: Path
    run: str
    launch: Launch
    accelerate: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Settings] = field(default_factory=dict)
    parsed: list[str] = field(default_factory=list)
    tokenizer: str | None = None
    data_root: str | None = None

    def stages(self) -> list[str]:
        """The training stages that the recipe has."""
        return [name for name in ("sft", "grpo") if name in self.settings]

    def model(self, stage: str) -> str | None:
        """The model that a stage's weights come from at first: through `{run}/…` to its origin."""
        name = self.settings.get(stage, {}).get("model_name_or_path")
        made = self.settings.get("sft", {}).get("output_dir")
        if stage != "sft" and name and name == made:
            return self.model("sft")
        return name

    def shape(self, stage: str) -> dict[str, Any]:
        """The config.json of the stage's model; of a model.yaml's where that builds it.

        Raises:
            UserError: as `load_shape`.
        """
        name = self.model(stage)
        if self.tokenizer and Path(self.tokenizer, "config.json").is_file():
            return load_shape(self.tokenizer)  # a folder of the model without its weights
        built = self.settings.get("model")
        if built and name == built.output_dir and not Path(name, "config.json").is_file():
            return {
                "model_type": "qwen2",
                "hidden_size": built.hidden_size,
                "intermediate_size": built.intermediate_size,
                "num_hidden_layers": built.num_layers,
                "num_attention_heads": built.num_heads,
                "num_key_value_heads": built.num_kv_heads,
                "vocab_size": 1000,  # 200 numbers and up to 800 merges
                "tie_word_embeddings": True,
                "max_position_embeddings": built.max_position_embeddings,
            }
        return load_shape(str(name))

    def positions(self) -> dict[str, int]:
        """By stage, the positions that the model has, where its shape is known."""
        found = {}
        for stage in self.stages():
            try:
                positions = self.shape(stage).get("max_position_embeddings")
                found |= {stage: int(positions)} if positions else {}
            except (UserError, TypeError, ValueError):  # check_memory says so
                continue
        return found


def read_recipe(
    folder: Path, run: str | None, launch: Launch, overlay: str | None = None, **more: Any
) -> tuple[Recipe, list[Finding]]:
    """Read the recipe's files and check each as its stage does, in the launch's environment.

    Raises:
        UserError: it is no folder, or has no file of a stage.
    """
    if not folder.is_dir():
        known = ", ".join(sorted(p.parent.name for p in folder.parent.glob("*/data.yaml")))
        raise UserError(f"recipe: {folder} is not a folder; known recipes: {known or 'none'}")
    known = ", ".join(f"{name}.yaml" for name in STAGES)
    if not any((folder / f"{name}.yaml").is_file() for name in STAGES):
        raise UserError(f"{folder}: no YAML file is read by a stage; stages read {known}")
    default = f"runs/{folder.resolve().name}" + (f"-{Path(overlay).stem}" if overlay else "")
    recipe, found = Recipe(folder, run or default, launch, **more), []
    for path in sorted(folder.glob("*.yaml")):
        if path.stem not in STAGES:
            found.append(
                Finding(ERROR, path.name, "is read by no stage", f"the stages read {known}")
            )
            continue
        own, hf, check = STAGES[path.stem]
        argv = ["--config", str(path), "--run_dir", recipe.run]
        argv += ["--overlay", overlay] if overlay and hf else []
        try:
            settings = read_settings(own, hf, argv, DEFAULTS if hf else None)
            recipe.settings[path.stem] = settings
            if hf:
                settings = check_launched(recipe, settings, check)
            elif check:
                settings = run_check(settings, check)
            # A recipe for GPUs must be checkable on a machine that has none.
            build(settings.replaced(use_cpu=True) if hf else settings, own, hf)
            recipe.parsed.append(path.stem)
        except UserError as error:
            found.append(from_error(path.name, error))
    if recipe.parsed:
        text = ", ".join(f"{name}.yaml" for name in STAGES if name in recipe.parsed)
        found.append(Finding(OK, "keys", f"{text}: every key is known and fits"))
    return recipe, found


def check_launched(recipe: Recipe, settings: Settings, check: Callable) -> Settings:
    """Run a stage's own check, and that of its launch, as if the launch had started it."""
    asked, processes = recipe.accelerate, recipe.launch.processes
    kind = str(asked.get("distributed_type"))
    env = {"WORLD_SIZE": "1" if kind == "NO" else str(processes), "LOCAL_RANK": "0"}
    if kind in ("FSDP", "DEEPSPEED"):
        env[f"ACCELERATE_USE_{kind}"] = "true"
    env |= {key.upper(): str(value) for key, value in asked.get("fsdp_config", {}).items()}
    for key, value in asked.get("deepspeed_config", {}).items():
        env[f"ACCELERATE_DEEPSPEED_{key.upper()}"] = str(value)

    def check_both(settings: Settings) -> None:
        check_launch(settings, env, asked | {"num_processes": processes})
        check(settings)

    before = dict(os.environ)
    os.environ.update(env)
    try:
        return run_check(settings, check_both)
    finally:
        os.environ.clear()
        os.environ.update(before)


def read_launch(name: str | None, processes: int) -> dict[str, Any]:
    """Read the keys of a file of configs/accelerate; none for flags, or one process without a file.

    Raises:
        UserError: there is no such file.
    """
    if name is None and processes > 1:
        name = "ddp"
    if name is None or name.startswith("-"):
        return {}
    path = ACCELERATE / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in ACCELERATE.glob("*.yaml")))
        raise UserError(f"accelerate: {name!r} is no file of configs/accelerate; choose {known}")
    return read_yaml(str(path)) | {"config_file": path.name}


def find_engine(values: dict[str, Any], processes: int) -> str:
    """Name the engine (as in `memory.Step`) that an accelerate file starts."""
    kind, zero = str(values.get("distributed_type", "NO")), values.get("deepspeed_config") or {}
    if kind == "FSDP":
        return "fsdp2"
    if kind == "DEEPSPEED":
        offloads = str(zero.get("offload_optimizer_device", "none")) != "none"
        return f"zero{zero.get('zero_stage', 2)}" + ("_offload" if offloads else "")
    return "ddp" if processes > 1 else "none"


def check_inputs(recipe: Recipe) -> list[Finding]:
    """Find inputs below the run's folder that are not there, and that no stage writes."""
    stems = {path.stem for path in recipe.folder.glob("*.yaml")}
    if stems & STAGES.keys() - recipe.settings.keys():
        return []  # a file that could not be read may name the writer
    folders = {
        stage: str(values["output_dir"]).rstrip("/")
        for stage, values in recipe.settings.items()
        if values.get("output_dir")
    }
    found = []
    for stage, values in recipe.settings.items():
        for key in INPUTS:
            named = values.get(key)
            for name in named if isinstance(named, list) else [named]:
                # Checkpoints are `label=folder`.
                path = str(name).rpartition("=")[2] if key == "checkpoints" else str(name)
                path = path.rstrip("/")
                if not path.startswith(f"{recipe.run}/") or Path(path).exists():
                    continue
                if not any(writes(*made, path) for made in folders.items()):
                    text = f"{key}: {path} is not there, and no stage of the recipe writes it"
                    remedy = f"correct it; output_dir: {', '.join(folders.values()) or 'none'}"
                    found.append(Finding(ERROR, f"{stage}.yaml", text, remedy))
    return found


def writes(stage: str, folder: str, path: str) -> bool:
    """Whether a stage with this output_dir writes a file or folder."""
    if path != folder and not path.startswith(f"{folder}/"):
        return False
    names = WRITES.get(stage)
    return names is None or path.removeprefix(f"{folder}/") in names


def check_problems(recipe: Recipe) -> list[Finding]:
    """Check the problems held out of the built data, as GRPO itself does."""
    values = recipe.settings.get("grpo", {})
    files = [values.get("train_file"), values.get("eval_file") or values.get("train_file")]
    if all(path and Path(path).is_file() for path in files):
        check_held_out(values)
    return []


def check_lora(recipe: Recipe) -> list[Finding]:
    """Find `lora_target_modules` that fit no module of Qwen2, Llama, Mistral or Qwen3."""
    found = []
    for stage in recipe.stages():
        values = recipe.settings[stage]
        asked = values.lora_target_modules
        if not values.use_peft or values.lora_target_parameters:
            continue
        try:
            read_model(recipe.shape(stage))
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
