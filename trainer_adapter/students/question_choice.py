"""Which public inputs are asked about: the most typical one of each cluster, so that few answers reach all of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from ledger.wire.malformed import Malformed


def choose_questions(features: NDArray[np.floating], count: int, seed: int = 0) -> NDArray[np.int64]:
    """Of each of ``count`` clusters (k-means) the row nearest its mean: rows in rising order, shape (count,).

    Typical inputs are those that teachers agree about, and each stands for the others of its cluster. Only public
    inputs are looked at, so the choice costs nothing.

    Args:
        features: of the public inputs, shape (records, numbers), in which near inputs mostly have one class.
        seed: of the clusters' first centres.

    Raises:
        Malformed: for more questions than different inputs.
    """
    if not 1 <= count <= len(np.unique(features, axis=0)):
        raise Malformed("count", f"must be from 1 to the number of different inputs, and is {count}")
    # The best of one start: a second one changes which rows are asked about, and hardly how well they cover the rest.
    clusters = KMeans(count, n_init=1, random_state=seed).fit(features)
    far = np.linalg.norm(features - clusters.cluster_centers_[clusters.labels_], axis=1)
    order = np.lexsort((far, clusters.labels_))
    first = np.unique(clusters.labels_[order], return_index=True)[1]
    return np.sort(order[first]).astype(np.int64)


def rows_of(public: NDArray[np.generic], asked: NDArray[np.generic]) -> NDArray[np.int64]:
    """Where each of the inputs that were asked about stands among the public ones, shape (questions,).

    An archive of answers leaves out what was screened out, so it is matched by the inputs, as float32.

    Raises:
        Malformed: for an input that is none of the public ones.
    """
    places = {_bytes(row): place for place, row in enumerate(public)}
    try:
        return np.array([places[_bytes(row)] for row in asked], np.int64)
    except KeyError:
        raise Malformed("asked", "holds an input that is none of the public ones") from None


def _bytes(row: NDArray[np.generic]) -> bytes:
    return row.astype(np.float32).tobytes()
