"""The model inside a trainer, its sampling defaults and tokenizer, and a trial of sampling."""

import copy
from typing import Any

import torch
from peft import PeftModel
from transformers import GenerationConfig, PreTrainedTokenizerFast, Trainer
from transformers.integrations import is_deepspeed_zero3_enabled

from pipeline.console import say
from pipeline.errors import UserError
from pipeline.memory import memory_fault
from pipeline.models import generation
from pipeline.models.tokenizer import open_tokenizer
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
    # Its object is for `from_pretrained`; trackers write the arguments as JSON.
    (trainer.args.model_init_kwargs or {}).pop("generation_config", None)
    model = own_model(trainer)
    if getattr(model, "generation_config", None) is None:
        return
    kept, changes = generation.repair(model.generation_config.to_diff_dict())
    if changes:
        say(f"model_name_or_path: {model.name_or_path}: its sampling defaults: {changes}")
        model.generation_config = GenerationConfig.from_dict(kept)


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


def say_who_differs(trainer: Trainer) -> None:
    """Say one line where other programs would split text otherwise than a saved run did.

    `AutoTokenizer` takes a class by the model's type alone for some types, such as qwen2, whatever
    the saved files say.
    """
    tokenizer = trainer.processing_class
    if type(tokenizer) is not PreTrainedTokenizerFast:
        return
    difference = open_tokenizer(trainer.args.output_dir, "output_dir")[1]
    if difference:
        say(
            f"{trainer.args.output_dir}: {difference} for this type of model; in programs of your "
            "own load PreTrainedTokenizerFast"
        )
