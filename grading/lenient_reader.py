"""What a worker of `grading.lenient` runs: math-verify, loaded before the first call is timed."""

import re

from math_verify import (
    ExprExtractionConfig,
    LatexExtractionConfig,
    StringExtractionConfig,
    parse,
)

from pipeline.prompts import ANSWER_CLOSE, ANSWER_OPEN, THINK_CLOSE, THINK_OPEN

MAX_READ = 2_000  # characters at the end of a text without a box
_BRACKETED = re.compile(r"\(([A-K])\)")  # math-verify reads no brackets about a letter
_TAGS = re.compile("|".join((THINK_OPEN, THINK_CLOSE, ANSWER_OPEN, ANSWER_CLOSE)))
_IN_LATEX = LatexExtractionConfig(boxed_match_priority=0)


def read(completion: str, is_choice: bool) -> str | None:
    """The text of the answer, behind the thought or else within it; None where there is none."""
    forms = [_IN_LATEX, StringExtractionConfig() if is_choice else ExprExtractionConfig()]
    after = completion.rpartition(THINK_CLOSE)[2]
    for text in dict.fromkeys((after, completion)):
        text = _TAGS.sub("\n", text)
        text = _BRACKETED.sub(r"\1", text) if is_choice else text
        text = text if "\\boxed" in text else text[-MAX_READ:]
        if found := parse(text, forms, parsing_timeout=0):
            return str(found[-1])  # the last is the text that the others were read from
    return None


# Loads the grammars, too: on a busy machine the first call ran out of its time.
read("\\boxed{1}", False)
