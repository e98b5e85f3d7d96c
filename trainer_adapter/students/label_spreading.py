"""Answers spread to the public inputs that were not asked about, along a graph of nearest neighbours."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from sklearn.semi_supervised import LabelSpreading

from ledger.wire.malformed import Malformed

NEIGHBOURS: Final = 10
NEIGHBOURS_SHARE: Final = 0.9
"""How much of a record's belief comes from its neighbours at each turn; an answer keeps the rest (α of the paper)."""
_TURNS: Final = 100
_UNKNOWN: Final = -1


def spread_labels(
    features: NDArray[np.floating], asked: NDArray[np.int64], answers: NDArray[np.int64], classes: int
) -> NDArray[np.float64]:
    """Beliefs about the class of each public input, shape (records, classes); each row adds up to 1.

    Zhou et al. 2004 ("Learning with local and global consistency"). An answer that its neighbours' answers contradict
    is overruled by them, as noisy answers should be.

    Args:
        features: of the public inputs, shape (records, numbers).
        asked: the rows that were asked about, shape (questions,); none twice.
        answers: their classes, shape (questions,).

    Raises:
        Malformed: for an answer that is no class, or as many rows as there are no answers for.
    """
    if asked.shape != answers.shape or len(np.unique(asked)) != len(asked) or not len(asked):
        raise Malformed("answers", "must be one for each row that was asked about, and no row twice")
    if int(answers.min()) < 0 or int(answers.max()) >= classes:
        raise Malformed("answers", f"must be classes below {classes}")
    known = np.full(len(features), _UNKNOWN)
    known[asked] = answers
    neighbours = min(NEIGHBOURS, len(features) - 1)
    spread = LabelSpreading(kernel="knn", n_neighbors=neighbours, alpha=NEIGHBOURS_SHARE, max_iter=_TURNS)
    beliefs = np.zeros((len(features), classes))
    beliefs[:, np.unique(answers)] = np.nan_to_num(spread.fit(features, known).label_distributions_)
    # No path leads from any answer to such an input: nothing is known of it.
    beliefs[beliefs.sum(axis=1) == 0] = 1 / classes
    found: NDArray[np.float64] = beliefs / beliefs.sum(axis=1, keepdims=True)
    return found
