"""Who waits for a GPU, by torch's warnings, made up here."""

import warnings

import torch

from benchmarks.gpu_verdicts import OTHERS
from benchmarks.host_waits import gpu_waits

WAIT = "called a synchronizing CUDA operation"


def test_waits_are_counted_by_the_function_that_asks(monkeypatch):
    modes = []
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)

    def ask():
        warnings.warn(WAIT, stacklevel=1)

    library = compile(f"import warnings\nwarnings.warn('{WAIT}')", "/lib/trl/trainer.py", "exec")
    with gpu_waits() as counts:
        ask()
        ask()
        exec(library)
        warnings.warn("synchronizing is a prototype", stacklevel=1)
    assert counts == {ask.__qualname__: 2, OTHERS: 1} and modes == ["warn", "default"]
