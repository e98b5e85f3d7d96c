"""From three numbers to what is told of a key, a lease, a document or a clock; and the keys by which it is signed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.factories.people import DAY_MS, HOSPITAL, HOUR_MS, LATE, SRO, STRANGER, TSO
from tests.faults.model import Model
from tests.faults.modelled_world import BANKS, ModelledWorld, plan_of, steps_of


@dataclass
class AskingKeys:
    """Who asks next for one of these; ``made`` counts all that was asked for."""

    world: ModelledWorld
    model: Model
    made: int = 0

    def _bank(self, number: int) -> str:
        banks = [did for did in (*BANKS, LATE) if did in self.model.roles]
        return banks[number % len(banks)]

    def _sro(self, number: int) -> str:
        return SRO if number % 9 else self._bank(number)

    def _anyone(self, number: int) -> str:
        return [*self.model.roles, STRANGER][number % (len(self.model.roles) + bool(number % 7 == 3))]

    def _run(self, number: int) -> str | None:
        """A run, mostly one of the newest; rarely a name that nobody has."""
        names = list(self.model.runs)
        if not names:
            return None
        if number % 23 == 9:
            return "nobody"
        return names[-1 - number % min(len(names), 12)]

    def _of_run(self, a: int, b: int, name: str | None = None) -> tuple[str, dict[str, Any]] | None:
        name = name or self._run(a)
        if name is None:
            return None
        run = self.model.runs.get(name)
        reported = {"charge": name, "by": (run.room if run and b % 21 != 13 else self._room(b))}
        return (run.actor if run and b % 33 != 17 else self._bank(b)), reported

    def _room(self, number: int) -> str:
        """A clean room that may belong to a charge, mostly another one."""
        return f"charge-{number % (self.made + 2)}"

    def _leasing(self, a: int) -> str | None:
        """A run that may lease steps now; rarely another one."""
        can = [name for name, run in self.model.runs.items() if run.leases and run.released and run.state == "pending"]
        return can[-1 - a % len(can)] if can and a % 13 else self._run(a)

    def _ended(self, a: int, *, announced: bool) -> str | None:
        """A run that was posted after its keys were released, and mostly told of a model; rarely another one."""
        ended = [(name, run) for name, run in self.model.runs.items() if run.state == "posted" and run.released]
        can = [name for name, run in ended if run.notices or not announced]
        return can[-1 - a % len(can)] if can and a % 13 else self._run(a)

    def _signing(self, number: int, now: int) -> dict[str, str]:
        """By organisation, a key that is in force, where there is one; rarely any other of its keys."""
        found = {}
        for did in self.model.roles:
            own = [name for name, key in self.model.keys.items() if key.owner == did]
            live = [name for name in own if self.model.keys[name].counts(now)]
            names = live if live and number % 17 != 5 else own
            found[did] = names[number % len(names)]
        return {did: name for did, name in found.items() if name != did}

    def _key(self, number: int) -> str:
        names = list(self.model.keys)
        return names[-1 - number % len(names)]

    def _new_key(self, number: int) -> str:
        return f"key-{self.made + 1}" if number % 11 else self._key(number)

    # -- runs

    def _step_lease(self, a: int, b: int, c: int, now: int) -> Any:  # noqa: ANN401
        del now
        found = self._of_run(a, b, self._leasing(a))
        run = self.model.runs.get(found[1]["charge"]) if found else None
        if found is None or run is None:
            return None
        first = run.leased + (1 if b % 7 else b % 3)
        reported = {
            "generation": run.generation - (c % 8 == 3) or 1,
            "first": max(1, first),
            "last": max(1, first + c % 3),
        }
        return found[0], {**found[1], **reported}

    def _run_generation(self, a: int, b: int, c: int, now: int) -> Any:  # noqa: ANN401
        del now
        found = self._of_run(a, b, self._leasing(a))
        run = self.model.runs.get(found[1]["charge"]) if found else None
        if found is None or run is None:
            return None
        reported = {"run": plan_of(run.plan, run.steps // steps_of(run.plan, 1)), "flawed": c % 15 == 7}
        return found[0], {**found[1], **reported}

    def _model_opening(self, a: int, b: int, c: int, now: int) -> Any:  # noqa: ANN401
        del now
        name = self._ended(a, announced=False)
        run = self.model.runs.get(name or "")
        if name is None or run is None:
            return None
        reported = {
            "charge": name,
            "room": f"opening-{self.made + 1}" if c % 9 else self._room(c),
            "run": plan_of(run.plan, run.steps // steps_of(run.plan, 1)),
            "flawed": c % 15 == 7,
        }
        return (run.actor if b % 3 else self._anyone(b)), reported

    # -- documents and time

    def _dataset(self, a: int, b: int, c: int, now: int) -> Any:  # noqa: ANN401
        del now
        name = (
            f"data-{len(self.model.datasets)}" if b % 3 else sorted(self.model.datasets)[c % len(self.model.datasets)]
        )
        return (HOSPITAL if a % 6 else self._anyone(b)), {"name": name, "provider": HOSPITAL}

    def _stream(self, a: int, b: int, c: int, now: int) -> Any:  # noqa: ANN401
        del now
        # One of the digits would make slices of all partitions that open from then on.
        names = [*sorted(self.model.datasets - {"digits"}), "none"]
        name = names[b % len(names)]
        version = self.model.streams.get(name, 0) + bool(c % 5)
        return (HOSPITAL if a % 6 else self._anyone(b)), {
            "name": name,
            "provider": HOSPITAL,
            "version": max(1, version),
        }

    def _recommendation(self, a: int, b: int, c: int, now: int) -> Any:  # noqa: ANN401
        del now
        names = ["digits", *sorted(self.model.datasets), "none"]
        name = names[b % len(names)]
        version = self.model.recommended.get(name, (0, ""))[0] + bool(c % 5)
        reported = {"name": name, "issuer": TSO, "version": max(1, version), "epsilon": ("8", "2.75")[c % 2]}
        return (TSO if a % 6 else self._anyone(b)), reported

    def _clock_correction(self, a: int, b: int, c: int, now: int) -> Any:  # noqa: ANN401
        # Not before the clock: what is due would lapse while the call is decided. And see :meth:`_collusion`.
        if self.model.suspects or now <= self.world.clock.now:
            return None
        signed = (SRO,) if c % 5 else (self._bank(b),)
        reported = {"ahead": now + (b % 6 == 2), "time": self.world.clock.now + (a % 2), "signed": signed}
        return self._sro(a), reported if c % 7 else {**reported, "time": reported["ahead"]}

    # -- keys

    def _key_rotation(self, a: int, b: int, c: int, now: int) -> Any:  # noqa: ANN401
        actor = self._anyone(a)
        own = [name for name, key in self.model.keys.items() if key.owner == actor] or [actor]
        starts = now + HOUR_MS * (c % 5 - 1) if c % 3 == 1 else None
        until = now + (HOUR_MS * (b % 40) if b % 9 else -1)
        retires = own[b % len(own)] if b % 13 else self._key(c)
        reported = {"new": self._new_key(c), "retires": retires, "starts": starts, "until": until, "held": bool(a % 10)}
        return actor, reported

    def _names(self, actor: str, b: int, c: int) -> tuple[str, ...]:
        """Keys, mostly of the sender or of whom it may act on."""
        some = [name for name, key in self.model.keys.items() if c % 4 == 0 or actor in {key.owner, SRO}]
        found = [some[b % len(some)]] if some else ["none"]
        if c % 5 == 3:
            found.append(self._key(b + c) if c % 3 else "none")
        return tuple(dict.fromkeys(found))

    def _key_revocation(self, a: int, b: int, c: int, now: int) -> Any:  # noqa: ANN401
        del now
        actor = self._anyone(a)
        return actor, {"names": self._names(actor, b, c)}

    def _key_suspension(self, a: int, b: int, c: int, now: int) -> Any:  # noqa: ANN401
        del now
        actor, held = self._anyone(a), [name for name, key in self.model.keys.items() if key.suspended_by]
        if held and b % 3:
            # An owner without another key cannot resume its own.
            return (SRO if c % 3 else actor), {"names": (held[b % len(held)],), "suspended": c % 5 == 1}
        return actor, {"names": self._names(actor, b, c), "suspended": bool(c % 8)}

    def _recovery_quorum(self, a: int, b: int, c: int, now: int) -> Any:  # noqa: ANN401
        del now
        actor = SRO if a % 3 else self._anyone(a)
        members = tuple(dict.fromkeys((self._anyone(b), self._anyone(b + 1), *([self._anyone(c)] if c % 3 else []))))
        return actor, {"members": members, "threshold": 1 + c % 3, "signed": self._signed(actor, b, c)}

    def _signed(self, did: str, b: int, c: int) -> tuple[str, ...]:
        """Members of a quorum, mostly enough of them."""
        members, threshold = self.model.quorums.get(did, ((), 0))
        some = members[: max(0, threshold - (b % 7 == 4))]
        return (*some, *([self._bank(c)] if c % 11 == 2 and self._bank(c) not in some else []))

    def _key_recovery(self, a: int, b: int, c: int, now: int) -> Any:  # noqa: ANN401
        held = {key.owner for key in self.model.keys.values() if key.counts(now)}
        lost = [did for did in self.model.roles if did not in held]
        did = lost[b % len(lost)] if lost and c % 9 else self._anyone(b)
        by_quorum = did in self.model.quorums and (self.model.roles[did] == "SRO" or c % 2)
        signed = self._signed(did, b, c) if by_quorum else ()
        since = None if b % 4 else now + (DAY_MS if b % 8 else -DAY_MS)
        reported = {"did": did, "new": self._new_key(c), "signed": signed, "since": since, "held": bool(a % 10)}
        return (self._anyone(a) if by_quorum else self._sro(a)), reported
