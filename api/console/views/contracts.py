"""Contracts: their parties and terms, the versions of one side by side, and those that wait for signatures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from api.auth.visibility import not_found
from api.console.frame import cells
from api.console.frame.addresses import address
from api.console.frame.cells import Cell
from api.console.frame.document_fields import Versions, document_fields
from api.console.frame.names import organisation, partition
from api.console.frame.pages import ROWS_MAX, Inputs, Page, Pages
from api.console.frame.reader import Reader
from api.console.frame.tables import Table, first_of
from api.routes import planning, registry
from api.routes.overviews import contract_proposals
from api.routes.overviews.contract_proposals import ContractProposal
from api.wire.registry_answers import Contract
from client.http.endpoints import BYTES_TYPE
from ledger.wire import canonical_json as c
from ledger.wire.records import to_json
from policy.decisions.documents_in_force import read_contract

PAGES: Final = Pages()
VERSIONS_MAX: Final = 4
"""The newest versions of a contract that are shown beside one another."""
_SIGN: Final = "epsilon contract sign tdp.toml contract.yaml > tdp.jws"
_NONE: Final = "No contract waits for a signature. A party proposes one to the others."
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
    empty = "No contract that you may see. A provider signs one, and the consumer enters it."
    entered = Table("contracts", "Contracts", columns, rows, empty, following)
    return Page("list.html", "Contracts", (*_proposals(reader), entered))


def _proposals(reader: Reader) -> tuple[Table, ...]:
    if not reader.may(contract_proposals.list_contract_proposals):
        return ()
    answer = reader.read(contract_proposals.list_contract_proposals)
    return (proposals_table(reader, answer.items, "Proposed, and not entered", complete=answer.complete),)


def proposals_table(reader: Reader, items: Sequence[ContractProposal], caption: str, *, complete: bool = True) -> Table:
    """Contracts that wait for signatures."""
    rows = tuple(
        (
            cells.text(item.id, address("contract-proposals", item.document)),
            cells.count(item.version),
            cells.text(_names(reader, [signed.organisation for signed in item.signed])),
            cells.text(_names(reader, item.unsigned) or "no one: it is to be entered"),
            cells.moment(item.expires),
            cells.digest(item.document),
        )
        for item in items
    )
    columns = ("Contract", "Version", "Signed by", "Waits for", "Listed until", "Document")
    return Table("proposals", caption if complete else f"{caption} (the newest)", columns, rows, _NONE)


def _names(reader: Reader, dids: Sequence[str]) -> str:
    return ", ".join(organisation(reader, did).text for did in dids)


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


@PAGES.page("/contract-proposals/{sha256}", "", contract_proposals.list_contract_proposals, slow=True)
def contract_proposal(reader: Reader, inputs: Inputs) -> Page:
    """One contract that waits for signatures, beside the version that it would replace. Raises: Malformed, Problem."""
    known, data = _proposal(reader, inputs)
    document = read_contract(data)
    head = reader.facts.contracts.get(reader.facts.contract_heads.get(document.id, ""))
    before = head if head is not None and reader.caller.sees_contract(head, reader.facts) else None
    earlier = [] if before is None else [read_contract(reader.facts.documents[before.document])]
    compared = document_fields(
        [f"proposed version {document.version}", *(f"version {one.version}" for one in earlier)],
        [to_json(document), *map(to_json, earlier)],
    )
    facts = [
        ("Consumer", organisation(reader, document.tdc)),
        ("Providers", cells.text(_names(reader, document.tdps))),
        ("Waits for", cells.text(_names(reader, known.unsigned) or "no one: it is to be entered")),
        ("Listed until", cells.moment(known.expires)),
        ("Document", cells.digest(known.document)),
    ]
    tables = (compared.table(), _signatures(reader, known), _caps(reader, data))
    commands = {
        "propose": "epsilon contract propose profile.toml contract.yaml",
        "enter": "epsilon contract enter profile.toml contract.yaml --proposed",
    }
    values = {"about": facts, "changed": compared.changed, "commands": commands}
    values |= {"bytes": address("contract-proposals", known.document, "bytes"), "unsigned": known.unsigned}
    return Page("proposal.html", f"Proposed: contract {document.id}", tables, values)


@PAGES.page("/contract-proposals/{sha256}/bytes", "", contract_proposals.list_contract_proposals)
def proposal_bytes(reader: Reader, inputs: Inputs) -> Page:
    """The very bytes that are signed. Raises: Malformed, Problem."""
    return Page("", "", body=(_proposal(reader, inputs)[1], BYTES_TYPE))


def _proposal(reader: Reader, inputs: Inputs) -> tuple[ContractProposal, bytes]:
    """An open proposal that the caller may see, and its bytes. Raises: Malformed, Problem."""
    name = c.sha256(inputs.path["sha256"], "sha256")
    items = reader.read(contract_proposals.list_contract_proposals).items
    known = next((item for item in items if item.document == name), None)
    if known is None:
        raise not_found(f"proposed contract {name}")
    return known, reader.facts.documents[name]


def _signatures(reader: Reader, known: ContractProposal) -> Table:
    rows = tuple(
        (organisation(reader, signed.organisation), cells.moment(signed.time), cells.digest(signed.signature))
        for signed in known.signed
    )
    return Table("signatures", "Signatures", ("Party", "Signed", "Signature"), rows)


def _caps(reader: Reader, data: bytes) -> Table:
    """What could run under it, on the partitions that are open now. Raises: Malformed."""
    found = reader.read(planning.ask_cap_report, data).items
    closed_first = sorted(found, key=lambda cap: cap.usable)[:ROWS_MAX]
    rows = tuple((partition(cap.partition), cells.mark(cap.text, passed=cap.usable)) for cap in closed_first)
    empty = "No partition of its datasets is open under a policy in force."
    caption = first_of("What could run under its caps", len(found), ROWS_MAX)
    return Table("caps", caption, ("Partition", "Cap"), rows, empty)
