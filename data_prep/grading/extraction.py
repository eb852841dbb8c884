from data_prep.grading.extract import extract, extract_short, find_boxes, last_boxed  # noqa: F401 - shim
