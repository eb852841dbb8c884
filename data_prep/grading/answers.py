# shim
import sys

from data_prep.grading.equivalence import is_parseable, is_same_value  # noqa: F401
from data_prep.grading.extract import (  # noqa: F401
    Extraction,
    extract,
    find_boxes,
    is_well_formed,
    last_boxed,
)
from data_prep.grading.grade import (  # noqa: F401
    VERDICTS,
    Golds,
    Grade,
    grade,
    grade_all,
    grade_short_all,
    judge_all,
)

if __name__ == "__main__":
    from data_prep.config import run_cli
    from data_prep.grading.__main__ import main

    run_cli(lambda: main([word for word in sys.argv[1:] if word != "--pairs"]))
