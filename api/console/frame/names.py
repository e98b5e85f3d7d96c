"""Things that pages name: organisations, partitions and runs, each with the page that shows it."""

from __future__ import annotations

from typing import Final

from api.console.frame import cells
from api.console.frame.addresses import address
from api.console.frame.cells import Cell
from api.console.frame.reader import Reader
from ledger.domain.facts import GLOBAL, holder_of
from ledger.domain.gate import Check


def organisation(reader: Reader, did: str) -> Cell:
    """An organisation by its name on record, with its DID behind it."""
    registered = reader.facts.organisations.get(did)
    return cells.text(did) if registered is None else Cell(registered.name, exact=did)


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
