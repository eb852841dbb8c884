"""One progress bar for every command: it fits the terminal, and is whole lines in a log."""

import sys
from typing import Any

from tqdm import tqdm


class Bar(tqdm):
    """A bar that leaves out last facts rather than wrap, and that writes no \\r to a log."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Without a terminal every refresh is a line in a log: one in ten seconds is enough.
        self.is_log = not sys.stderr.isatty()
        interval = {"mininterval": 10, "miniters": 1} if self.is_log else {"mininterval": 0.5}
        super().__init__(*args, **{"dynamic_ncols": True} | interval | kwargs)

    def __str__(self) -> str:
        text, columns = super().__str__(), self.format_dict["ncols"]
        while not self.is_log and columns and len(text) >= columns and ", " in text:
            text = text.rpartition(", ")[0]
        return text

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Draw the bar; in a log, write a line."""
        if not self.is_log:
            super().display(msg, pos)
        elif self.n:
            self.fp.write(f"{msg or self}\n")
            self.fp.flush()

    def close(self) -> None:
        """End the bar; in a log, with the last line if it is not there yet."""
        if self.is_log and not self.disable:
            if self.n != self.last_print_n or not self.n:
                self.display()
            self.disable = True
            self._decr_instances(self)
        super().close()
