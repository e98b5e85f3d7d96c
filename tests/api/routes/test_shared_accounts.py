"""What a consumer is shown of the account that it shares with its competitors."""

from __future__ import annotations

import json
from bisect import bisect_left
from pathlib import Path
from typing import Any

import pytest

from client.http.endpoints import BATCH, JSON_TYPE, QUOTES
from ledger.commands.registry import PATHS
from ledger.wire import canonical_json as c
from tests.api.routes.shared_market import VARYING, charge, market, shared_account
from tests.factories.documents import PARTITION, plan
from tests.factories.people import BANK_A, BANK_B, HOSPITAL, SRO, CleanRoom
from tests.factories.service import ServedWorld

STEPS = (70, 71, 73)
TIGHT = (73, 76)
"""Runs of another that are within one step of the rounding, where there is little room."""
STEPS_MOST = 256
"""More steps than there is room for."""


def _refused(world: ServedWorld, bank: str) -> Any:  # noqa: ANN401 - JSON
    """What a quote's and a charge's refusal say, and the decision on record: each with every number."""
    body: c.Object = {**world.charge_body(world.contracts[bank], CleanRoom("more")), "plan": plan(noise="4", steps=100)}
    raw = world.command_bytes(world.signers[bank], bank, "charge", body, "more")
    found = []
    for path in (QUOTES, PATHS["charge"]):
        answer = world.post(path, raw, world.sign(world.signers[bank], path, raw, "more"))
        assert (answer.status_code, answer.json()["code"]) == (409, "budget_exhausted"), answer.text
        found.append(answer.json())
    decision = world.http.get("/v1/decisions/more", headers=world.everybody.shown(bank)).json()
    return [*found, decision["checks"], decision["detail"]]


def _planned(world: ServedWorld, bank: str, did: str, steps: int) -> Any:  # noqa: ANN401 - JSON
    """The whole report on a run of a bank, as an organisation gets it."""
    run: c.Object = {
        "contract": world.contracts[bank],
        "partitions": [PARTITION],
        "plan": plan(noise="4", steps=steps),
    }
    headers = {**world.everybody.shown(did), "content-type": JSON_TYPE}
    return world.http.post("/v1/plans", content=c.dump(run), headers=headers).raise_for_status().json()


def _planned_under(world: ServedWorld, policy: c.Object, steps: int) -> Any:  # noqa: ANN401 - JSON
    """The whole report on a run of Bank A, under a policy that it makes up."""
    run: c.Object = {
        "contract": world.contracts[BANK_A],
        "partitions": [PARTITION],
        "plan": plan(noise="4", steps=steps),
        "policy": c.dump(policy).decode(),
    }
    headers = {**world.everybody.shown(BANK_A), "content-type": JSON_TYPE}
    return world.http.post("/v1/plans", content=c.dump(run), headers=headers).raise_for_status().json()


def _loss(shown: dict[str, Any]) -> list[int]:
    return [int(a) + int(b) for a, b in zip(shown["posted"]["finite"], shown["pending"]["finite"], strict=True)]


def test_a_competitor_s_plan_cannot_be_told_from_another(tmp_path: Path) -> None:
    """Its runs differ by a step, by three: the provider sees that, the other bank one answer, never too small."""
    theirs, exact = [], []
    for place, steps in enumerate(STEPS):
        with market(tmp_path / str(place)) as world:
            charge(world, BANK_A, 10, "own")
            charge(world, BANK_B, steps, "theirs")
            theirs.append(shared_account(world, BANK_A))
            exact.append(shared_account(world, HOSPITAL))
            proof = f"/v1/accounts/global/proof?partition={PARTITION}"
            hidden = world.http.get(proof, headers=world.everybody.shown(BANK_A)).json()
            assert (hidden["status"], hidden["field"]) == (403, "holder")
    assert theirs[0] == theirs[1] == theirs[2]
    assert len({str(one) for one in exact}) == len(STEPS)
    for shown, true in zip(theirs, exact, strict=True):
        assert all(told >= counts for told, counts in zip(_loss(shown), _loss(true), strict=True))
        # One's own run is pending, and known exactly; of others' nothing tells whether it is.
        pending = [*zip(shown["pending"]["finite"], true["pending"]["finite"], strict=True)]
        assert all(int(told) <= int(counts) for told, counts in pending)
        assert any(int(told) < int(counts) for told, counts in pending)


def test_a_policy_may_show_the_shared_account_exactly(tmp_path: Path) -> None:
    """Then a bank is shown what the provider is."""
    with market(tmp_path, shared_accounts="exact") as world:
        charge(world, BANK_A, 10, "own")
        charge(world, BANK_B, 70, "theirs")
        assert shared_account(world, BANK_A) == shared_account(world, HOSPITAL)


def test_refusals_and_plans_show_it_rounded_too(tmp_path: Path) -> None:
    """Nothing in a refusal of a quote or charge, in its entry or in a plan's report tells a step more from one less."""
    theirs, exact = [], []
    for place, steps in enumerate(TIGHT):
        with market(tmp_path / str(place), epsilon="0.8") as world:
            charge(world, BANK_A, 10, "own")
            charge(world, BANK_B, steps, "theirs")
            reports = [_planned(world, BANK_A, BANK_A, more) for more in (5, 50, 100)]
            exact.append([_planned(world, BANK_A, HOSPITAL, more) for more in (5, 50, 100)])
            theirs.append(VARYING.sub("", json.dumps([*reports, *_refused(world, BANK_A)])))
            for shown, true in zip(reports, exact[-1], strict=True):
                # The decision is the same, and what is said to fit does.
                assert shown["decision"]["outcome"] == true["decision"]["outcome"]
                assert shown["steps_most"]["steps"] <= true["steps_most"]["steps"]
                assert shown["runs"]["more"] <= true["runs"]["more"]
                assert float(shown["noise_multiplier_least"]) >= float(true["noise_multiplier_least"])
                assert [one["holder"] for one in shown["lasts"]] == ["lineage:2"]
    assert theirs[0] == theirs[1]
    assert len({str(one) for one in exact}) == len(TIGHT)
    assert {one["decision"]["outcome"] for one in exact[0]} == {"pending", "budget_exhausted"}


def test_no_policy_and_no_time_of_its_own_shows_a_consumer_more(tmp_path: Path) -> None:
    """Under policies that it makes up, one that shows shared accounts exactly too, a step more of another is hidden."""
    theirs = []
    for place, steps in enumerate(TIGHT):
        with market(tmp_path / str(place), epsilon="0.8") as world:
            charge(world, BANK_A, 10, "own")
            charge(world, BANK_B, steps, "theirs")
            made_up: list[c.Object] = [
                {**world.policy(), "shared_accounts": "exact"},
                {**world.policy(), "lineage": {"epsilon_max": "0.5"}},
            ]
            reports = []
            for one in made_up:
                most = _planned_under(world, one, 5)["steps_most"]["steps"]
                reports += [_planned_under(world, one, more) for more in (most, most + 1)]
            theirs.append(VARYING.sub("", json.dumps(reports)))
            assert [_is_certain(one["decision"]) for one in reports] == [True, False] * 2
    assert theirs[0] == theirs[1]


def _is_certain(decision: dict[str, Any]) -> bool:
    """Whether a plan is told to fit without a doubt."""
    return decision["outcome"] == "pending" and not decision["detail"]


def test_a_run_that_may_fit_is_told_as_uncertain(tmp_path: Path) -> None:
    """Where the rounded sum would refuse what the exact one admits, and of a step more, which it refuses."""
    with market(tmp_path, epsilon="0.8") as world:
        charge(world, BANK_B, 70, "theirs")
        most = _planned(world, BANK_A, HOSPITAL, 5)["steps_most"]["steps"]
        for steps in (most, most + 1):
            report = _planned(world, BANK_A, BANK_A, steps)
            assert report["decision"]["outcome"] == "pending"
            assert not _is_certain(report["decision"])
            assert report["steps_most"]["steps"] < most
            assert (report["runs"]["more"], report["advice"]) == (0, None)
            (check,) = (one for one in report["decision"]["checks"] if one["source"] == "global")
            assert check["text"].endswith(
                "the part of others is rounded up; by less than others are rounded up it may have room"
            )
        refused = _planned(world, BANK_A, BANK_A, 2 * most)
        assert (refused["decision"]["outcome"], refused["advice"] is None) == ("budget_exhausted", False)


class Searcher:
    """A bank that asks as often as it likes, and keeps every answer."""

    def __init__(self, world: ServedWorld, path: str) -> None:
        """Ask at a path that records nothing."""
        self._world, self._path = world, path
        self.heard: list[str] = []

    def answer(self, steps: int) -> str:
        """What a run of so many steps is told: that it fits, that it may, or that it does not."""
        world, name = self._world, "searched"
        body: c.Object = {
            **world.charge_body(world.contracts[BANK_A], CleanRoom(name)),
            "plan": plan(noise="4", steps=steps),
        }
        signer = world.signers[BANK_A]
        raw = world.command_bytes(signer, BANK_A, "charge", body, name)
        sent = raw
        if self._path.startswith(BATCH):
            sent = c.dump({"charges": [{"command": c.parse(raw, len(raw)), "signature": self._signature(raw)}]})
        signature = None if sent != raw else self._signature(raw)
        told = world.post(self._path, sent, signature, **world.everybody.shown(BANK_A)).json()
        found = told["outcomes"][0] if "outcomes" in told else told
        self.heard.append(VARYING.sub("", json.dumps(found)))
        if "outcome" not in found:
            return "not"
        return "may" if found.get("warnings") else "fits"

    def _signature(self, raw: bytes) -> str:
        return self._world.sign(self._world.signers[BANK_A], self._path, raw, "searched")

    def search(self) -> tuple[int, int]:
        """The most steps that fit, and the most that may, by bisection."""
        return tuple(  # type: ignore[return-value]  # one for each
            bisect_left(range(1, STEPS_MOST), x=True, key=lambda steps: self.answer(steps) in no)
            for no in ({"may", "not"}, {"not"})
        )


def _searched(world: ServedWorld) -> tuple[tuple[int, int], list[str]]:
    """What a search finds by quotes, by dry runs and by batches of them; and every answer that it got."""
    found, heard = [], []
    for path in (QUOTES, f"{PATHS['charge']}?dry_run=true", f"{BATCH}?dry_run=true"):
        searcher = Searcher(world, path)
        found.append(searcher.search())
        heard += searcher.heard
    assert found[0] == found[1] == found[2]
    return found[0], heard


def test_no_search_by_quotes_tells_a_step_more_from_one_less(tmp_path: Path) -> None:
    """An adversary bisects; what it is told of is the same, and true: what fits is admitted, what does not is not."""
    heard = []
    for place, steps in enumerate(TIGHT):
        with market(tmp_path / str(place), epsilon="0.8") as world:
            charge(world, BANK_A, 10, "own")
            charge(world, BANK_B, steps, "theirs")
            (fits, may), answers = _searched(world)
            heard.append(((fits, may), answers))
            exact = _planned(world, BANK_A, HOSPITAL, 5)["steps_most"]["steps"]
            assert fits < exact < may
            charge(world, BANK_A, fits, "fitting")
    assert heard[0] == heard[1]


def test_a_quote_is_certain_where_no_one_else_has_charged(tmp_path: Path) -> None:
    """Of an account that is one's own alone, and where the policy shows it exactly, nothing is uncertain."""
    with market(tmp_path / "alone", epsilon="0.8") as world:
        charge(world, BANK_A, 10, "own")
        fits, may = Searcher(world, QUOTES).search()
        assert fits == may == _planned(world, BANK_A, HOSPITAL, 5)["steps_most"]["steps"]
    with market(tmp_path / "exact", epsilon="0.8", shared_accounts="exact") as world:
        charge(world, BANK_B, 73, "theirs")
        fits, may = Searcher(world, QUOTES).search()
        assert fits == may == _planned(world, BANK_A, HOSPITAL, 5)["steps_most"]["steps"]


def _own_account(world: ServedWorld, did: str) -> dict[str, Any]:
    """The account of Bank A's lineage as an organisation is shown it."""
    answer = world.http.get(f"/v1/accounts?partition={PARTITION}", headers=world.everybody.shown(did)).json()
    (found,) = (one for one in answer["items"] if BANK_A in one["organisations"] and BANK_B not in one["organisations"])
    return dict(found)


def _used_together(world: ServedWorld, did: str, index: int | None) -> list[str]:
    """What a coalition has used of each partition, as an organisation is shown it."""
    answer = world.http.get(f"/v1/coalitions/{index}", headers=world.everybody.shown(did)).raise_for_status()
    return [one["used"] for one in answer.json()["accounts"]]


def _left(world: ServedWorld) -> dict[str, float]:
    """What the refusal of a far too long run says is left to Bank A, by holder."""
    body: c.Object = {
        **world.charge_body(world.contracts[BANK_A], CleanRoom("long")),
        "plan": plan(noise="4", steps=900),
    }
    raw = world.command_bytes(world.signers[BANK_A], BANK_A, "charge", body, "long")
    told = world.post(QUOTES, raw, world.sign(world.signers[BANK_A], QUOTES, raw, "long")).json()
    return {one["holder"]: float(one["share"]) for one in told["remaining"]}


def test_a_coalition_s_member_reads_nothing_of_the_others_in_its_own_account(tmp_path: Path) -> None:
    """Its cap binds both: the share, the runs, and what a refusal leaves count the others' part rounded up."""
    theirs, exact = [], []
    for place, steps in enumerate(STEPS[::2]):
        with market(tmp_path / str(place), epsilon="1") as world:
            together: c.Object = {"epsilon": "0.8", "members": [BANK_A, BANK_B]}
            index = world.service.submit(world.signers[SRO], SRO, "coalition", together, "together").index
            charge(world, BANK_A, 10, "own")
            charge(world, BANK_B, steps, "theirs")
            theirs.append((_own_account(world, BANK_A), _left(world), _used_together(world, BANK_A, index)))
            exact.append(_own_account(world, HOSPITAL))
            assert _used_together(world, HOSPITAL, index) == [exact[-1]["share"]]
    assert theirs[0] == theirs[1]
    assert exact[0]["share"] != exact[1]["share"]
    shown, left, used = theirs[0]
    assert used == [shown["share"]]
    assert shown["binding"] == "the cap of a coalition, ε 0.8"
    assert left[shown["holder"]] == pytest.approx(1 - _share(shown), abs=1e-3)
    for true in exact:
        assert _share(shown) >= _share(true)
        assert shown["runs_like_the_last"] >= true["runs_like_the_last"], "the last run that it may see is its own"


def _share(account: dict[str, Any]) -> float:
    return float(account["share"].removesuffix(" %")) / 100
