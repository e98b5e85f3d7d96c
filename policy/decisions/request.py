"""What every decision reads from a request: its typed body, the documents that it names, and their signatures."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ledger.commands.command_kind import CommandKind
from ledger.domain.facts import Facts
from ledger.domain.gate import Gate, Request, Verdict
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record
from policy.checks.field_readers import Inconsistent
from policy.checks.findings import Findings

B = TypeVar("B", bound=Record)
D = TypeVar("D")


def on(kind: CommandKind[B], decide: Callable[[Request, B, Facts], Verdict]) -> tuple[str, Gate]:
    """The policy's decision on one kind of command, by its name."""

    def verdict(request: Request, facts: Facts) -> Verdict:
        if not isinstance(request.body, kind.body):
            message = f"a {request.command.kind} command cannot hold a {type(request.body).__name__}"
            raise TypeError(message)
        return decide(request, request.body, facts)

    return kind.name, verdict


def document_of(findings: Findings, facts: Facts, digest: str, read: Callable[[bytes], D]) -> D | None:
    """A document read in phases, each with its own code; None if one of them fails."""
    data = facts.documents.get(digest)
    findings.check("document_unknown", data is not None, f"document {digest}", "stored")
    if data is None:
        return None
    try:
        document = read(data)
    except Inconsistent as error:
        findings.failed("document_inconsistent", str(error))
        return None
    except Malformed as error:
        findings.failed("document_malformed", str(error))
        return None
    return document


def check_signatures(findings: Findings, request: Request, parties: tuple[str, ...], source: str) -> None:
    """One check for each party whose signature over the document is required."""
    for party in parties:
        signed = party in request.signers
        findings.add("signature_missing", signed, f"{party} has {'' if signed else 'not '}signed", source)
