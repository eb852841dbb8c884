from benchmarks.precision import measure  # noqa: F401  # shim
