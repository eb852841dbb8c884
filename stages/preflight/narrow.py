"""What a rehearsal is made of: the architecture made narrow, a tokenizer, a few rows, small keys.

The vocabulary, the positions, ties and kinds of layers stay as the model has them. Where neither
the model nor its tokenizer is on this machine, `shapes.yaml` and the tiny tokenizer serve.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from data_prep.schema import read_problems
from pipeline.errors import UserError
from pipeline.models.checkpoints import (
    VOCABULARIES,
    base_and_adapter,
    check_checkpoint,
    has_file,
    tokenizer_path,
)
from pipeline.models.hub import has_hub_copy
from pipeline.models.tokenizer import NEEDS, load_template, load_tokenizer
from pipeline.models.weights import check_start
from pipeline.recipe_files import read_yaml
from pipeline.rows import read_rows
from pipeline.settings import Settings
from stages.arguments import row_limits
from stages.preflight.inputs import load_shape
from stages.run.launch import is_installed
from stages.tiny_model import build_tokenizer

KEY = "model_name_or_path"
NARROW = {
    **dict.fromkeys(("num_hidden_layers", "n_layer"), 2),
    **dict.fromkeys(("hidden_size", "n_embd", "word_embed_proj_dim", "intermediate_size"), 64),
    **dict.fromkeys(("ffn_dim", "n_inner"), 64),
    **dict.fromkeys(("num_attention_heads", "n_head", "num_experts", "num_local_experts"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_experts_per_tok"), 2),
    **{"head_dim": 16, "moe_intermediate_size": 32},
}
NUM_ROWS, LOOKED_AT, NUM_HELD_OUT = 16, 200, 4
MOST_CHARACTERS = 2000  # of a row as JSON: longer ones would cost seconds and gigabytes
MOST_TOKENS = 8  # of a completion


def shrink(config: Any) -> Any:
    """The same architecture with two narrow layers."""
    text = config.get_text_config()
    for key, size in NARROW.items():
        if getattr(text, key, None) is not None:
            with contextlib.suppress(AttributeError):  # worked out from others
                setattr(text, key, size)
    if getattr(text, "layer_types", None):
        kinds = list(dict.fromkeys(text.layer_types))  # one of each kind, as `packing` asks
        with contextlib.suppress(AttributeError):
            text.layer_types = (kinds * 2)[: max(2, len(kinds))]
            text.num_hidden_layers = len(text.layer_types)
    return config


def read_config(model: str, trusts_code: bool) -> Any:
    """The configuration of a folder, of the hub's cache or of `shapes.yaml`."""
    from transformers import AutoConfig

    if not Path(model).is_dir():
        try:
            return AutoConfig.from_pretrained(model, trust_remote_code=trusts_code)
        except (OSError, ValueError):  # not on this machine
            pass
    shape = load_shape(model)
    if "architectures" in shape:  # a checkpoint's own file
        return AutoConfig.from_pretrained(model, trust_remote_code=trusts_code)
    return AutoConfig.for_model(**shape)


def has_tokenizer(model: str) -> bool:
    """Whether a model's own tokenizer is on this machine, in a folder or in the hub's cache."""
    folder = Path(tokenizer_path(model))
    if not folder.is_dir():
        return has_hub_copy(model)
    return has_file(folder, *VOCABULARIES)


def asks_for_raw_prompts(recipe: str | Path, stage: str) -> bool:
    """Whether a recipe's `data.yaml` makes prompts of a stage that no template is applied to."""
    with contextlib.suppress(UserError, OSError):  # the stage `data` says what is wrong with it
        sources = read_yaml(str(Path(recipe, "data.yaml"))).get(stage) or []
        return any(one.get("apply_chat_template") is False for one in sources)
    return False


def check_model(settings: Settings, model: str, is_raw: bool = False) -> None:
    """Refuse the model that a stage starts from; nothing where it is not on this machine.

    Args:
        settings: of the stage. model: what its weights come from at first.
        is_raw: whether the stage's prompts need no template.
    """
    base, _ = base_and_adapter(model, KEY)
    if not (Path(base).is_dir() or has_hub_copy(base)) or not has_tokenizer(model):
        return
    check_checkpoint(model, KEY)
    given = settings.get("chat_template_path")
    trusts = bool(settings.get("trust_remote_code"))
    # SFT's template is in the folder that GRPO starts from, which may not be there yet.
    is_given = bool(given) or model != settings.model_name_or_path
    needs = ("eos_token",) if is_given or is_raw else (*NEEDS,)
    tokenizer = load_tokenizer(model, KEY, needs, trust_remote_code=trusts)
    if given and Path(given).is_file():
        tokenizer.chat_template = load_template(given)
    limits = row_limits(settings, settings)
    check_start(model, KEY, tokenizer, limits, trust_remote_code=trusts)


def find_tokenizer(model: str) -> Any:
    """The model's own tokenizer where it is on this machine, else the tiny one."""
    if has_tokenizer(model):
        return load_tokenizer(tokenizer_path(model), KEY, ())
    texts = [f"{row['question']}assistant\n{row['completion']}" for row in islice(made_rows(), 99)]
    return build_tokenizer(texts)


def write_start(model: str, folder: Path, trusts_code: bool = False) -> str:
    """Write a narrow model with its tokenizer, as `model_name_or_path` of a rehearsal."""
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig

    tokenizer, config = find_tokenizer(model), shrink(read_config(model, trusts_code))
    text = config.get_text_config()
    text.vocab_size = max(len(tokenizer), text.vocab_size if tokenizer.name_or_path else 0)
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    for key, value in {"bos_token_id": tokenizer.bos_token_id, **ends}.items():
        setattr(text, key, value)
    torch.manual_seed(0)
    made = AutoModelForCausalLM.from_config(config, trust_remote_code=trusts_code)
    made = made.to(getattr(config, "dtype", None) or torch.float32)
    made.generation_config = GenerationConfig(**ends)
    made.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def made_rows(is_raw: bool = False) -> Iterator[dict[str, Any]]:
    """Rows as the builder writes them, for both stages: sums of small numbers."""
    for number in range(10_000):
        first, second = number % 10, number // 10 % 10
        question = f"What is {first} plus {second}?"
        yield {
            "id": f"made-{number}",
            "source": f"made {number % 2}",
            "level": number % 3,
            "prompt": question if is_raw else [{"role": "user", "content": question}],
            "question": question,
            "answers": [str(first + second)],
            "answer_form": "box",
            "completion": f"<think>\n{first} + {second}\n</think>\n\n\\boxed{{{first + second}}}",
        }


def few_rows(
    path: str | None, stage: str, is_raw: bool = False
) -> tuple[list[dict[str, Any]], bool]:
    """Short rows of a built file, or made ones where there are too few; and whether they are made.

    A file that cannot be used is the stage's to refuse: it may be built again before.
    """
    rows: list[dict[str, Any]] = []
    if path and Path(path).is_file():
        with contextlib.suppress(UserError):
            read = read_problems(path) if stage == "grpo" else (row for _, row in read_rows(path))
            looked_at = [(len(json.dumps(row)), row) for row in islice(read, LOOKED_AT)]
            rows = [row for length, row in looked_at if length <= MOST_CHARACTERS][:NUM_ROWS]
    if len(rows) == NUM_ROWS:
        return rows, False
    return list(islice(made_rows(is_raw), NUM_ROWS)), True


def held_out_rows(rows: list[dict[str, Any]], stage: str) -> list[dict[str, Any]]:
    """A few of the rows as others, so that none of them is trained on."""
    found = [row | {"id": f"held-{row.get('id')}"} for row in rows[:NUM_HELD_OUT]]
    for row in found if stage == "grpo" else ():
        row["question"] = f"{row.get('question', '')} (held out)"
    return found


def pass_rates(rows: list[dict[str, Any]], values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Counts of correct samples with which `curriculum: offline` keeps every row."""
    least, most = values.get("min_pass_rate", 0.25), values.get("max_pass_rate", 0.5)
    num_right = round((least + most) / 2 * 1000)
    return [{"id": row["id"], "num_right": num_right, "num_samples": 1000} for row in rows]


def write_rows(path: Path, rows: list[dict[str, Any]]) -> str:
    """Write JSON lines."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return str(path)


# What only a GPU or vLLM shows, and the keys that act with it alone: a rehearsal leaves them out.
ONLY_ON_GPU = {
    "use_vllm": ("vllm_",),
    "fp16": (),
    "tf32": (),
    "activation_offloading": (),
    "use_liger_kernel": ("liger_kernel_config",),
    "torch_compile": ("torch_compile_",),
    "load_in_4bit": ("bnb_", "use_bnb_"),
    "load_in_8bit": ("bnb_", "use_bnb_"),
    "use_transformers_continuous_batching": ("transformers_continuous_batching_config",),
    "use_transformers_paged": ("transformers_continuous_batching_config",),
}
ATTENTION = ("eager", "sdpa", "flex_attention")  # on any machine
BITSANDBYTES = ("8bit", "32bit", "bnb", "lion", "ademamix")


def left_out(values: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Given keys that cannot be tried on a CPU -> prefixes of the keys that act with them alone."""
    found = {}
    if not values.get("use_cpu"):
        found = {key: ONLY_ON_GPU[key] for key in ONLY_ON_GPU if values.get(key)}
    attention = str(values.get("attn_implementation") or "sdpa").removeprefix("paged|")
    if attention not in ATTENTION:
        found["attn_implementation"] = ()
    if "offloaded" in str(values.get("cache_implementation")):
        found["cache_implementation"] = ()
    is_of_bnb = any(part in str(values.get("optim")) for part in BITSANDBYTES)
    if is_of_bnb and "torch" not in values["optim"] and is_installed("bitsandbytes"):
        found["optim"] = ("optim_args",)
    return found


def on_cpu(values: Mapping[str, Any], start: str, folder: Path) -> dict[str, Any]:
    """The keys with which a stage is built here: the user's, without upload, tracker and GPU."""
    kept = {key: value for key, value in values.items() if key not in left_out(values)}
    return kept | {
        "use_cpu": True,
        "report_to": "none",
        "push_to_hub": False,
        "model_name_or_path": start,
        "model_revision": "main",
        "output_dir": str(folder / "out"),
        "resume_from_checkpoint": None,
        "disable_tqdm": True,
    }


def small(values: Mapping[str, Any], stage: str, steps: int) -> dict[str, Any]:
    """The same for one step: few rows, short completions, and everything that a step may do.

    Args:
        steps: after which training ends.
    """
    found = {
        "max_steps": steps,
        "logging_steps": 1,
        "save_steps": 1,
        "eval_steps": 1,
        "eval_delay": 0,
        "eval_on_start": False,
        "gradient_accumulation_steps": min(2, values.get("gradient_accumulation_steps", 1)),
        "dataloader_num_workers": min(1, values.get("dataloader_num_workers") or 0),
    }
    if stage == "sft":
        return {**values, **found, "per_device_train_batch_size": 2}
    group = values.get("num_generations", 8)
    micro_batches = values.get("steps_per_generation") or 1
    is_used_again = micro_batches > values.get("gradient_accumulation_steps", 1)
    found |= {
        "per_device_train_batch_size": group,
        "per_device_eval_batch_size": values.get("num_generations_eval") or group,
        "steps_per_generation": 2,
        "generation_batch_size": None,
        "gradient_accumulation_steps": 1 if is_used_again else 2,
        "log_completions_hub_repo": None,
        "max_completion_length": MOST_TOKENS,
    }
    if values.get("eval_problems"):
        found["eval_problems"] = NUM_HELD_OUT
    return {**values, **found}
