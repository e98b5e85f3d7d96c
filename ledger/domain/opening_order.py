"""The order in which the partitions of a dataset opened, by which ranges of them are read."""

from __future__ import annotations

from collections.abc import Sequence


class OpeningOrder:
    """The partitions of one dataset in order of opening.

    Attributes:
        refs: their references.
        places: the place of each in ``refs``.
    """

    def __init__(self, refs: Sequence[str] = ()) -> None:
        """Of these partitions, in their order."""
        self.refs = tuple(refs)
        self.places = {ref: place for place, ref in enumerate(self.refs)}
