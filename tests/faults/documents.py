"""Documents that are entered, in the model, and the log's time that goes back: who must sign, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.factories.people import HOSPITAL
from tests.faults.governing import Governing
from tests.faults.standing import Ask, Contract


@dataclass
class Documents(Governing):
    """Policies, datasets, streams, recommendations and contracts; corrections of the clock."""

    def _all_count(self, ask: Ask, dids: tuple[str, ...], now: int) -> bool:
        """Whether the signatures of these organisations count."""
        return all(self.keys[ask.key_of(did)].counts(now) for did in dids)

    def _policy(self, ask: Ask, now: int, version: int, released: bool, effective: int) -> Any:  # noqa: ANN401, FBT001
        if self.roles[ask.actor] != "SRO":
            return "not_authorised"
        if not self._all_count(ask, (self.sro,), now):
            return "signature_invalid"
        if version != self.version + 1 or effective < self.effective:
            return "policy_denied"

        def change(index: int) -> None:
            del index
            self.version, self.released, self.effective = version, released, effective

        return "permitted", change

    def _contract(self, ask: Ask, now: int, digest: str, contract: Contract) -> Any:  # noqa: ANN401
        if self.roles[ask.actor] not in {"TDP", "TDC"}:
            return "not_authorised"
        if not self._all_count(ask, (contract.consumer, HOSPITAL), now):
            return "signature_invalid"
        head = self.contracts.get(self.heads.get(contract.id, ""))
        if contract.version != (head.version if head else 0) + 1 or now >= contract.ends:
            return "policy_denied"

        def change(index: int) -> None:
            del index
            contract.runs = head.runs if head else 0
            self.contracts[digest], self.heads[contract.id] = contract, digest
            together = self.sets.stands[contract.consumer] in self.joint
            for did in [contract.consumer] if together else self._beside(contract.consumer):
                self.rights[did].add(digest)
            if together:
                self.own[contract.consumer].add(digest)

        return "permitted", change

    def _dataset(self, ask: Ask, now: int, name: str, provider: str) -> Any:  # noqa: ANN401
        word = self._entered(ask, now, "TDP", provider)
        if word or name in self.datasets:
            return word or "policy_denied"
        return "permitted", lambda _: self.datasets.add(name)

    def _stream(self, ask: Ask, now: int, name: str, provider: str, version: int) -> Any:  # noqa: ANN401
        word = self._entered(ask, now, "TDP", provider)
        if word or name not in self.datasets or version != self.streams.get(name, 0) + 1:
            return word or "policy_denied"
        return "permitted", lambda _: self.streams.update({name: version})

    def _recommendation(  # noqa: PLR0913, PLR0917 - what it says
        self, ask: Ask, now: int, name: str, issuer: str, version: int, epsilon: str
    ) -> Any:  # noqa: ANN401
        word = self._entered(ask, now, "TSO", issuer)
        if word or name not in self.datasets or version != self.recommended.get(name, (0, ""))[0] + 1:
            return word or "policy_denied"
        return "permitted", lambda _: self.recommended.update({name: (version, epsilon)})

    def _entered(self, ask: Ask, now: int, role: str, author: str) -> str:
        """Why a document of one author, who signs it, is not entered."""
        if self.roles[ask.actor] != role:
            return "not_authorised"
        return "" if self._all_count(ask, (author,), now) else "signature_invalid"

    def _clock_correction(self, ask: Ask, now: int, ahead: int, time: int, signed: tuple[str, ...]) -> Any:  # noqa: ANN401
        if self.roles[ask.actor] != "SRO":
            return "not_authorised"
        if time >= ahead or ahead != now:
            return "conflict" if time < ahead else "malformed"
        if not self._all_count(ask, signed, now):
            return "signature_invalid"
        return ("permitted", lambda _: self._go_back(ahead, time)) if self.sro in signed else "signature_missing"

    def _go_back(self, ahead: int, time: int) -> None:
        """Each keeps the time that it had left, or the age that it had; nothing that has ended begins again."""
        back = ahead - time
        for run in self.runs.values():
            run.deadline -= back if run.state == "pending" else 0
        for partition in self.partitions.values():
            partition.opened -= back
        for contract in self.contracts.values():
            contract.ends = time if time < contract.ends <= ahead else contract.ends
        for key in self.keys.values():
            key.starts = min(key.starts, time) if key.starts <= ahead else key.starts
            key.until = min(key.until, time) if key.until is not None and key.until <= ahead else key.until
        self.effective -= back
        self.last, self.corrected = time, True
