"""How a user's mistake is answered: one line."""

from collections.abc import Callable
from typing import Any

import pytest

from pipeline.errors import UserError


def refused(words: str, call: Callable[..., Any], *args: Any, **keys: Any) -> str:
    """The one line by which a call refuses its arguments; it has the pattern `words`."""
    with pytest.raises(UserError, match=words) as error:
        call(*args, **keys)
    assert len(error.value.lines) == 1 and "\n" not in str(error.value)
    assert type(error.value) is UserError  # of exit code 2
    return str(error.value)
