"""The report of a verification that found no error, for programs and for people."""

from __future__ import annotations

import msgspec

from ledger.command_line.verbosity import is_verbose
from ledger.wire.field_types import constant
from ledger.wire.records import Record


class VerificationReport(Record, frozen=True, kw_only=True):
    """The scope of a verification without errors.

    Attributes:
        kept: how many checkpoints kept outside the book it was compared with.
        decided: whether every command was decided again.
        judged: whether the policy was evaluated again for every command.
        moved: the book that this one was moved to, if it was.
        not_run: why the database's own check was not run; empty if it was.
    """

    accounts: int
    charges: int
    decided: bool = msgspec.field(name="decided_again")
    documents: int
    entries: int
    kept: int
    log: str
    moved: str | None = msgspec.field(name="moved_to")
    ok: bool = constant(True)  # noqa: FBT003 - a value, not a flag
    judged: bool = msgspec.field(name="policy_decided_again")
    root: str
    signatures: int
    not_run: str = msgspec.field(name="integrity_check_not_run", default="")

    def in_words(self) -> str:
        """For people."""
        signed = "with their signatures" if self.signatures else "WITHOUT their signatures"
        judged = "every policy decision evaluated again" if self.judged else "policy decisions taken as recorded"
        judged = (
            f"{judged}, {_count(self.charges, 'charge')} priced again" if self.decided else "NO command decided again"
        )
        root = f"the root {self.root[:16]}… of " if is_verbose() else ""
        done = (
            f"verified: {_count(self.entries, 'entry', 'entries')} replayed {signed}, {judged}, "
            f"{_count(self.accounts, 'account')} recomputed, {_count(self.documents, 'document')} hashed; "
            f"the checkpoint of {self.log} is signed over {root}these entries, and the "
            f"inclusion proof of entry {self.entries - 1} holds"
        )
        if not self.entries:
            done = "verified: the book has no entries, and no rows that entries would make"
        checkpoints = "the kept checkpoint" if self.kept == 1 else f"the {self.kept} kept checkpoints"
        extends = f"; the log extends {checkpoints}" if self.kept and self.entries else ""
        not_run = f"; the database's own check of its indexes was NOT run: {self.not_run}" if self.not_run else ""
        moved = f"; the book is sealed: it was moved to {self.moved}" if self.moved else ""
        return f"{done}{extends}{not_run}{moved}"


def _count(number: int, singular: str, plural: str = "") -> str:
    return f"{number} {singular if number == 1 else plural or f'{singular}s'}"
