"""Words of a question: what two editions share, and what tells two questions apart.

`functions.yaml` has the texts.
"""

import pytest

from data_prep.decontamination.index import is_retold, same_wording
from data_prep.decontamination.text import content, normalise_question, tokenise


def has_tokens(text):
    return all(tokenise(text))


def same_tokens(first, second):
    return tokenise(first) == tokenise(second)


def same_text(first, second):
    return normalise_question(first) == normalise_question(second)


def same_content(first, second):
    return content(tokenise(first)) == content(tokenise(second))


def is_wording(first, second):
    return same_wording(content(tokenise(first)), content(tokenise(second)))


def is_another_text(text, sign):
    return not same_text(f"Find ${text}=2$.", f"Find ${text}{sign}=2$.")


def is_other_content(text, sign):
    return not same_content(f"Find ${text}=2$.", f"Find ${text}{sign}=2$.")


POLYGON = (
    "The solutions of $z^4+4z^3i-6z^2-4zi-i=0$ are vertices of a convex polygon of the plane. "
)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("What is the area of it?", "Its area is $p^{a/b}$ with a prime $p$. Find $a+b+p$.", True),
        ("What is the area of it?", "What is the perimeter of it?", True),
        ("What is the area of it below 7?", "What is the area of it below 8?", False),
        ("What is the area in the figure?", "What is the perimeter in the figure?", False),
    ],
)
def test_one_statement_may_ask_for_other_forms(first, second, same):
    first, second = content(tokenise(POLYGON + first)), content(tokenise(POLYGON + second))
    assert is_retold(first, second) is is_retold(second, first) is same


def test_templates_are_not_retold():
    one = content(tokenise(POLYGON))
    for old, new in (("4zi-i", "4zi+i"), ("z^4+4z^3i-6", "(z^2)^2+(4+i)z^3i-6"), ("6z", "7z")):
        assert not is_retold(one, content(tokenise(POLYGON.replace(old, new))))
    assert not is_retold(one[:12], one[:12])
