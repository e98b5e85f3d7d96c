"""Receipts of answers: an answer counts only if its entry is in the log, as signed by the log's key."""

from __future__ import annotations

from client.service.answers import Answer
from client.service.seen_checkpoint import known_keys
from client.service.service import Service
from ledger.commands.entry import Entry
from ledger.domain.outcomes import Code
from ledger.log.verification import verify_receipt
from ledger.verifier import LogKey
from ledger.wire.malformed import Malformed


class NotProven(Malformed):
    """The answer is not what the log's key signed."""


def check_recorded(service: Service, answer: Answer, log: LogKey, kind: str, wanted: Code) -> tuple[int, Entry]:
    """An answer's entry and its index, if the log holds it and it is of the expected kind and outcome.

    Raises:
        NotProven: if there is no receipt, it does not verify, or it is another entry's. Refused, Unreachable.
    """
    if answer.index is None or answer.receipt is None:
        raise NotProven("receipt", f"{answer.id} came without one")
    data = service.entry(answer.index)
    try:
        index, _ = verify_receipt(answer.receipt, data, known_keys(log))
        entry = Entry.parse(data)
    except Malformed as error:
        raise NotProven(error.field, error.rule) from None
    if (index, entry.id, entry.kind, entry.code) != (answer.index, answer.id, kind, wanted):
        raise NotProven("receipt", f"is of another entry than that of {answer.id}")
    return index, entry
