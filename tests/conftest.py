"""Fixtures shared by all tests."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Of each command that a test starts: it would take ten seconds more. Its own tests switch it on.
os.environ["REHEARSE"] = "off"
# Before any test imports the hub's library, which reads it once: a test would wait for the hub.
os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data files; tests that need it are skipped where it is missing."""
    folder = Path(os.environ.get("DATA_ROOT") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; set DATA_ROOT to the folder that holds gsm8k/")
    return folder


@pytest.fixture(autouse=True)
def same_environment() -> Iterator[None]:
    """Put back the environment after each test: a command hands its variables on through it."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="module", autouse=True)
def quick_garbage_collection() -> None:
    """Leave out of each collection what imports have made.

    A training collects garbage twice; over all these objects it took a third of its time.
    """
    gc.collect()
    gc.freeze()
