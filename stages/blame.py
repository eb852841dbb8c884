"""What a user's own code raises or returns, turned into one line with its file and line."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pipeline.errors import UserError
from pipeline.launched import is_lost_peer
from pipeline.memory import memory_fault
from pipeline.own_code import place_of


class BadResultError(Exception):
    """The user's own code has returned what it must not; the text says what."""


@contextmanager
def blamed(
    key: str, name: str, code: Any, where: Callable[[], str], is_all_own: bool = True
) -> Iterator[None]:
    """Turn whatever the user's own code raises inside into one line with its file and line.

    `SystemExit` too: with code 0 the stage would look finished. Not Ctrl-C, a lost peer or a full
    memory, which are no mistake of that code.

    Args:
        code: the function, or the class of the object, that is called inside.
        where: gives the end of the line: step and last checkpoint.
        is_all_own: nothing else runs inside; False: an error that did not go through the user's
            file is raised as it is.
    """
    try:
        yield
    except (UserError, KeyboardInterrupt):
        raise
    except BadResultError as error:
        place, _ = place_of(error, code)
        raise UserError(f"{key}: {name} ({place}) {error}{where()}") from None
    except BaseException as error:
        place, is_inside = place_of(error, code)
        is_ours = not (is_all_own or is_inside)
        if is_ours or memory_fault(error) or is_lost_peer(error):
            raise
        fault = f"raised {type(error).__name__}: {error}"
        raise UserError(f"{key}: {name} ({place}) {fault}{where()}") from error
