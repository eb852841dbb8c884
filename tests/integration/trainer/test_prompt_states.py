"""Hidden states of the prompts: each problem's own, however batched, and their components."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer

from data_prep.config import UserError
from data_prep.prompts import render_prompt
from stages.trainer import prompt_states as module

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


@pytest.mark.parametrize("has_golds", [False, True])
def test_states_are_those_of_each_prompt_and_its_answer_by_themselves(trainer, has_golds):
    golds = [[str(7 * n) * (n % 3 + 1), "another"] for n in range(21)]
    if has_golds:
        trainer.train_dataset = trainer.train_dataset.add_column("answers", golds)
    found = module.prompt_states(trainer)
    assert trainer.model.training and found.shape == (21, 6 * trainer.model.config.hidden_size)
    trainer.model.eval()
    for messages, gold, row in zip(trainer.train_dataset["prompt"], golds, found, strict=True):
        text = render_prompt(messages, trainer.processing_class)
        prompt, first = trainer.processing_class([text, gold[0]], add_special_tokens=False)[
            "input_ids"
        ]
        ids, end = torch.tensor([prompt + first * has_golds]), len(prompt)
        with torch.no_grad():
            layers = trainer.model(ids, output_hidden_states=True).hidden_states
        wanted = []
        for layer in (layers[len(layers) // 2][0], layers[-1][0]):
            gold_state = layer[end:].mean(0) if has_golds else torch.zeros(layer.shape[1])
            wanted += [layer[:end].mean(0), layer[end - 1], gold_state]
        torch.testing.assert_close(row, torch.cat(wanted), atol=1e-5, rtol=1e-4)


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
    with pytest.raises(UserError, match="is missing; without it train anew"):
        module.prompt_components(trainer, 1)


def test_more_components_than_there_are_say_nothing(trainer):
    found = module.principal_components(torch.eye(3), 8)
    assert found.shape == (3, 8) and not found[:, 3:].any() and found[:, 0].any()
