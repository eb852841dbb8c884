"""Published scores of sweeps (`published_sweeps.yaml`), to show beside those of our own."""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline import strict_yaml

FILE = Path(__file__).with_name("published_sweeps.yaml")


@dataclass(frozen=True)
class PublishedSweep:
    """The published scores of one sweep.

    `keys` has each varied key's values in their published order. `scores` has a score for each
    combination of values, a value for each key in the order of `keys`.
    """

    recipe: str
    source: str
    metric: str  # what the scores measure, and their range
    note: str
    keys: dict[str, tuple[float, ...]]
    scores: dict[tuple[float, ...], float]

    def score(self, values: Mapping[str, str | float]) -> float | None:
        """The score of a run by the values of its keys, or None where none is published.

        Args:
            values: by key, as numbers or as text such as "8e-8"; keys that the published sweep did
                not vary, such as `seed`, are not looked at.
        """
        try:
            return self.scores.get(tuple(float(values[key]) for key in self.keys))
        except (KeyError, ValueError):  # not varied here, or no number
            return None


def read_all() -> list[PublishedSweep]:
    """Every published sweep, in the order of the file."""
    found = []
    for entry in strict_yaml.read(FILE):
        keys = {key: tuple(map(float, values)) for key, values in entry["keys"].items()}
        scores = entry["scores"]
        if len(keys) == 2:
            scores = [score for row in scores for score in row]
        cells = dict(zip(itertools.product(*keys.values()), scores, strict=True))
        texts = {name: entry[name] for name in ("recipe", "source", "metric", "note")}
        found.append(PublishedSweep(**texts, keys=keys, scores=cells))
    return found


def find(recipe: str, keys: Iterable[str]) -> PublishedSweep | None:
    """The published sweep of these keys, in any order, or None.

    Args:
        recipe: name of the recipe's folder, such as perplexity-gsm8k.
        keys: those that vary, without `seed`.
    """
    wanted = set(keys)
    for sweep in read_all():
        if sweep.recipe == recipe and sweep.keys.keys() == wanted:
            return sweep
    return None
