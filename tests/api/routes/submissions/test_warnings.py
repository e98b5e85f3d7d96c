"""Warnings beside answers: caps under which no run could be admitted are named as they are entered, and come true."""

from __future__ import annotations

from typing import Any

import pytest

from client.http.endpoints import BATCH
from client.http.problems import Refused
from ledger.commands.registry import PATHS
from ledger.wire import canonical_json as c
from tests.api.routes.submissions.test_dry_runs_and_batches import batch
from tests.factories.documents import PARTITION
from tests.factories.people import BANK_A, HOSPITAL, SRO, CleanRoom
from tests.factories.service import ServedWorld, contract_document

DEAD: dict[str, Any] = {**contract_document(), "lineage": {"epsilon_max": "0.001"}, "version": 2}


def _contract(world: ServedWorld, document: dict[str, Any], *, query: str = "", name: str = "contract-2") -> Any:  # noqa: ANN401 - JSON
    """The whole answer to a contract of both parties, as it is sent."""
    data, path = c.dump(document), f"{PATHS['contract']}{query}"
    stored = [world.service.put_document(signer, data) for signer in (world.bank, world.hospital)]
    body: c.Object = {"document": stored[0].document, "signatures": [one.signature for one in stored]}
    raw = world.command_bytes(world.bank, BANK_A, "contract", body, name)
    replaces = {} if stored[0].replaces is None else {"if-match": stored[0].replaces}
    response = world.post(path, raw, world.sign(world.bank, path, raw, name), **replaces)
    assert response.status_code in {200, 201}, response.text
    return response.json()


def test_a_contract_under_which_nothing_can_run_is_entered_with_a_warning(world: ServedWorld) -> None:
    """It names the cap and the partition, of a dry run and of a retry too; and no charge is admitted under it."""
    document = {**DEAD, "starts": contract_document(world.begun)["starts"]}
    dry = _contract(world, document, query="?dry_run=true")
    first, again = (_contract(world, document) for _ in range(2))
    (warning,) = first["warnings"]
    assert dry["warnings"] == again["warnings"] == [warning]
    assert (dry["index"], first["repeated"], again["repeated"]) == (None, False, True)
    assert "no run can ever be admitted" in warning
    assert all(word in warning for word in ("digits-bank-a", "lineage", "ε 0.001", PARTITION))
    body = world.charge_body(c.digest(c.dump(document)), CleanRoom())
    with pytest.raises(Refused) as caught:
        world.service.submit(world.bank, BANK_A, "charge", body, "run-1")
    assert "cap_closed" in [reason.code for reason in caught.value.reasons]


def test_a_contract_that_lets_runs_in_has_no_warnings(world: ServedWorld) -> None:
    """The field is absent, as it is where nothing is said of caps; and a run is charged."""
    document = {**contract_document(world.begun), "lineage": {"epsilon_max": "5"}, "version": 2}
    assert "warnings" not in _contract(world, document)
    charged = world.service.submit(
        world.bank, BANK_A, "charge", world.charge_body(c.digest(c.dump(document)), CleanRoom()), "run-1"
    )
    assert (charged.outcome, charged.warnings) == ("pending", ())


def test_a_coalition_is_warned_of_on_each_open_partition(world: ServedWorld) -> None:
    """One that is retired has no runs to lose."""
    names = [world.open_partition(name) for name in ("2027-q1", "2027-q2")]
    world.service.submit(world.hospital, HOSPITAL, "retirement", {"partition": names[0]}, "retirement")
    body: c.Object = {"epsilon": "0.001", "members": [BANK_A, HOSPITAL]}
    reported = world.service.submit(world.sro, SRO, "coalition", body, "coalition")
    assert [one.split(" on ")[1].split(": ")[0] for one in reported.warnings] == [PARTITION, names[1]]
    assert all(one.startswith("the coalition: ε 0.001 on ") for one in reported.warnings)
    wide: c.Object = {"epsilon": "5", "members": [BANK_A, HOSPITAL]}
    assert world.service.submit(world.sro, SRO, "coalition", wide, "wide").warnings == ()


def test_a_policy_has_at_most_sixteen_warnings(world: ServedWorld) -> None:
    """Of as many coalitions as it states, the first are named; the policy is in force all the same."""
    coalitions = [
        {"epsilon_max": "0.001", "members": [BANK_A, HOSPITAL], "name": f"two-{number:02}"} for number in range(20)
    ]
    _, reported = world.enter("policy", {**world.policy(), "coalitions": coalitions, "version": 2}, SRO, world.sro)
    assert reported.outcome == "permitted"
    assert [one.split(": ")[0].rpartition(" ")[2] for one in reported.warnings] == [f"two-{n:02}" for n in range(16)]


def test_what_is_refused_has_a_problem_and_no_warnings(world: ServedWorld) -> None:
    """A version that skips one is not entered, however dead its caps are."""
    with pytest.raises(Refused) as caught:
        world.enter("policy", {**world.policy(), "lineage": {"epsilon_max": "0.001"}, "version": 3}, SRO, world.sro)
    assert "version_not_next" in [reason.code for reason in caught.value.reasons]


def test_a_quote_says_that_the_run_would_be_a_first_charge(world: ServedWorld) -> None:
    """Of a partition with a declared load, until one is charged; of no other partition, and of no charge."""
    load: c.Object = {
        "kind": "poisson_gaussian", "noise_multiplier": "0.6531", "probability": "1/186", "steps": 80, "v": 1
    }  # fmt: skip
    declared = world.open_partition("2027-q1", load={"kind": "mechanism", "mechanism": load, "v": 1})
    contract = c.digest(c.dump(contract_document(world.begun)))
    both: c.Object = {"partitions": [PARTITION, declared]}
    body: c.Object = {**world.charge_body(contract, CleanRoom("1")), **both}
    later: c.Object = {**world.charge_body(contract, CleanRoom("2")), **both}

    def quoted() -> tuple[str, ...]:
        return world.service.quote(world.bank, BANK_A, later).warnings

    (warning,) = quoted()
    assert f"as the first charge of {declared}, and the first charge chooses the division of δ" in warning
    assert world.service.quote(world.bank, BANK_A, {**later, "partitions": [PARTITION]}).warnings == ()

    def tried() -> list[tuple[str, ...]]:
        dry = [(f"dry-{at}", one, f"{BATCH}?dry_run=true") for at, one in enumerate((later, body))]
        outcomes = batch(world, *dry, query="?dry_run=true").json()["outcomes"]
        return [tuple(one.get("warnings", ())) for one in outcomes]

    assert tried() == [(warning,), (warning,)]
    charged = world.service.submit(world.bank, BANK_A, "charge", body, "run-1")
    assert (charged.outcome, charged.warnings, quoted()) == ("pending", (), ())
    assert tried() == [(), ()]
