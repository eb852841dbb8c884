"""How many rows a step takes, from a recipe as an older run wrote it down."""

import json

import pytest

from data_prep.config import UserError
from stages.launch import DATA_PARALLEL, check_resume, rows_of

NULL = {"per_device_train_batch_size": None, "gradient_accumulation_steps": None}


def test_a_key_without_a_value_has_hugging_faces_default():
    assert rows_of(NULL, 2) == rows_of({}, 2) == {"step": 16}
    batch = {"gradient_accumulation_steps": 2, "steps_per_generation": 4}
    assert rows_of(NULL | batch, 1) == {"step": 16, "generation batch": 32}


def test_such_a_run_goes_on_with_as_many_rows(tmp_path):
    checkpoint = tmp_path / "checkpoint-2"
    checkpoint.mkdir()
    (tmp_path / "run.json").write_text(json.dumps({"config": NULL, "num_processes": 1}))
    check_resume(checkpoint, {"per_device_train_batch_size": 4}, 2, DATA_PARALLEL)
    with pytest.raises(UserError, match=r"1 processes and 8 rows a step, this launch has 2 and 16"):
        check_resume(checkpoint, NULL, 2, DATA_PARALLEL)
