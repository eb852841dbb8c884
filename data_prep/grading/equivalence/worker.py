"""What a child of the grading pool runs: the comparison with math-verify's help.

Importing this module loads and warms up math-verify, so that it is done before a clock starts.
"""

import math_verify

from data_prep.grading.equivalence.compare import compare
from data_prep.grading.equivalence.fallback import agree
from data_prep.grading.equivalence.tokens import TooLarge
from data_prep.quiet import quiet_loggers

# It warns at every call that its alarm is off; the pool's covers the process.
quiet_loggers("math_verify")
math_verify.verify(math_verify.parse("$x^2$"), math_verify.parse("$x+1$"))


def compare_in_worker(prediction: str, gold: str) -> str:
    """`right`, `wrong` or `unparseable`."""
    try:
        result = compare(prediction, gold, agree)
    except TooLarge:
        result = None
    return {True: "right", False: "wrong", None: "unparseable"}[result]
