"""The sampler by hand: which token a number draws, and which can never be drawn."""

import pytest
import torch

from data_prep.sampling.hf import SeededSampler, build_sampler

NOT = -torch.inf


def drawn(scores, uniform):
    """The token of each row for these numbers of the interval, one step after the prompt."""
    sampler = SeededSampler(range(len(uniform)), prompt_length=2, max_new_tokens=4)
    sampler._uniform = torch.tensor(uniform, dtype=torch.float64)[:, None].repeat(1, 4)
    ids = torch.zeros((len(uniform), 3), dtype=torch.long)
    found = sampler(ids, scores)
    assert (found == 0).sum(-1).tolist() == [1] * len(uniform)
    assert torch.isneginf(found).sum(-1).tolist() == [scores.shape[1] - 1] * len(uniform)
    return found.argmax(-1).tolist()


def test_on_a_fine_grid_every_token_has_its_share():
    probabilities = torch.tensor([0.0, 0.4, 0.0, 0.3, 0.2, 0.1, 0.0])
    grid = ((torch.arange(1000) + 0.5) / 1000).tolist()
    scores = probabilities.log().repeat(1000, 1)
    found = torch.tensor(drawn(scores, grid))
    assert found.bincount(minlength=7).tolist() == [0, 400, 0, 300, 200, 100, 0]
    assert found.tolist() == sorted(found.tolist())


@pytest.mark.parametrize("uniform", [0.0, 2**-60, 1 - 2**-24, 1 - 2**-53])
@pytest.mark.parametrize("place", [0, 3, 6])
def test_impossible_tokens_are_not_drawn_at_the_edges(uniform, place):
    scores = torch.full((1, 7), NOT)
    scores[0, place] = 3.0
    assert drawn(scores, [uniform]) == [place]


def test_temperature_comes_before_the_nucleus():
    # P ~ 8, 2, 1 becomes 64, 4, 1 at temperature 1/2: the first alone passes 0.9.
    scores = torch.tensor([[8.0, 2.0, 1.0]]).log()
    ids = torch.zeros((1, 3), dtype=torch.long)
    for seed in range(20):
        found = build_sampler(0.5, 0.9, [seed], 2, 4)(ids, scores)
        assert found.argmax().item() == 0
    found = {build_sampler(1.0, 0.9, [s], 2, 4)(ids, scores).argmax().item() for s in range(60)}
    assert found == {0, 1}, "at temperature 1 it takes the second to pass it, and never the third"


def test_a_row_s_numbers_are_its_seed_s():
    seeds = [3, 2**63 - 1, 0]
    together = SeededSampler(seeds, 2, 50)._uniform
    for row, seed in enumerate(seeds):
        assert torch.equal(SeededSampler([seed], 9, 50)._uniform[0], together[row])
    assert torch.equal(SeededSampler([3], 2, 8)._uniform[0], together[0, :8])
    assert ((together >= 0) & (together < 1)).all()
    assert len(together.unique()) == together.numel()
    state = torch.random.get_rng_state()
    SeededSampler(seeds, 2, 50)
    assert torch.equal(torch.random.get_rng_state(), state)
