"""Changing things with care: dry runs, batches, and next versions that name what they replace."""

from __future__ import annotations

from typing import Any

import pytest

from client.http.endpoints import BATCH, BATCH_MAX
from client.http.problems import Refused
from ledger.commands.registry import PATHS
from ledger.wire import canonical_json as c
from policy.checks.field_readers import format_time
from tests.factories.people import BANK_A, DAY_MS, HOSPITAL, SRO, CleanRoom
from tests.factories.service import NOW, ServedWorld, contract_document


def test_a_dry_run_is_decided_and_not_recorded(world: ServedWorld) -> None:
    """Permitted or refused; and its signature is good for a dry run alone."""
    body = world.charge_body(world.contract, CleanRoom())
    plan: Any = body["plan"]
    size, path = world.size, f"{PATHS['charge']}?dry_run=true"
    for requested, status in ((body, 200), ({**body, "plan": {**plan, "steps": 400}}, 403)):
        raw = world.command_bytes(world.bank, BANK_A, "charge", requested, "run-1")
        signature = world.sign(world.bank, path, raw, "run-1")
        reported = world.post(path, raw, signature)
        assert (reported.status_code, reported.json()["index"]) == (status, None)
        assert world.post(PATHS["charge"], raw, signature).status_code == 401
    assert world.size == size


def test_a_refusal_tells_what_is_left(world: ServedWorld, room: CleanRoom) -> None:
    """The share of capacity on the global account and on the caller's own lineage's, rounded down."""
    del room
    body = world.charge_body(world.contract, CleanRoom())
    plan: Any = body["plan"]
    raw = world.command_bytes(world.bank, BANK_A, "charge", {**body, "plan": {**plan, "steps": 400}}, "run-2")
    reported = world.post(PATHS["charge"], raw, world.sign(world.bank, PATHS["charge"], raw, "run-2")).json()
    assert [one["holder"].partition(":")[0] for one in reported["remaining"]] == ["global", "lineage"]
    assert all(0 < float(one["share"]) < 1 for one in reported["remaining"])


def batch(world: ServedWorld, *requested: tuple[str, c.Object, str], query: str = "") -> Any:  # noqa: ANN401 - an answer
    """The answer to a batch of charges: of each the id, the body, and the path that its signature names."""
    items: list[c.Json] = []
    for name, body, path in requested:
        raw = world.command_bytes(world.bank, BANK_A, "charge", body, name)
        items.append({"command": c.parse(raw, len(raw)), "signature": world.sign(world.bank, path, raw, name)})
    headers = {**world.everybody.shown(BANK_A), "content-type": "application/json"}
    return world.http.post(f"{BATCH}{query}", content=c.dump({"charges": items}), headers=headers)


def test_a_batch_is_decided_in_order_each_by_itself(world: ServedWorld) -> None:
    """One is charged, one refused on record, one signed for another path not even asked: and in one commit."""
    good, bad = (world.charge_body(world.contract, CleanRoom()) for _ in range(2))
    plan: Any = bad["plan"]
    bad = {**bad, "plan": {**plan, "steps": 400}}
    other = world.charge_body(world.contract, CleanRoom())
    reported = batch(world, ("run-1", good, BATCH), ("run-2", bad, BATCH), ("run-3", other, PATHS["charge"])).json()
    first, second, third = reported["outcomes"]
    assert (first["status"], first["outcome"], first["id"]) == (201, "pending", "run-1")
    assert (second["status"], second["problem"]["code"]) == (403, "policy_denied")
    assert second["problem"]["index"] == first["index"] + 1 == world.size - 1
    assert (third["status"], third["problem"]["code"]) == (401, "signature_invalid")
    again = batch(world, ("run-1", good, BATCH)).json()["outcomes"][0]
    assert (again["status"], again["repeated"], again["index"]) == (200, True, first["index"])


def test_a_batch_tells_what_is_left(world: ServedWorld) -> None:
    """Beside each refusal for want of room, what the very charge alone is told; and nothing of what is not there."""
    body = world.charge_body(world.contract, CleanRoom())
    plan: Any = body["plan"]
    large: c.Object = {**body, "plan": {**plan, "steps": 400}}
    raw = world.command_bytes(world.bank, BANK_A, "charge", large, "run-1")
    path = f"{PATHS['charge']}?dry_run=true"
    alone = world.post(path, raw, world.sign(world.bank, path, raw, "run-1")).json()
    hidden: c.Object = {**large, "partitions": [f"{HOSPITAL}/digits/2099-q1"]}
    first, second = batch(world, ("run-1", large, BATCH), ("run-2", hidden, BATCH)).json()["outcomes"]
    assert len(alone["remaining"]) == 2
    assert first["problem"]["remaining"] == alone["remaining"]
    assert "remaining" not in second["problem"]


def test_a_dry_batch_records_nothing(world: ServedWorld) -> None:
    """Each charge is told what it would get alone; a signature for one is none for the other."""
    size, query = world.size, "?dry_run=true"
    dry, body = f"{BATCH}{query}", world.charge_body(world.contract, CleanRoom())
    plan: Any = body["plan"]
    other = world.charge_body(world.contract, CleanRoom())
    requested = (("run-1", body), ("run-2", {**other, "plan": {**plan, "steps": 400}}))
    reported = batch(world, *((*one, dry) for one in requested), query=query).json()["outcomes"]
    assert [one["status"] for one in reported] == [200, 403]
    assert (reported[0]["outcome"], reported[0]["index"], reported[1]["problem"]["index"]) == ("pending", None, None)
    assert reported[1]["problem"]["remaining"]
    for path, sent in ((BATCH, query), (dry, "")):
        (wrong,) = batch(world, ("run-1", body, path), query=sent).json()["outcomes"]
        assert (wrong["status"], wrong["problem"]["code"]) == (401, "signature_invalid")
    assert world.size == size


def test_a_batch_has_bounds(world: ServedWorld) -> None:
    """None, too many, or one that is no charge: the whole is refused, and nothing is recorded."""
    size, headers = world.size, {**world.everybody.shown(BANK_A), "content-type": "application/json"}
    command: c.Object = {"actor": BANK_A, "body": {"charge": "run-1"}, "id": "a", "key_id": world.bank.key_id}
    one: c.Object = {"command": {**command, "kind": "void", "v": 1}, "signature": "e30..e30"}
    batches: list[list[c.Object]] = [[], [one] * (BATCH_MAX + 1), [one], [{"command": {}}]]
    for items in batches:
        reported = world.http.post(BATCH, content=c.dump({"charges": [*items]}), headers=headers)
        assert (reported.status_code, reported.json()["code"]) == (422, "malformed")
    assert world.size == size


def test_a_next_version_names_what_it_replaces(world: ServedWorld) -> None:
    """Without a tag 428, with an old one 412, and with the one that stands it is entered."""
    head = "/v1/contract-heads/digits-bank-a"
    tag = world.http.get(head).headers["etag"]
    ends = format_time(NOW + 80 * DAY_MS)
    data = c.dump({**contract_document(), "ends": ends, "version": 2})
    signed = [world.service.put_document(signer, data) for signer in (world.bank, world.hospital)]
    assert {one.replaces for one in signed} == {tag}
    body: c.Object = {"document": signed[0].document, "signatures": [one.signature for one in signed]}
    for replaces, status, code in ((None, 428, "version_missing"), ('"other"', 412, "stale")):
        with pytest.raises(Refused) as caught:
            world.service.submit(world.bank, BANK_A, "contract", body, "contract-2", replaces=replaces)
        assert (caught.value.status, caught.value.code) == (status, code)
    entered = world.service.submit(world.bank, BANK_A, "contract", body, "contract-2", replaces=tag)
    assert entered.outcome == "permitted"
    assert world.http.get(head).headers["etag"] != tag
    # The same command once more is the same answer, whatever stands now.
    assert world.service.submit(world.bank, BANK_A, "contract", body, "contract-2").repeated


def test_a_first_version_replaces_nothing(world: ServedWorld) -> None:
    """A tag is one of nothing that stands: 412, and nothing is entered."""
    data, size = c.dump({**contract_document(), "id": "digits-again"}), world.size
    signed = [world.service.put_document(signer, data) for signer in (world.bank, world.hospital)]
    assert {one.replaces for one in signed} == {None}
    body: c.Object = {"document": signed[0].document, "signatures": [one.signature for one in signed]}
    with pytest.raises(Refused, match="stale"):
        world.service.submit(world.bank, BANK_A, "contract", body, replaces='"other"')
    assert world.size == size


def test_what_has_not_changed_is_not_sent_again(world: ServedWorld) -> None:
    """304 without a body for the tag that the caller has; the whole for another."""
    path = "/v1/policies/health"
    shown = world.everybody.shown(SRO)
    tag = world.http.get(path, headers=shown).headers["etag"]
    same = world.http.get(path, headers={**shown, "if-none-match": f'"x", W/{tag}'})
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    assert world.http.get(path, headers={**shown, "if-none-match": '"x"'}).status_code == 200
