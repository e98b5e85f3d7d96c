"""The input of every decision: a request and the facts, the documents that it names, and their signatures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from ledger.commands.command_kind import CommandKind
from ledger.domain.facts import Facts
from ledger.domain.gate import Caps, Gate, Header, Request, Verdict
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record
from policy.checks.field_readers import Inconsistent
from policy.checks.findings import Findings

B = TypeVar("B", bound=Record)
D = TypeVar("D")
T = TypeVar("T")


class Case(Findings):
    """A request, the facts that decide it, and the checks made so far.

    Attributes:
        header: set by the decision on a document.
        caps: of each partition, set by the decision on a charge or a new partition.
        until: the time at which the decision on an equal request may differ; see :class:`ledger.domain.gate.Verdict`.
        runs_max: how many runs of its contract it holds for, this one included.
        refund: of leased steps that are not taken, set by the decision on a charge.
    """

    def __init__(self, request: Request, facts: Facts) -> None:
        """Start without checks."""
        super().__init__()
        self.request, self.facts = request, facts
        self.actor, self.now = request.command.actor, request.now
        self.header: Header | None = None
        self.caps: Iterable[tuple[str, Caps]] = ()
        self.until: int | None = None
        self.runs_max: int | None = None
        self.refund = ""

    def is_accepted(self, until_ms: int) -> bool:
        """Whether replay decides what an earlier program permitted, without a check that is made since (Unix ms)."""
        return self.request.permitted and self.now < until_ms

    def exists(
        self, code: str, value: T | None, subject: str, predicate: str = "on record", source: str = ""
    ) -> T | None:
        """Check that there is a value, and return it."""
        self.check(code, value is not None, subject, predicate, source)
        return value

    def registered(self, code: str, organisations: Iterable[str]) -> None:
        """Check that each of these organisations is registered."""
        for did in organisations:
            self.check(code, did in self.facts.organisations, did, "registered")

    def document(self, digest: str, read: Callable[[bytes], D]) -> D | None:
        """A document read in phases, each with its own code; None if one of them fails."""
        data = self.exists("document_unknown", self.facts.documents.get(digest), f"document {digest}", "stored")
        if data is None:
            return None
        try:
            return read(data)
        except Malformed as error:
            inconsistent = isinstance(error, Inconsistent)
            self.failed("document_inconsistent" if inconsistent else "document_malformed", str(error))
            return None

    def signed_by(self, parties: Iterable[str], source: str) -> None:
        """Add a check for each party whose signature over the document is required."""
        for party in parties:
            signed = party in self.request.signers
            self.add("signature_missing", signed, f"{party} has {'' if signed else 'not '}signed", source)


def on(kind: CommandKind[B], decide: Callable[[Case, B], None]) -> tuple[str, Gate]:
    """The policy's decision on one kind of command."""
    return kind.name, partial(_verdict, kind, decide)


def _verdict(kind: CommandKind[B], decide: Callable[[Case, B], None], request: Request, facts: Facts) -> Verdict:
    if not isinstance(request.body, kind.body):
        message = f"a {request.command.kind} command cannot hold a {type(request.body).__name__}"
        raise TypeError(message)
    case = Case(request, facts)
    decide(case, request.body)
    made = case.verdict(case.header, case.caps)
    made = replace(made, refund=case.refund)
    return replace(made, until=case.until, runs_max=case.runs_max) if made.permit and case.until else made
