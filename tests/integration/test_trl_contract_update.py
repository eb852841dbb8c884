"""Contract: how TRL asks for log-probs, as `efficient_update` and `row_packing` rely on."""

import inspect

import pytest

pytestmark = pytest.mark.integration


def test_log_probs_are_asked_of_the_model_that_is_given():
    """The stand-in for the model sees these arguments, and these outputs are read."""
    from trl import GRPOTrainer

    method = GRPOTrainer._get_per_token_logps_and_entropies
    names = list(inspect.signature(method).parameters)
    assert names[:6] == [
        "self", "model", "input_ids", "attention_mask", "logits_to_keep", "batch_size",
    ]  # fmt: skip
    source = inspect.getsource(method)
    assert "outputs = model(**model_inputs, labels=labels, fused_lm_head=True)" in source
    assert source.count("outputs.") == 3
    assert all(f"outputs.{name}" in source for name in ("log_probs", "entropy", "aux_loss"))
    # None asks for all rows at once.
    assert "batch_size = batch_size or input_ids.size(0)" in source


def test_what_makes_a_row_without_advantage_matter():
    """KL, entropy bonus and the experts' balance; every other term is a multiple of it."""
    from trl import GRPOTrainer

    init, loss = (inspect.getsource(m) for m in (GRPOTrainer.__init__, GRPOTrainer._compute_loss))
    assert "self._entropy_bonus_enabled = " in init and "self.aux_loss_enabled = " in init
    added = [line.strip() for line in loss.splitlines() if "loss = loss " in line]
    assert sorted(added) == [
        "loss = loss + self.router_aux_loss_coef * aux_loss / normalizer",
        "loss = loss - apply_coef * entropy_loss",
        *["loss = loss / normalizer"] * 4,
    ]
    assert loss.count("per_token_loss = per_token_loss + ") == 1
    assert "per_token_loss = per_token_loss + self.beta * per_token_kl" in loss
    assert "if self._entropy_bonus_enabled:" in loss
    for start in ("per_token_loss1 = ", "per_token_loss2 = ", "per_token_loss = -"):
        lines = [line.strip() for line in loss.splitlines() if line.strip().startswith(start)]
        for line in lines:
            assert "advantages" in line or "min(per_token_loss1, per_token_loss2)" in line or (
                "phi_seq * advantages" in line
            ), line  # fmt: skip


def test_the_buffer_is_a_list_of_micro_batches():
    from trl import GRPOTrainer

    source = inspect.getsource(GRPOTrainer._prepare_inputs)
    assert "self._buffered_inputs = [" in source and "steps_per_generation" in source
    assert "return inputs" in source
