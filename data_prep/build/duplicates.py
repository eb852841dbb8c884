"""Near duplicates within a training set: which questions are one problem in two editions.

Workers reduce each question to a few keys (`signature`): MinHash over its word triples, cut into
bands. Two questions that agree in a band are compared by `is_near_duplicate`; the others never
meet. The keys are mixed with the numbers of the question, because template sets hold thousands of
rows that differ in numbers only.
"""

from collections.abc import Callable, Iterator
from hashlib import blake2b
from zlib import crc32

import numpy as np
from datasketch import MinHash

from data_prep.decontamination.matching import (
    asks_about_figure,
    content,
    numbers,
    same_wording,
    tokenise,
)
from data_prep.decontamination.matching_text import figures

NUM_BANDS = 6
ROWS_PER_BAND = 3
SHINGLE = 3
# A row is compared with so many of the kept rows of its group, lest large groups cost their square.
MAX_COMPARED = 4
_SCHEME = "affine32"
_PERMUTATIONS = MinHash(NUM_BANDS * ROWS_PER_BAND, seed=1, scheme=_SCHEME).permutations


def signature(tokens: list[str]) -> np.ndarray:
    """Keys of a question, of which near duplicates most likely share one.

    Args:
        tokens: of `data_prep.decontamination.matching.tokenise`.

    Returns:
        Shape (NUM_BANDS,), uint64; the same in every process and run.
    """
    words = [word.encode() for word in content(tokens)]
    shingles = {
        b" ".join(words[at : at + SHINGLE]) for at in range(max(1, len(words) - SHINGLE + 1))
    }
    minhash = MinHash(
        NUM_BANDS * ROWS_PER_BAND, hashfunc=crc32, permutations=_PERMUTATIONS, scheme=_SCHEME
    )
    minhash.update_batch(sorted(shingles))
    salt = " ".join(sorted(numbers(tokens))).encode()
    keys = [
        blake2b(band.tobytes() + salt, digest_size=8).digest()
        for band in minhash.hashvalues.astype("<u4").reshape(NUM_BANDS, ROWS_PER_BAND)
    ]
    return np.frombuffer(b"".join(keys), dtype="<u8").astype(np.uint64)


def find_near_duplicates(
    signatures: np.ndarray, is_same: Callable[[int, int], bool]
) -> dict[int, int]:
    """Rows that repeat an earlier one, found among those that share a key.

    Args:
        signatures: shape (N, NUM_BANDS), uint64, in the order of the rows.
        is_same: whether two rows, given by index, the earlier first, are one problem.

    Returns:
        {index of a dropped row: index of the first row of its kind, which is kept}.
    """
    dropped: dict[int, int] = {}
    for keys in signatures.T:
        for group in _groups(keys):
            kept: list[int] = []
            for row in group:
                # A row that an earlier band dropped stands for its twin.
                one = dropped.get(row, row)
                if one == row:
                    twin = next((other for other in kept if is_same(other, row)), None)
                    if twin is not None:
                        dropped[row] = twin
                        continue
                if one not in kept and len(kept) < MAX_COMPARED:
                    kept.append(one)
    # The twin of one band may be the repeat of another; rows come after their own.
    for row in sorted(dropped):
        dropped[row] = dropped.get(dropped[row], dropped[row])
    return dropped


def _groups(keys: np.ndarray) -> Iterator[list[int]]:
    """The rows of each key that occurs more than once, in order."""
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.diff(keys[order])) + 1
    edges = np.concatenate(([0], starts, [len(keys)]))
    for at in np.flatnonzero(np.diff(edges) > 1):
        yield order[edges[at] : edges[at + 1]].tolist()


def is_near_duplicate(first: str, second: str) -> bool:
    """Whether two questions are one problem in two editions; see `matching.same_wording`.

    Short questions about a figure must have the same figure besides.
    """
    words, others = content(tokenise(first)), content(tokenise(second))
    if not same_wording(words, others):
        return False
    # The words of the two may differ in the one that points to the figure.
    is_in_figure = asks_about_figure(words) or asks_about_figure(others)
    return not is_in_figure or figures(first) == figures(second)
