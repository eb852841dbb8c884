"""What the throughput benchmark reads of a host's files, also where they are not as expected."""

from pathlib import Path

import pytest
import torch

from benchmarks import bench_throughput
from benchmarks.bench_throughput_steps import peak_memory
from stages.preflight import flops


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_memory_is_measured_where_the_mark_cannot_be_reset(monkeypatch):
    refused = []

    def write_text(self, text):
        refused.append(str(self))
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "write_text", write_text)
    found = {}
    with peak_memory(found):
        pass
    assert refused == ["/proc/self/clear_refs"]
    assert found["bytes"] > 1 << 20


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("processor: 0\nmodel name\t: Xeon 9\nmodel name\t: Xeon 9\n", "one core of Xeon 9"),
        ("processor\t: 0\nCPU implementer\t: 0x41\n", "one core of CPU"),  # ARM
    ],
)
def test_the_name_of_a_cpu(monkeypatch, text, name):
    monkeypatch.setattr(Path, "read_text", lambda self, encoding: text)
    monkeypatch.setattr(flops, "measured_peak", lambda dtype: 1.0)
    assert bench_throughput.device()["name"] == name
