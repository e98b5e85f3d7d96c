"""What a verification that found nothing wrong says, to programs and to people."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """What a verification that found nothing wrong has covered."""

    entries: int
    charges: int
    accounts: int
    documents: int
    signatures: int
    kept: int
    decided: bool
    judged: bool
    root: str
    log: str
    moved: str | None

    def to_json(self) -> dict[str, object]:
        """For programs."""
        return {
            "accounts": self.accounts,
            "charges": self.charges,
            "decided_again": self.decided,
            "documents": self.documents,
            "entries": self.entries,
            "kept": self.kept,
            "log": self.log,
            "moved_to": self.moved,
            "ok": True,
            "policy_decided_again": self.judged,
            "root": self.root,
            "signatures": self.signatures,
        }

    def in_words(self) -> str:
        """For people."""
        signed = "with their signatures" if self.signatures else "WITHOUT their signatures"
        judged = "every verdict of the policy decided again" if self.judged else "the policy's verdicts as recorded"
        judged = f"{judged}, {_count(self.charges, 'charge')} priced again" if self.decided else "NOTHING decided again"
        done = (
            f"verified: {_count(self.entries, 'entry', 'entries')} replayed {signed}, {judged}, "
            f"{_count(self.accounts, 'account')} re-derived, {_count(self.documents, 'document')} hashed; "
            f"the checkpoint of {self.log} is signed over the root {self.root[:16]}… of these entries, and the "
            f"inclusion proof of entry {self.entries - 1} holds"
        )
        if not self.entries:
            done = "verified: the book has no entry yet, and nothing that entries make"
        kept = "the checkpoint that was kept" if self.kept == 1 else f"the {self.kept} checkpoints that were kept"
        extends = f"; they extend {kept}" if self.kept and self.entries else ""
        return f"{done}{extends}" + (f"; the book says that it was moved to {self.moved}" if self.moved else "")


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or f'{one}s'}"
