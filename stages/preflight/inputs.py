"""Read a recipe as its stages do; check that each input is there or has a writer."""

import contextlib
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_prep.builder.recipe import FILES
from data_prep.sampling.openai import start_command
from pipeline import manifest
from pipeline.errors import UserError
from pipeline.folders import check_output
from pipeline.key_types import UNSET, own_keys
from pipeline.keys import assign, yaml_flags
from pipeline.models import smollm2
from pipeline.models.checkpoints import base_and_adapter, check_checkpoint, read_json
from pipeline.models.hub import is_hub_id
from pipeline.recipe_files import read_yaml
from pipeline.settings import Settings, build, read_settings, run_check, setting
from pipeline.stages import STAGES, config_name, load_keys
from pipeline.values import Natural, Positive, redact
from stages import host
from stages.arguments import DEFAULTS
from stages.distill import DistillArguments
from stages.held_out import check_held_out, check_sft_held_out
from stages.host import check_packages
from stages.precision import sampler_dtype
from stages.run.launch import as_launched, read_launch

SHAPES = str(Path(__file__).with_name("shapes.yaml"))
START = "start it with --dtype {}"
ERROR, WARNING, UNCHECKED, OK = "error", "warning", "not checked", "ok"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    level: str
    topic: str  # the file or the subject, such as `grpo.yaml` or `memory`
    text: str
    remedy: str = ""  # what to change, if anything


def from_error(topic: str, error: UserError, level: str = ERROR) -> Finding:
    """The finding of a refusal: `UserError`s end with their remedy, after the last semicolon."""
    text, _, remedy = str(error).rpartition("; ")
    return Finding(level, topic, text or remedy, remedy if text else "")


def attempt(topic: str, check: Callable, *args: Any) -> list[Finding]:
    """Run a check; a refusal, or a value that it cannot work with, becomes the only finding."""
    try:
        return [*(check(*args) or ())]
    except UserError as error:
        return [from_error(topic, error)]
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
        text = f"cannot be checked: {type(error).__name__}: {error}"
        return [Finding(ERROR, topic, text, "correct the value; other findings may name its key")]


def load_shape(model: str) -> dict[str, Any]:
    """Load the config.json of a checkpoint folder, or of a name of `shapes.yaml`."""
    path = Path(base_and_adapter(model, "model_name_or_path")[0]) / "config.json"
    if smollm2.is_named(model):
        model = smollm2.HUB_ID
    if not path.is_file():
        shapes = read_yaml(SHAPES)
        if model in shapes:
            return shapes[model]
        raise UserError(
            f"model_name_or_path: {model} is not a checkpoint folder, and its shape is not known "
            f"here; download it and name the folder, or use one of {', '.join(shapes)}"
        )
    return read_json(path, "model_name_or_path")


# Of each YAML of a recipe: our dataclass, Hugging Face's, the check that needs no input file.
KEYS_OF = {config_name(stage): load_keys(stage) for stage, row in STAGES.items() if row.arguments}
TAKE_MODEL = [config_name(stage) for stage, row in STAGES.items() if "model" in row.flags]
TAKE_DATA_ROOT = [config_name(stage) for stage, row in STAGES.items() if "data_root" in row.flags]
MODELS = ("model_name_or_path", "checkpoints")
INPUTS = (
    "train_file",
    "eval_file",
    "test_file",
    "transfer_file",
    "problems_file",
    "pass_rates",
    *MODELS,
)
# Files that a stage writes; others write folders.
WRITES = {"data": FILES.values(), "difficulty": ["pass_rates.jsonl"], "distill": ["traces.jsonl"]}


@dataclass
class PreflightArguments:
    """Keys of the command line; there is no YAML for this one."""

    recipe: str = field(metadata={"help": "the recipe's folder, such as configs/grpo7b"})
    run: str | None = setting(None, "folder of the stages' output; runs/<recipe> by default")
    gpus: Natural = setting(
        0, "training processes, one for each GPU; 0: as many as the recipe is for"
    )
    accelerate: str | None = setting(
        None, "name of a file in configs/accelerate; ddp, or fsdp2 on the GPUs of the recipe"
    )
    gpu_memory: Positive = setting(80.0, "memory of one GPU, GiB")
    model: str | None = setting(None, "folder or hub id to start from, not the recipe's model")
    data_root: str | None = setting(None, "folder of the local data files")
    tokenizer: str | None = setting(None, "folder with the model's tokenizer and configs")
    overlay: str | None = setting(None, "YAML over sft.yaml and grpo.yaml, as configs/lora.yaml")
    keys: list[str] = field(default_factory=list, metadata={"help": "as grpo.top_p=0.8"})

    def __post_init__(self) -> None:
        if self.tokenizer is not None and not Path(self.tokenizer).is_dir():
            raise ValueError(
                f"tokenizer: {self.tokenizer} is not a folder; name one, or leave it out"
            )
        if not self.gpus:
            self.gpus = own_gpus(self.recipe)
            self.accelerate = self.accelerate or ("fsdp2" if self.gpus > 1 else None)


def own_gpus(recipe: str) -> int:
    """The number of GPUs for which a recipe's YAML has its batch."""
    numbers = [1]
    for stage in ("sft", "grpo"):
        with contextlib.suppress(UserError, OSError):  # `read_stage` says what is wrong
            numbers.append(read_yaml(f"{recipe}/{stage}.yaml").get("batch_for_gpus") or 1)
    return max(number for number in numbers if isinstance(number, int))


LACKING = Settings({}, {}, {})  # those of a stage that the recipe lacks


@dataclass
class Recipe:
    """A recipe's files as read and as parsed."""

    args: PreflightArguments
    run: str  # folder of the stages' output
    accelerate: dict[str, Any]  # keys of the file that starts the processes
    engine: str  # what shares the states between processes, as in `memory.Step`
    settings: dict[str, Settings] = field(default_factory=dict)  # by stage, if it can be read
    parsed: list[str] = field(default_factory=list)  # stages whose files have no fault

    def stages(self) -> list[str]:
        """The training stages that the recipe has."""
        return [name for name in ("sft", "grpo") if name in self.settings]

    def model(self, stage: str) -> str | None:
        """The model that a stage's weights come from at first: through `{run}/…` to its origin."""
        if stage != "sft" and self.starts_from_sft(stage):
            return self.model("sft")
        return self.settings.get(stage, LACKING).get("model_name_or_path")

    def starts_from_sft(self, stage: str) -> bool:
        """Whether a stage's model is the one that SFT makes."""
        name = self.settings.get(stage, LACKING).get("model_name_or_path")
        return bool(name) and name == self.settings.get("sft", LACKING).get("output_dir")

    def shape(self, stage: str) -> dict[str, Any]:
        """The config.json of the stage's model, as `load_shape`; of one that model.yaml builds."""
        name, folder, built = self.model(stage), self.args.tokenizer, self.settings.get("model")
        if folder and Path(folder, "config.json").is_file():
            return load_shape(folder)  # a folder of the model without its weights
        if built and name == built.output_dir and not Path(str(name), "config.json").is_file():
            return load_shape("tiny") | {
                "hidden_size": built.hidden_size,
                "intermediate_size": built.intermediate_size,
                "num_hidden_layers": built.num_layers,
                "num_attention_heads": built.num_heads,
                "num_key_value_heads": built.num_kv_heads,
                "max_position_embeddings": built.max_position_embeddings,
                "vocab_size": 1000,  # 200 numbers and up to 800 merges
            }
        return load_shape(str(name))

    def known_shape(self, stage: str) -> dict[str, Any]:
        """The same; empty where it is not known, which `check_memory` says."""
        try:
            return self.shape(stage)
        except UserError:
            return {}


def read_recipe(args: PreflightArguments) -> tuple[Recipe, list[Finding]]:
    """Read the recipe's files and check each as its stage does, in the launch's environment."""
    folder = Path(args.recipe)
    if not folder.is_dir():
        known = ", ".join(sorted(p.parent.name for p in folder.parent.glob("*/data.yaml")))
        raise UserError(f"recipe: {folder} is not a folder; known recipes: {known or 'none'}")
    known = ", ".join(f"{name}.yaml" for name in KEYS_OF)
    if not any((folder / f"{name}.yaml").is_file() for name in KEYS_OF):
        raise UserError(f"{folder}: no YAML file is read by a stage; stages read {known}")
    suffix = f"-{Path(args.overlay).stem}" if args.overlay else ""
    run = args.run or f"runs/{folder.resolve().name}{suffix}"
    accelerate = read_launch(args.accelerate, args.gpus)
    found = []
    assign(args.keys, recipe=args.recipe)  # refuses a wrong one once, and not for each file
    recipe = Recipe(args, run, accelerate, find_engine(accelerate, args.gpus))
    for path in sorted(folder.glob("*.yaml")):
        try:
            if path.stem not in KEYS_OF:
                raise UserError(f"is read by no stage; the stages read {known}")
            read_stage(recipe, path)
        except UserError as error:
            found += [from_error(path.name, UserError(line)) for line in error.lines]
    if recipe.parsed:
        text = ", ".join(f"{name}.yaml" for name in KEYS_OF if name in recipe.parsed)
        found.append(Finding(OK, "keys", f"{text}: every key is known and fits"))
    return recipe, found


def stage_flags(
    stage: str,
    path: Path,
    run: str,
    overlay: str | None,
    model: str | None,
    data_root: str | None,
) -> list[str]:
    """The command line that make gives a stage."""
    flags = ["--config", str(path), "--run_dir", run]
    flags += ["--overlay", overlay] if overlay and KEYS_OF[stage][1] else []
    flags += ["--model", model] if model and stage in TAKE_MODEL else []
    flags += ["--data_root", data_root] if data_root and stage in TAKE_DATA_ROOT else []
    return flags


def read_stage(recipe: Recipe, path: Path) -> None:
    """Read a stage's file into the recipe, through the stage's own checks and its launch's."""
    stage, processes = path.stem, recipe.args.gpus
    own, hf, check = KEYS_OF[stage]
    args = recipe.args
    argv = stage_flags(stage, path, recipe.run, args.overlay, args.model, args.data_root)
    argv += yaml_flags(args.keys, args.recipe, stage)
    settings = recipe.settings[stage] = read_settings(own, hf, argv, DEFAULTS if hf else None)
    if hf:
        check = as_launched(check, recipe.accelerate, processes)
    settings = recipe.settings[stage] = run_check(settings, check)
    if hf:  # checkable on a machine without a GPU
        settings = settings.replaced(use_cpu=True, tf32=UNSET)
    if "output_dir" in own_keys(own) or hf:
        check_output(settings.output_dir, "output_dir")
    build(settings, own, hf)
    recipe.parsed.append(stage)


def find_engine(values: dict[str, Any], processes: int) -> str:
    """Name the engine (as in `memory.Step`) that an accelerate file starts."""
    kind, zero = str(values.get("distributed_type", "NO")), values.get("deepspeed_config") or {}
    if kind == "FSDP":
        return "fsdp2"
    if kind == "DEEPSPEED":
        offloads = str(zero.get("offload_optimizer_device", "none")) != "none"
        return f"zero{zero.get('zero_stage', 2)}" + ("_offload" if offloads else "")
    return "ddp" if processes > 1 else "none"


def check_installed(recipe: Recipe) -> Iterator[Finding]:
    """Find keys that need a package which this machine lacks; the one that trains may have it."""
    for stage in recipe.stages():
        try:
            check_packages(recipe.settings[stage])
        except UserError as error:
            for line in error.lines:
                yield from_error(f"{stage}.yaml", UserError(line), WARNING)


def check_server(recipe: Recipe) -> Iterator[Finding]:
    """Compare the dtype of GRPO's vLLM server with the trainer's."""
    values = recipe.settings.get("grpo", LACKING)
    if not values.get("use_vllm") or values.vllm_mode != "server":
        return
    wanted, said = sampler_dtype(values, values.dtype)
    if not wanted:
        return
    key, url = host.address(values)
    try:
        differs = host.other_dtype(values, host.read_server(url, seconds=3))
    except (OSError, ValueError):  # it may start later; then vLLM itself takes bfloat16
        level = WARNING if wanted == "float16" else UNCHECKED
        text = f"{key}: no server at {url} says what it samples in; with {said} the trainer"
        yield Finding(level, "grpo.yaml", f"{text} computes in {wanted}", START.format(wanted))
        return
    if differs:
        text = f"{key}: the server at {url} {differs}"
        yield Finding(WARNING, "grpo.yaml", text, START.format(wanted))
    else:
        yield Finding(OK, "grpo.yaml", f"{key}: the server at {url} samples in {wanted}")


def is_own_folder(recipe: Recipe, model: str | None) -> bool:
    """Whether a model is neither the hub's, nor made by the run, nor the name of a shape."""
    if not model or is_hub_id(model) or smollm2.is_named(model):
        return False
    if model.startswith(f"{recipe.run}/"):
        return False
    return Path(model).exists() or model not in read_yaml(SHAPES)


def check_inputs(recipe: Recipe) -> Iterator[Finding]:
    """Find inputs that are not there, and that no stage writes."""
    stems = {path.stem for path in Path(recipe.args.recipe).glob("*.yaml")}
    if stems & KEYS_OF.keys() - recipe.settings.keys():
        return  # a file that could not be read may name the writer
    outputs = [(stage, values.get("output_dir")) for stage, values in recipe.settings.items()]
    folders = [(stage, str(folder).rstrip("/")) for stage, folder in outputs if folder]
    stages = [*recipe.settings.items()]
    for stage, error in missing_inputs(stages, folders, read_yaml(SHAPES)):
        yield from_error(f"{stage}.yaml", error)


def missing_inputs(
    stages: Sequence[tuple[str, Settings]],
    folders: Sequence[tuple[str, str]],
    shapes: Container[str] = (),
) -> Iterator[tuple[str, UserError]]:
    """Yield each input that cannot be read, once, with the first stage that names it.

    Args:
        stages: those that read, with their settings.
        folders: what is still written: stages and their folders.
        shapes: names that stand for a model.
    """
    told = set()
    for stage, values in stages:
        for key, path in named_inputs(values):
            if path in told or any(writes(*made, path) for made in folders):
                continue
            told.add(path)
            try:
                if key not in MODELS:
                    check_file(key, path)
                elif path not in shapes and values.get("backend") != "openai":
                    check_checkpoint(path, key)
            except UserError as error:
                yield stage, error


def named_inputs(values: Settings) -> Iterator[tuple[str, str]]:
    """The keys of a stage that name inputs, with the path of each."""
    for key in INPUTS:
        named = values.get(key)
        if key == "checkpoints":  # each is `label=folder`
            yield from ((key, entry.partition("=")[2].rstrip("/")) for entry in named or ())
        elif named:
            yield key, str(named).rstrip("/")


def check_file(key: str, path: str) -> None:
    """Refuse a file that is not there."""
    if not Path(path).is_file():
        text = f"{key}: {path} does not exist, and no stage of the recipe writes it"
        raise UserError(f"{text}; correct the path")


def writes(stage: str, folder: str, path: str) -> bool:
    """Whether a stage with this output_dir writes a file or folder."""
    if path == folder or not path.startswith(f"{folder}/"):
        return path == folder
    return stage not in WRITES or path.removeprefix(f"{folder}/") in WRITES[stage]


def check_problems(recipe: Recipe) -> None:
    """Check the problems held out of the built data, as GRPO itself does."""
    values = recipe.settings.get("grpo", LACKING)
    files = [values.get("train_file"), values.get("eval_file") or values.get("train_file")]
    if all(path and Path(path).is_file() for path in files):
        check_held_out(values)


def check_teachers(recipe: Recipe) -> Iterator[Finding]:
    """Name the servers of teachers, which nobody asks without a network."""
    if "distill" not in recipe.parsed:
        return
    (values,) = build(recipe.settings["distill"], DistillArguments)
    if Path(values.output_dir, manifest.NAME).exists():
        return
    for teacher in values.each_teacher().values():
        if teacher.backend == "openai":
            model = teacher.model_name_or_path
            text = f"base_url: whether {redact(teacher.base_url)} serves {model}"
            remedy = start_command(model, teacher.base_url)
            yield Finding(UNCHECKED, "distill.yaml", text, remedy)


def check_held_out_rows(recipe: Recipe) -> None:
    """Check the rows whose loss SFT measures, as SFT itself does."""
    values = recipe.settings.get("sft", LACKING)
    files = [values.get("train_file"), values.get("eval_file")]
    if all(path and Path(path).is_file() for path in files):
        check_sft_held_out(values)
