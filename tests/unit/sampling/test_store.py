"""The store: keys that know everything, lines that survive a kill, nothing asked for twice."""

import json
import pickle
import threading
from contextlib import closing
from dataclasses import fields, replace

import pytest
from torch.distributed import HashStore

from data_prep.sampling.hashes import hash_checkpoint, hash_engine
from data_prep.sampling.store import (
    Completion,
    Continuation,
    Processes,
    Request,
    SampleStore,
    Settings,
    fill,
)
from pipeline.errors import UserError

SETTINGS = Settings(8, temperature=0.7, top_p=0.9, until=("a",), rendered=True, seed=3)
REQUEST = Request("Mia has", SETTINGS, 1)
PAIR = Continuation("Mia has", " 14")
WANTED = [Request(prompt, Settings(8), sample) for prompt in "abc" for sample in range(4)]
CHANGES = {
    "max_new_tokens": 9, "temperature": 0.8, "top_p": 1.0, "until": (), "rendered": False,
    "seed": 4,
}  # fmt: skip


def reopen(tmp_path, rank=0):
    found = SampleStore(tmp_path, "model", rank)
    found.load()
    return found


def name(request):
    return Completion(f"{request.prompt}{request.sample}", 2, False)


def test_everything_that_decides_is_part_of_the_key(tmp_path):
    store = SampleStore(tmp_path, "model")
    assert set(CHANGES) == {field.name for field in fields(Settings)}
    assert {field.name for field in fields(Request)} == {"prompt", "settings", "sample", "place"}
    for one in (REQUEST, PAIR):  # where a row stands decides nothing
        moved = replace(one, place="held_out: p3: ")
        assert moved == one and store.key(moved) == store.key(one)
    wanted = [replace(REQUEST, settings=replace(SETTINGS, **{k: v})) for k, v in CHANGES.items()]
    wanted += [REQUEST, replace(REQUEST, prompt="Mia has "), replace(REQUEST, sample=0)]
    wanted += [PAIR, Continuation("Mia has 14", ""), Continuation(" 14", "Mia has")]
    keys = [store.key(one) for one in wanted]
    keys += [SampleStore(tmp_path, model).key(REQUEST) for model in ("a hf", "b hf", "a vllm")]
    assert len(set(keys)) == len(keys)
    assert SampleStore(tmp_path / "elsewhere", "a hf", rank=5).key(REQUEST) == keys[-3]
    # The context counts where it may cut the prompt.
    stores = [SampleStore(tmp_path, "model", context=length) for length in (1024, 8192)]
    for one, is_same in ((REQUEST, True), (wanted[4], False), (PAIR, False)):
        assert (stores[0].key(one) == stores[1].key(one)) == is_same


def test_a_sample_s_seed():
    """Its own numbers decide it; what else is asked, and the limits of its length, do not."""
    assert REQUEST.seed == Request("Mia has", Settings(9, seed=3), 1).seed
    others = [replace(REQUEST, sample=2), replace(REQUEST, prompt="Mia")]
    others.append(replace(REQUEST, settings=replace(SETTINGS, seed=4)))
    assert len({one.seed for one in [REQUEST, *others]}) == 4
    assert all(0 <= Request("p", SETTINGS, k).seed < 2**63 for k in range(100))
    # For good: a sample that was stored long ago belongs with those of today.
    assert Request("", Settings(1), 0).seed == 8375615582978303630


def test_what_is_stored_is_read_by_all(tmp_path):
    first, second = SampleStore(tmp_path, "model"), SampleStore(tmp_path, "model", rank=1)
    assert first.missing([REQUEST, PAIR, REQUEST]) == [REQUEST, PAIR]
    text = "\ud800 half, \u2028 line, \0, é, 😀\n"
    first.add(REQUEST, pickle.loads(pickle.dumps(Completion(text, 5, True))))
    second.add(PAIR, (float("-inf"), True))
    first.close(), second.close()
    found = reopen(tmp_path, rank=7)
    completion = found.get(REQUEST)
    assert (completion, completion.num_tokens, completion.cut_off) == (text, 5, True)
    assert found.get(PAIR) == (float("-inf"), True) and found.missing([REQUEST, PAIR]) == []
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["samples-0.jsonl", "samples-1.jsonl"], "who makes nothing leaves no file"
    with pytest.raises(UserError, match="put output_dir on a file system that all hosts sha"):
        found.get(replace(REQUEST, sample=9))


@pytest.mark.parametrize("cut", [1, 2, 40])
def test_a_torn_line_costs_one_sample(tmp_path, cut):
    wanted = [replace(REQUEST, sample=number) for number in range(3)]
    with closing(SampleStore(tmp_path, "model")) as store:
        for one in wanted[:2]:
            store.add(one, name(one))
    path = tmp_path / "samples-0.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    with closing(reopen(tmp_path)) as found:
        # Without its line end alone the last line is complete.
        assert found.missing(wanted) == wanted[2 if cut == 1 else 1 :]
        for one in found.missing(wanted):
            found.add(one, name(one))
    assert [reopen(tmp_path).get(one) for one in wanted] == list(map(name, wanted))


class Reciting:
    """An engine that writes the request's name, last request first, and fails at `fails_at`."""

    def __init__(self, fails_at=None):
        self.asked, self.is_closed, self._fails_at = [], False, fails_at

    def open(self):
        return closing(self)

    def complete(self, requests):
        self.asked.extend(requests)
        for index, request in reversed(list(enumerate(requests))):
            if request == self._fails_at:
                raise RuntimeError("the engine broke")
            yield index, name(request)

    def close(self):
        self.is_closed = True


def test_what_is_missing_is_generated_once(tmp_path, capsys):
    store, engine = SampleStore(tmp_path, "model"), Reciting()
    for request in WANTED[:5]:
        store.add(request, Completion("early", 1, False))
    fill(store, WANTED + WANTED[-2:], engine.open, Processes(), "test")
    assert engine.asked == WANTED[5:] and engine.is_closed
    assert [store.get(one) for one in WANTED] == ["early"] * 5 + [name(one) for one in WANTED[5:]]
    fill(store, WANTED, pytest.fail, Processes(), "test")
    assert capsys.readouterr() == (
        "test: 5 samples are already stored\ntest: 12 samples are already stored\n", ""
    )  # fmt: skip


def test_what_is_finished_outlives_an_error(tmp_path):
    engine, second = Reciting(fails_at=WANTED[7]), Reciting()
    with pytest.raises(RuntimeError, match="broke"):
        fill(SampleStore(tmp_path, "model"), WANTED, engine.open, Processes(), "test")
    assert engine.is_closed
    fill(SampleStore(tmp_path, "model"), WANTED, second.open, Processes(), "test")
    assert second.asked == WANTED[:8]


@pytest.mark.parametrize("num_stored", [0, 11])
def test_processes_share(tmp_path, num_stored):
    """Two ranks in two threads."""
    with closing(SampleStore(tmp_path, "model", rank=5)) as before:
        for request in WANTED[:num_stored]:
            before.add(request, name(request))
    engines, meeting, found = [Reciting(), Reciting()], HashStore(), {}

    def work(rank):
        store = SampleStore(tmp_path, "model", rank)
        fill(store, WANTED, engines[rank].open, Processes(rank, 2, rank, meeting), "test")
        found[rank] = rank or [store.get(one) for one in WANTED]

    threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert found == {0: list(map(name, WANTED)), 1: 1}
    todo = WANTED[num_stored:]
    assert [engine.asked for engine in engines] == [todo[0::2], todo[1::2]]
    assert [engine.is_closed for engine in engines] == [True, num_stored == 0]


def digest(path):
    return hash_checkpoint(str(path), "checkpoints")


def test_a_checkpoint_is_the_files_that_decide_what_it_writes(tmp_path):
    model, adapter, found = tmp_path / "model", tmp_path / "adapter", set()
    model.mkdir(), adapter.mkdir()
    for file in (
        "model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja", "merges.txt",
        "generation_config.json", "tokenizer_config.json", "added_tokens.json", "vocab.json",
    ):  # fmt: skip
        (model / file).write_text("{}")
        found.add(digest(model))
    assert len(found) == 9
    for file in ("README.md", "optimizer.pt"):
        (model / file).write_text("of no account")
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
    def cached_file(model, file):
        if model == "owner/none":
            raise OSError("no network\nand much more")
        return f"/cache/models--owner--model/snapshots/abc123/{file}"

    monkeypatch.setattr("transformers.utils.cached_file", cached_file)
    assert digest("owner/model") == "hub:owner/model@abc123"
    with pytest.raises(UserError, match="checkpoints: owner/none: no network; check the name and"):
        digest("owner/none")


def test_an_engine_is_its_code_backend_and_precision(monkeypatch):
    chosen = [("hf", "bfloat16"), ("hf", "float32"), ("vllm", "bfloat16")]
    before = [hash_engine(*one) for one in chosen]
    assert len(set(before)) == 3 and before == [hash_engine(*one) for one in chosen]
    monkeypatch.setattr("pipeline.manifest.hash_code", lambda *_: "other code")
    assert hash_engine(*chosen[0]) != before[0]
