"""Hidden states of the prompts: each problem's own, however batched, and their components."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from datasets import Dataset
from tokenizers.processors import TemplateProcessing
from transformers import AutoModelForCausalLM, AutoTokenizer

from pipeline.errors import UserError
from pipeline.prompts import render_prompt
from stages.trainer import prompt_states as module
from stages.trainer.curriculum import PredictiveCurriculum

pytestmark = pytest.mark.integration


@pytest.fixture
def trainer(tiny_model_dir, tmp_path):
    """What is read of a trainer whose 21 prompts, messages and a string, have unlike lengths."""
    messages = [
        [{"role": "user", "content": "Mia has 5 pens. " * (1 + 7 * n % 5) + str(n)}]
        for n in range(21)
    ]
    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir).train()
    return SimpleNamespace(
        accelerator=Accelerator(cpu=True), model=model, model_wrapped=model,
        processing_class=AutoTokenizer.from_pretrained(tiny_model_dir),
        train_dataset=Dataset.from_list([{"prompt": one} for one in messages]),
        args=SimpleNamespace(output_dir=str(tmp_path / "out")), start_checkpoint=None,
    )  # fmt: skip


def test_states_are_those_of_each_prompt_by_itself(trainer):
    found = module.prompt_states(trainer)
    assert trainer.model.training and found.shape == (21, 4 * trainer.model.config.hidden_size)
    trainer.model.eval()
    for messages, row in zip(trainer.train_dataset["prompt"], found, strict=True):
        text = render_prompt(messages, trainer.processing_class)
        ids = trainer.processing_class(text, return_tensors="pt", add_special_tokens=False)
        with torch.no_grad():
            layers = trainer.model(**ids, output_hidden_states=True).hidden_states
        middle, last = layers[len(layers) // 2][0], layers[-1][0]
        wanted = torch.cat([middle.mean(0), middle[-1], last.mean(0), last[-1]])
        torch.testing.assert_close(row, wanted, atol=1e-5, rtol=1e-4)


def test_a_resumed_run_reads_what_the_first_has_written(trainer, monkeypatch):
    state = torch.get_rng_state()
    first = module.prompt_components(trainer, 4)
    assert first.shape == (21, 4) and torch.equal(state, torch.get_rng_state())
    assert np.allclose(first.mean(axis=0), 0, atol=1e-5) and np.allclose(first.std(axis=0), 1)
    # Another run in the same folder, as a plain script has, computes its own.
    states = torch.arange(8.0).reshape(4, 2)
    monkeypatch.setattr(module, "prompt_states", lambda trainer: states)
    second = module.prompt_components(trainer, 1)
    assert second.shape == (4, 1)
    monkeypatch.setattr(module, "prompt_states", lambda trainer: pytest.fail("has been there"))
    trainer.start_checkpoint = "checkpoint-1"
    assert (module.prompt_components(trainer, 1) == second).all()
    (Path(trainer.args.output_dir) / module.FILE).unlink()
    with pytest.raises(UserError, match=r"prompt_components\.npy: is missing"):
        module.prompt_components(trainer, 1)


def test_more_components_than_there_are_say_nothing(trainer):
    found = module.principal_components(torch.eye(3), 8)  # rank 2 about their mean
    assert found.shape == (3, 8) and not found[:, 2:].any() and found[:, :2].any(dim=0).all()


def test_states_that_are_not_finite_are_told_to_all_processes():
    found = module.principal_components(torch.full((21, 4), torch.nan), 2).numpy()
    for num, told in ((21, "not finite"), (3, "has 3 rows, the run began with 21")):
        with pytest.raises(UserError, match=told):
            PredictiveCurriculum([0] * num, 4, 0).see(found)


def test_strings_have_the_special_tokens_that_trl_gives_them(trainer):
    made, name = trainer.processing_class, trainer.processing_class.eos_token
    pairs = [(name, made.eos_token_id)]
    made.backend_tokenizer.post_processor = TemplateProcessing(f"{name} $A", None, pairs)
    trainer.train_dataset = {"prompt": ["1 + 1 ="]}
    ids = torch.tensor([[made.eos_token_id, *made.encode("1 + 1 =", add_special_tokens=False)]])
    last = trainer.model.eval()(ids, output_hidden_states=True).hidden_states[-1][:, -1]
    assert torch.allclose(module.prompt_states(trainer)[:, -last.shape[1] :], last, atol=1e-5)
