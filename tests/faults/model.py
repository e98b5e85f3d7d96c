"""The whole book written another way: plain sets, dictionaries and fractions, and every rule of it said once more.

Nothing here is the ledger's. Who knows what is :class:`tests.ledger.organisation_lineage.run_sets.Sets`; an account is
added up anew from the runs that its holder knows, whenever it is asked. A budget with δ = 0 is told in fractions of a
nat; what a step costs under the other rules, and how much fits, is a table that the model is given (other tests hold
it to proofs).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from tests.faults.leasing import Leasing
from tests.faults.standing import Ask, Contract, Partition, Run, Told

DAY_MS: Final = 86_400_000
DEADLINE_MS_MAX: Final = 30 * DAY_MS
AGE_MS_MAX: Final = 90 * DAY_MS
RECORDED: Final = ("pending", "posted", "voided", "permitted", "not_priced", "policy_denied", "budget_exhausted")


@dataclass
class Model(Leasing):
    """What stands, and what every command gets."""

    def call(self, asks: list[tuple[Ask, bytes]], clock: int) -> list[Told]:
        """What commands sent together get, at a time of the clock."""
        self._lapse(max(clock, self.last))
        # Only a correction of the clock moves the time within a call.
        return [self._told(ask, raw, max(clock, self.last)) for ask, raw in asks]

    def _lapse(self, now: int) -> None:
        due = [run for run in self.runs.values() if run.state == "pending" and run.deadline < now]
        for run in sorted(due, key=lambda one: (one.deadline, one.id)):
            self._settle(run, run.steps if run.released else None)
            self.size, self.last = self.size + 1, now

    def _settle(self, run: Run, ran: int | None) -> None:
        run.state, run.ran = ("voided", 0) if ran is None else ("posted", ran)
        if ran is None:
            self.contracts[run.contract].runs -= 1

    def _told(self, ask: Ask, raw: bytes, now: int) -> Told:
        if ask.flaw in {"bytes", "loose"}:
            return Told("malformed", None)
        forged = self._forged(ask)
        if forged:
            return Told(forged, None)
        if ask.id in self.answers:
            first, word, index = self.answers[ask.id]
            return Told(word, index, repeated=True) if first == raw else Told("id_reused", None)
        word, change = self._decide(ask, now)
        if word not in RECORDED:
            return Told(word, None)
        index, self.size = self.size, self.size + 1
        self.answers[ask.id], self.last = (raw, word, index), now
        if change is not None:
            change(index)
        return Told(word, index)

    def _forged(self, ask: Ask) -> str:
        """Whose signature it is, if not that of whoever asks."""
        room = ask.told.get("by")
        if room is not None and room not in self.rooms:
            return "signature_invalid"
        if room is not None and self.rooms[room] != ask.actor:
            return "not_authorised"
        known = room is not None or ask.key_of(ask.actor) in self.keys
        return "signature_invalid" if ask.flaw == "signature" or not known else ""

    def _decide(self, ask: Ask, now: int) -> tuple[str, Callable[[int], None] | None]:
        if "by" not in ask.told and not self.keys[ask.key_of(ask.actor)].counts(now):
            return "signature_invalid", None
        words = getattr(self, f"_{ask.kind}")(ask, now, **ask.told)
        return words if isinstance(words, tuple) else (words, None)

    # -- the registry

    def _organisation(self, ask: Ask, now: int, did: str, role: str) -> Any:  # noqa: ANN401
        if self.roles[ask.actor] != "SRO":
            return "not_authorised"
        return "conflict" if did in self.roles else ("permitted", lambda index: self.register(did, role, index, now))

    def _partition(self, ask: Ask, now: int, ref: str, **told: Any) -> Any:  # noqa: ANN401
        if self.roles[ask.actor] != "TDP":
            return "not_authorised"
        if ref in self.partitions:
            return "conflict"
        if Fraction(told["epsilon"]) > Fraction(self.recommended.get("digits", (0, "1000"))[1]):
            return "policy_denied"
        return "permitted", lambda _: self.partitions.update({ref: Partition(opened=now, **told)})

    def _retirement(self, ask: Ask, now: int, ref: str) -> Any:  # noqa: ANN401
        del now
        if self.roles[ask.actor] != "TDP":
            return "not_authorised"
        found = self.partitions.get(ref)
        if found is None or found.retired:
            return "conflict" if found else "not_found"
        return "permitted", lambda _: setattr(found, "retired", True)

    # -- charges

    def _charge(self, ask: Ask, now: int, **told: Any) -> Any:  # noqa: ANN401, C901, PLR0911 - a flat ladder
        if self.roles[ask.actor] != "TDC":
            return "not_authorised"
        contract, partitions = self.contracts.get(told["contract"]), told["partitions"]
        if contract is None or any(ref not in self.partitions for ref in partitions):
            return "not_found"
        if told["room"] in self.rooms:
            return "conflict"
        known = self.sets.knows[self.sets.stands[ask.actor]]
        if any(did not in self.roles for did in told["recipients"]) or any(
            one not in self.runs for one in told["base"]
        ):
            return "not_found"
        if any(one not in known for one in told["base"]):
            return "conflict"
        if not now < told["deadline"] <= now + DEADLINE_MS_MAX:
            return "malformed"
        costs = [self.costs[told["plan"], self.partitions[ref].kind] for ref in partitions]
        if any(cost is None for cost in costs):
            return "not_priced"
        if self._denied(ask.actor, contract, told, now):
            return "policy_denied"
        made = Run(
            ask.id,
            ask.actor,
            told["contract"],
            partitions,
            tuple(cost for cost in costs if cost is not None),
            told["steps"],
            told["deadline"],
            told["recipients"],
            told["room"],
            told["plan"],
            leases=told["leases"],
        )
        if not all(self._fits(made, holder, epsilon, more=True) for holder, epsilon in self._limits(ask.actor)):
            return "budget_exhausted"

        def change(index: int) -> None:
            self.runs[made.id], self.rooms[made.room], made.index = made, made.actor, index
            contract.runs += 1
            self._happened(now, index, "charge", made.id, made.actor)

        return "pending", change

    def _denied(self, actor: str, contract: Contract, told: Mapping[str, Any], now: int) -> bool:
        used = [self.partitions[ref] for ref in told["partitions"]]
        return (
            not self._in_force(told["contract"], now)
            or told["contract"] not in self.rights[actor]
            or contract.runs + 1 > contract.runs_max
            or told["plan"] in self.loud
            or any(one.retired or now > one.opened + AGE_MS_MAX for one in used)
        )

    def _limits(self, actor: str) -> Iterator[tuple[int | None, str]]:
        """Everyone, the lineage, and every coalition that follows someone who stands there; with their caps in ε."""
        yield None, "1000"
        yield self.sets.stands[actor], self.lineage
        for coalition, epsilon in self.coalitions.items():
            if set(self.sets.follows[coalition]) & set(self._beside(actor)):
                yield coalition, epsilon

    def _fits(self, made: Run, holder: int | None, epsilon: str, *, more: bool) -> bool:
        """Whether each account has room: for one more run, or for what it has already."""
        for ref in made.partitions:
            posted, pending = self.account(ref, holder)
            new = tuple(more * at for at in made.loss(ref)[1])
            forgiven = self.forgiven.get((ref, holder), (0,) * len(new))
            after = tuple(a + b + c - d for a, b, c, d in zip(posted, pending, new, forgiven, strict=True))
            if not self.partitions[ref].fits(after, epsilon):
                return False
        return True

    def _key_release(self, ask: Ask, now: int, charge: str, by: str, flawed: bool, **_: Any) -> Any:  # noqa: ANN401, FBT001
        run = self.runs.get(charge)
        if run is None or by != run.room:
            return "not_authorised" if run else "not_found"
        if run.state != "pending" or run.released or self._revoked_since(run):
            return "conflict"
        del ask
        # The attester of these tests vouches for the clean room that is named as its charge is.
        if flawed or run.room != run.id or not self._in_force(run.contract, now):
            return "policy_denied"
        # What everyone knows is over no cap by who knows it.
        limits = [(holder, epsilon) for holder, epsilon in self._limits(run.actor) if holder is not None]
        if not all(self._fits(run, holder, epsilon, more=False) for holder, epsilon in limits):
            return "conflict"
        return "permitted", lambda _: setattr(run, "released", True)

    def _post(self, ask: Ask, now: int, charge: str, by: str, steps: int, **told: Any) -> Any:  # noqa: ANN401
        del now
        run, model = self.runs.get(charge), told.get("model")
        if run is None or by != run.room:
            return "not_authorised" if run else "not_found"
        if run.state != "pending":
            return "conflict"
        if steps > run.steps or (not steps and model is not None):
            return "malformed"
        if not self._of_live_generation(run, steps, told.get("generation"), told.get("lease")):
            return "conflict"

        def change(index: int) -> None:
            del index
            self._settle(run, steps)
            if model is not None or run.leases:
                run.post, run.model = ask.id, model

        return "posted", change

    def _void(self, ask: Ask, now: int, charge: str) -> Any:  # noqa: ANN401
        del now
        run = self.runs.get(charge)
        if run is None:
            return "not_found"
        if self.roles[ask.actor] != "TDC" or run.actor != ask.actor:
            return "not_authorised"
        return "conflict" if run.state != "pending" or run.released else ("voided", lambda _: self._settle(run, None))
