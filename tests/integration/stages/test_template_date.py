"""A template that prints today's date prints one date, in training and in what it saves."""

import shutil
from datetime import datetime

import pytest
from transformers import AutoTokenizer
from transformers.utils import chat_template_utils

from tests.integration.conftest import CHATML

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("stage", ["sft", "grpo"])
def test_a_template_with_today_s_date_trains_the_same_on_two_days(
    stage, tiny_model_dir, run_stage, graded_by_chance, monkeypatch, tmp_path
):
    chat = shutil.copytree(tiny_model_dir, tmp_path / "chat")
    dated = "{{ strftime_now('%d %B %Y') }}\n" + CHATML
    (chat / "chat_template.jinja").write_text(dated)
    made = []
    for day in (1, 2):

        class Day(datetime):
            @classmethod
            def now(cls, tz=None, day=day):
                return cls(2031, day, day)

        monkeypatch.setattr(chat_template_utils, "datetime", Day)
        folder = str(tmp_path / f"{stage}-{day}")
        made.append(run_stage(stage, model_name_or_path=str(chat), output_dir=folder))
    one, other = (folder / "model.safetensors" for folder in made)
    assert one.read_bytes() == other.read_bytes()
    for folder in made:  # also in other programs, on any day
        tokenizer = AutoTokenizer.from_pretrained(folder)
        prompt = [{"role": "user", "content": "1 + 1?"}]
        assert "26 July 2024\n" in tokenizer.apply_chat_template(prompt, tokenize=False)
