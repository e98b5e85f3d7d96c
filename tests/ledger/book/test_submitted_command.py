"""What a command gets: once, in its order, with a proof."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from ledger.audit.replay import verify_book
from ledger.book.book import BookStopped, Outcome, Submission
from ledger.commands.entry import Entry
from ledger.domain.facts import GLOBAL
from ledger.domain.outcomes import ChargeState
from ledger.filters import read_rule
from ledger.mechanisms.loss import Loss, loss_of
from ledger.verifier import LogKey, VerificationError, verify_receipt
from ledger.wire import canonical_json as c
from tests.factories.documents import NOW, PARTITION, SMALL, contract, dataset, plan
from tests.factories.people import BANK_A, BANK_B, HOSPITAL, HOUR_MS, LOG, ORIGIN, SRO, private_key
from tests.factories.stored import StoredWorld, no_step, open_world, rows


def _words(outcomes: list[Outcome]) -> list[str]:
    return [one.code.word for one in outcomes]


def _account(world: StoredWorld, holder: str = GLOBAL) -> tuple[Loss, Loss]:
    with world.book.read() as facts:
        found = facts.accounts[PARTITION, holder]
        return found.posted, found.pending


def _loss(world: StoredWorld, charges: dict[str, int]) -> Loss:
    """The sum of these charges' steps, computed from what was recorded of each."""
    with world.book.read() as facts:
        total = Loss.zero(len(read_rule(facts.partitions[PARTITION].terms).coordinates))
        for name, steps in charges.items():
            total += loss_of(dict(facts.charges[name].prices)[PARTITION], steps)
    return total


def test_the_same_command_again_gets_the_same_answer(world: StoredWorld) -> None:
    """Same bytes, same index, marked as repeated, in the same call and after an opening; the log does not grow."""
    sent = world.charge("run-1")
    first, second = world.submit(sent, sent)
    size = world.size
    world.reopen()
    (third,) = world.submit(sent)
    assert (first.repeated, second.repeated, third.repeated) == (False, True, True)
    assert (first.code, first.index, first.body) == (second.code, second.index, second.body)
    assert (first.code, first.index, first.body) == (third.code, third.index, third.body)
    assert world.size == size
    assert _account(world)[1] == _loss(world, {"run-1": 100})


@pytest.mark.parametrize("together", [True, False])
def test_an_id_is_used_once(world: StoredWorld, *, together: bool) -> None:
    """Another body, another actor or another kind under a used id is refused by name and not recorded."""
    first = world.charge("run-1")
    others = [world.charge("run-1", run=SMALL), world.charge("run-1", BANK_B)]
    others.append(world.command(HOSPITAL, "retirement", {"partition": PARTITION}, "run-1"))
    size = world.size
    outcomes = world.submit(first, *others) if together else world.submit(first) + world.submit(*others)
    assert _words(outcomes) == ["pending", "id_reused", "id_reused", "id_reused"]
    assert all("the id run-1 was used" in one.detail and one.index is None for one in outcomes[1:])
    assert world.size == size + 1


def test_a_recorded_answer_is_for_those_who_signed(world: StoredWorld) -> None:
    """A copy of a recorded command under a signature that does not verify gets no answer, used id or not."""
    sent = world.charge("run-1")
    stranger = world.charge("run-1", BANK_B)
    world.submit(sent)
    forged = [replace(sent, signature=stranger.signature), replace(stranger, signature=sent.signature)]
    assert _words(world.submit(*forged)) == ["signature_invalid", "signature_invalid"]


def test_a_refusal_is_final_for_its_id(world: StoredWorld) -> None:
    """After room came back the refused id is still refused, and a new id is admitted."""
    outcomes = world.submit(*(world.charge(f"run-{n}") for n in range(9)))
    assert _words(outcomes) == ["pending"] * 8 + ["budget_exhausted"]
    assert "the account of this lineage" in outcomes[-1].detail
    assert _words(world.submit(world.settle("run-0", 0))) == ["posted"]
    again, fresh = world.submit(world.charge("run-8"), world.charge("run-9"))
    assert (again.code.word, again.repeated, again.index) == ("budget_exhausted", True, outcomes[-1].index)
    assert again.detail == outcomes[-1].detail
    assert fresh.code.word == "pending"


def test_a_batch_uses_what_it_registers(tmp_path: Path, engine: str) -> None:
    """Organisations, documents, partition, contracts and charges in one call, each with its own outcome in order."""
    with open_world(tmp_path, engine, founded=False) as world:
        sent = world.founding()
        bad = world.command(BANK_A, "post", {"charge": "run-7", "steps": 1}, "post-7")
        sent += [world.charge("run-1"), Submission(b"{", ""), world.charge("run-2", BANK_B), bad]
        outcomes = world.submit(*sent)
        assert _words(outcomes[-4:]) == ["pending", "malformed", "pending", "not_found"]
        assert [one.index for one in outcomes if one.index is not None] == list(range(len(sent) - 2))
        assert verify_book(world.url, LOG, no_step).entries == len(sent) - 2


def test_sixteen_threads_race_for_the_last_of_a_budget(world: StoredWorld) -> None:
    """Exactly as many are admitted as fit one by one, and the account is their sum."""
    world.submit(*(world.charge(f"first-{n}", (BANK_A, BANK_B)[n % 2]) for n in range(8)))
    with world.book.read() as facts:
        rule = read_rule(facts.partitions[PARTITION].terms)
        run = loss_of(dict(facts.charges["first-0"].prices)[PARTITION], 100)
    cap, loss, fit = rule.cap(Fraction(6)), Loss.zero(len(rule.coordinates)), 0
    while rule.admits(loss + run, cap):
        loss, fit = loss + run, fit + 1
    sent = [world.charge(f"race-{n}", (BANK_A, BANK_B)[n % 2]) for n in range(16)]
    with ThreadPoolExecutor(16) as threads:
        words = [words[0] for words in threads.map(lambda one: _words(world.submit(one)), sent)]
    assert words.count("pending") == fit - 8
    assert words.count("budget_exhausted") == 16 - (fit - 8)
    assert _account(world) == (Loss.zero(len(rule.coordinates)), loss)


def test_receipts_verify_offline(world: StoredWorld) -> None:
    """With the log's key alone; not for another entry, not by another log's key, not with a changed proof."""
    outcomes = [world.submit(world.charge(f"run-{n}"))[0] for n in range(3)]
    with world.book.read() as facts:
        entries = [facts.entry(one.index or 0) for one in outcomes]
    for outcome, entry in zip(outcomes, entries, strict=True):
        assert outcome.receipt is not None
        index, checkpoint = verify_receipt(outcome.receipt, entry, LOG)
        assert (index, checkpoint.origin, checkpoint.size) == (outcome.index, ORIGIN, index + 1)
        assert Entry.parse(entry).body == outcome.body
    last = outcomes[-1].receipt or ""
    other = LogKey(ORIGIN, private_key("another log").public_key().public_bytes_raw())
    for text, entry, key in (
        (last, entries[0], LOG),
        (last, entries[-1], other),
        (last.replace(f"index {outcomes[-1].index}", "index 0"), entries[-1], LOG),
    ):
        with pytest.raises(VerificationError):
            verify_receipt(text, entry, key)


def test_time_never_goes_back(world: StoredWorld) -> None:
    """A clock that jumps back, before and after an opening, leaves entries in order of time."""
    times = []
    for number, jump in enumerate((HOUR_MS, -5 * HOUR_MS, -HOUR_MS, 6 * HOUR_MS)):
        world.clock.now += jump
        (outcome,) = world.submit(world.charge(f"run-{number}", run=SMALL, deadline=NOW + 24 * HOUR_MS))
        with world.book.read() as facts:
            times.append(Entry.parse(facts.entry(outcome.index or 0)).time)
        world.reopen()
    assert times == [NOW + HOUR_MS] * 4
    world.clock.now += 1
    world.submit(world.charge("run-9", run=SMALL))
    assert verify_book(world.url, LOG, no_step).charges == 5


def test_a_deadline_settles_what_was_left_pending(world: StoredWorld) -> None:
    """In the next batch, before its commands: in full where the key was released, for nothing where it was not."""
    world.submit(world.charge("left"), world.charge("gone"), world.charge("busy", deadline=NOW + 9 * HOUR_MS))
    assert _words(world.submit(world.release("gone"))) == ["permitted"]
    size = world.size
    world.clock.now = NOW + HOUR_MS
    world.submit(world.partition("other"))
    assert world.size == size + 1
    world.clock.now += 1
    (outcome,) = world.submit(world.partition("next"))
    assert outcome.index == size + 3
    with world.book.read() as facts:
        states = {name: (one.state, one.steps_posted) for name, one in facts.charges.items()}
        lapses = [Entry.parse(facts.entry(size + place)) for place in (1, 2)]
        runs = facts.contracts[world.contracts[BANK_A]].runs
    assert states == {
        "left": (ChargeState.VOIDED, None),
        "gone": (ChargeState.POSTED, 100),
        "busy": (ChargeState.PENDING, None),
    }
    assert {str(one.request["charge"]): one.code.word for one in lapses} == {"left": "voided", "gone": "posted"}
    assert _account(world) == (_loss(world, {"gone": 100}), _loss(world, {"busy": 100}))
    assert runs == 2
    assert _words(world.submit(world.settle("gone", 1), world.void("left"))) == ["conflict", "conflict"]
    assert verify_book(world.url, LOG, no_step).charges == 3


def test_nobody_stands_in_the_way_of_a_lapse(world: StoredWorld) -> None:
    """A command may neither be a lapse nor take the id that the book will give one."""
    name = f"lapse-{c.digest(b'run-1')[:32]}"
    taken = world.charge(name, BANK_B, SMALL)
    sent = world.command(BANK_A, "lapse", {"charge": "run-1"}, "mine")
    world.submit(world.charge("run-1"))
    size = world.size
    assert _words(world.submit(taken, sent)) == ["not_authorised", "not_authorised"]
    assert world.size == size
    world.clock.now += HOUR_MS + 1
    world.submit(world.partition("next"))
    with world.book.read() as facts:
        assert facts.charges["run-1"].state is ChargeState.VOIDED


def test_an_entry_that_would_be_too_long_leaves_nothing(world: StoredWorld) -> None:
    """It is refused as malformed; what comes before and after it in the call stands as if it had not been sent."""
    provider, long = "did:web:" + ":".join("x" * 60 for _ in range(4)), "d" * 128
    claim: c.Object = {"key": world.signers[provider].jwk, "name": "x", "organisation": provider, "roles": ["TDP"]}
    body: c.Object = {**claim, "possession": world.signers[provider].sign(c.dump(claim))}
    both = {**contract(BANK_A), "datasets": [{"dataset": long, "provider": provider}], "id": "long", "tdps": [provider]}
    names = tuple(f"{provider}/{long}/{'n' * 120}{n}" for n in range(16))
    terms: c.Object = {
        "dataset": long,
        "delta": "0.00001",
        "epsilon": "6",
        "provider": provider,
        "records": 1000,
        "rule": "renyi",
    }
    terms |= {"relation": "REPLACE_SPECIAL", "unit": "record"}
    entered = world.submit(
        world.command(SRO, "organisation", body, "long-organisation"),
        world.document("dataset", {**dataset(), "id": long, "provider": provider}, "long-dataset", provider, provider),
        world.document("contract", both, "long-contract", BANK_A, BANK_A, provider),
        *(
            world.command(
                provider, "partition", {**terms, "data_key": f"k{n}", "partition": f"{'n' * 120}{n}"}, f"long-{n}"
            )
            for n in range(16)
        ),
    )
    assert [one.detail for one in entered if one.code.word != "permitted"] == []
    digest, size = c.digest(c.dump(both)), world.size
    # The policy denies the loud plan for reasons that name each of its sixteen partitions several times.
    runs = ((plan(), 1), (plan(100, "0.5"), 16), (plan(), 2))
    sent = [
        world.charge(f"run-{n}", run=run, partitions=names[:most], contract=digest)
        for n, (run, most) in enumerate(runs)
    ]
    outcomes = world.submit(*sent)
    assert _words(outcomes) == ["pending", "malformed", "pending"]
    assert "more than the 65535 allowed" in outcomes[1].detail
    assert [one.index for one in outcomes] == [size, None, size + 1]
    with world.book.read() as facts:
        assert set(facts.charges) == {"run-0", "run-2"}
        assert {ref for ref, _ in facts.accounts} == set(names[:2])
        assert facts.contracts[digest].runs == 2
    assert verify_book(world.url, LOG, no_step).charges == 2


def test_a_closed_book_takes_nothing(world: StoredWorld) -> None:
    """Neither commands nor readers nor documents; closing again changes nothing."""
    sent = world.charge("run-1")
    world.book.close()
    before = rows(world.url)
    with pytest.raises(BookStopped, match="closed"):
        world.submit(sent)
    with pytest.raises(BookStopped, match="closed"), world.book.read():
        pass
    with pytest.raises(BookStopped, match="closed"):
        world.book.put_document(b"{}")
    world.book.close()
    assert rows(world.url) == before


def test_a_quote_records_nothing(world: StoredWorld) -> None:
    """It tells what a charge would get, and says no to a stranger's signature."""
    world.submit(*(world.charge(f"run-{n}") for n in range(9)))
    before = rows(world.url)
    sent = world.charge("asked")
    assert world.book.quote(sent).code.word == "budget_exhausted"
    assert world.book.quote(world.charge("small", run=plan(1))).code.word == "pending"
    assert world.book.quote(replace(sent, signature=world.charge("x").signature)).code.word == "signature_invalid"
    assert rows(world.url) == before


def test_a_loss_beyond_all_bounds_is_infinite_and_stops_nobody(world: StoredWorld) -> None:
    """A plan of tiny cost at one order and of an astronomical one at the next is charged; the book goes on."""
    sampler: c.Object = {"kind": "poisson", "probability": "0.000000001"}
    wild = {**plan(10_000_000, "0.3"), "sampler": sampler}
    first, second = (world.submit(world.charge(name, run=run))[0] for name, run in (("wild", wild), ("tame", plan())))
    assert (first.code.word, second.code.word) == ("pending", "pending")
    with world.book.read() as facts:
        loss = facts.accounts[PARTITION, GLOBAL].loss
    assert any(loss.infinite)
    assert max(loss.finite) < 2**62
    assert verify_book(world.url, LOG, no_step).charges == 2
