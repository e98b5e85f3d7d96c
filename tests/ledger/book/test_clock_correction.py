"""The way back after a clock that was far ahead: every SRO concerned signs, and it opens nothing that was closed."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from client.keys.signer import Signer
from ledger.audit.replay import VerificationFailed, verify_book
from ledger.book.book import Outcome
from ledger.commands.entry import Entry
from ledger.commands.governance.clock_correction import CorrectClock
from ledger.domain.outcomes import ChargeState
from ledger.verifier import EntryTimes
from ledger.wire import canonical_json as c
from policy.decisions.documents_in_force import binding
from policy.decisions.gate import gate
from tests.factories.documents import NOW, PARTITION, SMALL, dataset, partition, policy
from tests.factories.people import BANK_A, CLINIC, DAY_MS, HOSPITAL, HOUR_MS, LOG, LOG_KEY, SRO, private_key
from tests.factories.stored import StoredWorld, no_step, open_world
from tests.faults.stated_world import StatedWorld, state_often
from tests.ledger.audit.forge import entries_of, forged
from tests.ledger.book.governed import amended, announce, faults, leave, publish, run, words
from tests.ledger.book.state.test_open_state import writer

MARKET: Final = "did:web:market-sro.example"
"""The SRO of another domain."""
LIMIT_S: Final = 30
YEARS_MS: Final = 10 * 365 * DAY_MS


def correction(  # noqa: PLR0913 - what is right about it, each of which a test makes wrong
    world: StoredWorld,
    *signers: str,
    name: str = "back",
    ahead: int = 0,
    time: int = 0,
    claimed: str = "",
    actor: str = SRO,
) -> Outcome:
    """Back to the clock's time, signed by these."""
    with world.book.read() as facts:
        last = facts.time
    whole = CorrectClock(ahead or last, time or world.clock.now, "the clock was set to 2036", ("a..b",))
    signed = [world.signers[did].sign(whole.claim(claimed or name)) for did in signers]
    body: c.Object = {**whole.to_json(), "signatures": [*signed]}
    return world.send(actor, "clock_correction", body, name)


def jump(world: StoredWorld, ms: int = YEARS_MS) -> None:
    """The attack: two commands while the clock is ahead, then it is right again."""
    world.clock.now += ms
    for name in ("wrong-1", "wrong-2"):
        world.submit(world.void("none"), world.charge(name, run=SMALL))
    world.clock.now -= ms


def times(world: StoredWorld) -> list[int]:
    """Of every entry."""
    with world.book.read() as facts:
        return [Entry.parse(data).time for data in facts]


def verified(world: StoredWorld) -> None:
    """Replay agrees with every row, and with every decision."""
    assert verify_book(world.url, LOG, no_step, gate=gate).entries == world.size


def test_a_clock_in_another_decade_does_not_end_a_book(world: StoredWorld) -> None:
    """Lapsed charges stay lapsed and loss stays lost; a new partition and a next contract are charged as ever."""
    run(world, "posted", PARTITION)
    world.submit(world.charge("waiting"), world.charge("released"))
    world.submit(world.release("released"))
    jump(world)
    assert world.submit(world.charge("after", run=SMALL))[0].code.word == "malformed"
    with world.book.read() as facts:
        before = dict(facts.accounts.items())
        assert facts.time == NOW + YEARS_MS
        assert facts.charges["waiting"].state is ChargeState.VOIDED
    assert correction(world, SRO).code.word == "permitted"
    world.clock.now += HOUR_MS
    with world.book.read() as facts:
        assert facts.time == NOW
        assert dict(facts.accounts.items()) == before
        assert [facts.charges[name].state.value for name in ("posted", "waiting", "released")] == [
            *("posted", "voided", "posted")
        ]
    assert words(world.submit(world.release("waiting"), world.settle("released", 1))) == ["conflict", "conflict"]
    # What time had closed stays closed.
    assert faults(world.submit(world.charge("old", run=SMALL))[0]) == {"contract_ended", "partition_too_old"}
    later = amended(ends=policy(world.clock.now + 90 * DAY_MS)["effective"], starts=policy(NOW)["effective"])
    assert words(world.submit(world.document("contract", later, "later", BANK_A, BANK_A, HOSPITAL))) == ["permitted"]
    contract = c.digest(c.dump(later))
    denied = world.submit(world.charge("closed", run=SMALL, contract=contract))[0]
    assert faults(denied) == {"partition_too_old"}
    assert words(world.submit(world.partition("fresh"))) == ["permitted"]
    fresh = world.charge("fresh", partitions=(f"{HOSPITAL}/digits/fresh",), contract=contract)
    assert words(world.submit(fresh)) == ["pending"]
    assert words(world.submit(world.release("fresh"), world.settle("fresh", 3))) == ["permitted", "posted"]
    found = times(world)
    back = found.index(NOW + HOUR_MS)
    assert found[back - 1] == max(found)
    assert found[:back] + found[back:] == sorted(found[:back]) + sorted(found[back:])
    verified(world)
    world.reopen()
    assert words(world.submit(world.charge("again", partitions=(f"{HOSPITAL}/digits/fresh",), contract=contract))) == [
        "pending"
    ]


def test_what_follows_a_wrong_jump_is_since_it(world: StoredWorld) -> None:
    """The first entry at or after a time is the wrong one: no later entry of the log is left out by its time."""
    began = world.size
    jump(world)
    assert correction(world, SRO).code.word == "permitted"
    world.clock.now += HOUR_MS
    world.submit(world.charge("later", run=SMALL))
    with world.book.read() as facts:
        late = NOW + YEARS_MS
        assert [facts.first_since(one) for one in (0, NOW + 1, late, late + 1)] == [0, began, began, facts.size]


def test_what_a_wrong_jump_closed_is_closed_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition past its age, one retired, and lapses: for the book, its snapshot, replay and the auditor's file."""
    state_often(monkeypatch.setattr)
    with open_world(tmp_path, make=StatedWorld) as world:
        second = f"{HOSPITAL}/digits/second"
        charges = [world.charge(name, run=SMALL, partitions=(PARTITION, second)) for name in ("waiting", "released")]
        done = words(world.submit(world.partition("second"), *charges, world.release("released", SMALL)))
        assert done == ["permitted", "pending", "pending", "permitted"]
        world.clock.now += YEARS_MS
        retire = world.command(HOSPITAL, "retirement", {"partition": second}, "retire")
        assert words(world.submit(retire, world.charge("too-late", run=SMALL))) == ["permitted", "policy_denied"]
        world.clock.now -= YEARS_MS
        accounts = _accounts(world)
        assert correction(world, SRO).code.word == "permitted"
        for _ in range(2):
            # The deadlines of before pass once more.
            world.clock.now += 2 * HOUR_MS
            name = f"on-{world.size}"
            requested = {name: PARTITION, f"{name}-second": second}
            old, retired = world.submit(
                *(world.charge(id_, run=SMALL, partitions=(ref,)) for id_, ref in requested.items())
            )
            assert (faults(old) >= {"partition_too_old"}, faults(retired) >= {"partition_retired"}) == (True, True)
            assert words(world.submit(world.settle("released", 1), world.void("waiting"))) == ["conflict", "conflict"]
            assert _accounts(world) == accounts
            world.reopen()
        entries = entries_of(world.path)
        assert sorted(str(one.request["charge"]) for one in entries if one.kind == "lapse") == ["released", "waiting"]
        verified(world)
        world.book.close()
        times = EntryTimes([LOG])
        for index, one in enumerate(entries):
            times.add(index, one.to_bytes())
        assert times.wrong is None
        for ref, code in ((PARTITION, "partition_too_old"), (second, "partition_retired")):
            lied = [*entries, _admitted(world, entries, ref)]
            book = forged(world.path, tmp_path / f"{code}.sqlite", lied, LOG_KEY)
            with pytest.raises(VerificationFailed, match="denied") as fault:
                verify_book(f"sqlite:///{book}", LOG, no_step, gate=gate)
            assert fault.value.index == len(entries)
        world.book = world.open()


def _accounts(world: StoredWorld) -> dict[Any, Any]:
    with world.book.read() as facts:
        return dict(facts.accounts.items())


def _admitted(world: StoredWorld, entries: list[Entry], ref: str) -> Entry:
    """A charge to a closed partition, as a book would record it that admits it."""
    like = next(one for one in entries if one.id == "waiting")
    sent = world.charge("revived", run=SMALL, partitions=(ref,), deadline=world.clock.now + HOUR_MS)
    command = sent.command
    body: Any = {**like.body, "request": command.body}
    body["limits"] = [one for one in body["limits"] if one["partition"] == ref]
    body["prices"] = {ref: body["prices"][ref]}
    return replace(like, body=body, id=command.id, signature=sent.signature, time=world.clock.now)


def test_pending_charges_keep_the_time_they_had_left(world: StoredWorld) -> None:
    """The writer's own heap of deadlines moves along, here and when the book is opened anew."""
    ahead = 2 * DAY_MS
    world.clock.now += ahead
    world.submit(world.charge("soon", run=SMALL, deadline=world.clock.now + HOUR_MS))
    world.submit(world.charge("late", run=SMALL, deadline=world.clock.now + 5 * DAY_MS))
    world.clock.now -= ahead
    assert correction(world, SRO).code.word == "permitted"
    with world.book.read() as facts:
        left = [facts.charges[name].deadline - NOW for name in ("soon", "late")]
    assert left == [HOUR_MS, 5 * DAY_MS]
    world.clock.now += HOUR_MS + 1
    world.submit(world.void("none"))
    with world.book.read() as facts:
        assert [facts.charges[name].state.value for name in ("soon", "late")] == ["voided", "pending"]
    world.reopen()
    # One that has left memory is made again from its entries, the correction among them.
    assert writer(world).facts.charges["soon"].deadline == NOW + HOUR_MS
    world.clock.now += 5 * DAY_MS
    assert words(world.submit(world.settle("late", 1))) == ["conflict"]
    verified(world)


def test_a_passed_deadline_is_not_revived_by_a_queue_of_lapses(world: StoredWorld) -> None:
    """The charges that are overdue when the correction comes are so afterwards."""
    world.submit(*(world.charge(f"run-{n}", run=SMALL) for n in range(5)))
    world.clock.now += 2 * DAY_MS
    # In one batch with the lapses: the correction is decided at the time that they are recorded at.
    ahead = world.clock.now
    assert correction(world, SRO, ahead=ahead, time=NOW).code.word == "permitted"
    world.clock.now = NOW
    assert words(world.submit(*(world.release(f"run-{n}") for n in range(5)))) == ["conflict"] * 5
    verified(world)


def test_policies_and_ages_are_as_strict_as_before(world: StoredWorld) -> None:
    """A Level that came into force while the clock was ahead binds on; a partition keeps its age."""
    world.submit(world.partition("open"))
    publish(world, 2, effective=policy(NOW + 20 * DAY_MS)["effective"], level=2, model_release=False)
    world.clock.now += 30 * DAY_MS
    publish(world, 3, lineage={"epsilon_max": "4"})
    world.submit(world.partition("newer"))
    refs = [PARTITION, f"{HOSPITAL}/digits/open", f"{HOSPITAL}/digits/newer"]
    with world.book.read() as facts:
        before = [binding(facts, facts.partitions[ref], world.clock.now) for ref in refs]
        ages = [world.clock.now - facts.partitions[ref].opened for ref in refs]
    assert [one.level for one in before if one] == [2, 2, 1]
    world.clock.now -= 30 * DAY_MS
    assert correction(world, SRO).code.word == "permitted"
    with world.book.read() as facts:
        assert [binding(facts, facts.partitions[ref], NOW) for ref in refs] == before
        assert [NOW - facts.partitions[ref].opened for ref in refs] == ages
    verified(world)


def test_a_notice_period_that_was_skipped_is_waited_for(world: StoredWorld) -> None:
    """The provider has all of it to object, by the corrected time."""
    publish(world, 2, notice_hours=24)
    run(world, "first", PARTITION)
    run(world, "second", PARTITION)
    announce(world, "first")
    world.clock.now += 2 * DAY_MS
    announce(world, "second")
    assert leave(world, "first").code.word == "permitted"
    world.clock.now -= 2 * DAY_MS
    assert correction(world, SRO).code.word == "permitted"
    for name in ("first", "second"):
        assert faults(leave(world, name)) == {"release_too_soon"}
    assert [announce(world, name).code.word for name in ("first", "second", "second")] == [
        *("conflict", "permitted", "conflict")
    ]
    world.clock.now += DAY_MS
    assert [leave(world, name).code.word for name in ("first", "second")] == ["permitted"] * 2
    verified(world)


def another_sro(world: StoredWorld) -> None:
    """With a domain of its own, a provider, and an open partition there."""
    for did, role in ((MARKET, "SRO"), (CLINIC, "TDP")):
        world.signers[did] = Signer(private_key(f"{did} of the market"))
        world.submit(world.registration(did, role))
    law = policy(issuer=MARKET, domain="market", id="market-policy")
    scans = {**dataset(), "domain": "market", "provider": CLINIC}
    requested = [
        world.document("policy", law, "market", MARKET, MARKET),
        world.document("dataset", scans, "market-data", CLINIC, CLINIC),
        world.command(CLINIC, "partition", {**partition("m"), "provider": CLINIC}, "market-partition"),
    ]
    done = world.submit(*requested)
    assert words(done) == ["permitted"] * 3, done


def test_the_state_is_stated_soon_after_a_correction(world: StoredWorld) -> None:
    """What changed at a time that is years ahead now does not wait for it."""
    world.book.close()
    world.book = world.open(statements=True)
    jump(world)
    assert correction(world, SRO).code.word == "permitted"
    until = time.monotonic() + LIMIT_S
    stated: list[Entry] = []
    while not stated and time.monotonic() < until:
        with world.book.read() as facts:
            after = (Entry.parse(data) for data in facts.entries(facts.entry_index("back") or 0, facts.size))
            stated = [one for one in after if one.kind == "statement"]
    assert [one.time for one in stated] == [NOW]
    verified(world)


def test_every_sro_with_an_open_partition_signs(world: StoredWorld) -> None:
    """Each over this very command; one whose partitions are retired need not."""
    another_sro(world)
    jump(world)
    with world.book.read() as facts:
        last = facts.time
    tried: list[tuple[dict[str, Any], tuple[str, ...], str, str]] = [
        ({}, (SRO,), "signature_missing", "body.signatures"),
        ({}, (SRO, HOSPITAL), "signature_missing", "body.signatures"),
        ({"claimed": "another"}, (SRO, MARKET), "signature_invalid", "body.signatures[0]"),
        ({"ahead": last + 1}, (SRO, MARKET), "conflict", "body.ahead"),
        ({"ahead": last - 1}, (SRO, MARKET), "conflict", "body.ahead"),
        ({"time": last}, (SRO, MARKET), "malformed", "body.time"),
        ({"actor": HOSPITAL}, (SRO, MARKET, HOSPITAL), "not_authorised", "actor"),
    ]
    size = world.size
    for changes, signers, code, field in tried:
        refused = correction(world, *signers, **changes)
        assert (refused.code.word, refused.field) == (code, field), (changes, refused)
    world.signers["stranger"] = Signer(private_key("a stranger"))
    assert correction(world, SRO, MARKET, "stranger").code.word == "signature_invalid"
    assert world.size == size
    assert correction(world, SRO, MARKET).code.word == "permitted"
    # What was signed is used up: the log's time is another one now, and the id is taken.
    assert correction(world, SRO, MARKET, ahead=last, time=NOW - 1, name="twice").code.word == "conflict"
    world.clock.now = last
    world.submit(world.void("none"), world.charge("wrong", run=SMALL, deadline=last + HOUR_MS))
    with world.book.read() as facts:
        assert facts.time == last
    world.clock.now = NOW
    assert correction(world, SRO, MARKET, claimed="back", name="thrice").code.word == "signature_invalid"
    retired = world.send(CLINIC, "retirement", {"partition": f"{CLINIC}/digits/m"}, "retire-m")
    assert retired.code.word == "permitted"
    assert correction(world, SRO, name="alone").code.word == "permitted"
    verified(world)
