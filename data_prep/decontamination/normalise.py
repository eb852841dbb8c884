from data_prep.decontamination.text import normalise_question  # noqa: F401  # shim
