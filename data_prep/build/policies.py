from data_prep.build.filters import __doc__, load_tokenizer  # noqa: F401  # shim
