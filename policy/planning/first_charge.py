"""What a quote or a plan adds of partitions that no run was charged to: the first charge may choose their rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ledger.domain.facts import Partition
from ledger.domain.partition_ranges import in_words
from ledger.filters import read_rule

_NAMES_MAX: Final = 500
"""Characters of names: a client takes a warning of a thousand."""


def first_charge_warning(partitions: Sequence[Partition]) -> str:
    """A sentence that names those of them whose rule the first charge chooses; empty if there is none.

    A quote reports what the quoted run would choose: the charge of another before it may choose otherwise, for good
    (:meth:`ledger.filters.Rule.for_first_run`).
    """
    refs = [one.ref for one in partitions]
    open_refs = [one.ref for one in partitions if read_rule(one.terms).first_run_chooses]
    if not open_refs:
        return ""
    names = in_words(refs, open_refs)
    if len(names) > _NAMES_MAX:
        names = f"{len(open_refs)} of its {len(refs)} partitions"
    return (
        f"this run is planned as the first charge of {names}, and the first charge chooses the division of δ: if "
        "another run is charged first, fewer such runs may fit, or none"
    )
