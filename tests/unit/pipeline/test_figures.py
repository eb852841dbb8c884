"""Figures: the same share has one text, however it was computed."""

import math

from hypothesis import given
from hypothesis import strategies as st

from pipeline.figures import percent, points


@given(st.integers(-2000, 2000), st.integers(-8, 8))
def test_the_last_bits_of_a_share_do_not_show(half, steps):
    """Near an edge of rounding, such as 0.0125, a few units in the last place decide nothing."""
    share = (half + 0.5) / 1000
    near = share
    for _ in range(abs(steps)):
        near = math.nextafter(near, math.copysign(math.inf, steps))
    assert percent(share) == percent(near) and points(share) == points(near)
    assert percent(10 * share, 0) == percent(10 * near, 0)
    assert points(share).lstrip("+") == percent(share)


def test_a_difference_has_a_sign_unless_it_rounds_to_nothing():
    texts = {0.1234: "+12.3", -0.1234: "-12.3", 0.0004: "0.0", -0.0004: "0.0", 1: "+100.0"}
    for value, text in texts.items():
        assert points(value) == text and points(value, "-") == text.removeprefix("+")
