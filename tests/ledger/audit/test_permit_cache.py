"""Verification decides runs alike by what it kept of the first: the policy is asked less, and every lie is found.

Each lie is a run that differs from an honest one before it in nothing but what is its own, or that stands where the
permit is over. It is signed by whom it names, and rows, tree and checkpoint are made anew with the log's own key.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec import structs

from client.keys.signer import Signer
from ledger.audit.replay import VerificationFailed, verify_book
from ledger.audit.run_entry import read_signed
from ledger.commands.entry import Entry
from ledger.domain.facts import Facts
from ledger.domain.gate import Check, Request, Verdict
from ledger.wire import canonical_json as c
from policy.decisions.gate import gate
from tests.factories.documents import PARTITION, SMALL, contract
from tests.factories.people import BANK_A, DAY_MS, HOSPITAL, HOUR_MS, LOG, LOG_KEY, CleanRoom, private_key
from tests.factories.stored import StoredWorld, no_step, open_world
from tests.ledger.audit.forge import entries_of, forged
from tests.ledger.book.governed import publish

RUNS_MAX: Final = 20
"""Of the bank's contract; fewer of the large ones fit into the partition."""
_LARGE_MAX: Final = 8
"""Of the large ones that fit."""
Log = list[Entry]


def _live(world: StoredWorld) -> None:
    few: dict[str, Any] = {**contract(BANK_A), "runs_max": RUNS_MAX, "version": 2}
    world.submit(world.document("contract", few, "few", BANK_A, BANK_A, HOSPITAL))
    world.contracts[BANK_A] = c.digest(c.dump(few))
    small = [world.charge(f"run-{number}", run=SMALL) for number in range(3)]
    found = world.submit(*small, world.settle("run-0", 1), world.settle("run-1", 1), world.charge("large"))
    assert {one.code.word for one in found} == {"pending", "posted"}


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed book of runs alike; the newest entry retires their partition."""
    with open_world(tmp_path_factory.mktemp("alike")) as world:
        _live(world)
        world.submit(world.command(HOSPITAL, "retirement", {"partition": PARTITION}, "retire"))
        return world.path


def _named(log: Log, name: str) -> Entry:
    return next(one for one in log if one.id == name)


def _by(signer: Signer, entry: Entry) -> Entry:
    """An entry as this signer would have signed it."""
    named = replace(entry, key_id=signer.key_id)
    return replace(named, signature=signer.sign(named.command.to_bytes()))


def charge(  # noqa: PLR0913 - where, which, and what is its own
    log: Log, name: str, like: str = "run-0", *, later: int = 0, lasts: int = HOUR_MS, room: str = ""
) -> Entry:
    """A charge at the end of a log like an earlier one: another id, another clean room, another deadline."""
    first, when = _named(log, like), log[-1].time + later
    body = copy.deepcopy(first.body)
    request: Any = body["request"]
    request |= {"clean_room": CleanRoom(room or name).to_json(), "deadline": when + lasts}
    made = _by(Signer(private_key(BANK_A)), replace(first, id=name, time=when, body=body))
    found, earlier = read_signed(made.to_bytes()), read_signed(first.to_bytes())
    assert found is not None
    assert earlier is not None
    assert found.alike == earlier.alike
    return made


def post(log: Log, name: str, of: str, room: str = "") -> Entry:
    """A settlement at the end of a log like an earlier one."""
    body: c.Object = {"outcome": "posted", "request": {"charge": of, "steps": 1}}
    return _by(CleanRoom(room or of).signer, replace(log[-1], kind="post", id=name, actor=BANK_A, body=body))


def _too_many_runs(log: Log) -> Log:
    counted = sum(one.kind == "charge" for one in log)
    return [*log, *(charge(log, f"more-{number}") for number in range(counted, RUNS_MAX + 1))]


def _too_large(log: Log) -> Log:
    """Until the partition's account has no room."""
    return [*log, *(charge(log, f"large-{number}", "large") for number in range(12))]


def _with_another_signature(log: Log) -> Log:
    made = charge(log, "lie")
    return [*log, replace(made, signature=_named(log, "run-1").signature)]


def _under_a_clean_rooms_key(log: Log) -> Log:
    return [*log, _by(CleanRoom("run-2").signer, charge(log, "lie"))]


LIES: Final[dict[str, tuple[Callable[[Log], Log], str]]] = {
    "a deadline that has passed": (lambda log: [*log, charge(log, "lie", lasts=0)], "body.deadline"),
    "a deadline too far": (lambda log: [*log, charge(log, "lie", lasts=31 * DAY_MS)], "body.deadline"),
    "a clean room of another run": (lambda log: [*log, charge(log, "lie", room="run-2")], "clean room"),
    "more runs than the contract has": (_too_many_runs, "policy_denied follows"),
    "a run after the contract": (
        lambda log: [*log, charge(log, "lie", later=91 * DAY_MS)],
        "policy_denied follows",
    ),
    "a run that has no room": (_too_large, "had no room"),
    "another's signature": (_with_another_signature, "does not verify"),
    "a charge by a clean room": (_under_a_clean_rooms_key, "not_authorised follows"),
    "a settlement by another clean room": (
        lambda log: [*log, post(log, "lie", "run-2", room="large")],
        "not_authorised follows",
    ),
}


@pytest.mark.parametrize("name", LIES)
def test_a_lie_among_runs_alike_is_named(honest: Path, tmp_path: Path, name: str) -> None:
    """The entry that first says what does not follow, and what it says."""
    lie, said = LIES[name]
    log = lie(entries_of(honest)[:-1])
    with pytest.raises(VerificationFailed, match=said) as found:
        verify_book(f"sqlite:///{forged(honest, tmp_path / 'b', log, LOG_KEY)}", LOG, no_step, gate=gate)
    if name != "a run that has no room":
        assert found.value.index == len(log) - 1
    sound = forged(honest, tmp_path / "c", log[: found.value.index], LOG_KEY)
    assert verify_book(f"sqlite:///{sound}", LOG, no_step, gate=gate).entries == found.value.index


def _of_another_pipeline(one: Entry) -> Entry:
    """A charge that costs the same, and is decided in full: no other names its pipeline."""
    request: Any = {**one.request, "pipeline": c.digest(one.id.encode())}
    return _by(Signer(private_key(BANK_A)), replace(one, body={**one.body, "request": request}))


@pytest.mark.parametrize("others", ["none", "odd", "even"])
def test_room_that_was_counted_is_counted_again_after_other_runs(honest: Path, tmp_path: Path, others: str) -> None:
    """The first charge without room is named, whether it or the one before it is decided in full."""
    log = entries_of(honest)[:-1]
    more = [charge(log, f"large-{number}", "large") for number in range(12)]
    changed = slice({"none": 12, "odd": 3, "even": 4}[others], None, 2)
    more[changed] = map(_of_another_pipeline, more[changed])
    with pytest.raises(VerificationFailed, match="had no room") as found:
        verify_book(f"sqlite:///{forged(honest, tmp_path / 'b', [*log, *more], LOG_KEY)}", LOG, no_step, gate=gate)
    large = sum(one.id.startswith("large") for one in [*log, *more][: found.value.index])
    assert large == _LARGE_MAX


def test_what_is_no_run_ends_a_permit(honest: Path, tmp_path: Path) -> None:
    """A run like those before the retirement of its partition stands after it."""
    log = entries_of(honest)
    path = forged(honest, tmp_path / "b", [*log, charge(log, "lie")], LOG_KEY)
    with pytest.raises(VerificationFailed, match="policy_denied follows") as found:
        verify_book(f"sqlite:///{path}", LOG, no_step, gate=gate)
    assert found.value.index == len(log)


def test_a_share_that_was_passed_in_silence_is_named(tmp_path: Path) -> None:
    """The charge that crosses half of the account says so; one like it that does not say so is a lie."""
    folder = tmp_path / "alerting"
    folder.mkdir()
    with open_world(folder) as world:
        publish(world, 2, alerts=["0.5"])
        world.submit(world.charge("large"))
        path = world.path
    log = entries_of(path)
    with pytest.raises(VerificationFailed, match="alerts"):
        verify_book(f"sqlite:///{forged(path, tmp_path / 'b', _too_large(log), LOG_KEY)}", LOG, no_step, gate=gate)


class Counting:
    """The real gate, how often it was asked of charges, and when it begins to deny."""

    def __init__(self, until: int = 1_000) -> None:
        self.asked, self._until = 0, until

    def __call__(self, request: Request, facts: Facts) -> Verdict:
        """The real gate's verdict, so many times."""
        self.asked += request.command.kind == "charge"
        if self.asked > self._until:
            return Verdict(permit=False, checks=(Check("changed", passed=False, text="it changed"),))
        return gate(request, facts)


def test_charges_alike_are_asked_once(honest: Path, tmp_path: Path) -> None:
    """Of ten more the policy is not asked; no gate given, the report says that verdicts were taken as recorded."""
    log = entries_of(honest)[:-1]
    for number in range(10):
        log.append(charge(log, f"more-{number}"))
        log.append(post(log, f"settled-{number}", f"more-{number}"))
    url = f"sqlite:///{forged(honest, tmp_path / 'b', log, LOG_KEY)}"
    counting = Counting()
    found = verify_book(url, LOG, no_step, gate=counting)
    assert (found.entries, found.judged) == (len(log), True)
    assert counting.asked == 2
    assert structs.replace(verify_book(url, LOG, no_step), judged=True) == found


def test_one_of_so_many_is_decided_in_full(honest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy that says otherwise of a run alike is found out by the sample."""
    log = entries_of(honest)[:-1]
    log += [charge(log, f"more-{number}") for number in range(3)]
    url = f"sqlite:///{forged(honest, tmp_path / 'b', log, LOG_KEY)}"
    assert verify_book(url, LOG, no_step, gate=Counting(2)).entries == len(log)
    monkeypatch.setattr("ledger.commands.verdict_cache.SAMPLE", 4)
    with pytest.raises(VerificationFailed, match="policy_denied follows"):
        verify_book(url, LOG, no_step, gate=Counting(2))
