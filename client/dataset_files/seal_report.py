"""What sealing saw of a provider's records, for that provider alone: it is computed from the records without noise."""

from __future__ import annotations

from collections import Counter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from client.dataset_files.record_parts import INPUTS, TARGETS
from client.dataset_files.sealed_records import RecordLayout, Rows
from ledger.wire import canonical_json as c

PRIVATE: Final = "computed from the records without noise: it is for their provider alone"
TARGETS_MAX: Final = 1_000
COLUMNS_SHOWN_MAX: Final = 4_096


class SealReport:
    """Counts, ranges and means of records, gathered batch by batch."""

    def __init__(self, layout: RecordLayout) -> None:
        """Of no record yet."""
        self._layout = layout
        self.records = 0
        self._users: Counter[int] = Counter()
        self._targets: Counter[int] = Counter()
        width = layout.dtype[INPUTS].itemsize // layout.dtype[INPUTS].base.itemsize if layout.columns else 0
        self._tabular = 0 < width <= COLUMNS_SHOWN_MAX
        self._counted = TARGETS in (layout.dtype.names or ()) and layout.dtype[TARGETS].base.kind in "iu"
        self._least, self._greatest = np.full(width, np.inf), np.full(width, -np.inf)
        self._mean, self._spread = np.zeros(width), np.zeros(width)

    def add(self, rows: Rows) -> None:
        """Look at more records."""
        if self._tabular:
            self._add_columns(rows[INPUTS].reshape(len(rows), -1).astype(np.float64))
        self.records += len(rows)
        if self._counted and len(self._targets) <= TARGETS_MAX:
            self._targets.update(rows[TARGETS].ravel().tolist())
        if "users" in (rows.dtype.names or ()):
            self._users.update(rows["users"].ravel().tolist())

    def _add_columns(self, values: NDArray[np.float64]) -> None:
        """Means and squared deviations of two parts together (Chan, Golub, LeVeque 1983)."""
        mean = values.mean(axis=0)
        gap, total = mean - self._mean, self.records + len(values)
        self._spread += ((values - mean) ** 2).sum(axis=0) + gap**2 * self.records * len(values) / total
        self._mean += gap * len(values) / total
        self._least = np.minimum(self._least, values.min(axis=0))
        self._greatest = np.maximum(self._greatest, values.max(axis=0))

    @property
    def records_per_user(self) -> int:
        """The most records of one user; 0 where no user is named."""
        return max(self._users.values(), default=0)

    def to_json(self, commitments: int | None) -> c.Object:
        """The report.

        Args:
            commitments: how many different ones there are; None where none was made.
        """
        report: c.Object = {"kind": "seal_report", "note": PRIVATE, "records": self.records, "v": 1}
        if commitments is not None:
            report["commitments"] = commitments
        if self._layout.declared:
            report["declared"] = self._layout.declared.to_json()
        if self._tabular:
            report["columns"] = {name: self._column(place) for place, name in enumerate(self._layout.columns)}
        if 0 < len(self._targets) <= TARGETS_MAX:
            names = self._layout.classes
            report["targets"] = {
                names[target] if names else str(target): count for target, count in sorted(self._targets.items())
            }
        if self._users:
            report["users"] = {"count": len(self._users), "records_of_one_max": self.records_per_user}
        return report

    def _column(self, place: int) -> c.Object:
        deviation = float(np.sqrt(self._spread[place] / max(1, self.records)))
        numbers = {"deviation": deviation, "greatest": self._greatest[place], "least": self._least[place]}
        return {name: f"{number:.6g}" for name, number in {**numbers, "mean": self._mean[place]}.items()}
