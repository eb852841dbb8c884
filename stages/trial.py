"""A save before training: what a save would refuse after hours is refused at once.

Everything that a checkpoint holds is written beside the run, but for the weights. They go the way
of a save up to the point where a file would be opened.
"""

import copy
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from peft import PeftModel
from transformers import GenerationConfig, PreTrainedTokenizerFast, Trainer
from transformers.integrations import is_deepspeed_zero3_enabled
from transformers.trainer_callback import ExportableState

from pipeline import card, generation
from pipeline.checkpoints import open_tokenizer
from pipeline.console import say
from pipeline.errors import UserError, disk_fault
from pipeline.memory import memory_fault
from pipeline.transformers4 import write_old_names
from stages.removal import TRIAL
from stages.trainer.evaluation import random_state_kept


def own_model(trainer: Trainer) -> Any:
    """The model of transformers, without the wrappers of accelerate and peft."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    return model.get_base_model() if isinstance(model, PeftModel) else model


def repair_defaults(trainer: Trainer) -> None:
    """Repair sampling defaults that a save would refuse, wherever they come from; with one line.

    `generation.read_repaired` has done it for those of a `generation_config.json`. An old model has
    them in its `config.json`.
    """
    model = own_model(trainer)
    if getattr(model, "generation_config", None) is None:
        return
    kept, changes = generation.repair(model.generation_config.to_diff_dict())
    if changes:
        say(f"model_name_or_path: {model.name_or_path}: its sampling defaults: {changes}")
        model.generation_config = GenerationConfig.from_dict(kept)


def try_save(trainer: Trainer) -> None:
    """Save all but the weights into a folder that is removed again.

    Raises:
        UserError: on every process, where the main process could not.
    """
    # Its object is for `from_pretrained`; trackers write the arguments as JSON.
    (trainer.args.model_init_kwargs or {}).pop("generation_config", None)
    repair_defaults(trainer)
    fault = try_parts(trainer) if trainer.args.should_save else None
    (fault,) = broadcast_object_list([fault])
    if fault:
        raise UserError(fault)


def try_sampling(trainer: Any) -> None:
    """Generate a token for two prompts with the recipe's `generation_kwargs`, before training.

    Raises:
        UserError: where transformers or vLLM refuses one of them.
    """
    given = trainer.args.generation_kwargs
    if not given or is_deepspeed_zero3_enabled():  # its weights are elsewhere
        return
    try:
        if trainer.args.use_vllm:
            from vllm import SamplingParams

            SamplingParams(**given)
        else:
            model = own_model(trainer)
            prompts = torch.zeros(2, 1, dtype=torch.long, device=model.device)
            config = copy.deepcopy(trainer.generation_config)
            if unknown := given.keys() - vars(GenerationConfig()).keys():
                raise ValueError(f"nothing reads {', '.join(sorted(unknown))}")
            config.max_new_tokens = 1
            own = generation.only_ends(model)  # as rollouts are
            with own, torch.no_grad(), random_state_kept(trainer.accelerator.device):
                model.generate(prompts, generation_config=config)
    # Another library's checks: what is wrong decides what is raised.
    except Exception as error:
        if memory_fault(error):
            raise
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise UserError(
            f"generation_kwargs: {given}: no rollout can be sampled with it ({reason}); correct it"
        ) from error


def try_parts(trainer: Trainer) -> str | None:
    """The line on the first part that cannot be saved; None where all can."""
    folder = Path(trainer.args.output_dir, TRIAL)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        for what, part in parts(trainer, folder):
            try:
                part()
            # Other people's files and objects: what is wrong decides what is raised.
            except Exception as error:
                reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
                return disk_fault(error) or (
                    f"{what} cannot be saved ({reason}); repair it: nothing was trained yet"
                )
        say_who_differs(trainer, folder)
        return None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def say_who_differs(trainer: Trainer, folder: Path) -> None:
    """Say one line where other programs would split text otherwise than the stages do.

    `AutoTokenizer` takes a class by the model's type alone for some types, such as qwen2, whatever
    the saved files say.
    """
    tokenizer = trainer.processing_class
    if type(tokenizer) is not PreTrainedTokenizerFast:
        return
    difference = open_tokenizer(str(folder), "output_dir")[1]
    if difference:
        say(
            f"{trainer.args.output_dir}: {difference} for this type of model; in programs of your "
            "own load PreTrainedTokenizerFast"
        )


def parts(trainer: Trainer, folder: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """What a checkpoint holds: its name in a message, and how to save it."""
    model = own_model(trainer)
    name = f"model_name_or_path: {model.name_or_path}: "
    yield f"{name}its config", lambda: model.config.save_pretrained(folder)
    yield f"{name}its tokenizer", lambda: trainer.processing_class.save_pretrained(folder)
    # peft looks up by name what it trains whole.
    wrapped = trainer.accelerator.unwrap_model(trainer.model)
    names = wrapped.state_dict() if isinstance(wrapped, PeftModel) else ()
    empty = {key: torch.empty(0) for key in names}
    yield f"{name}the model", lambda: trainer._save(str(folder), state_dict=empty)
    tokenizer = trainer.processing_class
    yield f"{name}its config for version 4", lambda: write_old_names(folder, tokenizer)
    if trainer.model is model and not is_deepspeed_zero3_enabled():  # its weights are elsewhere
        yield (
            f"{name}weights that share memory",
            lambda: model.save_pretrained(
                folder, is_main_process=False, state_dict=model.state_dict()
            ),
        )
    yield f"{name}its card", lambda: card.find_licence(card.find_stages(model.name_or_path)[1])
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, ExportableState):
            state = callback.state()
            yield f"the state of {type(callback).__name__}", lambda state=state: json.dumps(state)
    for key, part in getattr(trainer, "extra_state", {}).items():
        yield (
            f"{key}: the state_dict() of {type(part).__name__}",
            lambda part=part: json.dumps(part.state_dict(), default=list),
        )
