"""Contracts: their parties and terms, and the versions of one side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from api.auth.visibility import not_found
from api.console.frame import cells
from api.console.frame.addresses import address
from api.console.frame.cells import Cell
from api.console.frame.document_fields import Versions, document_fields
from api.console.frame.names import organisation
from api.console.frame.pages import ROWS_MAX, Inputs, Page, Pages
from api.console.frame.reader import Reader
from api.console.frame.tables import Table
from api.routes import registry
from api.wire.registry_answers import Contract
from ledger.wire import canonical_json as c
from ledger.wire.records import to_json
from policy.decisions.documents_in_force import read_contract

PAGES: Final = Pages()
VERSIONS_MAX: Final = 4
"""The newest versions of a contract that are shown beside one another."""
_SIGN: Final = "epsilon contract sign tdp.toml contract.yaml > tdp.jws"
READ_MAX: Final = 1_000
"""Contracts among which the versions of one are looked for."""


@PAGES.page("/contracts", "Contracts", registry.list_contracts)
def contracts(reader: Reader, inputs: Inputs) -> Page:
    """The contracts that the caller may see. Raises: Malformed."""
    page = reader.page(registry.list_contracts, ROWS_MAX, inputs.get("cursor"))
    rows = tuple(
        (
            cells.text(item.id, address("contracts", item.id)),
            cells.count(item.version),
            cells.text(_state(reader, item)),
            organisation(reader, item.consumer),
            cells.text(", ".join(organisation(reader, did).text for did in item.providers)),
            cells.moment(item.starts),
            cells.moment(item.ends),
            cells.count(item.runs),
            cells.count(item.index, address("log", str(item.index))),
        )
        for item in page.items
    )
    columns = ("Contract", "Version", "State", "Consumer", "Providers", "Starts", "Ends", "Runs charged", "Entry")
    following = address("contracts", cursor=page.next_cursor) if page.next_cursor else ""
    empty = "No contract that you may see. A provider signs one, and the consumer enters it:"
    command = f"{_SIGN}\nepsilon contract enter tdc.toml contract.yaml --signature tdp.jws"
    return Page("list.html", "Contracts", (Table("contracts", "Contracts", columns, rows, empty, command, following),))


def _state(reader: Reader, listed: Contract) -> str:
    now = reader.view.time
    if listed.revoked:
        return "revoked"
    if reader.facts.contract_heads.get(listed.id) != listed.document:
        return "superseded"
    return "not begun" if now < listed.starts else "over" if now >= listed.ends else "in force"


@PAGES.page("/contracts/{id}", "", registry.list_contracts)
def contract(reader: Reader, inputs: Inputs) -> Page:
    """One contract, its newest versions side by side. Raises: Malformed, Problem."""
    name = c.name(inputs.path["id"], "id")
    head = reader.facts.contracts.get(reader.facts.contract_heads.get(name, ""))
    if head is None or not reader.caller.sees_contract(head, reader.facts):
        raise not_found(f"contract {name}")
    versions = sorted(_versions(reader, name), key=lambda version: -version.version)[:VERSIONS_MAX]
    documents = [read_contract(reader.facts.documents[version.document]) for version in versions]
    compared = document_fields(
        [f"version {document.version}" for document in documents], [to_json(document) for document in documents]
    )
    current = versions[0]
    facts = [
        ("State", cells.text(_state(reader, current))),
        ("Consumer", organisation(reader, current.consumer)),
        ("Signed by", cells.text(", ".join(organisation(reader, did).text for did in documents[0].signers))),
        ("Runs charged", cells.text(f"{current.runs} of {documents[0].runs_max}")),
        ("Starts", cells.moment(current.starts)),
        ("Ends", cells.moment(current.ends)),
        ("Document", cells.digest(current.document)),
        ("Entry", cells.count(current.index, address("log", str(current.index)))),
    ]
    return Page("versions.html", f"Contract {name}", (compared.table(),), _values(facts, compared, _SIGN))


def _versions(reader: Reader, name: str) -> Iterator[Contract]:
    """Every version that the caller may see."""
    page = reader.page(registry.list_contracts, 200, None)
    read = 0
    while True:
        yield from (item for item in page.items if item.id == name)
        read += len(page.items)
        if page.next_cursor is None or read >= READ_MAX:
            return
        page = reader.page(registry.list_contracts, 200, page.next_cursor)


def _values(facts: Sequence[tuple[str, Cell]], compared: Versions, command: str) -> dict[str, object]:
    return {
        "about": facts,
        "changed": compared.changed,
        "command": command,
        "words": "A new version is signed by each party:",
    }
