"""What a run left, without when it was made, how fast and by how many starts.

Two runs of one recipe have the same results, whatever stopped one of them. A file counts bit for
bit, but for those JSON files that hold more than results. Of these the keys of results.yaml count:
what was asked for, the figures, and the hashes of files. So a new key that says how a run went is
none.
"""

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import yaml

from pipeline.paths import WRITTEN_TO

RESULTS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
# In a path, the folder of a run that a stage started from: FORCE=1 gives it another number.
RUN = re.compile(r"(/sft)-[0-9a-f]{6}(-\d+)?")
# Of an entry of `log_history`.
FIGURES = re.compile(
    r"step|grad_norm|learning_rate|mean_token_accuracy|(eval_)?completions/mean_length"
    r"|(eval_)?(loss|reward|reward_std|entropy|num_tokens)|eval_avg@\d+"
)
# Hold the clock (TensorBoard's events, the HTML report) or the order of a set (model card).
NOT_COMPARED = re.compile(r"tfevents|training_args\.bin|README\.md|\.lock$|\.html$")


def left_in(folder: Path) -> dict[str, Any]:
    """The results below a folder, by the path of their file in it."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    kept = [path for path in files if not NOT_COMPARED.search(path.name)]
    return {path.relative_to(folder).as_posix(): result(path) for path in kept}


def result(path: Path) -> Any:
    """What of a file is a result: its bytes, JSON of the keys above, or the set of its samples."""
    if path.name.startswith("samples"):  # the store skips a line that was cut off
        return {*filter(is_json, path.read_bytes().splitlines())}
    if path.name in RESULTS:
        with contextlib.suppress(ValueError):
            found = json.loads(path.read_bytes())
            return {key: figures(key, found[key]) for key in RESULTS[path.name] if key in found}
    return path.read_bytes()


def is_json(line: bytes) -> bool:
    """Whether a line of a file is whole."""
    with contextlib.suppress(ValueError):
        return json.loads(line) is not None
    return False


def figures(key: str, value: Any) -> Any:
    """The value of a key; of hashes those of files that are compared, of logs the figures.

    A run may spell the folders that it writes to in another way.
    """
    if key == "config":
        kept = {name: one for name, one in value.items() if name not in WRITTEN_TO}
        return json.loads(RUN.sub(r"\1", json.dumps(kept)))
    if key in ("files", "inputs"):
        return {name: digest for name, digest in value.items() if not _holds_the_clock(name)}
    if key == "log_history":
        logs = [{name: log[name] for name in log if FIGURES.fullmatch(name)} for log in value]
        return [log for log in logs if log.keys() != {"step"}]  # the summary of one start
    return value


def _holds_the_clock(name: str) -> bool:
    """Whether another run's file of this name has other bytes."""
    last = name.rpartition("/")[2]
    return last in RESULTS or bool(NOT_COMPARED.search(last))


def differences(expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Names of the results that only one of two runs has, or that differ.

    A store may hold samples of other settings besides.
    """
    return [
        name
        for name in sorted(expected.keys() | found.keys())
        if not is_same(expected.get(name), found.get(name))
    ]


def is_same(expected: Any, found: Any) -> bool:
    """Whether two files have the same results; None: there is no such file."""
    if isinstance(expected, set) and isinstance(found, set):
        return expected <= found
    return expected == found
