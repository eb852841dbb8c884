"""The sound recipe that mistakes are planted in."""

import pytest

from tests.integration.preflight.planted import Planted


@pytest.fixture
def planted(tmp_path, tiny_model_dir, data_dir, monkeypatch):
    return Planted(tmp_path, tiny_model_dir, data_dir, monkeypatch)
