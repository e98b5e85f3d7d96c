"""From three numbers to a command: good ones, bad ones, ones sent before; whatever the model says now makes sense."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from ledger.book.book import Submission
from tests.factories.people import BANK_A, HOSPITAL, HOUR_MS, LATE, SRO, STRANGER
from tests.faults.asking_keys import AskingKeys
from tests.faults.modelled_world import (
    BANKS,
    KINDS,
    PLANS,
    ModelledWorld,
    contract_of,
    digest_of,
    plan_of,
    priced,
    ref_of,
    steps_of,
)
from tests.faults.standing import Ask

Sent = tuple[Ask, Submission]
FREQUENT: Final = (
    ("charge",) * 7
    + ("post",) * 4
    + ("void",) * 2
    + ("key_release",) * 3
    + ("step_lease",) * 2
    + ("model_release", "release_notice", "transfer")
)
RARE: Final = (
    "merger",
    "acquisition",
    "split",
    "publication",
    "coalition",
    "collusion",
    "organisation",
    "policy",
    "contract",
    "partition",
    "retirement",
    "revocation",
    "decree",
    "dataset",
    "stream",
    "recommendation",
    "clock_correction",
    "run_generation",
    "model_opening",
    "key_rotation",
    "key_suspension",
    "key_suspension",
    "key_revocation",
    "recovery_quorum",
    "key_recovery",
)
TWISTS: Final = ("again", "reuse", "forge", "garble", "loosen", "stranger")
KINDS_ASKED: Final = (*FREQUENT * 2, *RARE, *TWISTS)


@dataclass
class Asking(AskingKeys):
    """Who asks next for what. ``sent`` is all that was ever sent."""

    world: ModelledWorld
    sent: list[Sent] = field(default_factory=list)
    planned: bool = False

    def next(self, kind: str, a: int, b: int, c: int) -> Sent:
        """One command."""
        now = max(self.world.clock.now, self.model.last)
        if kind == "again" and self.sent:
            return self.sent[a % len(self.sent)]
        twist = kind if kind in TWISTS else ""
        kind = FREQUENT[a % len(FREQUENT)] if twist else kind
        told = getattr(self, f"_{kind}")(a, b, c, now)
        if told is None:
            kind, told = "charge", self._charge(a, b, c, now)
        self.made += 1
        name = f"lease-{self.made:064x}" if kind == "step_lease" and c % 19 else f"{kind}-{self.made}"
        actor, what = told
        ask = self._twisted(Ask(kind, name, actor, what, keys=self._signing(c, now)), twist, c)
        sent = ask, self.world.submission(ask, now)
        self.sent.append(sent)
        return sent

    def _twisted(self, ask: Ask, twist: str, number: int) -> Ask:
        if twist == "reuse" and self.sent:
            return replace(ask, id=self.sent[number % len(self.sent)][0].id)
        if twist == "stranger" and "by" not in ask.told:
            return replace(ask, actor=STRANGER)
        return replace(ask, flaw={"forge": "signature", "garble": "bytes", "loosen": "loose"}.get(twist, ""))

    def _charge(self, a: int, b: int, c: int, now: int) -> Any:  # noqa: ANN401
        bank, kinds = self._bank(a), list(self.model.partitions)
        used = [kinds[b % len(kinds)]]
        plan = "pure" if self.model.partitions[used[0]].kind == "pure" else PLANS[1 + (c % 11 == 0)]
        if a % 4 == 0:
            used += [kinds[c % len(kinds)]]
        mine = sorted(self.model.rights[bank]) or [digest_of(BANK_A, 1)]
        # A plan of sampled noise is new once, and then takes a second to be priced.
        steps = (1, 2, 4)[c % 3] if plan == "poisson" else 1 + c % 5 * (plan == "pure")
        told: dict[str, Any] = {
            "base": (self._run(c) or "none",) if c % 13 == 5 else (),
            "contract": mine[c % len(mine)] if c % 17 != 11 else digest_of(self._bank(b), 1 + c % 2),
            "deadline": now + (HOUR_MS * (1 + b % 9) if c % 29 != 3 else -1),
            "partitions": tuple(dict.fromkeys(used if c % 31 != 7 else [ref_of("none")])),
            "plan": "pure" if b % 19 == 8 else plan,
            "recipients": (self._bank(b),) if c % 7 == 2 and not self.model.suspects else (),
            "room": f"charge-{self.made + 1}" if a % 27 != 9 else self._room(b),
            "leases": b % 3 == 1,
        }
        self.planned |= bool(told["recipients"])
        return bank, {**told, "steps": steps_of(told["plan"], steps), "steps_told": steps}

    def _post(self, a: int, b: int, c: int, now: int) -> Any:  # noqa: ANN401
        del now
        found = self._of_run(a, b)
        if found is None:
            return None
        run = self.model.runs.get(found[1]["charge"])
        steps = c % (run.steps + 2) if run and c % 3 else (run.steps if run else 1)
        live: dict[str, Any] = {}
        if run and run.leases and b % 11 != 6:
            live = {"generation": run.generation, "lease": run.newest or None}
        return found[0], {**found[1], **live, "steps": steps, "model": f"{c % 3:064x}" if a % 3 == 1 else None}

    def _void(self, a: int, b: int, c: int, now: int) -> Any:  # noqa: ANN401
        del c, now
        found = self._of_run(a, b)
        return None if found is None else (found[0], {"charge": found[1]["charge"]})

    def _key_release(self, a: int, b: int, c: int, now: int) -> Any:  # noqa: ANN401
        del now
        found = self._of_run(a, b)
        run = self.model.runs.get(found[1]["charge"]) if found else None
        if found is None or run is None:
            return None
        told = {"run": plan_of(run.plan, run.steps // steps_of(run.plan, 1)), "flawed": c % 15 == 7}
        return found[0], {**found[1], **told}

    def _model_release(self, a: int, b: int, c: int, now: int) -> Any:  # noqa: ANN401
        del now
        found = self._of_run(a, b, self._ended(a, announced=True))
        run = self.model.runs.get(found[1]["charge"]) if found else None
        if found is None or run is None:
            return None
        model = min(run.notices, default="") if c % 5 else ""
        post = run.post or None if c % 7 else "no-post"
        return found[0], {**found[1], "model": model or f"{c:064x}", "post": post}

    def _release_notice(self, a: int, b: int, c: int, now: int) -> Any:  # noqa: ANN401
        del now
        found = self._of_run(a, b, self._ended(a, announced=False))
        run = self.model.runs.get(found[1]["charge"]) if found else None
        named = run.model if run and c % 5 else None
        return None if found is None else (found[0], {**found[1], "model": named or f"{c % 3:064x}"})

    def _revocation(self, a: int, b: int, c: int, now: int) -> Any:  # noqa: ANN401
        del now
        digests = [*self.model.contracts, digest_of(self._bank(b), 40)]
        return None if c % 4 else ((HOSPITAL if a % 7 else self._bank(b)), {"digest": digests[b % len(digests)]})

    def _decree(self, a: int, b: int, c: int, now: int) -> Any:  # noqa: ANN401
        del now
        stands = self.model.sets.stands
        nodes = [None, *sorted({stands[did] for did in (*BANKS, LATE) if did in stands}), *self.model.coalitions, 10**6]
        refs = [*self.model.partitions, ref_of("none")]
        return self._sro(a), {"ref": refs[b % len(refs)], "node": nodes[c % len(nodes)]}

    def _organisation(self, a: int, b: int, c: int, now: int) -> Any:  # noqa: ANN401
        del c, now
        return (SRO if a % 4 else self._bank(b)), {"did": LATE if b % 3 else self._bank(a), "role": "TDC"}

    def _policy(self, a: int, b: int, c: int, now: int) -> Any:  # noqa: ANN401
        told = {"version": self.model.version + bool(c % 7), "released": bool(b % 4)}
        return (SRO if a % 5 else HOSPITAL), {**told, "effective": now // 1000 * 1000}

    def _partition(self, a: int, b: int, c: int, now: int) -> Any:  # noqa: ANN401
        del now
        kind = list(KINDS)[b % len(KINDS)]
        name = f"{kind}-{len(self.model.partitions)}" if c % 4 else kind
        told = {"ref": ref_of(name), "kind": kind, "epsilon": KINDS[kind], "caps": priced()[1][kind]}
        return (HOSPITAL if a % 5 else SRO), told

    def _retirement(self, a: int, b: int, c: int, now: int) -> Any:  # noqa: ANN401
        del now
        names = [*self.model.partitions, ref_of("none")]
        return None if c % 3 else ((HOSPITAL if a % 5 else SRO), {"ref": names[b % len(names)]})

    def _contract(self, a: int, b: int, c: int, now: int) -> Any:  # noqa: ANN401
        del now
        bank = BANKS[b % len(BANKS)]
        head = self.model.contracts[self.model.heads[contract_of(bank, 1).id]]
        version = head.version + bool(c % 6)
        return (bank if a % 6 else SRO), {"digest": digest_of(bank, version), "contract": contract_of(bank, version)}

    def _merger(self, a: int, b: int, c: int, now: int) -> Any:  # noqa: ANN401
        del now
        parents = tuple(dict.fromkeys((self._bank(b), self._bank(c))))
        return self._sro(a), {"into": self._bank(a), "parents": parents}

    _acquisition = _merger

    def _split(self, a: int, b: int, c: int, now: int) -> Any:  # noqa: ANN401
        del now
        return self._sro(c), {"parent": self._bank(a), "child": self._bank(b)}

    def _transfer(self, a: int, b: int, c: int, now: int) -> Any:  # noqa: ANN401
        del now
        by_bank = c % 3 == 0
        name = self._handed_on(a) if by_bank else self._run(a)
        if name is None:
            return None
        giver = None if by_bank or c % 2 else self._bank(c)
        actor, recipient = (self._bank(c) if by_bank else SRO), self._bank(b)
        run = self.model.runs.get(name)
        if by_bank and run and c % 5:
            actor = run.actor
        return actor, {
            "charge": name,
            "recipient": recipient,
            "giver": giver,
            "agreed": self._agreed_by(a, b, actor, recipient) if by_bank else None,
        }

    def _handed_on(self, a: int) -> str | None:
        """A run with a model that its consumer may hand over; rarely another one."""
        can = [name for name, run in self.model.runs.items() if run.state == "posted" and run.ran]
        return can[-1 - a % len(can)] if can and a % 13 else self._run(a)

    def _agreed_by(self, a: int, b: int, giver: str, recipient: str) -> tuple[str, str, int] | None:
        """Mostly what its recipient has signed of late; rarely nothing, or what another one signed."""
        if a % 5 == 2:
            return None
        sets = self.model.sets
        known = len(sets.knows[sets.stands[giver]]) if giver in sets.stands else 0
        return (recipient if a % 7 else self._bank(a)), (giver if b % 11 else self._bank(b)), max(1, known - b % 4)

    def _publication(self, a: int, b: int, c: int, now: int) -> Any:  # noqa: ANN401
        del now
        name = self._run(a)
        return None if name is None or b % 3 else (self._sro(c), {"charge": name})

    def _coalition(self, a: int, b: int, c: int, now: int) -> Any:  # noqa: ANN401
        del now
        members = tuple(dict.fromkeys((self._bank(a), self._bank(a + 1), self._bank(b))))
        return self._sro(c), {"members": members, "epsilon": ("2", "100")[c % 2]}

    def _collusion(self, a: int, b: int, c: int, now: int) -> Any:  # noqa: ANN401
        # What comes before it in time is not what comes before it in the log, once that has gone back.
        if self.planned or self.model.suspects or self.model.corrected or b % 2:
            return None
        first = max(moved[0][0] for moved in self.model.moves.values())
        times = [time for time, _, _ in self.model.log if time >= first] or [now]
        return self._sro(c), {"dids": (self._bank(a), self._bank(a + 1)), "since": times[c % len(times)]}
