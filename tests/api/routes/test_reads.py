"""What can be read of a book over HTTP: the registry, decisions, lineage, the past, tiles and proofs."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from sqlalchemy import event

from client.http.problems import Refused
from client.keys.signer import Signer
from client.service.key_bodies import rotation
from ledger.verifier import Checkpoint, leaf_hash, verify_consistency
from ledger.wire import canonical_json as c
from tests.factories.documents import PARTITION
from tests.factories.people import BANK_A, HOSPITAL, SRO, CleanRoom
from tests.factories.service import ServedWorld, contract_document


def _get(world: ServedWorld, path: str, **query: str) -> Any:  # noqa: ANN401 - JSON
    response = world.http.get(path, params=query)
    assert response.status_code == 200, response.text
    return response.json()


def _as(world: ServedWorld, did: str, path: str, **headers: str) -> httpx.Response:
    return world.http.get(path, headers={**world.everybody.shown(did), **headers})


def test_the_registry_is_reported_as_it_stands(world: ServedWorld) -> None:
    """Organisations with their keys, the policy in force, the dataset, the contract and which version is its head."""
    assert [one["organisation"] for one in _get(world, "/v1/organisations")["items"]] == sorted([SRO, HOSPITAL, BANK_A])
    (key,) = _get(world, f"/v1/organisations/{BANK_A}/keys")["items"]
    assert (key["key_id"], key["key"]) == (world.bank.key_id, world.bank.jwk)
    (version,) = _get(world, "/v1/policies/health")["versions"]
    assert version == _get(world, "/v1/policies/health/in-force") == _get(world, "/v1/policies")["items"][0]
    assert _get(world, f"/v1/datasets/{HOSPITAL}/digits") == _get(world, "/v1/datasets")["items"][0]
    head = _get(world, "/v1/contract-heads/digits-bank-a")
    assert head == {"document": world.contract, "id": "digits-bank-a", "version": 1}


def test_documents_are_for_those_they_concern(world: ServedWorld) -> None:
    """A policy is everybody's, a contract its parties', and a signature theirs who may see an entry that names it."""
    policy = _get(world, "/v1/policies/health")["versions"][0]["document"]
    (entered,) = _get(world, "/v1/decisions", kind="contract")["items"]
    signature, of_contract = entered["request"]["signatures"][0], entered["id"]
    stranger = "did:web:bank-b.example"
    for did, path, status in (
        (BANK_A, policy, 200),
        (BANK_A, world.contract, 200),
        (BANK_A, signature, 404),
        (BANK_A, f"{signature}?entry={of_contract}", 200),
        (BANK_A, f"{policy}?entry={of_contract}", 404),
        (stranger, world.contract, 403),
    ):
        assert _as(world, did, f"/v1/documents/{path}").status_code == status, path
    data = _as(world, BANK_A, f"/v1/documents/{world.contract}").content
    assert c.digest(data) == world.contract
    governs, said = (
        world.service.put_document(world.sro, text).document for text in (b"kind: policy\n", b"kind: no\n")
    )
    assert [_as(world, BANK_A, f"/v1/documents/{one}").status_code for one in (governs, said)] == [200, 404]


def test_a_refusal_is_a_decision_on_record(world: ServedWorld) -> None:
    """Every check that failed is there, and the list can ask for refusals alone."""
    body = world.charge_body(world.contract, CleanRoom())
    plan: Any = body["plan"]
    with pytest.raises(Refused):
        world.service.submit(world.bank, BANK_A, "charge", {**body, "plan": {**plan, "steps": 400}}, "run-1")
    decision = _get(world, "/v1/decisions/run-1")
    assert (decision["permit"], decision["outcome"]) == (False, "policy_denied")
    assert "run_above_contract" in {check["code"] for check in decision["checks"] if not check["passed"]}
    assert _get(world, "/v1/decisions", refused="true")["items"] == [decision]


def test_the_past_is_what_stood_then(world: ServedWorld, room: CleanRoom) -> None:
    """Before the charge its account was empty and the charge was not there; now both are."""
    del room
    before = str(world.size - 1)
    assert _get(world, "/v1/accounts", partition=PARTITION, as_of=before)["items"] == []
    accounts = _get(world, "/v1/accounts", partition=PARTITION)
    assert {one["holder"] for one in accounts["items"]} >= {"global"}
    assert accounts["bounds"]["lineage_epsilon_max"] == "6"
    assert _get(world, "/v1/charges")["items"][0]["id"] == "run-1"
    assert world.http.get("/v1/charges/run-1", params={"as_of": before}).status_code == 404
    far = world.http.get("/v1/charges/run-1", params={"as_of": str(world.size + 1)})
    assert (far.status_code, far.json()["field"]) == (422, "as_of")


def test_the_newest_charge_is_found_among_its_lineage_s_own(world: ServedWorld, room: CleanRoom) -> None:
    """How many more runs like the last one fit is told against the newest charge's price."""
    del room
    (account,) = [one for one in _get(world, "/v1/accounts", partition=PARTITION)["items"] if one["holder"] == "global"]
    assert account["runs_like_the_last"] > 0
    assert not account["under_its_cap"]["over"]
    assert _get(world, "/v1/frozen-accounts", partition=PARTITION)["items"] == []


def test_lineage_is_its_own_organisation_s(world: ServedWorld) -> None:
    """An SRO reads the graph around anybody, a consumer its own, and nobody else's exists for it."""
    world.everybody.roles[SRO] = "SRO"
    own = _as(world, BANK_A, f"/v1/lineage/{BANK_A}").json()
    assert own["complete"]
    assert [node["members"] for node in own["nodes"]] == [[BANK_A]]
    assert _as(world, SRO, f"/v1/lineage/{BANK_A}").json() == own
    assert _as(world, BANK_A, f"/v1/lineage/{SRO}").status_code == 404


def test_coalitions_are_told_to_whoever_watches(world: ServedWorld, room: CleanRoom) -> None:
    """One run is over no lineage's cap; a cap with no order to hold it is none; consumers may not ask."""
    del room
    roomy = _get(world, "/v1/smallest-coalitions", partition=PARTITION)
    assert (roomy["coalitions"], roomy["complete"]) == ([], True)
    closed = world.http.get("/v1/smallest-coalitions", params={"partition": PARTITION, "epsilon": "0.01"})
    assert closed.status_code == 404
    share = _get(world, "/v1/exposures", partition=PARTITION, member=BANK_A)["share_of_budget"]
    assert 0 < float(share) < 1
    assert _as(world, BANK_A, f"/v1/smallest-coalitions?partition={PARTITION}").status_code == 403


def test_tiles_and_consistency_verify_against_the_checkpoint(world: ServedWorld) -> None:
    """The tile of leaf hashes is that of the entries, and an older root is proven to be this log's."""
    size = world.size
    hashes = world.http.get(f"/tile/0/000.p/{size}").content
    bundle = world.http.get(f"/tile/entries/000.p/{size}", headers=world.everybody.shown(SRO)).content
    entries = []
    while bundle:
        length = int.from_bytes(bundle[:2], "big")
        entries.append(bundle[2 : 2 + length])
        bundle = bundle[2 + length :]
    assert b"".join(map(leaf_hash, entries)) == hashes
    reported = _get(world, "/v1/consistency/3")
    checkpoint = Checkpoint.open(reported["checkpoint"], world.log)
    with world.book.read() as facts:
        old = facts.root_at(3)
    proof = [c.unbase64url(one, "proof") for one in reported["proof"]]
    assert checkpoint.size == reported["new"] == size
    assert verify_consistency(3, size, proof, old, checkpoint.root)
    reported = _get(world, "/v1/consistency/3", new="5")
    with world.book.read() as facts:
        new = facts.root_at(5)
    assert Checkpoint.open(reported["checkpoint"], world.log) == Checkpoint(world.log.origin, 5, new)
    assert verify_consistency(3, 5, [c.unbase64url(one, "proof") for one in reported["proof"]], old, new)
    for first, last in ((3, 2), (3, size + 1), (0, 3)):
        assert world.http.get(f"/v1/consistency/{first}", params={"new": str(last)}).status_code == 404
    assert world.http.get("/v1/consistency/3", params={"new": "05"}).status_code == 422
    assert world.http.get(f"/tile/0/000.p/{size + 1}").status_code == 404
    assert world.http.get("/tile/entries/000.p/1", headers=world.everybody.shown(BANK_A)).status_code == 403


def test_a_plan_is_answered_without_an_entry(world: ServedWorld) -> None:
    """What a run would get and how many more fit; a policy's and a merger's impact; nothing is recorded."""
    size = world.size
    run = {name: world.charge_body(world.contract, CleanRoom())[name] for name in ("contract", "partitions", "plan")}
    headers = {**world.everybody.shown(BANK_A), "content-type": "application/json"}
    reported = world.http.post("/v1/plans", content=c.dump(run), headers=headers).json()
    assert reported["decision"]["outcome"] == "pending"
    assert reported["runs"]["more"] >= 1
    body = c.dump({"organisations": [BANK_A, HOSPITAL]})
    headers = {**world.everybody.shown(SRO), "content-type": "application/json"}
    assert world.http.post("/v1/merger-impacts", content=body, headers=headers).json()["items"] == []
    assert world.size == size


def test_progress_informs_and_refunds_nothing(world: ServedWorld, room: CleanRoom) -> None:
    """The clean room's newest report is told beside the charge; it never goes back, and the log does not grow."""
    size = world.size
    shown = {**world.everybody.shown_by(room.signer), "content-type": "application/json"}

    def report(steps: int) -> httpx.Response:
        return world.http.post("/v1/charges/run-1/progress", content=c.dump({"steps": steps}), headers=shown)

    assert [report(steps).status_code for steps in (40, 40, 39, 101)] == [200, 200, 409, 422]
    charge = world.service.charge("run-1")
    assert (charge["progress"], charge["state"], world.size) == (
        {"steps": 40, "time": world.clock.now},
        "pending",
        size,
    )
    world.service.submit(room.signer, BANK_A, "post", {"charge": "run-1", "steps": 60})
    charge = world.service.charge("run-1")
    assert (charge["progress"], charge["steps_posted"]) == (None, 60)


def test_links_lead_through_a_list(quiet: ServedWorld) -> None:
    """Followed from the first page to the last, with the parameters of the first; the last has no link."""
    whole = _get(quiet, "/v1/decisions", limit="200", refused="false")["items"]
    address, items = "/v1/decisions?limit=2&refused=false", list[Any]()
    while address:
        answer = quiet.http.get(address).raise_for_status()
        items += answer.json()["items"]
        following = answer.links.get("next", {}).get("url", "")
        assert bool(following) == (answer.json()["next_cursor"] is not None)
        assert not following or following.startswith("/v1/decisions?")
        address = following
    assert len(whole) > 2
    assert items == whole


def test_the_log_leads_to_the_description_of_the_api(quiet: ServedWorld) -> None:
    """For programs and for people (RFC 8631)."""
    links = quiet.http.get("/v1/log").raise_for_status().links
    for relation in ("service-desc", "service-doc"):
        assert quiet.http.get(links[relation]["url"]).status_code == 200


def test_a_misspelt_parameter_is_refused(quiet: ServedWorld) -> None:
    """What is left out and what is misspelt are told apart."""
    for query in ("as_off=1", "limit=0", "limit=201", "limit=1&limit=2", "limit=07", "cursor=AAAA"):
        response = quiet.http.get(f"/v1/organisations?{query}")
        assert (response.status_code, response.json()["code"]) == (422, "malformed"), query


def test_a_list_asks_the_database_no_oftener_with_many_contracts(world: ServedWorld) -> None:
    """Whose partitions a bank sees is found in one statement, not in one for each partition and contract."""
    requested: list[str] = []
    engine = world.book._reads  # noqa: SLF001 - its statements are counted
    event.listen(engine, "before_cursor_execute", lambda *reported: requested.append(str(reported[2])))

    def statements(path: str) -> int:
        requested.clear()
        assert _as(world, BANK_A, path).status_code == 200
        return len(requested)

    paths = ("/v1/partitions", "/v1/datasets", "/v1/contracts")
    # The first answer on a connection sets it up.
    few = [min(statements(path), statements(path)) for path in paths]
    for number in range(4):
        world.open_partition(f"2027-q{number}")
        world.enter("contract", {**contract_document(), "id": f"more-{number}"}, BANK_A, world.bank, world.hospital)
    assert len(_as(world, BANK_A, "/v1/partitions").json()["items"]) == 5
    assert [min(statements(path), statements(path)) for path in paths] == few


def test_what_the_keys_of_an_organisation_signed_is_listed_since_a_time(world: ServedWorld) -> None:
    """By every key that it has or had, from the first entry at that time on, as far as the caller sees the log."""
    world.everybody.roles[SRO] = "SRO"
    first = len(_get(world, "/v1/decisions", signer=BANK_A, since="0")["items"])
    world.clock.now += 60_000
    since, new = str(world.clock.now), Signer.generate()
    until = world.clock.now + 3_600_000
    world.service.submit(world.bank, BANK_A, "key_rotation", rotation(BANK_A, world.bank.key_id, new, until), "next")
    world.everybody.organisations[new.key_id] = BANK_A
    room = CleanRoom()
    world.service.submit(new, BANK_A, "charge", world.charge_body(world.contract, room), "run-1")
    world.service.submit(world.hospital, HOSPITAL, "retirement", {"partition": PARTITION}, "retire")

    def listed(did: str, signer: str, **query: str) -> list[tuple[str, str]]:
        path = f"/v1/decisions?{httpx.QueryParams({'limit': '1', 'signer': signer, **query})}"
        found: list[tuple[str, str]] = []
        while path:
            answer = _as(world, did, path).raise_for_status()
            found += [(one["id"], one["key_id"]) for one in answer.json()["items"]]
            path = answer.links.get("next", {}).get("url", "")
        return found

    own = [("next", world.bank.key_id), ("run-1", new.key_id)]
    assert listed(SRO, BANK_A, since=since) == listed(BANK_A, BANK_A, since=since) == own
    # A rotation binds all, a charge is for those whom it concerns.
    assert listed(HOSPITAL, BANK_A, since=since) == own
    assert listed(SRO, HOSPITAL, since=since) == [("retire", world.hospital.key_id)]
    assert listed(BANK_A, BANK_A, since=str(world.clock.now + 1)) == []
    assert len(listed(SRO, BANK_A)) == first + len(own)
    assert listed(SRO, "did:web:nobody.example") == []
    assert world.http.get("/v1/decisions", params={"signer": "nobody"}).json()["field"] == "signer"
