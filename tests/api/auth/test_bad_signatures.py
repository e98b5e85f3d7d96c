"""Bad signatures count against who sends them, and against nobody else."""

from __future__ import annotations

import logging
from typing import Final

import httpx
import pytest

from api.auth.authorisation import Caller
from api.auth.bad_signatures import COUNTED_S, PER_SENDER_MAX, SENDERS_MAX, BadSignatures
from api.http.problems import Problem
from client.http.endpoints import BATCH, DOCUMENTS, SIGNATURE_HEADER
from ledger.commands.registry import PATHS
from ledger.domain.outcomes import Code
from ledger.wire import canonical_json as c
from tests.factories.people import BANK_A, HOSPITAL, CleanRoom
from tests.factories.service import ServedWorld

BANK: Final = Caller(BANK_A, ("TDC",))


class Seconds:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now


def is_refused(signatures: BadSignatures, caller: Caller) -> bool:
    """Whether a caller is told that too many of its signatures were bad."""
    try:
        signatures.check(caller)
    except Problem as problem:
        return (problem.status, problem.response().headers["retry-after"]) == (429, "30")
    return False


def test_a_sender_is_refused_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    """From the limit on, until its time is over; it is logged once; a clean room counts apart from who charged it."""
    clock, reported = Seconds(), list[float]()
    signatures = BadSignatures(reported.append, clock)
    for _ in range(PER_SENDER_MAX):
        assert not is_refused(signatures, BANK)
        with pytest.raises(Problem), signatures.counted(BANK):
            raise Problem(Code.SIGNATURE_INVALID, "")
    signatures.add(BANK, 0)
    assert reported == [1] * PER_SENDER_MAX
    for others in (Caller(HOSPITAL, ("TDP",)), Caller(BANK_A, ("CCR",), "run-1")):
        assert not is_refused(signatures, others)
    clock.now = COUNTED_S - 0.1
    assert is_refused(signatures, BANK)
    signatures.add(BANK, 5)
    (record,) = caplog.records
    assert record.message == f"{PER_SENDER_MAX} signatures of {BANK_A} did not verify: it is refused for a while"
    clock.now = COUNTED_S
    assert not is_refused(signatures, BANK)
    signatures.add(BANK, PER_SENDER_MAX - 1)
    assert not is_refused(signatures, BANK)


def test_other_problems_do_not_count() -> None:
    """Nor does what verifies."""
    reported = list[float]()
    signatures = BadSignatures(reported.append, Seconds())
    for _ in range(2 * PER_SENDER_MAX):
        with pytest.raises(Problem), signatures.counted(BANK):
            raise Problem(Code.POLICY_DENIED, "")
        with signatures.counted(BANK):
            pass
    assert reported == []


def test_the_senders_that_are_counted_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """Those whose time ends first are forgotten, so more senders than there is room for never fill the memory."""
    caplog.set_level(logging.CRITICAL)
    clock = Seconds()
    signatures = BadSignatures(lambda _: None, clock)
    callers = [Caller(f"did:web:{number}.example", ("TDC",)) for number in range(SENDERS_MAX + 10)]
    for caller in callers:
        clock.now += 0.001
        signatures.add(caller, PER_SENDER_MAX)
    assert [is_refused(signatures, one) for one in callers] == [False] * 10 + [True] * SENDERS_MAX
    clock.now += COUNTED_S
    signatures.add(BANK, 1)
    assert len(signatures._counted) == 1  # noqa: SLF001 - what it holds is what is tested


def _charge(world: ServedWorld, name: str) -> tuple[bytes, str]:
    """A charge, and the bank's signature over another command of this id."""
    body = world.charge_body(world.contract, CleanRoom(name))
    raw = world.command_bytes(world.bank, BANK_A, "charge", body, name)
    return raw, world.sign(world.bank, PATHS["charge"], raw[:-1] + b" }", name)


def _document(world: ServedWorld, data: bytes, signed: bytes) -> httpx.Response:
    path = f"{DOCUMENTS}/{c.digest(data)}"
    jws = world.sign(world.bank, path, signed, c.digest(data), method="PUT")
    headers = {**world.everybody.shown(BANK_A), SIGNATURE_HEADER: jws, "content-type": "application/octet-stream"}
    return world.http.put(path, content=data, headers=headers)


def test_a_service_verifies_nothing_more_of_such_a_sender(world: ServedWorld) -> None:
    """Commands, quotes, batches and documents count together; its good ones wait too, and another's do not."""
    size = world.size
    raw, bad = _charge(world, "run-1")
    assert world.post(PATHS["charge"], raw, bad).status_code == 401
    dry = f"{PATHS['charge']}?dry_run=true"
    assert world.post(dry, raw, world.sign(world.bank, dry, raw[:-1] + b" }", "run-1")).status_code == 401
    document = _document(world, b"this", b"that")
    assert (document.status_code, document.json()["detail"]) == (401, "signature: does not verify over these bytes")
    items: list[c.Json] = []
    for place in range(PER_SENDER_MAX - 2):
        raw, _ = _charge(world, f"run-{place}")
        jws = world.sign(world.bank, BATCH, raw[:-1] + b" }", f"run-{place}")
        items.append({"command": c.parse(raw, len(raw)), "signature": jws})
    headers = {**world.everybody.shown(BANK_A), "content-type": "application/json"}
    reported = world.http.post(BATCH, content=c.dump({"charges": items}), headers=headers).json()
    assert [one["problem"]["code"] for one in reported["outcomes"]] == ["signature_invalid"] * (PER_SENDER_MAX - 2)
    good = world.sign(world.bank, PATHS["charge"], raw, f"run-{PER_SENDER_MAX - 3}")
    refused = world.post(PATHS["charge"], raw, good)
    assert (refused.status_code, refused.headers["content-type"]) == (429, "application/problem+json")
    assert (refused.headers["retry-after"], refused.json()["code"]) == ("30", "too_many")
    assert f"signatures of {BANK_A} did not verify: check its key" in refused.json()["detail"]
    assert world.http.post(BATCH, content=c.dump({"charges": items}), headers=headers).status_code == 429
    assert _document(world, b"good", b"good").status_code == 429
    assert world.size == size
    # Whoever only reads goes on, and another sender is not touched.
    assert world.http.get("/v1/log", headers=world.everybody.shown(BANK_A)).status_code == 200
    assert world.service.put_document(world.hospital, b"mine").document == c.digest(b"mine")
    operator = {"authorization": f"Bearer {world.everybody.token('ops', organisation=BANK_A, roles=['OPERATOR'])}"}
    text = world.http.get("/metrics", headers=operator).text
    assert f"epsilon_bad_signatures_total {float(PER_SENDER_MAX + 1)}" in text


def test_a_signature_for_another_request_costs_nothing_and_does_not_count(world: ServedWorld) -> None:
    """Its header refuses it before it is verified: a client with a wrong clock is told so each time."""
    raw, _ = _charge(world, "run-1")
    other = world.sign(world.bank, "/v1/mergers", raw, "run-1")
    for _ in range(PER_SENDER_MAX + 2):
        assert world.post(PATHS["charge"], raw, other).status_code == 401
    assert world.post(PATHS["charge"], raw, world.sign(world.bank, PATHS["charge"], raw, "run-1")).status_code == 201
