"""LoRA: an adapter's base."""

import json

import pytest

from pipeline.errors import UserError
from pipeline.models.checkpoints import check_checkpoint
from tests.unit.stages.helpers import write_model


def test_an_adapter_without_its_base_is_refused(tmp_path):
    base = str(tmp_path / "gone/model")
    files = {"adapter_config.json": {"base_model_name_or_path": base}, "config.json": None}
    write_model(tmp_path / "adapter", files)
    with pytest.raises(UserError, match=rf"^MODEL: .*adapter_config.json: .*{base} is not there"):
        check_checkpoint(str(tmp_path / "adapter"), "MODEL")
    (tmp_path / "adapter/adapter_config.json").write_text(
        json.dumps({"base_model_name_or_path": "gpt2"})
    )  # may be on the hub
    check_checkpoint(str(tmp_path / "adapter"), "MODEL")
