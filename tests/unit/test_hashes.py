"""What a completion depends on: the checkpoint's files, and every file of the engine's code."""

import json

import pytest
from own_imports import imported_files

from data_prep.config import UserError
from data_prep.sampling import hashes
from data_prep.sampling.hashes import ENGINE_CODE, HERE, hash_checkpoint, hash_engine, shorten


@pytest.mark.parametrize("backend", ENGINE_CODE)
def test_all_that_an_engine_imports_is_its_code(backend):
    code = {HERE / name for name in ENGINE_CODE[backend]}
    imported = set().union(*map(imported_files, code))
    # What a request says is part of the samples' keys; vLLM has a sampler of its own.
    exempt = {HERE / "samples.py", HERE.parent / "config.py"}
    exempt |= {HERE / "sampling.py"} if backend == "vllm" else set()
    assert imported - code <= exempt
    assert all(path.is_file() for path in code)


@pytest.fixture
def checkpoint(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (folder / name).write_text(name)
    return folder


@pytest.mark.parametrize(
    ("file", "counts"),
    [
        ("model.safetensors", True), ("model-00002-of-00002.safetensors", True),
        ("model.safetensors.index.json", True), ("pytorch_model.bin", True), ("config.json", True),
        ("generation_config.json", True), ("tokenizer.json", True), ("tokenizer.model", True),
        ("tokenizer_config.json", True), ("special_tokens_map.json", True),
        ("added_tokens.json", True), ("chat_template.jinja", True), ("vocab.json", True),
        ("merges.txt", True), ("spiece.model", True),
        ("README.md", False), ("trainer_state.json", False), ("manifest.json", False),
    ],
)  # fmt: skip
def test_which_files_make_a_checkpoint(checkpoint, file, counts):
    before = hash_checkpoint(str(checkpoint), "checkpoints")
    (checkpoint / file).write_text("changed")
    assert (hash_checkpoint(str(checkpoint), "checkpoints") != before) == counts


def test_a_checkpoint_is_its_files_wherever_they_lie(checkpoint, tmp_path):
    before = hash_checkpoint(str(checkpoint), "checkpoints")
    checkpoint.rename(tmp_path / "moved")
    assert hash_checkpoint(str(tmp_path / "moved"), "checkpoints") == before
    (tmp_path / "moved" / "tokenizer.json").rename(tmp_path / "moved" / "tokenizer2.json")
    assert hash_checkpoint(str(tmp_path / "moved"), "checkpoints") != before


def test_an_adapter_is_itself_and_its_base(checkpoint, tmp_path):
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    config = {"base_model_name_or_path": str(checkpoint)}
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    (adapter / "adapter_model.safetensors").write_text("weights")
    first = hash_checkpoint(str(adapter), "checkpoints")
    assert first.endswith(f" on {hash_checkpoint(str(checkpoint), 'checkpoints')}")
    (checkpoint / "model.safetensors").write_text("changed")
    second = hash_checkpoint(str(adapter), "checkpoints")
    (adapter / "adapter_model.safetensors").write_text("changed")
    assert len({first, second, hash_checkpoint(str(adapter), "checkpoints")}) == 3


def test_a_model_of_the_hub_is_its_commit(monkeypatch):
    def cached_file(name, file):
        return f"/cache/models--{name.replace('/', '--')}/snapshots/abc123/{file}"

    monkeypatch.setattr("transformers.utils.cached_file", cached_file)
    assert hash_checkpoint("owner/model", "checkpoints") == "hub:owner/model@abc123"

    def fail(*_):
        raise OSError("no network\nand much more")

    monkeypatch.setattr("transformers.utils.cached_file", fail)
    with pytest.raises(UserError, match="checkpoints: owner/model: no network; check the name and"):
        hash_checkpoint("owner/model", "checkpoints")


def test_an_engine_is_its_code_backend_and_precision(monkeypatch, tmp_path):
    chosen = [("hf", "bfloat16"), ("hf", "float32"), ("vllm", "bfloat16")]
    assert len({hash_engine(*one) for one in chosen}) == 3
    before = hash_engine(*chosen[0])
    assert before == hash_engine(*chosen[0])
    (tmp_path / "hf.py").write_text("changed")
    code = (str(tmp_path / "hf.py"), "sampling.py")
    monkeypatch.setitem(hashes.ENGINE_CODE, "hf", code)
    assert hash_engine(*chosen[0]) != before


@pytest.mark.parametrize(
    ("found", "short"),
    [
        ("0123456789abcdef" * 4, "0123456789ab"),
        ("0123456789abcdef" * 4 + " on hub:owner/model@fedcba9876543210", "0123456789ab"),
        ("hub:cafe/facade@fedcba9876543210", "fedcba987654"),
    ],
)
def test_short_names(found, short):
    assert shorten(found) == short
