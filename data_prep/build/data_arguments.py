from data_prep.build.recipe import DataArguments, check_data  # noqa: F401  # shim
