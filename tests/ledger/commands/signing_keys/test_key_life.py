"""The keys of one organisation, rotated, revoked, suspended and resumed at random, against a table of their terms."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from client.keys.signer import Signer
from tests.factories.key_commands import new_signer, revoke, rotate, suspend
from tests.factories.memory import MemoryWorld
from tests.factories.people import BANK_A, DAY_MS, HOSPITAL, HOUR_MS, SRO

SPANS: Final = (0, 1, HOUR_MS, DAY_MS, 2 * DAY_MS)
"""Milliseconds from now, for starts and ends of keys and for the clock."""
NO_START: Final = -1


@dataclass
class Terms:
    """What a key may do, as the table has it."""

    starts: int = 0
    until: int | None = None
    suspended_by: str = ""
    revoked: bool = False

    def signs(self, now: int) -> bool:
        """Whether it counts now."""
        ended = self.until is not None and self.until <= now
        return self.starts <= now and not (ended or self.revoked or self.suspended_by)


@dataclass
class Keys:
    """The bank's keys by their place, in a world in memory, and what each command must come to."""

    world: MemoryWorld
    signers: list[Signer]
    terms: list[Terms] = field(default_factory=lambda: [Terms()])
    sent: int = 0

    def name(self) -> str:
        """An id that no command had."""
        self.sent += 1
        return f"command-{self.sent}"

    def rotate(self, old: int, by: int, start: int, end: int) -> None:
        """A new key for an old one, from a time and until a time after now; without a start, from now on."""
        now, replaced = self.world.clock.now, self.terms[old]
        starts, until = (None if start == NO_START else now + start), now + end
        if not self.terms[by].signs(now):
            expected = "signature_invalid"
        elif replaced.revoked or (replaced.until is not None and replaced.until <= now):
            expected = "conflict"
        elif (starts is not None and starts <= now) or until < (starts or now):
            expected = "malformed"
        else:
            expected = "conflict" if replaced.until is not None and until > replaced.until else "permitted"
        new = new_signer(str(len(self.signers)))
        done = rotate(
            self.world, new, old=self.signers[old], by=self.signers[by], starts=starts, until=until, name=self.name()
        )
        assert done.code.word == expected, done.detail
        if expected == "permitted":
            replaced.until = until
            self.signers.append(new)
            self.terms.append(Terms(now if starts is None else starts))

    def revoke(self, key: int, by: int) -> None:
        """The bank revokes a key, or by its absence (-1) the SRO does."""
        actor, signer = self.sender(by)
        expected = "conflict" if self.terms[key].revoked else "permitted"
        expected = expected if by < 0 or self.terms[by].signs(self.world.clock.now) else "signature_invalid"
        done = revoke(self.world, self.signers[key], actor=actor, by=signer, name=self.name())
        assert done.code.word == expected, done.detail
        self.terms[key].revoked |= expected == "permitted"

    def suspend(self, key: int, by: int, *, on: bool) -> None:
        """Likewise suspended, or resumed: by who suspended it, or by the SRO."""
        (actor, signer), terms = self.sender(by), self.terms[key]
        if by >= 0 and not self.terms[by].signs(self.world.clock.now):
            expected = "signature_invalid"
        elif terms.revoked or on == bool(terms.suspended_by):
            expected = "conflict"
        else:
            expected = "permitted" if on or actor in {SRO, terms.suspended_by} else "not_authorised"
        done = suspend(self.world, self.signers[key], actor=actor, by=signer, on=on, name=self.name())
        assert done.code.word == expected, done.detail
        if expected == "permitted":
            terms.suspended_by = actor if on else ""

    def sender(self, by: int) -> tuple[str, Signer]:
        """Who acts with the key of this place."""
        return (SRO, self.world.signers[SRO]) if by < 0 else (BANK_A, self.signers[by])

    def tried(self) -> list[str]:
        """What a void of no charge gets with each key: it is not found, or its signature does not count."""
        sent = (self.world.send(BANK_A, "void", {"charge": "none"}, self.name(), one) for one in self.signers)
        return [done.code.word for done in sent]

    def expected(self) -> list[str]:
        """The same by the table."""
        now = self.world.clock.now
        return ["not_found" if one.signs(now) else "signature_invalid" for one in self.terms]


def founded() -> MemoryWorld:
    """A regulator, a provider and a bank, in memory."""
    world = MemoryWorld()
    world.found(*(world.registration(did, role) for did, role in ((SRO, "SRO"), (HOSPITAL, "TDP"), (BANK_A, "TDC"))))
    return world


FOUNDED: Final = founded()
PLACES: Final = st.integers(0, 5)
ACTIONS: Final = st.one_of(
    st.tuples(st.just("rotate"), PLACES, PLACES, st.sampled_from((NO_START, *SPANS)), st.sampled_from(SPANS)),
    st.tuples(st.just("revoke"), PLACES, st.integers(-1, 5)),
    st.tuples(st.sampled_from(("suspend", "resume")), PLACES, st.integers(-1, 5)),
    st.tuples(st.just("wait"), st.sampled_from(SPANS[1:])),
)


@given(st.lists(ACTIONS, min_size=2, max_size=8))
def test_a_key_signs_while_its_terms_say_so(actions: list[tuple[str, int]]) -> None:
    """After each command and each time that passes, to the millisecond; and each command is answered by the table."""
    world = FOUNDED.fork()
    keys = Keys(world, [world.signers[BANK_A]])
    for action, *rest in actions:
        count = len(keys.signers)
        places = [one if one < 0 else one % count for one in rest[:2]]
        if action == "wait":
            world.clock.now += rest[0]
        elif action == "rotate":
            keys.rotate(places[0], places[1], *rest[2:])
        elif action == "revoke":
            keys.revoke(*places)
        else:
            keys.suspend(*places, on=action == "suspend")
        assert keys.tried() == keys.expected()


def test_a_consumer_acts_on_no_other_keys() -> None:
    """Nor does a provider; the SRO does, but on no key of its own that would be its last."""
    world = FOUNDED.fork()
    own = world.signers[BANK_A]
    for place, actor in enumerate((BANK_A, HOSPITAL)):
        other = world.signers[HOSPITAL if actor == BANK_A else BANK_A]
        assert revoke(world, other, actor=actor, name=f"revoked-{place}").code.word == "not_authorised"
        assert suspend(world, other, actor=actor, name=f"suspended-{place}").code.word == "not_authorised"
    for command in (revoke, suspend):
        done = command(world, world.signers[SRO], actor=SRO, name=f"last-{command.__name__}")
        assert (done.code.word, done.field) == ("conflict", "body.keys")
    assert revoke(world, own, world.signers[HOSPITAL], actor=SRO, name="both").code.word == "permitted"
    assert world.send(BANK_A, "void", {"charge": "none"}, "late", own).code.word == "signature_invalid"
