"""Things that pages name: organisations, partitions and runs, each with the page that shows it."""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

from api.console.frame import cells
from api.console.frame.addresses import address
from api.console.frame.cells import Cell
from api.console.frame.reader import Reader
from ledger.domain.facts import GLOBAL, Facts, holder_of
from ledger.domain.gate import Check
from ledger.organisation_lineage.organisation_mentions import mistakable, named_exactly


def organisation(reader: Reader, did: str) -> Cell:
    """An organisation by its name on record, with its DID behind it; beside it, where the name may be mistaken."""
    facts = reader.facts
    registered = facts.organisations.get(did)
    if registered is None:
        return cells.text(did)
    if facts not in _MISTAKABLE:
        _MISTAKABLE[facts] = mistakable(one.name for one in facts.organisations.values())
    name = registered.name
    return Cell(named_exactly(name, did) if name in _MISTAKABLE[facts] else name, exact=did)


_MISTAKABLE: Final[WeakKeyDictionary[Facts, frozenset[str]]] = WeakKeyDictionary()
"""The names that were found mistakable on a snapshot, for as long as it is read."""


def partition(ref: str) -> Cell:
    """A partition by its last two names, with the whole reference behind them."""
    provider, dataset, name = ref.rsplit("/", 2)
    return Cell(f"{dataset}/{name}", exact=ref, href=address("partitions", provider, dataset, name))


def dataset(provider: str, name: str) -> Cell:
    """A dataset."""
    return cells.text(name, address("datasets", provider, name))


def run(charge: str) -> Cell:
    """A run by the id of its charge."""
    return cells.text(charge, address("runs", charge))


CHECK_COLUMNS: Final = ("Result", "What was compared", "Code", "Required by")


def check(checked: Check) -> tuple[Cell, ...]:
    """One check as a row: a code names what fails, so the result is a word of its own."""
    result = cells.mark("passed" if checked.passed else "failed", passed=checked.passed)
    return result, cells.text(checked.text), cells.text(checked.code), Cell(required_by(checked), exact=checked.source)


def required_by(checked: Check) -> str:
    """What a check comes from, in words: a document, or the account that must have room."""
    source = checked.source or "–"
    if source == GLOBAL:
        return "everyone's account"
    node = source.removeprefix(holder_of(0).removesuffix("0"))
    return f"the account of lineage {node}" if node != source else source
