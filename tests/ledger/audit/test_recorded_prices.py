"""What verification takes of numbers that were searched for: any that its own evidence bears out, and no other."""

from __future__ import annotations

import copy as copies
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import pytest

from ledger.accounting.gaussian_certificates import certificate
from ledger.audit.replay import VerificationFailed, verify_book
from ledger.commands.entry import Entry
from ledger.mechanisms.mechanism import PoissonGaussian
from ledger.mechanisms.price_proofs import RULE_NAMES
from ledger.wire.exact_numbers import DELTA_ONE
from policy.checks.field_readers import format_time
from policy.decisions.gate import gate
from policy.documents import MECHANISMS
from tests.factories.documents import plan, policy
from tests.factories.people import HOSPITAL, LOG, LOG_KEY, SRO
from tests.factories.stored import StoredWorld, no_step, open_world
from tests.ledger.audit.forge import entries_of, forged

COUNTED: Final = f"{HOSPITAL}/digits/counted"
CERTIFIED: Final = f"{HOSPITAL}/digits/certified"
STEPS: Final = plan(40, "4")


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Level 0, so that everyone together is watched and not capped; one account filled to its last step."""
    with open_world(tmp_path_factory.mktemp("margins")) as world:
        publish(world, 2, alerts=["0.5", "1"])
        world.submit(
            world.partition("counted", rule="reference", load=STEPS, epsilon="1"),
            world.partition("certified", rule="gaussian", epsilon="3"),
        )
        opened = next(one for one in entries_of(world.path) if one.id == "partition-counted")
        recorded: Any = opened.body["caps"]
        (whole,) = recorded[0]["capacity"]
        most = whole * 3 // 5
        done = world.submit(
            world.charge("most", run=plan(most, "4"), partitions=(COUNTED,)),
            world.charge("rest", run=plan(whole - most, "4"), partitions=(COUNTED,)),
            world.charge("run", run=STEPS, partitions=(CERTIFIED,)),
        )
        publish(world, 3, quota={"share_max": "1/3"})
        done += world.submit(world.charge("quota", run=STEPS, partitions=(CERTIFIED,)))
        assert [one.code.word for one in done] == ["pending"] * 4, done
        return world.path


def publish(world: StoredWorld, version: int, **changes: object) -> None:
    """The policy, with every rule and mechanism."""
    content = {
        **policy(),
        "effective": format_time(world.clock.now),
        "level": 0,
        "mechanisms": [*MECHANISMS],
        "partition_age_days_max": None,
        "rules": [*RULE_NAMES],
        "version": version,
        **changes,
    }
    wanted = {name: value for name, value in content.items() if value is not None}
    (outcome,) = world.submit(world.document("policy", wanted, f"policy-{version}", SRO, SRO))
    assert outcome.code.word == "permitted", outcome


Lie = Callable[[dict[str, Any]], object]


def verdict(book: Path, folder: Path, name: str, lie: Lie) -> str:
    """What is found wrong, the policy asked again, after one entry's body was changed; empty if nothing is."""
    entries: list[Entry] = entries_of(book)
    place = next(index for index, one in enumerate(entries) if one.id == name)
    body = copies.deepcopy(entries[place].body)
    lie(body)
    entries[place] = replace(entries[place], body=body)
    # What was refused is followed by nothing that needs it.
    changed = forged(book, folder / "book.sqlite", entries[: place + 1], LOG_KEY)
    found = ""
    try:
        verify_book(f"sqlite:///{changed}", LOG, no_step, gate=gate)
    except VerificationFailed as fault:
        found = str(fault)
    assert found.startswith(f"entry {place}: ") or not found
    return found


def test_the_book_verifies(book: Path, tmp_path: Path) -> None:
    """As it is, entry by entry of those that are changed below."""
    for number, name in enumerate(("partition-counted", "most", "rest", "run", "quota")):
        (tmp_path / str(number)).mkdir()
        assert not verdict(book, tmp_path / str(number), name, dict.copy)


def raised(body: dict[str, Any]) -> None:
    """Each capacity by a hundredth."""
    for cap in [one["cap"] for one in body.get("limits", [])] or body["caps"]:
        cap["capacity"] = [one * 101 // 100 + 1 for one in cap["capacity"]]


def only(share: bool) -> Lie:  # noqa: FBT001 - which of two
    """Those of quotas alone, or of all others."""

    def lie(body: dict[str, Any]) -> None:
        for limit in body["limits"]:
            if ("share" in limit) is share:
                raised({"limits": [limit]})

    return lie


def cheaper(body: dict[str, Any]) -> None:
    """The certificate by a hundredth."""
    segment = body["prices"][CERTIFIED][0]
    segment["price"][0] = segment["price"][0] * 99 // 100


def priced(square: int, tau: int) -> Lie:
    """With this certificate."""

    def lie(body: dict[str, Any]) -> None:
        body["prices"][CERTIFIED][0]["price"] = [square, tau]

    return lie


def without(holder: str, share: str) -> Lie:
    """An alert less."""

    def lie(body: dict[str, Any]) -> None:
        kept = [one for one in body["alerts"] if not (one["holder"].startswith(holder) and one["share"] == share)]
        assert len(kept) < len(body["alerts"])
        body["alerts"] = kept
        if not kept:
            del body["alerts"]

    return lie


def invented(body: dict[str, Any]) -> None:
    """An alert more."""
    body["alerts"] = [*body["alerts"], {**body["alerts"][0], "share": "1"}]


LIES: Final[list[tuple[str, Lie, str]]] = [
    ("partition-counted", raised, "body.caps"),
    ("partition-certified", raised, "body.caps"),
    ("most", raised, "body.limits.cap"),
    ("run", raised, "body.limits.cap"),
    ("quota", only(share=True), "body.limits.cap"),
    ("quota", only(share=False), "body.limits.cap"),
    ("run", cheaper, "body.prices"),
    ("most", without("lineage", "0.5"), "body.alerts"),
    ("most", without("global", "0.5"), "body.alerts"),
    ("most", invented, "body.alerts"),
    ("rest", without("lineage", "1"), "body.alerts"),
]


@pytest.mark.parametrize(("name", "lie", "said"), LIES)
def test_what_is_beyond_a_margin_is_named(book: Path, tmp_path: Path, name: str, lie: Lie, said: str) -> None:
    """Too much room, too low a price, an alert too many or too few."""
    assert said in verdict(book, tmp_path, name, lie)


def test_a_watched_account_may_have_reached_a_share_or_just_not(book: Path, tmp_path: Path) -> None:
    """Full to the last step here; where a search ends a little higher, it is not full yet and nothing was told."""
    assert not verdict(book, tmp_path, "rest", without("global", "1"))


def test_another_certificate_than_ours_is_as_good(book: Path, tmp_path: Path) -> None:
    """Of each τ of the menu but the greatest, which crosses half of the slack; though the book chooses one."""
    opened = next(one for one in entries_of(book) if one.id == "partition-certified")
    terms: Any = opened.body["terms"]
    step, accepted = PoissonGaussian(Fraction(1, 16), Fraction(4), 1), 0
    for number, tau in enumerate(terms["menu"][:-1]):
        square = certificate(step, "REPLACE_SPECIAL", 40, Fraction(tau, DELTA_ONE))
        if square is None:
            continue

        (tmp_path / str(number)).mkdir()
        assert not verdict(book, tmp_path / str(number), "run", priced(square, tau))
        accepted += 1
    assert accepted > 1


def refused(body: dict[str, Any]) -> None:
    """Recorded as refused for lack of room."""
    request = body["request"]
    body.clear()
    body.update(checks=[], outcome="budget_exhausted", request=request)


@pytest.mark.parametrize(("name", "said"), [("most", "pending follows"), ("rest", ""), ("run", "pending follows")])
def test_a_refusal_stands_only_where_there_is_hardly_room(book: Path, tmp_path: Path, name: str, said: str) -> None:
    """What fits here may have been refused elsewhere if an account would have been full, not at three fifths of it."""
    found = verdict(book, tmp_path, name, refused)
    assert said in found if said else not found
