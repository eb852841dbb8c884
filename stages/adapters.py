"""LoRA around a training: start from an adapter, check what it trains, save it merged.

    merged_start    the folder to train from: of an adapter that with its merged copy
    adapting        the targets that peft does not find, in one line
    check_adapted   before training: what is asked for is trained, and none that cannot be merged
    save_merged     `<output_dir>` and `<output_dir>/best` as plain models, the adapters beside

The adapters lie whole in each checkpoint, also where the weights are sharded (FSDP, ZeRO-3). The
main process then loads the base model again, whole, and merges them into it.
"""

import contextlib
import os
import shutil
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from accelerate.utils import broadcast_object_list
from transformers.integrations import is_deepspeed_zero3_enabled
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

from data_prep.sampling.hashes import hash_checkpoint, shorten
from pipeline import manifest
from pipeline.console import is_main_process, say
from pipeline.errors import UserError
from pipeline.models.adapters import load_merged, merge, probe
from pipeline.models.checkpoints import base_and_adapter, loading
from pipeline.models.tokenizer import load_tokenizer
from pipeline.models.weights import keep_own_head
from stages.trainer import evaluation
from stages.trainer.evaluation import ADAPTER

KEY = "model_name_or_path"
START_FOLDER, START_FILE = "merged", "merged.json"  # beside the stages' folders; in each copy
LEFT_SECONDS = 3600  # after which another process's half-written copy is nobody's


def in_main(act: Callable[[], None]) -> None:
    """Act in the main process while the others wait; its error ends all of them."""
    fault: Exception | None = None
    if is_main_process():
        try:
            act()
        except Exception as error:
            fault = error
    (line,) = broadcast_object_list([fault and (str(fault) or type(fault).__name__)])
    if fault:
        raise fault
    if line:
        raise UserError(line)


@contextlib.contextmanager
def loaded_whole(args: Any) -> Iterator[None]:
    """Let `from_pretrained` load whole models, where ZeRO-3 would share them out."""
    if not is_deepspeed_zero3_enabled():
        yield
        return
    unset_hf_deepspeed_config()
    try:
        yield
    finally:
        args.deepspeed_plugin.set_deepspeed_weakref()


def load_settings(args: Any, model: Any = None) -> dict[str, Any]:
    """How to load on the CPU what a Trainer with these arguments, and its model, has loaded."""
    left_out = ("attn_implementation", "device_map")
    settings = {k: v for k, v in args.model_init_kwargs.items() if k not in left_out}
    if is_quantized(model):
        settings |= {"quantization_config": model.config.quantization_config, "device_map": "cpu"}
    return settings


def is_quantized(model: Any) -> bool:
    """Whether a model's frozen weights are quantized."""
    return getattr(model, "is_quantized", False)


def merged_start(checkpoint: str, args: Any) -> str:
    """The folder to train from: the checkpoint, or the merged copy of an adapter folder.

    A copy on disk, as vLLM, the reference model and the next adapter name their model by its path.
    It is made once, in `merged/` beside the stage's folder.
    """
    base, adapter = base_and_adapter(checkpoint, KEY)
    if adapter is None:
        return checkpoint
    dtype = args.model_init_kwargs["dtype"]
    name = f"{Path(adapter).resolve().name}-{shorten(hash_checkpoint(adapter, KEY))}-{dtype}"
    folder = Path(args.output_dir).parent / START_FOLDER / name

    def write() -> None:
        if (folder / START_FILE).is_file():
            return
        say(f"{adapter}: merging it into {base}, in {folder}")
        with loaded_whole(args), loading("model", adapter, KEY):
            model = load_merged(adapter, KEY, **load_settings(args))
        for left in folder.parent.glob(f"{name}.*{manifest.PARTIAL}"):  # by a kill
            if manifest.is_older(left, LEFT_SECONDS):
                shutil.rmtree(left, ignore_errors=True)
        partial = folder.with_name(f"{name}.{os.getpid()}{manifest.PARTIAL}")
        try:
            write_model(model, load_tokenizer(adapter, KEY, needs=()), partial)
            manifest.write_json(partial / START_FILE, {"adapter": adapter, "base": base})
            manifest.put_in_place(partial, folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    in_main(write)
    return str(folder)


def write_model(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write a whole model and its tokenizer."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    keep_own_head(folder)


@contextlib.contextmanager
def adapting(model: Any) -> Iterator[None]:
    """Turn peft's refusal of the targets in the recipe's `ModelConfig` into one line."""
    try:
        yield
    except (ValueError, TypeError, NotImplementedError) as error:
        files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        if not model.use_peft or not any("/peft/" in file for file in files):
            raise
        raise UserError(
            f"lora_target_modules: {model.lora_target_modules}: {' '.join(str(error).split())}"
        ) from error


def check_adapted(model: Any, uses_vllm: bool = False) -> None:
    """Refuse an adapter that lacks what the recipe asks for, or cannot be merged or trained.

    Raises:
        UserError: naming the key, and the module.
    """
    from peft import PeftModel
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils import ModulesToSaveWrapper

    if not isinstance(model, PeftModel):
        return
    asked, tuner, base = model.peft_config["default"], model.base_model, model.get_base_model()
    saved = [name for name, one in base.named_modules() if isinstance(one, ModulesToSaveWrapper)]
    for key, names, found in (
        ("lora_target_modules", asked.target_modules, tuner.targeted_module_names),
        ("lora_target_parameters", asked.target_parameters, tuner.targeted_parameter_names),
        ("lora_modules_to_save", asked.modules_to_save, saved),
    ):
        for name in [] if isinstance(names, str) else names or []:
            if not any(f".{path}".endswith(f".{name}") for path in found):
                raise UserError(f"{key}: {name}: the model has no such module; correct the name")
    method = base.config.quantization_config.quant_method if is_quantized(base) else None
    if method not in (None, "bitsandbytes"):
        raise UserError(
            f"use_peft: {base.name_or_path} is quantized by {method}, into which "
            "adapters cannot be merged; take the unquantized model, with load_in_4bit: true"
        )
    ends = [base.get_input_embeddings(), base.get_output_embeddings()]
    is_tied = len({id(getattr(end, "weight", end)) for end in ends}) == 1
    if is_tied and any(isinstance(end, BaseTunerLayer) for end in ends):
        raise UserError(
            "lora_target_modules: the embedding is the LM head, too; LoRA would train one, and "
            "merged it would change both; leave it out"
        )
    if isinstance(ends[1], BaseTunerLayer):
        raise UserError(
            "lora_target_modules: TRL takes the LM head's weights without an adapter, which would "
            "never be trained; leave it out, or train the head whole by lora_modules_to_save"
        )
    was_tied = base.config.get_text_config().tie_word_embeddings
    if uses_vllm and was_tied and any(isinstance(end, ModulesToSaveWrapper) for end in ends):
        raise UserError(
            "lora_modules_to_save: the embedding is the LM head, too; trained, the two differ, and "
            "vLLM has one for both; leave it out, or set use_vllm: false"
        )


def save_merged(trainer: Any, model: Any) -> None:
    """Save LoRA's adapters, then the merged models, whose logits are held against the trained.

    Every process calls it. The adapter of `<output_dir>` is in `<output_dir>/adapter`, that of
    `<output_dir>/best` in `<output_dir>/best/adapter`.
    """
    args, tokenizer = trainer.args, trainer.processing_class
    folder = Path(args.output_dir)
    adapter = str(folder / ADAPTER)
    trainer.save_model(adapter)
    base, is_exact = model.get_base_model(), not (args.bf16 or args.fp16)
    is_sharded = trainer.is_fsdp_enabled or is_deepspeed_zero3_enabled()
    is_from_disk = is_sharded or is_quantized(base)
    expected = probe(model) if is_from_disk else None  # all processes compute it together
    settings = load_settings(args, base)

    def write() -> None:
        with loaded_whole(args):
            if is_from_disk:
                merged = load_merged(adapter, KEY, expected, is_exact, **settings)
            else:
                merged = merge(model, adapter)
            write_model(merged, tokenizer, folder)
            del merged
            best, written, _ = evaluation.folders(folder)
            if base_and_adapter(str(best))[1] is None:
                return
            shutil.rmtree(written, ignore_errors=True)  # what a kill has left
            write_model(load_merged(str(best), KEY, **settings), tokenizer, written)
        shutil.copytree(best, written / ADAPTER)
        (written / ADAPTER / evaluation.FILE).rename(written / evaluation.FILE)
        evaluation.put_best_in_place(folder, ADAPTER)

    in_main(write)
