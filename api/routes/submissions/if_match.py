"""Which version a document replaces: If-Match on commands that enter the next version of a policy or a contract.

428 where the header is missing, 412 where the resource has changed since (RFC 9110, 13.1.1; RFC 6585, 3). It keeps
people from replacing what they have not read; the book itself admits only one version in each place.
"""

from __future__ import annotations

from typing import Final

from api.auth.authorisation import Caller
from api.http.etags import etag_of, names
from api.http.problems import Problem, ServiceCode
from api.routes.registry import policy_of
from api.wire.registry_answers import ContractHead
from ledger.commands.registration.document import EnterDocument
from ledger.commands.registry import read_body
from ledger.domain.command import Command
from ledger.domain.facts import Facts
from ledger.store.snapshot import Snapshot
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record, write
from policy.decisions.documents_in_force import read_contract, read_policy

VERSIONED: Final = ("policy", "contract")
HEADER: Final = "if-match"


def check_version(facts: Snapshot, command: Command, if_match: str | None, caller: Caller) -> None:
    """Raises: Problem (428, 412), if the command enters a next version and names another as the newest, or none."""
    if facts.entry_index(command.id) is not None:
        return
    try:
        body = read_body(command)
    except Malformed:
        # The book reports what is wrong with it.
        return
    data = facts.documents.get(body.document) if isinstance(body, EnterDocument) else None
    current = None if data is None else tag_replaced(facts, command.kind, data, caller)
    if current is not None and if_match is None:
        detail = f"a next version needs the header {HEADER} with the tag of the version that it replaces"
        raise Problem(ServiceCode.VERSION_MISSING, detail, field=HEADER, id=command.id)
    if if_match is not None and not (current and names(if_match, current)):
        raise Problem(ServiceCode.STALE, "it is not the tag of the current version", field=HEADER, id=command.id)


def tag_replaced(facts: Facts, kind: str, data: bytes, caller: Caller) -> str | None:
    """The tag of what a document of a kind would replace.

    None if it is not of that kind, or a first version, or of something hidden from the caller: then the book decides.
    """
    try:
        current: Record | None = _policy(facts, data) if kind == "policy" else _contract(facts, data, caller)
    except Malformed:
        return None
    return None if current is None else etag_of(write(current))


def _policy(facts: Facts, data: bytes) -> Record | None:
    domain = read_policy(data).domain
    return policy_of(facts, domain) if domain in facts.policies else None


def _contract(facts: Facts, data: bytes, caller: Caller) -> ContractHead | None:
    head = facts.contracts.get(facts.contract_heads.get(read_contract(data).id, ""))
    return None if head is None or not caller.sees_contract(head, facts) else ContractHead.project(head)
