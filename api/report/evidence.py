"""The files beside a report, by which its numbers are checked: entries, receipts, documents and account proofs.

A number on the page names the file and the field that it was read from. It does so only where the field has that very
value, so that a name never claims more than the file shows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import Final

from api.console.frame import cells
from api.console.frame.cells import Cell
from ledger.audit.evidence_book import EvidenceBook
from ledger.domain import facts as domain
from ledger.mechanisms.loss import Loss
from ledger.verifier import ENTRY_BYTES_MAX, VerificationError, verify_account
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import format_number
from ledger.wire.records import write

Path = tuple[str, ...]
EVERY: Final = "*"
"""In a path, every member of a list: the sum of what they lead to."""


class Evidence:
    """What was cited of one book so far."""

    def __init__(self, book: EvidenceBook) -> None:
        """Nothing yet."""
        self.book = book
        self._parsed: dict[int, c.Json] = {}
        self._documents: dict[str, bytes] = {}
        self._accounts: dict[str, bytes | None] = {}

    def entry(self, index: int | None) -> Cell:
        """An entry by its index, which leads to its file; a dash for none."""
        if index is None:
            return cells.text("–")
        self._entry(index)
        return Cell(str(index), "number", href=_entry_file(index))

    def cited(self, cell: Cell, index: int | None, *path: str) -> Cell:
        """A cell with the field of an entry that holds its exact value, if it does."""
        if index is None:
            return cell
        found = resolve(self._entry(index), path)
        return _with_source(cell, found, (_entry_file(index), *path))

    def moment(self, ms: int, index: int) -> Cell:
        """The time of an entry."""
        cell, found = cells.moment(ms), resolve(self._entry(index), ("time",))
        same = isinstance(found, int) and cell.exact == format_seconds(found)
        return _from(cell, (_entry_file(index), "time")) if same else cell

    def term(self, cell: Cell, sha256: str, *path: str) -> Cell:
        """A cell with the field of a signed document in JSON that holds its exact value, if it does."""
        self.document(sha256)
        data = self._documents[sha256]
        try:
            found = resolve(c.parse(data, len(data)), path)
        except ValueError:
            # A document may be YAML, which the check cannot read without a library: its file lies there all the same.
            return cell
        return _with_source(cell, found, (_document_file(sha256), *path))

    def document(self, sha256: str) -> None:
        """A signed document, by the digest that its entry names. Raises: KeyError."""
        self._documents[sha256] = self.book.documents[sha256]

    def loss(self, partition: domain.Partition, holder: str, loss: Loss, part: str) -> Cell:
        """A loss in units; ``part`` is the name by which the verifier prints it: ``posted`` or ``pending``."""
        # A sum may be greater than canonical JSON allows: at an order that decides nothing it has no greatest value.
        exact = json.dumps([[*loss.finite], [*loss.infinite]], separators=(",", ":"))
        words = ", ".join(
            f"{one} and {runs} without bound" if runs else str(one)
            for one, runs in zip(loss.finite, loss.infinite, strict=True)
        )
        known = self.book.accounts[partition.ref, holder]
        cell = Cell(words, "number", exact)
        return cell if self._proof(partition, known) is None else _from(cell, (_account_file(partition, holder), part))

    def account(self, partition: domain.Partition, holder: str) -> Cell:
        """The proof of an account, which leads to its file; a dash where none shows the account as it is."""
        shown = self._proof(partition, self.book.accounts[partition.ref, holder]) is not None
        return Cell("proof", href=_account_file(partition, holder)) if shown else cells.text("by replay only")

    def files(self) -> Iterator[tuple[str, bytes]]:
        """What was cited, by name."""
        for index in sorted(self._parsed):
            yield _entry_file(index), self.book.entry(index)
            yield f"entries/{index}.tlog-proof", self.book.receipt(index).encode()
        for sha256, data in sorted(self._documents.items()):
            yield _document_file(sha256), data
        for name, proof in sorted(self._accounts.items()):
            if proof is not None:
                yield name, proof

    def _entry(self, index: int) -> c.Json:
        if index not in self._parsed:
            self._parsed[index] = c.parse(self.book.entry(index), ENTRY_BYTES_MAX)
        return self._parsed[index]

    def _proof(self, partition: domain.Partition, account: domain.Account) -> bytes | None:
        """What proves an account; None where a proof is of another balance than the entries make, or there is none."""
        name = _account_file(partition, account.holder)
        if name not in self._accounts:
            proof = self.book.proof(partition.ref, account.holder)
            data = None if proof is None else write(proof)
            self._accounts[name] = data if data is not None and self._shows(data, account) else None
        return self._accounts[name]

    def _shows(self, proof: bytes, account: domain.Account) -> bool:
        try:
            shown = verify_account(proof.decode(), self.book.trust)
        except VerificationError:
            return False
        found = shown.balance
        if found is None or shown.hidden:
            return False
        posted, pending = (found.posted, found.posted_unbounded), (found.pending, found.pending_unbounded)
        held = [(tuple(one.finite), tuple(one.infinite)) for one in (account.posted, account.pending)]
        return [posted, pending] == held


def resolve(value: c.Json, path: Path) -> c.Json:
    """The value at a path of names, places and :data:`EVERY`; None where there is none."""
    if not path:
        return value
    first, rest = path[0], path[1:]
    if isinstance(value, dict):
        return resolve(value[first], rest) if first in value else None
    if not isinstance(value, list):
        return None
    if first == EVERY:
        found = [resolve(one, rest) for one in value]
        whole = [one for one in found if isinstance(one, int)]
        return sum(whole) if len(whole) == len(found) else None
    return resolve(value[int(first)], rest) if first.isdecimal() and int(first) < len(value) else None


def format_seconds(ms: int) -> str:
    """A time in Unix milliseconds as pages have it, in whole seconds."""
    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _with_source(cell: Cell, found: c.Json, path: Path) -> Cell:
    value = format_number(found) if isinstance(found, Fraction) else found
    same = value is not None and not isinstance(value, (bool, dict, list)) and str(value) == cell.value
    return _from(cell, path) if same else cell


def _from(cell: Cell, path: Path) -> Cell:
    return replace(cell, source=json.dumps(path, ensure_ascii=False), href=path[0])


def _entry_file(index: int) -> str:
    return f"entries/{index}.entry"


def _document_file(sha256: str) -> str:
    return f"documents/{sha256}"


def _account_file(partition: domain.Partition, holder: str) -> str:
    # By the index of the partition's entry: names may differ in what a file system takes for the same.
    return f"accounts/{partition.index}-{holder.replace(':', '-')}.json"
