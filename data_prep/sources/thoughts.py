from data_prep.sources.base import thought_of  # noqa: F401  # shim
