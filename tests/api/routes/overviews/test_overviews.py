"""Overviews against what they gather: lists newest first, histories, curves, checks, the lineage and the inbox."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from api.http.caller_places import PLACE_WAIT_S, CallerPlaces
from api.routes.overviews import decision_checks
from ledger.wire.exact_numbers import ceil_decimal
from tests.api.two_of_each import TwoOfEach
from tests.factories.documents import PARTITION
from tests.factories.people import BANK_A, BANK_B, CLINIC, SRO, CleanRoom
from tests.factories.service import open_world


def _get(pairs: TwoOfEach, role: str, path: str, **query: str) -> Any:  # noqa: ANN401 - JSON
    answer = pairs.world.http.get(path, params=query, headers=pairs.people[role].shown)
    return answer.raise_for_status().json()


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoOfEach]:
    """A world with two of everything, which no test changes."""
    with open_world(tmp_path_factory.mktemp("overviews")) as world:
        world.contract = world.found_service()
        yield TwoOfEach(world)


@pytest.fixture
def changing(tmp_path: Path) -> Iterator[TwoOfEach]:
    """Another, which its test changes."""
    with open_world(tmp_path) as world:
        world.contract = world.found_service()
        yield TwoOfEach(world)


def _every(pairs: TwoOfEach, role: str, path: str, **query: str) -> list[Any]:
    """A whole list, page by page."""
    items, cursor = list[Any](), None
    while True:
        page = _get(pairs, role, path, limit="3", **query, **({} if cursor is None else {"cursor": cursor}))
        items += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            return items


def test_newest_first_is_the_list_turned_around(furnished: TwoOfEach) -> None:
    """Page by page, in each role, with each filter; releases and notices are those decisions."""
    for role in ("SRO", "TDP", "TDC"):
        whole = _every(furnished, role, "/v1/decisions")
        assert _every(furnished, role, "/v1/decisions", newest="true") == whole[::-1]
        by_bank = [one for one in whole if one["actor"] == BANK_B]
        assert _every(furnished, role, "/v1/decisions", newest="true", actor=BANK_B) == by_bank[::-1]
        for kind in ("key_release", "release_notice", "model_release", "model_opening", "publication"):
            of_kind = [one for one in whole if one["kind"] == kind]
            assert _every(furnished, role, f"/v1/{kind.replace('_', '-')}s") == of_kind[::-1]
            assert _every(furnished, role, "/v1/decisions", kind=kind, newest="true") == of_kind[::-1]
    assert len(_every(furnished, "TDP", "/v1/key-releases")) == 2


def test_a_history_ends_where_the_account_is(furnished: TwoOfEach) -> None:
    """Its last ε is the account's by the rule's own odometer; a consumer's history is of its own account."""
    ref = furnished.own.partition
    whole = _get(furnished, "TDP", "/v1/account-history", partition=ref)
    assert [run["charge"] for run in whole["runs"]] == ["run-1", "run-3"]
    assert (whole["holder"], whole["complete"]) == ("global", True)
    sums = [Fraction(run["epsilon"]) for run in whole["runs"]]
    posted = [Fraction(run["epsilon_posted"]) for run in whole["runs"]]
    assert sums == sorted(sums)
    assert posted[0] == 0 < posted[1] < sums[1]
    account = _get(furnished, "TDP", "/v1/accounts", partition=ref)["items"][0]
    assert 0 <= Fraction(account["odometer"]) - sums[-1] < Fraction(1, 10_000)
    own = _get(furnished, "TDC", "/v1/account-history", partition=ref)
    assert own["holder"].startswith("lineage:")
    assert own["runs"] == whole["runs"]


def test_a_forecast_goes_on_as_it_was_posted(furnished: TwoOfEach) -> None:
    """It begins where the account is, only grows, and ends when the budget does; without a post there is none."""
    ref = furnished.own.partition
    forecast = _get(furnished, "TDP", "/v1/account-history", partition=ref)["forecast"]
    values = [Fraction(point["epsilon"]) for point in forecast["points"]]
    times = [point["time"] for point in forecast["points"]]
    assert values == sorted(values)
    assert {after - before for before, after in pairwise(times)} == {7 * 86_400_000}
    assert forecast["budget"] == "6"
    # One of a hundred steps a day reaches the budget within half a year.
    assert values[-1] > 6 >= values[-2]
    assert forecast["room_until"] == times[-2]


def test_a_curve_falls_and_meets_the_run_s_epsilon(furnished: TwoOfEach) -> None:
    """At the partition's δ it is what the run's ε is; a greater δ never has a greater ε."""
    curve = _get(furnished, "TDC", "/v1/charges/run-1/curve")["points"]
    by_delta = {Fraction(point["delta"]): Fraction(point["epsilon"]) for point in curve}
    known = _get(furnished, "TDC", "/v1/charges/run-1/epsilon")["run_epsilon"][0]
    assert by_delta[Fraction(known["delta"])] == Fraction(known["epsilon"])
    assert [by_delta[delta] for delta in sorted(by_delta)] == sorted(by_delta.values(), reverse=True)


def test_a_curve_names_the_budget_and_what_bounds_all_runs(furnished: TwoOfEach) -> None:
    """The account's own number, as each caller is shown it; no point of its bound lies below the plan of one run."""
    accounts = {role: _get(furnished, role, "/v1/accounts", partition=PARTITION) for role in ("TDP", "TDC")}
    curves = {role: _get(furnished, role, "/v1/charges/run-1/curve") for role in ("TDP", "TDC", "CCR")}
    plan = {Fraction(point["delta"]): Fraction(point["epsilon"]) for point in curves["TDP"]["points"]}
    for role, known in accounts.items():
        (everyone,) = (one for one in known["items"] if one["holder"] == "global")
        account = curves[role]["account"]
        assert ceil_decimal(Fraction(account["epsilon"]), 4) == everyone["odometer"]
        assert account["bound"] == everyone["bound"]
        points = {Fraction(point["delta"]): Fraction(point["epsilon"]) for point in account["points"]}
        assert points.keys() == plan.keys()
        assert all(points[delta] >= plan[delta] for delta in plan)
        assert curves[role]["budget"] == {"delta": "0.00001", "epsilon": "6"}
    assert "account" not in curves["CCR"]


def test_a_permit_shows_all_its_checks_decided_again(furnished: TwoOfEach) -> None:
    """All passed, as a refusal's are recorded; to another consumer's provider nothing is decided again."""
    found = _get(furnished, "TDC", "/v1/decisions/run-1/checks")
    assert (found["permit"], found["recorded"]) == (True, False)
    assert len(found["checks"]) > 5
    assert all(check["passed"] for check in found["checks"])
    posted = _get(furnished, "SRO", "/v1/decisions/model-of-run-3/checks")
    assert posted["recorded"]
    hidden = furnished.world.http.get("/v1/decisions/run-2/checks", headers=furnished.people["TDC"].shown)
    assert hidden.status_code == 404


def test_checks_of_the_past_are_read_in_their_own_callers_place(
    furnished: TwoOfEach, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of another organisation's is taken for one of its own; with a slow place already, it waits for no other."""
    taken, places = list[tuple[object, float]](), CallerPlaces.taken

    def note(slow: CallerPlaces, caller: Hashable, wait_s: float = PLACE_WAIT_S) -> AbstractContextManager[None]:
        taken.append((caller, wait_s))
        return places(slow, caller, wait_s)

    monkeypatch.setattr(CallerPlaces, "taken", note)
    _get(furnished, "TDC", "/v1/decisions/run-1/checks")
    assert taken == [(BANK_A, PLACE_WAIT_S), (BANK_A, 0)]


def test_of_a_permit_too_far_on_the_recorded_accounts_are_shown(
    furnished: TwoOfEach, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each cap that had room, by its account; those of a coalition without amounts."""
    monkeypatch.setattr(decision_checks, "AS_OF_MAX", 10)
    found = _get(furnished, "TDC", "/v1/decisions/run-1/checks")
    assert (found["permit"], found["recorded"]) == (True, True)
    entry = _get(furnished, "TDC", f"/v1/entries/{found['index']}")
    limits = entry["body"]["limits"]
    assert [(check["source"], check["code"], check["passed"]) for check in found["checks"]] == [
        (limit["holder"], "no_room", True) for limit in limits
    ]
    for check, limit in zip(found["checks"], limits, strict=True):
        assert limit["partition"] in check["text"]
        own = limit["holder"] in {"global", f"lineage:{entry['body']['author']}"}
        assert (f"ε {limit['cap']['epsilon']}" in check["text"]) == own


def test_the_lineage_is_listed_as_far_as_it_is_seen(furnished: TwoOfEach) -> None:
    """All nodes by name for an SRO; for a provider those that know its data, without arrows to others."""
    whole = _every(furnished, "SRO", "/v1/lineage")
    assert [node["index"] for node in whole] == sorted(node["index"] for node in whole)
    assert {"bank-a", "bank-b"} <= {node["name"] for node in whole} or len(whole) > 8
    own = _every(furnished, "TDP", "/v1/lineage")
    seen = {node["index"] for node in own}
    assert seen < {node["index"] for node in whole}
    assert all(arrow["node"] in seen for node in own for arrow in (*node["parents"], *node["children"]))
    assert not any(node["organisation"] == BANK_B and CLINIC in node["members"] for node in own)


def test_an_inbox_holds_what_waits_for_its_reader(furnished: TwoOfEach) -> None:
    """A pending run for its parties alone, an announced model, and the log."""
    for role, runs in (("TDP", ["run-1"]), ("TDC", ["run-1"]), ("SRO", ["run-1", "run-2"]), ("TSO", [])):
        found = _get(furnished, role, "/v1/inbox")
        assert [run["charge"] for run in found["due"]] == runs, role
        assert found["log"] == {"size": furnished.world.size, "state": "takes commands"}
        assert (found["complete"], found["cut"], found["organisation"]) == (True, [], furnished.people[role].did)
    assert [model["charge"] for model in _get(furnished, "TDP", "/v1/inbox")["announced"]] == ["run-3"]


def test_alerts_are_listed_as_they_were_sent(changing: TwoOfEach) -> None:
    """The thresholds that a charge crossed, of accounts that the reader may see; in its inbox, too."""
    world = changing.world
    world.enter("policy", {**world.policy(), "alerts": ["0.01"], "version": 2}, SRO, world.sro)
    assert _every(changing, "TDP", "/v1/alerts") == []
    body = changing.charge(changing.own, CleanRoom())
    found = world.service.submit(world.bank, changing.people["TDC"].did, "charge", body, "run-5")
    for role in ("SRO", "TDP", "TDC"):
        alerted = _every(changing, role, "/v1/alerts")
        shares = {(alert["holder"], alert["share"]) for one in alerted for alert in one["alerts"]}
        assert {one["index"] for one in alerted} <= {found.index}
        assert _get(changing, role, "/v1/inbox")["alerts"] == alerted
        assert all(share == "0.01" for _, share in shares)
    assert _every(changing, "TSO", "/v1/alerts") == _every(changing, "SRO", "/v1/alerts")
    # Four weeks later nothing was posted lately, and nothing is extrapolated.
    world.clock.now += 29 * 86_400_000
    shown = world.everybody.shown(changing.people["TDP"].did)
    later = world.http.get("/v1/account-history", params={"partition": changing.own.partition}, headers=shown)
    assert (later.json()["forecast"], len(later.json()["runs"])) == (None, 3)
