from data_prep.sources.registry import BUILDERS, build_problems, known_options  # noqa: F401  # shim
