"""Which loop generates without vLLM where the user leaves it open."""

from types import SimpleNamespace

import pytest

from data_prep.sampling import fastest

GPU, CPU = SimpleNamespace(type="cuda"), SimpleNamespace(type="cpu")
SPEEDS = {"transformers": 2.0, "ours": 3.0, "generate_batch": 9.0}


@pytest.fixture(autouse=True)
def gpu(tmp_path, monkeypatch):
    """A GPU named `a`, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(fastest, "device_name", lambda device: "a")


@pytest.mark.parametrize(
    ("speeds", "is_ours"), [(SPEEDS, True), (SPEEDS | {"ours": 1.9}, False), ({"ours": 3.0}, False)]
)
def test_a_gpu_takes_what_was_found_on_such_a_one(speeds, is_ours, capsys):
    fastest.keep_finding("b", SPEEDS)
    assert not fastest.uses_ours(None, GPU, "x")
    assert "nothing was measured" in capsys.readouterr().out
    fastest.keep_finding("a", speeds)
    assert fastest.uses_ours(None, GPU, "x") is is_ours
    said = capsys.readouterr().out
    assert (
        said.startswith(f"x: fast_generation: {str(is_ours).lower()}, ") and said.count("\n") == 1
    )


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"tokens_per_second": {"ours": "x", "transformers": 1}}', "\x00"]
)
def test_a_damaged_finding_is_none(text):
    path = fastest.keep_finding("a", SPEEDS)
    path.write_text(text)
    assert not fastest.uses_ours(None, GPU, "x")
    path.write_bytes(b"\xff")
    assert not fastest.uses_ours(None, GPU, "x")


def test_of_other_versions_it_is_none(monkeypatch):
    fastest.keep_finding("a", SPEEDS)
    monkeypatch.setattr(fastest.manifest, "versions", lambda names: dict.fromkeys(names, "9"))
    assert not fastest.uses_ours(None, GPU, "x")


def test_what_is_asked_for_wins_and_a_cpu_takes_ours(capsys):
    assert [fastest.uses_ours(asked, GPU, "x") for asked in (True, False)] == [True, False]
    assert [fastest.uses_ours(asked, CPU, "x") for asked in (None, False)] == [True, False]
    assert not capsys.readouterr().out
