"""What lineage commands get in the model, and what they change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tests.factories.people import DAY_MS
from tests.faults.standing import Ask, Run, Standing

EMPTY_SINCE: Final = 1_797_292_800_000
"""From then on lineage is recorded that brings nothing yet."""
AGREED_SINCE: Final = EMPTY_SINCE
"""From then on a consumer hands over what its recipient has signed for, of a run that took a step."""
Agreed = tuple[str, str, int] | None
"""Who signed for a model, from whom, and for how many runs."""


@dataclass
class Lineage(Standing):
    """Mergers, splits, transfers, publications, coalitions, collusion."""

    def _named(self, ask: Ask, dids: tuple[str, ...]) -> str:
        if self.roles[ask.actor] != "SRO":
            return "not_authorised"
        return "" if all(did in self.roles for did in dids) else "not_found"

    def _merger(self, ask: Ask, now: int, into: str, parents: tuple[str, ...]) -> Any:  # noqa: ANN401
        dids = (into, *parents)
        word = self._named(ask, dids)
        if word or len({self.sets.stands[did] for did in dids}) == 1:
            return word or "conflict"

        def change(index: int) -> None:
            before = {self.sets.stands[did] for did in dids}
            self._happened(now, index, "merge", dids)
            self._share_rights(index, before, self._beside(into))

        return "permitted", change

    _acquisition = _merger

    def _split(self, ask: Ask, now: int, parent: str, child: str) -> Any:  # noqa: ANN401
        word = self._named(ask, (parent, child))
        if word:
            return word
        if parent == child:
            return "malformed"
        stands, knows = self.sets.stands, self.sets.knows
        empty = stands[parent] != stands[child] and knows[stands[parent]] <= knows[stands[child]]
        if empty and now < EMPTY_SINCE:
            return "conflict"

        def change(index: int) -> None:
            before = {self.sets.stands[parent], self.sets.stands[child]}
            self._happened(now, index, "split", parent, child)
            self._share_rights(index, before, [parent, child])

        return "permitted", change

    def _transfer(  # noqa: PLR0913, PLR0917 - what it says
        self, ask: Ask, now: int, charge: str, recipient: str, giver: str | None, agreed: Agreed
    ) -> Any:  # noqa: ANN401
        role, run = self.roles[ask.actor], self.runs.get(charge)
        if role not in {"SRO", "TDC"}:
            return "not_authorised"
        if run is None or recipient not in self.roles:
            return "not_found"
        by_sro = role == "SRO"
        gives = giver or (run.actor if by_sro else ask.actor)
        word = self._gives(ask, gives, run, now, by_sro=by_sro)
        if word:
            return word
        knows, stands = self.sets.knows, self.sets.stands
        planned = gives == run.actor and recipient in run.recipients and not self._colluded(gives)
        given = self.sets.ancestry[charge] if planned else knows[stands[gives]]
        if agreed is not None:
            word = self._agreed_to(ask, now, agreed, (gives, recipient), given)
        elif not by_sro and stands[gives] != stands[recipient] and now >= AGREED_SINCE:
            word = "signature_missing"
        if word or (given <= knows[stands[recipient]] and self._repeats(now, gives, recipient, by_sro=by_sro)):
            return word or "conflict"
        if not by_sro and not self.released:
            return "policy_denied"

        def change(index: int) -> None:
            self.handed[gives, stands[recipient]] = now
            self._happened(now, index, "transfer", charge, gives, recipient, planned)

        return "permitted", change

    def _gives(self, ask: Ask, gives: str, run: Run, now: int, *, by_sro: bool) -> str:
        """Why somebody does not give the model of a run."""
        if gives not in self.roles:
            return "not_found"
        if not by_sro and gives != ask.actor:
            return "not_authorised"
        if run.id not in self.sets.knows[self.sets.stands[gives]]:
            return "conflict" if by_sro else "not_authorised"
        if by_sro:
            return ""
        return "conflict" if run.state != "posted" or (run.ran == 0 and now >= AGREED_SINCE) else ""

    def _agreed_to(
        self, ask: Ask, now: int, agreed: tuple[str, str, int], between: tuple[str, str], given: set[str]
    ) -> str:
        """What is wrong with an agreement: who signed for what, and for fewer runs than are given."""
        signer, named, runs = agreed
        if (named, signer) != between or not self.keys[ask.key_of(signer)].counts(now):
            return "signature_invalid"
        return "conflict" if len(given) > runs else ""

    def _repeats(self, now: int, gives: str, recipient: str, *, by_sro: bool) -> bool:
        """Whether a transfer that brings nothing is none that is recorded."""
        stands = self.sets.stands
        if now < EMPTY_SINCE or stands[gives] == stands[recipient]:
            return True
        before = self.handed.get((gives, stands[recipient]))
        return before is not None and (not by_sro or before > now - DAY_MS)

    def _publication(self, ask: Ask, now: int, charge: str) -> Any:  # noqa: ANN401
        run = self.runs.get(charge)
        if self.roles[ask.actor] != "SRO" or run is None:
            return "not_found" if self.roles[ask.actor] == "SRO" else "not_authorised"
        some = any(event[0] == "publication" for _, _, event in self.log)
        if some and self.sets.knows[self.sets.stands[run.actor]] <= self.sets.public and now < EMPTY_SINCE:
            return "conflict"
        return "permitted", lambda index: self._happened(now, index, "publication", run.actor)

    def _coalition(self, ask: Ask, now: int, members: tuple[str, ...], epsilon: str) -> Any:  # noqa: ANN401
        word = self._named(ask, members)
        if word:
            return word

        def change(index: int) -> None:
            self.coalitions[index] = epsilon
            self._happened(now, index, "coalition", members)

        return "permitted", change

    def _collusion(self, ask: Ask, now: int, dids: tuple[str, ...], since: int) -> Any:  # noqa: ANN401
        word = self._named(ask, dids)
        if word or since > now:
            return word or "malformed"
        if len({self.stood(did, since) for did in dids}) == 1:
            return "conflict"

        def change(index: int) -> None:
            self.suspects.append((since, dids))
            self._happened(now, index, "collusion", len(self.suspects) - 1)
            self._stand_together(index)

        return "permitted", change
