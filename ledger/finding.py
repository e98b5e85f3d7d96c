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
            "ok": True,
            "policy_decided_again": self.judged,
            "root": self.root,
            "signatures": self.signatures,
        }

    def in_words(self) -> str:
        """For people."""
        signed = "with their signatures" if self.signatures else "WITHOUT their signatures"
        judged = "every verdict of the policy decided again" if self.judged else "the policy's verdicts as recorded"
        judged = f"{judged}, {self.charges} charges priced again" if self.decided else "NOTHING decided again"
        kept = f"; they extend the {self.kept} checkpoints that were kept" if self.kept else ""
        return (
            f"verified: {self.entries} entries replayed {signed}, {judged}, "
            f"{self.accounts} accounts re-derived, {self.documents} documents hashed; the checkpoint of {self.log} "
            f"is signed over the root {self.root[:16]}… of these entries, and the inclusion proof of entry "
            f"{self.entries - 1} holds{kept}"
        )
