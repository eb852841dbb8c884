"""Files of JSON lines, as stages write and read them."""

import json


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def read_rows(path):
    """The rows of a file, split at line feeds alone."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
