"""The gate: the policy's decision, which the book requests inside its transaction. ``policy`` implements it.

The book passes the request and the current facts; the gate returns a verdict with every check that it made and the
limits that bind. An error inside a gate denies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated, Final

from msgspec import Meta

from ledger.domain.command import Command
from ledger.domain.facts import Facts
from ledger.wire.canonical_json import INTEGER_MAX
from ledger.wire.exact_numbers import equal_part
from ledger.wire.field_types import Did, Name, between, constant, words
from ledger.wire.records import Record

REFUNDS: Final = ("never", "attested", "stated")
"""The refunds that a policy may state for leased steps that were not taken, the strictest first: they count; they
return on fresh evidence; they return on the clean room's statement."""
Refund = Annotated[str, words(*REFUNDS)]
APPEARANCES_MAX: Final = 64
"""The most slices of a stream that one person may be in."""
_Milliseconds = Annotated[int, Meta(ge=0, le=INTEGER_MAX, description="Unix milliseconds")]
_Source = Annotated[str, Meta(description="the document and version that requires it, or the holder of an account")]


class Check(Record, frozen=True):
    """One check of a decision: a stable code, whether it passed, and the numbers or names compared."""

    code: Annotated[str, Meta(description="a stable code")]
    passed: bool
    text: str
    source: _Source = constant("")


class Header(Record, frozen=True):
    """The header of a document; fields that its kind does not have are empty or zero.

    The book stores it, and its entry records it: only ``policy`` reads the document itself.
    """

    kind: Annotated[str, words("policy", "recommendation", "dataset", "stream", "contract")]
    id: Name
    version: Annotated[int, between(1, INTEGER_MAX)]
    domain: str = constant("")
    consumer: str = constant("")
    providers: tuple[Did, ...] = constant(())
    starts: _Milliseconds = constant(0)
    ends: _Milliseconds = constant(0)


@dataclass(frozen=True, slots=True)
class Caps:
    """Bounds in ε at a partition's δ, None where only watched: on everyone together, and on each lineage.

    Attributes:
        share: the most of the partition's capacity that one lineage may use.
        alerts: shares of a capacity whose crossing the charge's entry reports.
        rounded: whether a decision shows the author the part of others in everyone's account rounded up.
        counts_rounded: whether it also counts that part so, in every account that the author shares.
        lineage_source: the document and version that states it, for people; ``share_source`` likewise.
        appearances: in how many partitions a person may be, this one included: a cap on what a person may lose to a
            coalition is divided by it, as ``lineage`` is already.
        slice_words: which partitions these are, for people; empty if there is one.
    """

    everyone: Fraction | None
    lineage: Fraction
    share: Fraction | None = None
    alerts: tuple[Fraction, ...] = ()
    lineage_source: str = field(default="", compare=False)
    share_source: str = field(default="", compare=False)
    rounded: bool = field(default=False, compare=False)
    counts_rounded: bool = field(default=False, compare=False)
    appearances: int = 1
    slice_words: str = field(default="", compare=False)

    def of_coalition(self, epsilon: Fraction, budget: Fraction) -> Fraction:
        """The cap on a partition with this budget of a coalition with this ε."""
        return min(equal_part(epsilon, self.appearances), budget)


@dataclass(frozen=True, slots=True)
class Request:
    """A command to be decided, and when.

    Attributes:
        signers: the DIDs whose signatures over the entered document verify; empty for other kinds.
        epsilon: for a charge, per partition, the ε of the whole run at the partition's δ (PLD, rounded up).
        permitted: whether replay decides an entry that is recorded as permitted: a check that an earlier program did
            not have applies only from the time on that it names.
    """

    command: Command
    body: Record
    now: int
    signers: tuple[str, ...] = ()
    epsilon: tuple[tuple[str, Fraction], ...] = ()
    permitted: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """Permit or deny, with every check in order.

    Attributes:
        header: of the document entered, if the request enters one.
        caps: per partition, for a request that opens or charges it; and for the release of a charge's keys, where its
            organisation has come to know others' runs since.
        until: a permit is the same for every equal request before this time (ms), as long as only runs are recorded:
            charges, key releases and settlements. None if that is not known. Requests are equal if they differ only in
            what names one run: id, key and clean room, deadline, the charge that is settled, and for how many steps.
        runs_max: the permit is the same up to this many runs of the contract, this one included.
        refund: for a charge, what the policies of all its partitions state about leased steps that were not taken: the
            strictest; empty if one of them is silent.
    """

    permit: bool
    checks: tuple[Check, ...]
    header: Header | None = None
    caps: tuple[tuple[str, Caps], ...] = ()
    until: int | None = field(default=None, compare=False)
    runs_max: int | None = field(default=None, compare=False)
    refund: str = ""


DOCUMENT_BYTES_MAX: Final = 1 << 18
"""The longest document that is read, but for a policy."""
POLICY_DOCUMENT_BYTES_MAX: Final = 1 << 21
"""The longest policy, which may state a Level for each of ten thousand datasets, and so the longest stored document."""

Gate = Callable[[Request, Facts], Verdict]
