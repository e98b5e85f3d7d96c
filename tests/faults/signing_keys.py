"""Signing keys in the model: who acts on whose, which count when, and who gets a lost one back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tests.faults.documents import Documents
from tests.faults.standing import Ask, Key, Run

WINDOW_MS: Final = 400 * 86_400_000
KEYS_MAX: Final = 16


@dataclass
class SigningKeys(Documents):
    """Rotations, suspensions, revocations, quorums and recoveries."""

    def _revoked_since(self, run: Run) -> bool:
        """Whether a key that its author had when it asked was revoked since."""
        keys = (key for key in self.keys.values() if key.owner == run.actor and key.revoked is not None)
        return any(key.index < run.index < (key.revoked or 0) for key in keys)

    def _left(self, did: str, without: tuple[str, ...], now: int) -> bool:
        """Whether an organisation has a key in force that is not among these."""
        return any(key.owner == did and key.counts(now) for name, key in self.keys.items() if name not in without)

    def _governs(self, actor: str, owner: str) -> bool:
        """Whether an SRO acts on another's keys: not where that one may, at whatever remove, recover an SRO."""
        reached, more = set[str](), {owner}
        while more - reached:
            reached |= more
            more = {did for did, (members, _) in self.quorums.items() if reached & set(members)}
        return self.roles[actor] == "SRO" and all(self.roles[did] != "SRO" for did in reached)

    def _named_keys(self, actor: str, names: tuple[str, ...]) -> str:
        for name in names:
            key = self.keys.get(name)
            if key is None:
                return "not_found"
            if key.owner != actor and not self._governs(actor, key.owner):
                return "not_authorised"
            if key.revoked is not None:
                return "conflict"
        return ""

    def _key_rotation(self, ask: Ask, now: int, new: str, retires: str, **reported: Any) -> Any:  # noqa: ANN401, PLR0911
        starts, until, old = reported["starts"], reported["until"], self.keys.get(retires)
        if old is None or old.owner != ask.actor:
            return "not_found"
        if old.revoked is not None or (old.until is not None and now >= old.until):
            return "conflict"
        begins = now if starts is None else starts
        if (starts is not None and not now < starts <= now + WINDOW_MS) or not begins <= until <= now + WINDOW_MS:
            return "malformed"
        if old.until is not None and until > old.until:
            return "conflict"
        own = [key for key in self.keys.values() if key.owner == ask.actor and key.revoked is None]
        if sum(key.until is None or now < key.until for key in own) >= KEYS_MAX or new in self.keys:
            return "conflict"
        if not reported["held"]:
            return "signature_invalid"

        def change(index: int) -> None:
            self.keys[new], old.until = Key(ask.actor, index, begins), until

        return "permitted", change

    def _key_revocation(self, ask: Ask, now: int, names: tuple[str, ...]) -> Any:  # noqa: ANN401
        word = self._named_keys(ask.actor, names)
        if word:
            return word
        for did in {self.keys[name].owner for name in names}:
            if self.roles[did] == "SRO" and did not in self.quorums and not self._left(did, names, now):
                return "conflict"

        def change(index: int) -> None:
            for name in names:
                self.keys[name].revoked = index

        return "permitted", change

    def _key_suspension(self, ask: Ask, now: int, names: tuple[str, ...], suspended: bool) -> Any:  # noqa: ANN401, FBT001
        word = self._named_keys(ask.actor, names)
        if word:
            return word
        for key in (self.keys[name] for name in names):
            if suspended is (key.suspended_by is not None):
                return "conflict"
            if key.suspended_by not in {None, ask.actor} and not self._governs(ask.actor, key.owner):
                return "not_authorised"
        owners = {self.keys[name].owner for name in names}
        if suspended and any(self.roles[did] == "SRO" and not self._left(did, names, now) for did in owners):
            return "conflict"

        def change(index: int) -> None:
            del index
            for name in names:
                self.keys[name].suspended_by = ask.actor if suspended else None

        return "permitted", change

    def _recovery_quorum(self, ask: Ask, now: int, members: tuple[str, ...], **reported: Any) -> Any:  # noqa: ANN401
        if any(did not in self.roles for did in members):
            return "not_found"
        if ask.actor in members or reported["threshold"] > len(members):
            return "malformed"
        word = self._agreed(ask, ask.actor, reported["signed"], now) if ask.actor in self.quorums else ""
        return word or ("permitted", lambda _: self.quorums.update({ask.actor: (members, reported["threshold"])}))

    def _agreed(self, ask: Ask, did: str, signed: tuple[str, ...], now: int) -> str:
        """What is wrong with the signatures of a quorum."""
        if not self._all_count(ask, signed, now):
            return "signature_invalid"
        members, threshold = self.quorums[did]
        return "" if len(set(signed) & set(members)) >= threshold else "signature_missing"

    def _agreed_to_recover(self, ask: Ask, did: str, signed: tuple[str, ...], now: int) -> str:
        if not signed and self._governs(ask.actor, did):
            return ""
        return self._agreed(ask, did, signed, now) if did in self.quorums else "not_authorised"

    def _key_recovery(self, ask: Ask, now: int, did: str, new: str, **reported: Any) -> Any:  # noqa: ANN401
        if did not in self.roles:
            return "not_found"
        if reported["since"] is not None and reported["since"] > now:
            return "malformed"
        word = self._agreed_to_recover(ask, did, reported["signed"], now)
        if word:
            return word
        if new in self.keys:
            return "conflict"
        if not reported["held"]:
            return "signature_invalid"

        def change(index: int) -> None:
            for key in self.keys.values():
                if key.owner == did and key.revoked is None:
                    key.revoked = index
            self.keys[new] = Key(did, index, now)

        return "permitted", change
