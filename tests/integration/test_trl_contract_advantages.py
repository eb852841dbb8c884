"""Contract: what the advantages and the minibatch early-stop lean on in TRL and transformers."""

import inspect
import json

import pytest

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("kind", ["group", "none", "batch"])
def test_advantages_equal_trls_to_the_last_bit(run_stage, monkeypatch, kind):
    """What TRL computes with `scale_rewards`, for groups of every sort and unscored completions."""
    import torch
    from trl import GRPOTrainer

    from stages.trainer.advantages import advantages, sum_rewards

    seen = {}
    calculate = GRPOTrainer._calculate_rewards
    generate_and_score = GRPOTrainer._generate_and_score_completions

    def draw_rewards(self, *args):
        shape = calculate(self, *args).shape  # (24, 3)
        generator = torch.Generator().manual_seed(0)
        rewards = torch.randn(shape, generator=generator)
        rewards[4:8] = 0.7  # a group without variance
        rewards[[8, 9, 13, 14, 15, 16, 17, 18, 19]] = torch.nan  # two scored, one, none
        rewards[20, 1:] = torch.nan
        seen["rewards"] = sum_rewards(rewards, self.reward_weights)
        return rewards

    def keep_output(self, inputs):
        output = generate_and_score(self, inputs)
        seen["advantages"] = output["advantages"]
        return output

    monkeypatch.setattr(GRPOTrainer, "_calculate_rewards", draw_rewards)
    monkeypatch.setattr(GRPOTrainer, "_generate_and_score_completions", keep_output)
    settings = {"per_device_train_batch_size": 24, "max_steps": 1, "max_completion_length": 2}
    run_stage("grpo", advantage=kind, **settings)
    found = advantages(kind, seen["rewards"], 4)
    assert torch.equal(found, seen["advantages"])
    assert found.count_nonzero() == 10


def parameters(function):
    return list(inspect.signature(function).parameters)


def test_overridden_methods_keep_their_signatures():
    from trl import GRPOTrainer

    from stages.trainer.early_stop import MinibatchEarlyStop

    for name in ("compute_loss", "_get_grad_norm"):
        theirs = parameters(getattr(GRPOTrainer, name))
        assert parameters(getattr(MinibatchEarlyStop, name)) == theirs
    assert parameters(GRPOTrainer.compute_loss)[1:3] == ["model", "inputs"]
    assert parameters(GRPOTrainer._get_grad_norm) == ["self", "model", "grad_norm"]


def test_the_loss_asks_for_the_log_probs_once_and_they_come_first(run_stage, monkeypatch):
    """Two minibatches of a generation; the inputs hold what the mean ratio is computed from."""
    import torch
    from trl import GRPOTrainer

    compute_loss = GRPOTrainer.compute_loss
    get_logps = GRPOTrainer._get_per_token_logps_and_entropies
    seen, in_loss = [], []

    def spy_logps(self, *args, **kwargs):
        outputs = get_logps(self, *args, **kwargs)
        if in_loss:
            in_loss.append(outputs)
        return outputs

    def spy_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        in_loss.append(None)
        loss = compute_loss(self, model, inputs, return_outputs, num_items_in_batch)
        seen.append((inputs, in_loss[1:], loss, self._metrics["train"], self.model.training))
        in_loss.clear()
        return loss

    monkeypatch.setattr(GRPOTrainer, "compute_loss", spy_loss)
    monkeypatch.setattr(GRPOTrainer, "_get_per_token_logps_and_entropies", spy_logps)
    settings = {"steps_per_generation": 2, "max_steps": 2, "max_completion_length": 4}
    run_stage("grpo", **settings)
    assert len(seen) == 2
    for inputs, calls, loss, metrics, is_training in seen:
        ((logps, entropies, aux_loss),) = calls
        shape = inputs["completion_mask"].shape
        assert logps.shape == entropies.shape == inputs["old_per_token_logps"].shape == shape
        assert logps.requires_grad and (logps <= 0).all() and (entropies >= 0).all()
        assert aux_loss is None and "tool_mask" not in inputs
        assert loss.shape == () and metrics.default_factory is list and is_training
    # The first is computed with the weights that wrote the completions.
    inputs, ((logps, *_),), *_ = seen[0]
    mask = inputs["completion_mask"].bool()
    assert torch.allclose(logps[mask], inputs["old_per_token_logps"][mask], atol=1e-5)


def test_the_gradient_norm_is_asked_for_just_before_the_step(run_stage, monkeypatch):
    """Once a window; what it returns is logged; without gradients the optimizer does nothing."""
    import torch
    from trl import GRPOTrainer

    events = []
    get_grad_norm, step = GRPOTrainer._get_grad_norm, torch.optim.AdamW.step

    def spy_norm(self, model, grad_norm=None):
        assert self.is_deepspeed_enabled is False
        assert all(p.grad is not None for p in model.parameters())
        events.append(get_grad_norm(self, model, grad_norm=grad_norm).item())
        model.zero_grad(set_to_none=True)
        return 7.0

    def spy_step(self, closure=None):
        events.append("step")
        assert all(p.grad is None for group in self.param_groups for p in group["params"])
        step(self, closure)
        assert not self.state

    monkeypatch.setattr(GRPOTrainer, "_get_grad_norm", spy_norm)
    monkeypatch.setattr(torch.optim.AdamW, "step", spy_step)
    settings = {"gradient_accumulation_steps": 2, "max_steps": 2, "max_completion_length": 4}
    folder = run_stage("grpo", **settings)
    assert len(events) == 4 and events[1::2] == ["step"] * 2
    history = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    assert [log["grad_norm"] for log in history if "loss" in log] == [7.0, 7.0]


def test_tools_mask_is_an_input_of_that_name():
    from trl import GRPOTrainer

    written = inspect.getsource(GRPOTrainer._generate_and_score_completions)
    read = inspect.getsource(GRPOTrainer._compute_loss)
    assert 'output["tool_mask"] = tool_mask' in written
    assert 'completion_mask * inputs["tool_mask"]' in read
