"""Shares as figures that a reader sees: every page, table and picture rounds them here.

The same share is often computed twice, as a mean and as a sum of parts, and then differs in its
last bit: 0.1825 is 18.2 %, and 0.18250000000000002 would be 18.3 %.
"""


def percent(share: float, digits: int = 1) -> str:
    """A share in [0, 1] in per cent: 0.1234 as "12.3"."""
    return f"{_hundredfold(share):.{digits}f}"


def points(difference: float, sign: str = "+") -> str:
    """A difference of shares in points: 0.1234 as "+12.3", what rounds to 0 as "0.0"."""
    text = f"{_hundredfold(difference):{sign}.1f}"
    return "0.0" if text.strip("+-") == "0.0" else text


def _hundredfold(share: float) -> float:
    """In per cent, without the noise of how it was computed."""
    return round(100 * share, 9)
