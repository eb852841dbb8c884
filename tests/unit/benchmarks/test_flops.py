"""FLOPs of a model, counted by hand; and a peak that does not hang."""

from types import SimpleNamespace

import pytest

from benchmarks.flops import forward_flops, layer_weights, training_flops
from stages.preflight.model_shapes import SHAPES

# Two layers, four heads of size 2 of which two are of keys and values.
SMALL = SimpleNamespace(
    hidden_size=8, intermediate_size=16, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, vocab_size=10,
)  # fmt: skip


def test_weights_of_a_layer():
    # q and o: 8 x 8 each, k and v: 8 x 4 each; gate, up, down: 8 x 16 each.
    assert layer_weights(SMALL) == 2 * 64 + 2 * 32 + 3 * 128
    wide = SimpleNamespace(**vars(SMALL), head_dim=4)
    assert layer_weights(wide) == 2 * 8 * 16 + 2 * 8 * 8 + 3 * 128


@pytest.mark.parametrize(("length", "scored"), [(1, 0), (3, 0), (3, 2), (5, 5)])
def test_forward_by_hand(length, scored):
    linear = 2 * length * 576 + scored * 8 * 10  # 576 weights in each layer, 8 x 10 in the head
    pairs = sum(range(1, length + 1))  # of a token and one that it may see
    attention = 2 * 2 * 4 * 2 * pairs * 2  # 2 products, 4 heads of size 2, 2 layers
    assert forward_flops(SMALL, length, scored) == 2 * linear + attention
    assert training_flops(SMALL, [(length, scored)] * 2) == 6 * (2 * linear + attention)


@pytest.mark.parametrize(
    ("shape", "parameters"),
    [("0.5B", 494_032_768), ("1.5B", 1_543_714_304), ("7B", 7_615_616_512)],
)
def test_weights_are_those_of_the_published_models(shape, parameters):
    """But for biases, norms and an embedding that is no head: the published counts."""
    config = SimpleNamespace(**SHAPES[shape])
    table = config.vocab_size * config.hidden_size
    weights = config.num_hidden_layers * layer_weights(config) + table
    if not config.tie_word_embeddings:
        weights += table
    assert weights == pytest.approx(parameters, rel=2e-4)
