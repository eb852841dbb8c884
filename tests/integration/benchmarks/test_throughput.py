"""The throughput benchmark on a handful of rows: what it trains, and when it gives no ratio."""

import pytest

from pipeline.errors import UserError

pytestmark = [pytest.mark.integration, pytest.mark.slow]
SMALL = {
    "num_groups": 2, "num_generations": 2, "grpo_batch_size": 2, "sft_rows": 8,
    "sft_rows_per_step": 8, "sft_batch_size": 4, "num_turns": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    """Arguments, folder with a tiny model, and tokenizer, as `run_parts` makes them."""
    from benchmarks.throughput import BenchArguments
    from benchmarks.throughput_runs import build_tokenizer, save_model

    folder, tokenizer = tmp_path_factory.mktemp("bench"), build_tokenizer()
    save_model("tiny", folder / "model", tokenizer, "float32")
    return BenchArguments(out="unused", packed_lengths=[1024], **SMALL), folder, tokenizer


def test_a_trainer_that_computes_something_else_gets_no_ratio(bench, monkeypatch):
    """Rows left out of the gradient: the loss stays, because the ratio is 1, the norm does not."""
    import torch

    from benchmarks import throughput_runs as runs

    args, folder, tokenizer = bench

    class Forgets(runs.MathGRPOTrainer):
        def _has_gradient(self, batch):
            return torch.arange(len(batch["advantages"])) % 2 == 0

    monkeypatch.setitem(runs.TRAINERS, "ours", Forgets)
    with pytest.raises(UserError, match=r"GRPO, update: grad_norms of ours are .* no ratio"):
        runs.measure_grpo("update", args, folder, tokenizer)


def test_packed_rows_that_see_each_other_get_no_ratio(bench, monkeypatch):
    """What keeps them apart under sdpa is the mask that transformers reads off `position_ids`."""
    from transformers import masking_utils

    from benchmarks.throughput_runs import measure_sft

    args, folder, tokenizer = bench
    found = measure_sft(args, folder, tokenizer)
    assert found["difference"] < 1e-5
    monkeypatch.setattr(masking_utils, "find_packed_sequence_indices", lambda position_ids: None)
    with pytest.raises(UserError, match=r"SFT: mean_losses of packed to 1,024 are .* no ratio"):
        measure_sft(args, folder, tokenizer)
