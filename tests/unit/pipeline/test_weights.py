"""An LM head with weights of its own is not tied in the configuration that is saved."""

import json

import numpy
import pytest
from safetensors.numpy import save_file

from pipeline.models.weights import keep_own_head


@pytest.mark.parametrize(("head", "is_tied"), [(2, False), (1, True), (None, True)])
def test_an_lm_head_of_its_own_is_not_tied(tmp_path, head, is_tied):
    """A model may have one although its configuration says that the embedding is the LM head.

    A sharded model that ties them is saved with both.
    """
    weights = {"model.embed_tokens.weight": numpy.full((2, 2), 1, numpy.float32)}
    if head:
        weights["lm_head.weight"] = numpy.full((2, 2), head, numpy.float32)
    save_file(weights, tmp_path / "model.safetensors")
    config = tmp_path / "config.json"
    config.write_text('{"model_type": "qwen2", "tie_word_embeddings": true}')
    keep_own_head(tmp_path)
    assert json.loads(config.read_text())["tie_word_embeddings"] is is_tied
