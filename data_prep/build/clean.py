from data_prep.build.duplicates import __doc__  # noqa: F401  # shim
