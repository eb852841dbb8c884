"""What a completion depends on: a checkpoint's files, the sampling code, precision, packages."""

import json

import pytest

from data_prep.sampling.hashes import hash_checkpoint, hash_engine, shorten
from pipeline.errors import UserError


def digest(path):
    return hash_checkpoint(str(path), "checkpoints")


def test_a_checkpoint_is_the_files_that_decide_what_it_writes(tmp_path):
    model, adapter, found = tmp_path / "model", tmp_path / "adapter", set()
    model.mkdir(), adapter.mkdir()
    for name in (
        "model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja", "merges.txt",
        "generation_config.json", "tokenizer_config.json", "added_tokens.json", "vocab.json",
    ):  # fmt: skip
        (model / name).write_text("{}")
        found.add(digest(model))
    assert len(found) == 9
    (model / "README.md").write_text("of no account")
    (model / "optimizer.pt").write_text("of no account")
    assert digest(model) in found
    # An adapter is itself on its base.
    config = {"base_model_name_or_path": str(model)}
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    (adapter / "adapter_model.safetensors").write_text("weights")
    first = digest(adapter)
    assert first.endswith(f" on {digest(model)}")
    (model / "model.safetensors").write_text("changed")
    second = digest(adapter)
    (adapter / "adapter_model.safetensors").write_text("changed")
    assert len({first, second, digest(adapter)}) == 3


def test_a_model_of_the_hub_is_its_commit(monkeypatch):
    def cached_file(name, file):
        return f"/cache/models--{name.replace('/', '--')}/snapshots/abc123/{file}"

    monkeypatch.setattr("transformers.utils.cached_file", cached_file)
    assert digest("owner/model") == "hub:owner/model@abc123"

    def fail(*_):
        raise OSError("no network\nand much more")

    monkeypatch.setattr("transformers.utils.cached_file", fail)
    with pytest.raises(UserError, match="checkpoints: owner/model: no network; check the name and"):
        digest("owner/model")


def test_an_engine_is_its_code_backend_and_precision(monkeypatch):
    chosen = [("hf", "bfloat16"), ("hf", "float32"), ("vllm", "bfloat16")]
    before = [hash_engine(*one) for one in chosen]
    assert len(set(before)) == 3 and before == [hash_engine(*one) for one in chosen]
    monkeypatch.setattr("pipeline.manifest.hash_code", lambda *_: "other code")
    assert hash_engine(*chosen[0]) != before[0]


def test_short_names():
    assert shorten("0123456789abcdef" * 4 + " on hub:owner/model@fedcba98") == "0123456789ab"
    assert shorten("hub:cafe/facade@fedcba9876543210") == "fedcba987654"
