"""Keys over time: rotated with a window, revoked at once, suspended, resumed, recovered; and replay decides alike."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Final

import pytest

from client.keys.signer import Signer
from ledger.audit.replay import VerificationFailed, verify_book
from ledger.book.submitted_command import Outcome
from ledger.commands.entry import Entry
from ledger.commands.signing_keys.key_authority import KEYS_MAX
from ledger.commands.signing_keys.rotation import WINDOW_MS_MAX
from ledger.verifier import EntryTimes
from ledger.wire import canonical_json as c
from policy.decisions.gate import gate
from tests.factories.documents import SMALL, contract, partition
from tests.factories.key_commands import name_quorum, new_signer, recover, revoke, rotate, suspend
from tests.factories.people import BANK_A, BANK_B, DAY_MS, HOSPITAL, HOUR_MS, LOG, SRO, TSO, private_key
from tests.factories.stored import StoredWorld, no_step
from tests.ledger.book.test_clock_correction import correction, jump

NEW: Final = new_signer("bank a 2")
_OLD: Final = Signer(private_key(BANK_A)).key_id


def verified(world: StoredWorld) -> None:
    """Replay agrees with every row, every signature and every decision; the auditor's own file with every signature."""
    assert verify_book(world.url, LOG, no_step, gate=gate).entries == world.size
    assert found_alone(world) is None


def found_alone(world: StoredWorld) -> tuple[str, str] | None:
    """What the auditor's own file finds wrong."""
    times = EntryTimes([LOG])
    with world.book.read() as facts:
        for index, data in enumerate(facts):
            times.add(index, data)
    return times.wrong


def charged(world: StoredWorld, name: str, signer: Signer | None = None, bank: str = BANK_A) -> Outcome:
    """A small run, charged by this key."""
    body = c.parse(world.charge(name, bank, SMALL).raw, 65_535)
    assert isinstance(body, dict)
    wanted = body["body"]
    assert isinstance(wanted, dict)
    return world.send(bank, "charge", wanted, name, signer)


def word(outcome: Outcome) -> tuple[str, str]:
    """What came of it, and which field is to blame."""
    return outcome.code.word, outcome.field


def test_both_keys_sign_in_the_window_and_one_outside(world: StoredWorld) -> None:
    """The new key from its date on, the old one until its own; each edge to the millisecond."""
    now, old = world.clock.now, world.signers[BANK_A]
    assert rotate(world, NEW, starts=now + HOUR_MS, until=now + DAY_MS).code.word == "permitted"
    assert word(charged(world, "early", NEW)) == ("signature_invalid", "key_id")
    assert charged(world, "old-1").code.word == "pending"
    world.clock.now = now + HOUR_MS - 1
    assert charged(world, "early", NEW).code.word == "signature_invalid"
    world.clock.now = now + HOUR_MS
    assert (charged(world, "new-1", NEW).code.word, charged(world, "old-2", old).code.word) == ("pending", "pending")
    world.clock.now = now + DAY_MS - 1
    last = world.charge("old-3", run=SMALL)
    assert world.submit(last)[0].code.word == "pending"
    world.clock.now = now + DAY_MS
    late = charged(world, "late", old)
    assert (late.code.word, late.detail) == ("signature_invalid", f"the key {old.key_id} of {BANK_A} was retired")
    assert charged(world, "new-2", NEW).code.word == "pending"
    # What was recorded by the old key is answered for ever.
    assert [(one.code.word, one.repeated) for one in world.submit(last)] == [("pending", True)]
    verified(world)
    world.reopen()
    assert charged(world, "late", old).code.word == "signature_invalid"
    assert charged(world, "new-3", NEW).code.word == "pending"


def test_what_a_rotation_may_not_say(world: StoredWorld) -> None:
    """Each part made wrong alone; nothing of it is recorded."""
    now, size = world.clock.now, world.size
    others = world.signers[BANK_B]
    assert word(rotate(world, NEW, old=others, by=world.signers[BANK_A])) == ("not_found", "body.retires")
    assert word(rotate(world, NEW, holder=others)) == ("signature_invalid", "body.possession")
    assert word(rotate(world, others)) == ("conflict", "body.key")
    assert word(rotate(world, NEW, starts=now, until=now + 1)) == ("malformed", "body.starts")
    assert word(rotate(world, NEW, starts=now + 2, until=now + 1)) == ("malformed", "body.until")
    assert word(rotate(world, NEW, until=now - 1)) == ("malformed", "body.until")
    assert word(rotate(world, NEW, until=now + WINDOW_MS_MAX + 1)) == ("malformed", "body.until")
    assert world.size == size
    assert rotate(world, NEW, until=now + HOUR_MS).code.word == "permitted"
    assert word(rotate(world, new_signer("3"), until=now + DAY_MS, name="more")) == ("conflict", "body.until")
    world.clock.now += HOUR_MS
    third = new_signer("3")
    assert word(rotate(world, third, by=NEW, name="more")) == ("conflict", "body.retires")
    assert rotate(world, third, old=NEW, until=world.clock.now, name="more").code.word == "permitted"
    assert charged(world, "run", NEW).code.word == "signature_invalid"
    assert charged(world, "run", third).code.word == "pending"
    verified(world)


def test_an_organisation_has_sixteen_keys_at_most(world: StoredWorld) -> None:
    """Retired ones do not count."""
    keys = [world.signers[BANK_A], *(new_signer(str(place)) for place in range(KEYS_MAX))]
    for place, (old, new) in enumerate(pairwise(keys[:-1])):
        assert rotate(world, new, old=old, name=f"rotation-{place}").code.word == "permitted"
    assert word(rotate(world, keys[-1], old=keys[-2], name="last")) == ("conflict", "body.key")
    world.clock.now += DAY_MS
    assert rotate(world, keys[-1], old=keys[-2], name="last").code.word == "permitted"


def test_a_revocation_stops_a_key_at_once_and_names_the_runs(world: StoredWorld) -> None:
    """What is pending without data keys gets none; what was released goes on; other organisations are untouched."""
    old = world.signers[BANK_A]
    assert rotate(world, NEW).code.word == "permitted"
    for name in ("released", "waiting"):
        assert charged(world, name, old).code.word == "pending"
    assert charged(world, "elsewhere", bank=BANK_B).code.word == "pending"
    assert world.submit(world.release("released", SMALL))[0].code.word == "permitted"
    revoked = revoke(world, old, by=NEW)
    touched = {"pending": 2, "runs": ["released", "waiting"], "withheld": ["waiting"]}
    assert {name: revoked.body[name] for name in touched} == touched
    late = charged(world, "late", old)
    assert (late.code.word, late.field) == ("signature_invalid", "key_id")
    assert f"was revoked by entry {revoked.index}" in late.detail
    assert word(revoke(world, old, by=NEW, name="twice")) == ("conflict", "body.keys[0]")
    (withheld,) = world.submit(world.release("waiting", SMALL))
    assert word(withheld) == ("conflict", "body.charge")
    assert "void it" in withheld.detail
    assert world.submit(world.settle("released", 1))[0].code.word == "posted"
    assert world.send(BANK_A, "void", {"charge": "waiting"}, "void", NEW).code.word == "voided"
    assert charged(world, "anew", NEW).code.word == "pending"
    assert world.submit(world.release("anew", SMALL), world.release("elsewhere", SMALL, BANK_B))[0].code.word == (
        "permitted"
    )
    verified(world)


def test_a_stolen_key_of_a_provider_touches_the_runs_on_its_data(world: StoredWorld) -> None:
    """They are named, and are not stopped: the room was charged by another."""
    assert charged(world, "run").code.word == "pending"
    mine = new_signer("hospital 2")
    assert rotate(world, mine, did=HOSPITAL).code.word == "permitted"
    outcome = revoke(world, world.signers[HOSPITAL], actor=HOSPITAL, by=mine)
    assert [outcome.body[name] for name in ("pending", "runs", "withheld")] == [1, ["run"], []]
    assert world.submit(world.release("run", SMALL))[0].code.word == "permitted"
    verified(world)


def test_documents_are_signed_by_keys_in_force(world: StoredWorld) -> None:
    """A signature of before the revocation is of no use after it: whoever stole the key may have dated it back."""
    mine = new_signer("hospital 2")
    assert rotate(world, mine, did=HOSPITAL).code.word == "permitted"
    again = contract(BANK_A, starts=world.begun, version=2)
    assert revoke(world, world.signers[HOSPITAL], actor=HOSPITAL, by=mine).code.word == "permitted"
    entered = world.submit(world.document("contract", again, "again", BANK_A, BANK_A, HOSPITAL))[0]
    assert word(entered) == ("signature_invalid", "body.signatures[1]")
    world.signers[HOSPITAL] = mine
    entered = world.submit(world.document("contract", again, "again", BANK_A, BANK_A, HOSPITAL))[0]
    assert entered.code.word == "permitted"
    verified(world)


def test_a_suspended_key_signs_nothing_until_it_is_resumed(world: StoredWorld) -> None:
    """By whoever suspended it, or an SRO; what an SRO suspended the owner does not resume."""
    old = world.signers[BANK_A]
    assert rotate(world, NEW).code.word == "permitted"
    assert suspend(world, old, by=NEW).code.word == "permitted"
    assert word(suspend(world, old, by=NEW, name="twice")) == ("conflict", "body.keys[0]")
    assert charged(world, "run", old).code.word == "signature_invalid"
    assert suspend(world, old, by=NEW, on=False, name="found").code.word == "permitted"
    assert charged(world, "run", old).code.word == "pending"
    assert suspend(world, old, NEW, actor=SRO, name="ordered").code.word == "permitted"
    assert suspend(world, old, by=NEW, on=False, name="self").code.word == "signature_invalid"
    third = new_signer("3")
    assert suspend(world, NEW, actor=SRO, on=False, name="half").code.word == "permitted"
    assert word(suspend(world, old, by=NEW, on=False, name="mine")) == ("not_authorised", "actor")
    assert word(suspend(world, NEW, by=NEW, on=False, name="not")) == ("conflict", "body.keys[0]")
    assert suspend(world, old, actor=SRO, on=False, name="whole").code.word == "permitted"
    assert word(suspend(world, third, name="none")) == ("not_found", "body.keys[0]")
    assert world.submit(world.release("run", SMALL))[0].code.word == "permitted"
    verified(world)


def test_who_may_act_on_whose_keys(world: StoredWorld) -> None:
    """Its own; an SRO, on those of who is neither an SRO nor in its quorum. A clean room's key is nobody's."""
    bank = world.signers[BANK_A]
    assert word(revoke(world, bank, actor=BANK_B)) == ("not_authorised", "actor")
    assert word(revoke(world, world.signers[SRO], actor=BANK_B)) == ("not_authorised", "actor")
    # Nobody governs a book whose SRO has no key.
    assert word(revoke(world, world.signers[SRO], actor=SRO)) == ("conflict", "body.keys")
    assert word(suspend(world, world.signers[SRO], actor=SRO)) == ("conflict", "body.keys")
    assert name_quorum(world, BANK_A, BANK_B).code.word == "permitted"
    assert word(revoke(world, bank, actor=SRO)) == ("not_authorised", "actor")
    assert word(recover(world, NEW, did=BANK_A, actor=SRO)) == ("not_authorised", "body.organisation")
    assert revoke(world, world.signers[HOSPITAL], actor=SRO).code.word == "permitted"
    assert revoke(world, bank, name="own").code.word == "permitted"
    assert charged(world, "run").code.word == "signature_invalid"
    verified(world)


def test_a_quorum_that_a_thief_names_takes_nobody_out_of_an_sros_reach(world: StoredWorld) -> None:
    """Two stolen keys name each other's organisations: the SRO recovers both, but nobody who may recover itself."""
    assert name_quorum(world, BANK_B, actor=BANK_A, threshold=1, name="a").code.word == "permitted"
    assert name_quorum(world, BANK_A, actor=BANK_B, threshold=1, name="b").code.word == "permitted"
    assert suspend(world, world.signers[BANK_A], actor=SRO).code.word == "permitted"
    assert recover(world, NEW, did=BANK_A, actor=SRO).code.word == "permitted"
    world.signers[BANK_A] = NEW
    assert name_quorum(world, HOSPITAL, threshold=1).code.word == "permitted"
    assert name_quorum(world, BANK_B, actor=HOSPITAL, threshold=1, name="h").code.word == "permitted"
    for number, who in enumerate((HOSPITAL, BANK_B, BANK_A)):
        refused = revoke(world, world.signers[who], actor=SRO, name=f"r{number}")
        assert word(refused) == ("not_authorised", "actor")
    verified(world)


def test_an_sro_recovers_others(world: StoredWorld) -> None:
    """All keys of before are revoked; the new one signs."""
    assert charged(world, "waiting").code.word == "pending"
    outcome = recover(world, NEW, did=BANK_A, actor=SRO)
    assert [outcome.body[name] for name in ("pending", "runs", "withheld")] == [1, ["waiting"], ["waiting"]]
    assert charged(world, "old").code.word == "signature_invalid"
    assert charged(world, "new", NEW).code.word == "pending"
    verified(world)


def test_a_quorum_recovers_an_sro(world: StoredWorld) -> None:
    """With enough members, each once, by keys in force, over this very recovery; and whatever a thief did meanwhile."""
    thief, new = new_signer("thief"), new_signer("sro 2")
    assert word(recover(world, new, BANK_A, BANK_B)) == ("not_authorised", "body.organisation")
    assert word(name_quorum(world, SRO, BANK_A)) == ("malformed", "body.members")
    assert word(name_quorum(world, BANK_A, threshold=2)) == ("malformed", "body.threshold")
    assert word(name_quorum(world, BANK_A, TSO)) == ("not_found", "body.members[1]")
    assert name_quorum(world, BANK_A, BANK_B, HOSPITAL).code.word == "permitted"
    # The thief of the SRO's key changes what it can.
    stolen = world.signers[SRO]
    assert rotate(world, thief, did=SRO, until=world.clock.now).code.word == "permitted"
    world.signers[SRO] = thief
    assert word(name_quorum(world, BANK_B, threshold=1, name="mine")) == ("signature_missing", "body.signatures")
    assert word(revoke(world, world.signers[BANK_A], actor=SRO, name="r")) == ("not_authorised", "actor")
    assert word(recover(world, new, BANK_A)) == ("signature_missing", "body.signatures")
    assert word(recover(world, new, BANK_A, BANK_A)) == ("malformed", "body.signatures")
    assert word(recover(world, new, BANK_A, SRO)) == ("signature_missing", "body.signatures")
    assert word(recover(world, new, BANK_A, BANK_B, claimed="other")) == ("signature_invalid", "body.signatures[0]")
    later = new_signer("bank b 2")
    assert rotate(world, later, did=BANK_B, until=world.clock.now, name="b").code.word == "permitted"
    assert word(recover(world, new, BANK_A, BANK_B)) == ("signature_invalid", "body.signatures[1]")
    world.signers[BANK_B] = later
    assert recover(world, new, BANK_A, BANK_B).code.word == "permitted"
    for one in (stolen, thief):
        (refused,) = world.submit(world.command(SRO, "decree", _DECREE, "decree", one))
        assert word(refused) == ("signature_invalid", "key_id")
    world.signers[SRO] = new
    assert world.submit(world.registration(TSO, "TSO"))[0].code.word == "permitted"
    signed = (HOSPITAL, BANK_A)
    assert name_quorum(world, TSO, BANK_A, signed_by=signed, name="next").code.word == "permitted"
    verified(world)
    world.reopen()
    assert word(recover(world, NEW, HOSPITAL, BANK_B, name="old-quorum")) == ("signature_missing", "body.signatures")


def test_a_quorum_names_since_when_a_key_was_stolen(world: StoredWorld) -> None:
    """Not a time to come, and the very one that its members signed; the entry keeps it."""
    assert name_quorum(world, BANK_A, BANK_B, HOSPITAL).code.word == "permitted"
    signed, now = (BANK_A, BANK_B), world.clock.now
    assert word(recover(world, NEW, *signed, since=now + 1)) == ("malformed", "body.stolen_since")
    other = recover(world, NEW, *signed, since=now, signed_since=now - 1)
    assert word(other) == ("signature_invalid", "body.signatures[0]")
    assert recover(world, NEW, *signed, since=now).code.word == "permitted"
    with world.book.read() as facts:
        assert Entry.parse(facts.entry(facts.size - 1)).request["stolen_since"] == now
    verified(world)


def _register(world: StoredWorld, sro: str, by: str) -> Outcome:
    """An SRO registers another one."""
    world.signers[sro] = new_signer(sro)
    (done,) = world.submit(world.registration(sro, "SRO", actor=by))
    return done


def test_an_extended_quorum_takes_back_the_sros_that_a_thief_registers(world: StoredWorld) -> None:
    """And those that they register in turn; of one that was registered before, or by another SRO, it takes none."""
    before, second, third = (f"did:web:{name}-sro.example" for name in ("before", "second", "third"))
    assert _register(world, before, SRO).code.word == "permitted"
    assert name_quorum(world, BANK_A, BANK_B, HOSPITAL).code.word == "permitted"
    assert _register(world, f"{before}.old", SRO).code.word == "permitted"
    signed = (BANK_A, BANK_B)
    extended = name_quorum(world, BANK_A, BANK_B, signed_by=signed, name="extended", extends=True)
    assert extended.code.word == "permitted"
    # The thief has the SRO's key from here on.
    assert [_register(world, *one).code.word for one in ((second, SRO), (third, second))] == ["permitted"] * 2
    assert world.submit(world.registration(TSO, "TSO", actor=second))[0].code.word == "permitted"
    assert word(name_quorum(world, TSO, threshold=1, actor=third, name="mine")) == (
        *("signature_missing", "body.signatures"),
    )
    assert word(revoke(world, world.signers[BANK_A], actor=third, name="r")) == ("not_authorised", "actor")
    for number, did in enumerate((SRO, second, third)):
        assert (
            recover(world, new_signer(f"{number} again"), *signed, did=did, name=f"r-{number}").code.word == "permitted"
        )
        assert word(world.send(did, "decree", _DECREE, f"d-{number}")) == ("signature_invalid", "key_id")
    for did in (before, f"{before}.old", TSO):
        taken = recover(world, new_signer(did), *signed, did=did, name="none")
        assert word(taken) == ("not_authorised", "body.organisation")
    # What it registered besides is the recovered SRO's to stop.
    world.signers[SRO] = new_signer("0 again")
    assert revoke(world, world.signers[TSO], actor=SRO, name="tso").code.word == "permitted"
    verified(world)
    world.reopen()
    assert word(_register(world, "did:web:fourth.example", second)) == ("signature_invalid", "key_id")
    with world.book.read() as facts:
        assert sorted(facts.extended_quorums) == sorted((SRO, second, third))


_DECREE: Final[c.Object] = {"holder": "global", "partition": "a", "reason": "none"}


def test_no_way_back_in_time_opens_a_retired_key(world: StoredWorld) -> None:
    """Nor closes one that was in force."""
    old = world.signers[BANK_A]
    jump(world)
    ahead = world.clock.now + 10 * 365 * DAY_MS
    world.clock.now, right = ahead, world.clock.now
    assert rotate(world, NEW, until=ahead + 1).code.word == "permitted"
    world.clock.now = ahead + 1
    assert charged(world, "late", old).code.word == "signature_invalid"
    assert world.submit(world.void("none"))[0].code.word == "signature_invalid"
    assert world.send(BANK_A, "void", {"charge": "none"}, "v", NEW).code.word == "not_found"
    assert rotate(world, new_signer("3"), old=NEW, until=ahead + DAY_MS, name="2").code.word == "permitted"
    world.clock.now = right
    assert correction(world, SRO).code.word == "permitted"
    world.clock.now += HOUR_MS
    assert world.send(BANK_A, "void", {"charge": "none"}, "v", old).code.word == "signature_invalid"
    assert world.send(BANK_A, "void", {"charge": "none"}, "v", NEW).code.word == "not_found"
    assert world.send(BANK_A, "void", {"charge": "none"}, "v", new_signer("3")).code.word == "not_found"
    verified(world)


def test_a_raw_entry_signed_by_a_revoked_key_is_found(world: StoredWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that lets a revoked key sign makes a book that does not verify: of a document's entry, and of a run."""
    assert rotate(world, NEW).code.word == "permitted"
    assert revoke(world, world.signers[BANK_A], by=NEW).code.word == "permitted"
    verified(world)
    with monkeypatch.context() as patched:
        patched.setattr("ledger.commands.decide.require_key_in_force", lambda *_, **__: None)
        assert charged(world, "run").code.word == "pending"
    with pytest.raises(VerificationFailed, match=r"the key .* was revoked"):
        verified(world)
    assert found_alone(world) == (
        f"entry {world.size - 1}",
        f"charge: is signed by the key {_OLD}, which is not in force there",
    )


def test_a_kept_permit_is_none_for_a_key_that_retires(world: StoredWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs alike are decided by what was found of the first of them: in the book and in verification."""
    retires = world.clock.now + HOUR_MS // 2
    assert rotate(world, NEW, until=retires).code.word == "permitted"
    assert [charged(world, name).code.word for name in ("a", "b", "c")] == ["pending"] * 3
    world.clock.now = retires
    assert charged(world, "d").code.word == "signature_invalid"
    verified(world)
    with monkeypatch.context() as patched:
        patched.setattr("ledger.commands.decide.require_key_in_force", lambda *_, **__: None)
        assert charged(world, "e").code.word == "pending"
    with pytest.raises(VerificationFailed, match="was retired"):
        verified(world)
    assert found_alone(world) == (
        f"entry {world.size - 1}",
        f"charge: is signed by the key {_OLD}, which is not in force there",
    )


def test_rows_of_terms_are_compared(world: StoredWorld) -> None:
    """A book whose row was changed is not verified; the writer never asks the rows."""
    assert rotate(world, NEW).code.word == "permitted"
    assert name_quorum(world, BANK_A, BANK_B).code.word == "permitted"
    assert world.submit(world.partition("later", **partition("later")))[0].code.word
    with world.book.read() as facts:
        assert facts.recovery_quorums[SRO].members == (BANK_A, BANK_B)
        assert [one.key_id for one in facts.keys_of(BANK_A)] == [world.signers[BANK_A].key_id, NEW.key_id]
        assert facts.key_terms[NEW.key_id].until is None
    verified(world)


def test_the_auditors_file_finds_a_signature_that_is_not_its_entrys(world: StoredWorld) -> None:
    """Of any entry: its bytes changed, another's signature, another's key, the log's own entries."""
    assert rotate(world, NEW).code.word == "permitted"
    assert charged(world, "run", NEW).code.word == "pending"
    world.clock.now += 2 * HOUR_MS
    assert world.submit(world.void("none"))[0].code.word == "not_found"
    with world.book.read() as facts:
        entries = [Entry.parse(data) for data in facts]
    assert entries[-1].kind == "lapse"
    for place, entry in enumerate(entries):
        other = entries[place - 1]
        for wrong in (replace(entry, id=f"{entry.id}x"), replace(entry, signature=other.signature)):
            times = EntryTimes([LOG])
            for index, one in enumerate([*entries[:place], wrong, *entries[place + 1 :]]):
                times.add(index, one.to_bytes())
            assert times.wrong is not None
            assert times.wrong[0] == f"entry {place}"
    times = EntryTimes([LOG])
    for index, one in enumerate(entries):
        times.add(index, one.to_bytes() if index != 3 else b"{}")
    assert times.wrong == ("entry 3", "is no entry of a book")
