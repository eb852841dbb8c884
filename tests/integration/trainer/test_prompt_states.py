"""Hidden states of the prompts: each problem's own, however batched, and their components."""

import copy
import json
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
from stages.trainer.curriculum import Curriculum, PredictiveCurriculum
from stages.trainer.prompt_states import PromptReader

pytestmark = pytest.mark.integration


@pytest.fixture
def trainer(tiny_model_dir):
    """What is read of a trainer whose 21 prompts, messages, have unlike lengths."""
    messages = [
        [{"role": "user", "content": "Mia has 5 pens. " * (1 + 7 * n % 5) + str(n)}]
        for n in range(21)
    ]
    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir).train()
    return SimpleNamespace(
        accelerator=Accelerator(cpu=True), model=model, model_wrapped=model,
        processing_class=AutoTokenizer.from_pretrained(tiny_model_dir),
        train_dataset=Dataset.from_list([{"prompt": one} for one in messages]),
        curriculum=PredictiveCurriculum([0] * 21, 4, 0, num_components=4),
    )  # fmt: skip


def test_states_are_those_of_each_prompt_by_itself(trainer):
    found = module.prompt_states(trainer, range(21))
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


def test_later_prompts_are_projected_on_the_directions_of_the_first(trainer):
    """By parts or at once, of the same model; reading moves no random state."""
    state, whole, parts = torch.get_rng_state(), PromptReader(trainer), PromptReader(trainer)
    whole.read(range(21))
    parts.read(range(16))
    first = parts.state_dict()["components"]
    assert torch.equal(state, torch.get_rng_state()) and not np.any(first[16:])
    assert np.allclose(np.mean(first[:16], axis=0), 0, atol=1e-5)
    assert np.allclose(np.std(first[:16], axis=0), 1, atol=1e-4)
    _, directions, origin = module.principal_components(module.prompt_states(trainer, range(16)), 4)
    parts.read([20, 3, 17, 16, 19, 18])
    found = np.array(parts.state_dict()["components"])
    wanted = module.prompt_states(trainer, range(21)).numpy() @ directions - origin
    assert np.allclose(found, wanted, atol=1e-3) and (found[:16] == first[:16]).all()
    assert sorted(parts.state_dict()["read"]) == [*range(21)]
    # All prompts at once are what a small data set has.
    states = module.prompt_states(trainer, range(21))
    at_once = whole.state_dict()["components"]
    assert at_once == module.principal_components(states, 4)[0].tolist()


def test_a_resume_reads_as_an_uninterrupted_run(trainer, monkeypatch):
    """Also from a checkpoint before the last, in the same process."""
    reader, states = PromptReader(trainer), []
    for problems in (range(10), range(14), range(21)):
        reader.read(problems)
        states.append(json.loads(json.dumps(reader.state_dict())))
    for resumed in (PromptReader(trainer), reader):
        resumed.load_state_dict(copy.deepcopy(states[0]))
        assert resumed.state_dict() == states[0]
        for problems, state in zip((range(14), range(21)), states[1:], strict=True):
            resumed.read(problems)
            assert resumed.state_dict() == state
    monkeypatch.setattr(module, "prompt_states", lambda *args: pytest.fail("has been there"))
    reader.read([5, 20])


def test_more_components_than_there_are_say_nothing(trainer):
    found, directions, origin = module.principal_components(torch.eye(3), 8)  # rank 2
    assert found.shape == (3, 8) and not found[:, 2:].any() and found[:, :2].any(axis=0).all()
    assert np.allclose(np.eye(3) @ directions - origin, found, atol=1e-5)


@pytest.mark.parametrize("num_read", [0, 10])
def test_states_that_are_not_finite_are_refused(trainer, num_read):
    reader = PromptReader(trainer)
    reader.read(range(num_read))
    trainer.model.lm_head.weight.data.fill_(torch.nan)  # tied to the embedding
    with pytest.raises(UserError, match="states of the prompts are not finite"):
        reader.read(range(21))


def test_a_curriculum_of_ones_own_sees_all_prompts_at_once(trainer):
    class Own(Curriculum):
        num_components = 2
        seen = ()

        def see(self, components):
            self.seen = (*self.seen, components.copy())

    trainer.curriculum = Own([{}] * 21, 4, 0)
    reader = PromptReader(trainer)
    for _ in range(2):
        reader.read(trainer.curriculum.candidates(3))
    (found,) = trainer.curriculum.seen
    assert found.shape == (21, 2) and found.any(axis=1).all()


def test_strings_have_the_special_tokens_that_trl_gives_them(trainer):
    made, name = trainer.processing_class, trainer.processing_class.eos_token
    pairs = [(name, made.eos_token_id)]
    made.backend_tokenizer.post_processor = TemplateProcessing(f"{name} $A", None, pairs)
    trainer.train_dataset = {"prompt": ["1 + 1 ="]}
    ids = torch.tensor([[made.eos_token_id, *made.encode("1 + 1 =", add_special_tokens=False)]])
    last = trainer.model.eval()(ids, output_hidden_states=True).hidden_states[-1][:, -1]
    assert torch.allclose(module.prompt_states(trainer, [0])[:, -last.shape[1] :], last, atol=1e-5)
