from data_prep.grading.extract import read_leniently  # noqa: F401 - shim
from data_prep.grading.grade import grade_leniently  # noqa: F401 - shim
