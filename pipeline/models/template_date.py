"""Chat templates that print today's date: one date in its place, on whatever day they are rendered.

Llama 3.2, SmolLM3 and Mistral Small write the day into their system message. SFT, rollouts and
evaluation of one run would see other prompts on other days, and two runs other weights.
"""

import json
import re
from datetime import datetime
from typing import Any

# The date that Llama's templates fall back on where they cannot ask for today's.
DATE = datetime(2024, 7, 26)
ASKS = "strftime_now"  # the function that transformers gives to templates; nothing else has a date
HEAD = "{% macro " + ASKS + "(format) %}"
DIRECTIVE = re.compile(r"(?<!\{)%(?:-?[a-rt-zA-Z]|%)")  # of strftime; not `%s`, of a time zone


def fix(template: Any) -> Any:
    """A chat template, or several by name, in which `strftime_now` is the macro of `DATE`.

    Saved with a tokenizer, it renders the same everywhere. All other text stays as it is.
    """
    if isinstance(template, dict):
        return {name: fix(one) for name, one in template.items()}
    if not template or ASKS not in template or is_fixed(template):
        return template
    steps = ""
    for directive in sorted({*DIRECTIVE.findall(template)}, reverse=True):  # `%%` last
        value = DATE.strftime(directive)
        steps += f" | replace({json.dumps(directive)}, {json.dumps(value)})"
    # transformers leaves out the line break behind a block.
    return HEAD + "{{ format" + steps + " }}{% endmacro %}\n" + template


def is_fixed(template: Any) -> bool:
    """Whether a chat template, or one of several, has the macro."""
    several = template.values() if isinstance(template, dict) else [template]
    return any(str(one).startswith(HEAD) for one in several)
