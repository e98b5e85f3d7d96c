"""Clients that race for a budget with signed charges, and what must be true of the book whatever the race did."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from http import HTTPStatus
from threading import Barrier
from typing import Any, Final

import httpx

from client.http.endpoints import JSON_TYPE, SIGNATURE_HEADER
from ledger.audit.replay import verify_book
from ledger.commands.entry import Entry
from ledger.commands.registry import PATHS
from ledger.crypto.detached_jws import Call
from ledger.domain.facts import GLOBAL
from ledger.verifier import verify_receipt
from ledger.wire import canonical_json as c
from tests.api.server.processes import Served
from tests.factories.people import BANK_A, CleanRoom
from tests.factories.service import PLAN, ServedWorld
from tests.factories.stored import no_step
from tests.ledger.accounting.exact import capacity, sampled_gaussian

CLIENTS: Final = 64
_PATH: Final = PATHS["charge"]
_CLEAR: Final = Fraction(1, 10**6)
_ATTEMPTS: Final = 4


@dataclass(frozen=True, slots=True)
class Signed:
    """A charge, signed beforehand for each server: the same command wherever and however often it is sent."""

    id: str
    raw: bytes
    signatures: dict[str, str]
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class Heard:
    """One answer to one sending."""

    id: str
    server: str
    status: int
    told: dict[str, Any]

    @property
    def admitted(self) -> bool:
        """Whether the charge is pending; else it was refused for want of room."""
        return self.status in {200, 201}


def signed(world: ServedWorld, servers: Sequence[Served], names: Sequence[str], partition: str) -> list[Signed]:
    """Charges of the bank's, each with a clean room of its own."""
    headers = {**world.everybody.shown(BANK_A), "content-type": JSON_TYPE}
    now_s = world.clock() // 1000
    made = []
    for name in names:
        body: c.Object = {**world.charge_body(world.contract, CleanRoom()), "partitions": [partition]}
        raw = world.command_bytes(world.bank, BANK_A, "charge", body, name)
        signatures = {one.url: world.bank.sign(raw, Call("POST", one.url + _PATH, now_s, name)) for one in servers}
        made.append(Signed(name, raw, signatures, headers))
    return made


def runs_that_fit(terms: dict[str, Any], epsilon: Fraction) -> int:
    """How many runs of the world's plan a budget holds, by the paper's formulas at 60 digits and nothing of ours."""
    steps, noise = PLAN["steps"], Fraction(str(PLAN["noise_multiplier"]))
    sampler = PLAN["sampler"]
    assert isinstance(sampler, dict)
    assert isinstance(steps, int)
    delta, fits = Fraction(terms["delta"]), Fraction(0)
    for order, weight in zip(terms["orders"], terms["weights"], strict=True):
        run = steps * sampled_gaussian(Fraction(str(sampler["probability"])), noise, order)
        fits = max(fits, capacity(order, epsilon, delta * Fraction(weight, 1000)) / run)
    # So far from a whole number that no rounding, up or down, can change the count.
    assert min(fits % 1, 1 - fits % 1) > _CLEAR
    return int(fits)


def race(
    plans: list[list[tuple[str, Signed]]], *, elsewhere: str = "", heard: Callable[[Heard], object] = lambda _: None
) -> list[Heard]:
    """Send what each client has to send, in order, all clients at once.

    Args:
        plans: for each client, the server and the charge of each of its requests.
        elsewhere: where a client goes with the same request when its server is gone.
        heard: told of every answer, in the client's thread.
    """
    start = Barrier(len(plans))

    def client(plan: list[tuple[str, Signed]]) -> list[Heard]:
        start.wait()
        found = []
        for server, charge in plan:
            found.append(_sent(http, server, elsewhere, charge))
            heard(found[-1])
        return found

    # One pool of connections, as many as there are clients.
    with (
        httpx.Client(timeout=120, trust_env=False, limits=httpx.Limits(max_connections=None)) as http,
        ThreadPoolExecutor(len(plans)) as pool,
    ):
        return [one for found in pool.map(client, plans) for one in found]


def _sent(http: httpx.Client, server: str, elsewhere: str, charge: Signed) -> Heard:
    """What is answered, once the same request was sent again where there was no answer, as a client of ours does."""
    urls = [server, *[elsewhere or server] * (_ATTEMPTS - 1)]
    lost: httpx.TransportError | None = None
    for url in urls:
        try:
            headers = {**charge.headers, SIGNATURE_HEADER: charge.signatures[url]}
            answer = http.post(url + _PATH, content=charge.raw, headers=headers)
        except httpx.TransportError as error:
            lost = error
            continue
        # A starved process may have no answer in its time.
        if answer.status_code != HTTPStatus.SERVICE_UNAVAILABLE or answer.json()["code"] != "unanswered":
            return Heard(charge.id, url, answer.status_code, answer.json())
    message = f"{charge.id} was answered nowhere"
    raise AssertionError(message) from lost


def check_race(world: ServedWorld, url: str, ref: str, heard: list[Heard], sent: set[str]) -> int:
    """Nothing over, nothing lost, nothing twice; how many were admitted.

    Every charge has one entry, in which every answer about it agrees; what is admitted is what fits; the account is
    the sum of what is admitted; each receipt proves its entry; and the book verifies from end to end.
    """
    statuses = Counter((one.status, one.told.get("code"), one.told.get("detail", "")[:200]) for one in heard)
    assert {one.status for one in heard} <= {200, 201, 409}, statuses
    with world.book.read() as facts:
        every = [Entry.parse(facts.entry(index)) for index in range(facts.size)]
    logged = [
        (index, entry)
        for index, entry in enumerate(every)
        if entry.kind == "charge" and entry.request["partitions"] == [ref]
    ]
    entries = {entry.id: (index, entry) for index, entry in logged}
    assert entries.keys() == sent == {one.id for one in heard}
    assert len(logged) == len(entries)
    for one in heard:
        _check_answer(world, one, *entries[one.id])
    with world.book.read() as facts:
        partition, account = facts.partitions[ref], facts.accounts[ref, GLOBAL]
        charges = [one for one in facts.charges.values() if one.partitions == (ref,)]
    admitted = {one.id for one in heard if one.admitted}
    assert admitted == {one.id for one in charges}
    assert len(admitted) == runs_that_fit(json.loads(partition.terms), partition.epsilon)
    (((_, (segment,)),),) = {one.prices for one in charges}
    assert account.pending.finite == tuple(len(admitted) * segment.steps * (unit or 0) for unit in segment.price)
    assert account.posted.empty
    verify_book(url, world.log, no_step)
    return len(admitted)


def _check_answer(world: ServedWorld, one: Heard, index: int, entry: Entry) -> None:
    """What was answered is what the log says, and provable."""
    assert one.told["index"] == index
    if not one.admitted:
        assert one.told["code"] == entry.code.word == "budget_exhausted"
        return
    # The ε of its run is of the answer alone.
    told = {name: value for name, value in one.told["body"].items() if name != "run_epsilon"}
    assert (one.told["outcome"], told) == (entry.code.word, entry.body)
    assert one.told["outcome"] == "pending"
    assert verify_receipt(one.told["receipt"], entry.to_bytes(), world.log)[0] == index
