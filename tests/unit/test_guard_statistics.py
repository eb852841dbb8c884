"""What the collapse guards measure, by hand: repetition, log-probs, moved weights, windows."""

import json
import math
import re
import time

import pytest
import torch

from data_prep.prompts import build_completion
from data_prep.sources import synthetic
from stages.trainer.guard_statistics import (
    WeightProbe,
    best_reference,
    length_growth,
    logp_mismatch,
    reference_window,
    repeated_ngram_share,
    repeated_tag_share,
    repetition_scores,
    repetitive_share,
)

NAN, INF = math.nan, math.inf


# Repetition


@pytest.mark.parametrize(
    ("ids", "size", "share"),
    [
        ([], 2, 0),
        ([1], 2, 0),  # shorter than n
        ([1, 2], 2, 0),
        ([1, 2, 3, 4], 2, 0),
        ([1, 2, 1, 2, 1, 2], 2, 3 / 5),  # 12 21 12 21 12
        ([1, 1, 1, 1], 1, 3 / 4),
        ([7] * 103, 4, 0.99),  # 100 n-grams, all the same
        ([*range(50), *[50, 51] * 25], 2, 47 / 99),  # half of it a loop: 50 + 2 distinct
        ([*range(10)] * 10, 8, 83 / 93),  # a loop of 10: 10 distinct of 93
    ],
)
def test_repeated_ngrams(ids, size, share):
    assert repeated_ngram_share(ids, size) == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("", 0),
        ("no tags at all, no tags at all", 0),
        ("<think>so</think>\n\n\\boxed{4}", 0),
        ("so</think>\n\n\\boxed{4}", 0),  # the template has opened the thought
        ("<think>so</think> <answer>4</answer>", 0),
        ("<think>a<b and b>c, 2 < 3 > 1 <br><br></think> 4", 0),  # other tags are text
        ("<think>so</think>" * 4, 3 / 4),
        ("</think>" * 50, 49 / 50),
        ("<answer>4</answer>" * 10, 9 / 10),
        ("<think>" * 8 + "</think>" * 8, 7 / 8),  # all but the first of each
        ("x" * 83 + "<answer>4</answer>", 0),
        # 100 characters: the last 20, from the second </think> on, repeat
        ("x" * 64 + "</think>" + "y" * 8 + "</think>" + "z" * 12, 20 / 100),
    ],
)
def test_repeated_tags(text, share):
    assert repeated_tag_share(text) == pytest.approx(share, abs=1e-12)


def tokens(text):
    """Words, single digits, signs and line breaks, as ids: about what Qwen2's tokenizer cuts."""
    return [hash(token) for token in re.findall(r"\d| ?[A-Za-z]+| ?[^\w\s]+|\s+", text)]


def score(*texts, ngram_size=8):
    return repetition_scores([tokens(text) for text in texts], list(texts), ngram_size)


def test_the_larger_of_tokens_and_tags_counts():
    loop, spam = "so 1 + 1 = 2, " * 40, "</think>" * 40
    assert repetition_scores([[1] * 103, [*range(9)]], [spam, spam], 4) == [0.99, 39 / 40]
    assert repetition_scores([[*range(9)]], [loop], 4) == [0.0]
    with pytest.raises(ValueError):
        repetition_scores([[1]], ["a", "b"], 4)


def test_honest_arithmetic_is_low_and_loops_are_high():
    problems = synthetic.load("rl", 200, seed=0, max_level=7, hasty_share=0.3)
    honest = [build_completion(problem.solution, problem.answer) for problem in problems]
    assert max(score(*honest)) < 0.3 and max(score(*honest, ngram_size=4)) < 0.5
    for text in honest[:20]:
        cut = text[: len(text) // 2]
        tail = text[len(text) // 2 :]
        loops = [cut + tail * 20, text * 20, cut + "5" * 1000, cut + " wait, no:" * 200]
        assert min(score(*loops)) > 0.85


def test_honest_solutions_of_real_data(shared_data):
    lines = (shared_data / "gsm8k" / "train.jsonl").read_text(encoding="utf-8").splitlines()
    solutions = [json.loads(line)["answer"] for line in lines[:1000]]
    lines = (shared_data / "numinamath_cot" / "numina_cot_2k.jsonl").read_text("utf-8").splitlines()
    solutions += [json.loads(line)["response"] for line in lines]
    long = [text for text in solutions if len(tokens(text)) > 512]
    assert len(long) > 300
    assert repetitive_share(score(*solutions), 0.5) < 0.005
    assert repetitive_share(score(*long), 0.5) < 0.02
    # Why n is not 4: formulas come again, and long solutions would look like loops.
    assert repetitive_share(score(*long, ngram_size=4), 0.5) > 0.05


@pytest.mark.parametrize("text", ["<think", "<", "</think>", "<think></think>", "a", "<answer>x "])
def test_hostile_text_costs_little(text):
    text = (text * 100_000)[:100_000]
    started = time.perf_counter()
    repetition_scores([[ord(c) for c in text]], [text], 8)
    assert time.perf_counter() - started < 1  # 0.05 s; quadratic would take minutes


def test_repetitive_share():
    assert repetitive_share([0.5, 0.51, 0.9, 0.0], 0.5) == 0.5  # the limit itself is not above it
    assert math.isnan(repetitive_share([], 0.5))


# Log-probs


def test_logp_mismatch_by_hand():
    log2 = math.log(2)
    reference = torch.tensor([[0.0, 0.0, -1.0], [-1.0, -2.0, 5.0], [NAN, 0.0, 0.0], [-1, -1, -1]])
    sampling = torch.tensor([[log2, -log2, NAN], [-1.0, -2.0, -INF], [0.0, 0, 0], [NAN, 0, 0]])
    mask = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 1, 1], [1, 0, 0]])
    found = logp_mismatch(reference, sampling, mask).tolist()
    # Opposite signs do not cancel, NaN of the sampler and masked tokens are out, the trainer's NaN
    # is no agreement, and nothing left is no number.
    assert found[:3] == [pytest.approx(2.0), 1.0, INF] and math.isnan(found[3])


def test_logp_mismatch_takes_any_mask_and_half_precision():
    reference, sampling = torch.tensor([[-0.5, -4.0]]), torch.tensor([[-0.5, -3.0]])
    for mask in (torch.ones(1, 2, dtype=torch.bool), torch.ones(1, 2), torch.ones(1, 2).long()):
        for kind in (torch.float32, torch.bfloat16, torch.float64):
            found = logp_mismatch(reference.to(kind), sampling.to(kind), mask)
            assert found.shape == (1,) and found.dtype == torch.float32
            assert found.item() == pytest.approx((1 + math.e) / 2)
    assert logp_mismatch(reference, sampling - 1000, mask).tolist() == [INF]  # no overflow to NaN


# Weights that move


def model_of(*parts):
    model = torch.nn.Module()
    for index, part in enumerate(parts):
        model.register_parameter(str(index), torch.nn.Parameter(part))
    return model


def moved(model, change, **keys):
    probe = WeightProbe(model, **keys)
    probe.before()
    with torch.no_grad():
        change([p.data for p in model.parameters()])
    return probe.after()


def test_the_probe_counts_changed_elements():
    model = model_of(torch.zeros(3), torch.zeros(2, 2), torch.zeros(1, dtype=torch.bfloat16))

    def change(parts):
        parts[0][1] = 1
        parts[1][0, 1] = -0.0  # another pattern of bits
        parts[2][0] = 1e-30

    assert moved(model, change) == 3 / 8
    assert moved(model, lambda parts: None) == 0
    assert moved(model, lambda parts: [p.add_(1) for p in parts]) == 1


def test_a_nan_that_stays_has_not_moved():
    model = model_of(torch.tensor([NAN, 1.0]))
    assert moved(model, lambda parts: None) == 0
    assert moved(model, lambda parts: parts[0].fill_(NAN)) == 0.5


def test_the_probe_looks_at_every_kth_element_through_all_parameters():
    # 5 + 4 + 3 elements, at most 4 of them: every third, that is 0, 3 | 1 | 0 within each.
    seen = {(0, 0), (0, 3), (1, 1), (2, 0)}
    for part, size in enumerate((5, 4, 3)):
        for element in range(size):
            model = model_of(torch.zeros(5), torch.zeros(4), torch.zeros(3))
            found = moved(
                model, lambda parts, p=part, e=element: parts[p][e].add_(1), max_elements=4
            )
            assert found == ((part, element) in seen) / 4
    # 64 columns, one element a row would be column 0 alone.
    model = model_of(torch.zeros(64, 64))
    found = moved(model, lambda parts: parts[0][:, :32].add_(1), max_elements=64)
    assert found == pytest.approx(0.5, abs=0.05)


def test_frozen_empty_and_transposed_parameters():
    model = model_of(torch.zeros(4), torch.zeros(0), torch.zeros(2, 3).T)
    next(model.parameters()).requires_grad_(False)

    def change(parts):
        parts[0].add_(1)  # frozen: not looked at
        parts[2][0, 0] = 1

    assert moved(model, change) == pytest.approx(1 / 6)
    assert math.isnan(moved(model_of(torch.zeros(0)), lambda parts: None))
    assert math.isnan(moved(torch.nn.Module(), lambda parts: None))


def test_a_sharded_parameter_counts_with_this_process_part():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        local = torch.zeros(2, 4)
        mesh = init_device_mesh("cpu", (2,))
        model = model_of(DTensor.from_local(local, mesh, [Shard(0)]))  # (4, 4) over two processes
        assert moved(model, lambda parts: local[0].add_(1)) == 0.5
    finally:
        torch.distributed.destroy_process_group()


def test_after_needs_before():
    probe = WeightProbe(model_of(torch.zeros(1)))
    with pytest.raises(AssertionError):
        probe.after()
    probe.before()
    probe.after()
    with pytest.raises(AssertionError):  # and anew for each step
        probe.after()


@pytest.mark.parametrize(
    ("dtype", "low", "high"), [(torch.bfloat16, 0.003, 0.03), (torch.float32, 0.95, 1.0)]
)
def test_a_small_learning_rate_moves_few_bf16_weights(dtype, low, high):
    generator = torch.Generator().manual_seed(0)
    model = model_of((torch.randn(50_000, generator=generator) * 0.02).to(dtype))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-7, weight_decay=0.0)
    weights = next(model.parameters())
    weights.grad = torch.randn(50_000, generator=generator).to(dtype)
    probe = WeightProbe(model)
    probe.before()
    optimizer.step()
    assert low < probe.after() <= high


# Windows over the steps behind


@pytest.mark.parametrize(
    ("num_steps", "num_baseline", "first", "last"),
    [
        (6, 5, 0, 4),  # young: the baseline
        (15, 5, 0, 4),
        (16, 5, 0, 5),  # then all but ten
        (50, 5, 0, 39),
        (51, 5, 1, 40),  # then forty steps, ten ago
        (500, 5, 450, 489),
        (30, 25, 0, 24),
    ],
)
def test_reference_window(num_steps, num_baseline, first, last):
    window = reference_window(range(num_steps), num_baseline)
    assert (window[0], window[-1]) == (first, last)


def test_length_growth_by_hand():
    assert math.isnan(length_growth([], 3, 5))
    assert math.isnan(length_growth([100.0] * 5, 3, 5))  # a baseline, but nothing after it
    assert length_growth([100.0] * 5 + [400.0], 3, 5) == 2.0  # (100 + 100 + 400) / 3 / 100
    assert length_growth([50, 150, 100, 100, 100, 9, 9, 300, 200, 250], 3, 5) == 2.5
    assert math.isnan(length_growth([0.0] * 9, 3, 5))
    # Linear growth: steps 0..99 are as long as their number; 10 ago and older: 50..89.
    assert length_growth(range(100), 3, 5) == pytest.approx(98 / 69.5)


def test_best_reference_by_hand():
    # Young: the last window, better or worse.
    assert best_reference([0.1] * 6, [1.0] * 5 + [0], 5, None) == [0.1, 1.0]
    assert best_reference([0.1] * 6, [0.5] * 6, 5, [0.0, 9.0]) == [0.1, 0.5]
    # Whole (50 steps): only a window whose reward is no worse; the last ten are not in it.
    rates, rewards = [0.2] * 40 + [1.0] * 10, [0.6] * 40 + [0.0] * 10
    assert best_reference(rates, rewards, 5, [0.1, 0.7]) == [0.1, 0.7]
    assert best_reference(rates, rewards, 5, [0.1, 0.6]) == pytest.approx([0.2, 0.6])
    assert best_reference(rates, rewards, 5, [0.1, 0.5]) == pytest.approx([0.2, 0.6])
