from data_prep.reading.rows import (  # noqa: F401  # shim
    BadRow,
    Row,
    load_hub,
    read_lines,
    read_rows,
    read_rows_and_faults,
)
