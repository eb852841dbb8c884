from data_prep.grading.grade import grade_rollouts  # noqa: F401 - shim
