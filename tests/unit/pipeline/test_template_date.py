"""Templates that print today's date: the same text on every day, and all else as it was."""

from datetime import datetime
from pathlib import Path

import pytest
import trl
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

from pipeline.models import template_date
from pipeline.models.tokenizer import load_template, load_tokenizer

BODY = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{{ bos_token }}"
KINDS = {
    "today": '{%- set today = strftime_now("%d %B %Y") -%}\nToday is {{ today }}.\n',
    "dashes": "{%- set today = strftime_now('%Y-%m-%d') %}{{ today.split('-')[0] }} {{ today }}",
    "unpadded": "{{ strftime_now('%-d. %-m. %y, %A %H:%M:%S') }}",
    "variable": "{% set form = '%d %b' %}{{ strftime_now(form ~ ' %Y') }}",
    "optional": "{{ date_string if date_string is defined else strftime_now('%d %b %Y') }}",
    "macro": "{% macro head() %}{{ strftime_now('%Y') }}{% endmacro %}[{{ head() }}]",
    "white space": "\n\n  {% if true %}\n{{ strftime_now('%j') }}\n{% endif %}  \n",
    "percent": "{{ 100 %3 }}%if{{ strftime_now('%d%%') }}",
}
SHIPPED = [
    path
    for path in sorted((Path(trl.__file__).parent / "chat_templates").glob("*.jinja"))
    if template_date.ASKS in path.read_text(encoding="utf-8")
]
TEMPLATES = {name: text + BODY for name, text in KINDS.items()}
TEMPLATES |= {path.stem: path.read_text(encoding="utf-8") for path in SHIPPED}
MESSAGES = [{"role": "system", "content": "Think."}, {"role": "user", "content": "1 + 1?"}]


class Day(datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz=None):
        return cls(2031, 5, 4, 3, 2, 1)


def render(template, **more):
    more |= {"bos_token": "<s>", "add_generation_prompt": True}
    messages = [MESSAGES, MESSAGES[1:]]
    return chat_template_utils.render_jinja_template(messages, chat_template=template, **more)[0]


@pytest.mark.parametrize("name", TEMPLATES)
def test_only_the_date_differs(name, monkeypatch):
    template, fixed = TEMPLATES[name], template_date.fix(TEMPLATES[name])
    wanted = render(template, strftime_now=template_date.DATE.strftime)
    assert render(fixed) == wanted
    monkeypatch.setattr(chat_template_utils, "datetime", Day)
    assert render(fixed) == wanted
    assert template_date.is_fixed(fixed) and template_date.fix(fixed) == fixed


def test_other_templates_stay_as_they_are():
    for template in (None, "", BODY, "{% set date_string = '26 Jul 2024' %}" + BODY):
        assert template_date.fix(template) == template
        assert not template_date.is_fixed(template)
    several = {"default": TEMPLATES["today"], "plain": BODY}
    fixed = template_date.fix(several)
    assert fixed["plain"] == BODY and template_date.is_fixed(fixed["default"])
    assert template_date.is_fixed(fixed) and not template_date.is_fixed(several)


def test_what_is_loaded_and_saved_again_has_one_date(tmp_path, monkeypatch):
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel({"a": 0, "?": 1}, unk_token="?")), eos_token="?"
    )
    tokenizer.chat_template = TEMPLATES["today"]
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "dated.jinja").write_text(TEMPLATES["today"])
    texts = []
    for day in (Day, datetime):
        monkeypatch.setattr(chat_template_utils, "datetime", day)
        loaded = load_tokenizer(str(tmp_path / "model"), "model_name_or_path")
        loaded.save_pretrained(tmp_path / "saved")
        plain = AutoTokenizer.from_pretrained(tmp_path / "saved")
        for one in (loaded, plain):
            texts.append(one.apply_chat_template(MESSAGES, tokenize=False))
        plain.chat_template = load_template(str(tmp_path / "dated.jinja"))
        texts.append(plain.apply_chat_template(MESSAGES, tokenize=False))
    assert len({*texts}) == 1 and "26 July 2024" in texts[0]
