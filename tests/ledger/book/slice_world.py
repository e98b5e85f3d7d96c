"""A stream whose persons may be in several slices, in a book: slices are opened by hand, of records of their own."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from hashlib import sha256
from typing import Any, Final

from ledger.book.book import Outcome
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import format_number
from policy.decisions.documents_in_force import SLICE_CAPS_SINCE_MS
from policy.documents.partition_commitments import MAGIC, PERSONS_MAGIC
from policy.documents.slice_budget import slice_budget
from tests.factories.documents import contract, policy, stream
from tests.factories.people import BANK_A, BANK_B, HOSPITAL
from tests.factories.stored import StoredWorld

DIGITS: Final = f"{HOSPITAL}/digits"
SLICES: Final[tuple[str, str, str, str]] = ("first", "second", "third", "fourth")


def found_slices(  # noqa: PLR0913 - of the documents what differs
    world: StoredWorld,
    governing: dict[str, Any],
    *,
    appearances: int = 2,
    slices: Sequence[str] = SLICES[:2],
    budget: tuple[str, str] = ("6", "0.00001"),
    agreed: dict[str, Any] | None = None,
) -> None:
    """The documents, and slices open; a slice has its part of the budget (ε and δ) of all together."""
    contracts = {bank: contract(bank, starts=world.begun, **(agreed or {})) for bank in (BANK_A, BANK_B)}
    enacted = policy(world.begun, **governing)
    world.found(*world.founding_with(governing=enacted, partitions={}, contracts=[*contracts.values()]))
    world.contracts |= {bank: c.digest(c.dump(signed)) for bank, signed in contracts.items()}
    stated = stream(
        appearances_max=appearances,
        budget={"delta": budget[1], "epsilon": budget[0]},
        period="by_hand",
        persons="declared" if appearances > 1 else "committed",
    )
    world.found(world.document("stream", stated, "stream-1", HOSPITAL, HOSPITAL))
    for name in slices:
        assert opening(world, name, appearances, budget).code.word == "permitted"


def opening(world: StoredWorld, name: str, appearances: int, budget: tuple[str, str] = ("6", "0.00001")) -> Outcome:
    """A slice of records of its own."""
    epsilon, delta = slice_budget(Fraction(budget[0]), Fraction(budget[1]), appearances)
    values = b"".join(sorted(sha256(f"{name} {number}".encode()).digest() for number in range(500)))
    kinds = (MAGIC, PERSONS_MAGIC) if appearances == 1 else (MAGIC,)
    changed: c.Object = {
        "commitments": [world.put(magic + bytes(32) + values, world.signers[HOSPITAL]) for magic in kinds],
        "data_key": f"digits-{name}",
        "delta": format_number(delta),
        "epsilon": format_number(epsilon),
        "records": 500,
    }
    return world.submit(world.partition(name, **changed))[0]


def over(
    world: StoredWorld, name: str, run: c.Object, ends: tuple[str, str] = SLICES[:2], bank: str = BANK_A
) -> Outcome:
    """A run over the slices from the first to the last."""
    named: c.Object = {"dataset": DIGITS, "first": ends[0], "last": ends[1]}
    return world.submit(world.charge(name, bank, run=run, partitions=(), ranges=[named]))[0]


def from_the_date(world: StoredWorld) -> None:
    """The rule on caps on one person binds from now on."""
    world.clock.now = SLICE_CAPS_SINCE_MS
