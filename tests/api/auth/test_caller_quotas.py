"""Quotas over HTTP: what counts against whom, what a caller is told, and what goes on all the while."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import pytest

from api.auth.caller_quotas import CallerQuotas
from api.http.quota_terms import QuotaTerms
from client.http.endpoints import BATCH, BYTES_TYPE, QUOTES, WATERMARK_SEARCHES
from client.watermarks.fingerprint_file import write_fingerprint
from client.watermarks.spread_spectrum import fingerprint
from ledger.commands.registry import PATHS
from ledger.wire import canonical_json as c
from tests.factories.documents import PARTITION
from tests.factories.people import BANK_A, HOSPITAL, CleanRoom
from tests.factories.service import ServedWorld, founded_world

_ITEM: Final = re.compile(r'"([a-z]+)"((?:;[a-z]+=(?:[0-9]+|"[a-z]+"))*)')
_LOOPBACK: Final = "127.0.0.1"


class Seconds:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now


CLOCK: Final = Seconds()


@contextmanager
def bounded(folder: Path, proxies: tuple[str, ...] = (), **terms: int) -> Iterator[ServedWorld]:
    """A world with these quotas, which are full."""
    with founded_world(folder, CallerQuotas(QuotaTerms(**terms), proxies, CLOCK)) as world:
        yield world


def items(header: str) -> dict[str, dict[str, str]]:
    """The parameters of each item of a list of RFC 9651, as these headers write it."""
    found = _ITEM.findall(header)
    assert ", ".join(name and f'"{name}"{rest}' for name, rest in found) == header
    return {name: dict(one.split("=") for one in rest.split(";")[1:]) for name, rest in found}


def left(response: httpx.Response, quota: str) -> int:
    """How much an answer says is left."""
    return int(items(response.headers["ratelimit"])[quota]["r"])


def exceeded(response: httpx.Response, quota: str) -> int:
    """The seconds after which to retry; the answer is a problem that names the quota."""
    assert response.status_code == 429, response.text
    problem = response.json()
    assert problem["code"] == "quota_exceeded"
    assert not [name for name, value in problem.items() if isinstance(value, dict)]
    if quota in items(response.headers["ratelimit"]):
        assert left(response, quota) == 0
    seconds = int(response.headers["retry-after"])
    assert problem["detail"].endswith(f"retry in {seconds} s")
    return seconds


def charge(world: ServedWorld, name: str, path: str = PATHS["charge"], **plan: c.Json) -> httpx.Response:
    """A charge of the bank's, with a changed plan."""
    body = world.charge_body(world.contract, CleanRoom(name))
    planned: Any = body["plan"]
    raw = world.command_bytes(world.bank, BANK_A, "charge", {**body, "plan": {**planned, **plan}}, name)
    return world.post(path, raw, world.sign(world.bank, path, raw, name))


def test_every_answer_shows_the_caller_s_quotas(tmp_path: Path) -> None:
    """Their size and time, and what is left; to nobody in particular that of the address."""
    with bounded(tmp_path, commands_per_minute=60) as world:
        answer = charge(world, "run-1")
        policy = items(answer.headers["ratelimit-policy"])
        assert policy == {
            "commands": {"q": "60", "w": "60"},
            "questions": {"q": "600", "w": "3600"},
            "refusals": {"q": "300", "w": "3600"},
            "pricing": {"q": "600", "qu": '"seconds"', "w": "3600"},
        }
        assert items(answer.headers["ratelimit"])["commands"] == {"r": "59", "t": "1"}
        read = world.http.get("/v1/charges/run-1", headers=world.everybody.shown(BANK_A))
        assert left(read, "commands") == 60 - 1
        public = world.http.get("/v1/checkpoint")
        assert items(public.headers["ratelimit-policy"]) == {"anonymous": {"q": "6000", "w": "60"}}
        assert left(public, "anonymous") == 6_000 - 1


def test_commands_of_one_organisation_leave_others_alone(tmp_path: Path) -> None:
    """What is no read counts, whichever route takes it; nothing beyond is recorded; after the wait it goes on."""
    with bounded(tmp_path, commands_per_minute=3) as world:
        body = world.charge_body(world.contract, CleanRoom("run-0"))
        world.service.submit(world.bank, BANK_A, "charge", body, "run-0")
        assert world.service.put_document(world.bank, b"words").document == c.digest(b"words")
        # What the service does not know how to read is a request all the same.
        headers = world.everybody.shown(BANK_A)
        assert world.http.post("/v1/challenges", headers=headers).status_code == 415
        size = world.size
        assert exceeded(charge(world, "run-1"), "commands") == 20
        assert exceeded(world.http.post("/v1/challenges", headers=headers), "commands") == 20
        assert world.size == size
        assert world.http.get("/v1/charges/run-0", headers=headers).status_code == 200
        assert world.service.put_document(world.hospital, b"mine").document == c.digest(b"mine")
        room = world.everybody.shown_by(CleanRoom("run-0").signer)
        assert world.http.post("/v1/charges/run-0/progress", headers=room).status_code == 415
        CLOCK.now += 20
        assert charge(world, "run-1").status_code == 201


def test_recorded_refusals_are_bounded(tmp_path: Path) -> None:
    """The log grows by so many of one organisation; retries and dry runs are none; then even a good one waits."""
    with bounded(tmp_path, refusals_per_hour=3) as world:
        size = world.size
        assert charge(world, "run-1", steps=400).status_code == 403
        assert charge(world, "run-1", steps=400).status_code == 403
        assert left(charge(world, "run-1", QUOTES, steps=400), "refusals") == 2
        listed: list[c.Json] = []
        for name in ("run-2", "run-3", "run-4"):
            body = world.charge_body(world.contract, CleanRoom(name))
            planned: Any = body["plan"]
            body = {**body, "plan": {**planned, "steps": 400}}
            raw = world.command_bytes(world.bank, BANK_A, "charge", body, name)
            listed.append({"command": c.parse(raw, len(raw)), "signature": world.sign(world.bank, BATCH, raw, name)})
        headers = {**world.everybody.shown(BANK_A), "content-type": "application/json"}
        batch = world.http.post(BATCH, content=c.dump({"charges": listed}), headers=headers)
        assert [one["status"] for one in batch.json()["outcomes"]] == [403] * 3
        assert world.size == size + 4
        # One refusal more than the quota was on its way, and has to be waited for too.
        assert exceeded(charge(world, "run-5"), "refusals") == 2 * 1_200
        assert exceeded(world.http.post(BATCH, content=c.dump({"charges": listed}), headers=headers), "refusals")
        assert world.size == size + 4
        assert charge(world, "run-5", QUOTES).status_code == 200
        CLOCK.now += 2 * 1_200
        assert charge(world, "run-5").status_code == 201


def test_searches_for_watermarks_are_questions(tmp_path: Path) -> None:
    """So no one tries weights against all marks as often as it likes; another organisation searches meanwhile."""
    weights = write_fingerprint(fingerprint([np.eye(16, dtype=np.float32)]))
    with bounded(tmp_path, questions_per_hour=2) as world:

        def search(who: str) -> httpx.Response:
            headers = {**world.everybody.shown(who), "content-type": BYTES_TYPE}
            return world.http.post(WATERMARK_SEARCHES, content=weights, headers=headers)

        assert [search(BANK_A).status_code for _ in range(2)] == [200, 200]
        assert exceeded(search(BANK_A), "questions") == 1_800
        assert search(HOSPITAL).status_code == 200


def test_a_room_s_post_is_taken_whatever_its_organisation_has_used_up(tmp_path: Path) -> None:
    """The clean room has a quota of its own."""
    with bounded(tmp_path, refusals_per_hour=1, commands_per_minute=2) as world:
        room = CleanRoom("run-1")
        world.service.submit(world.bank, BANK_A, "charge", world.charge_body(world.contract, room), "run-1")
        assert charge(world, "run-2", steps=400).status_code == 403
        assert exceeded(charge(world, "run-3"), "commands")
        headers = {**world.everybody.shown_by(room.signer), "content-type": "application/json"}
        assert (
            world.http.post("/v1/challenges", content=c.dump({"charge": "run-1"}), headers=headers).status_code == 200
        )


def test_questions_are_bounded(tmp_path: Path) -> None:
    """Quotes, dry runs, batches of them and what-if questions count together; what is charged does not."""
    with bounded(tmp_path, questions_per_hour=3) as world:
        assert charge(world, "run-1", QUOTES).status_code == 200
        assert charge(world, "run-1", f"{PATHS['charge']}?dry_run=true").status_code == 200
        asked: c.Object = {"contract": world.contract, "partitions": [PARTITION]}
        headers = {**world.everybody.shown(BANK_A), "content-type": "application/json"}
        assert world.http.post("/v1/plans", content=c.dump(asked), headers=headers).status_code in {200, 422}
        assert exceeded(charge(world, "run-1", QUOTES), "questions") == 1_200
        assert exceeded(world.http.post("/v1/plans", content=c.dump(asked), headers=headers), "questions") == 1_200
        assert charge(world, "run-1").status_code == 201


def test_seconds_of_pricing_are_bounded(tmp_path: Path) -> None:
    """What is computed for an organisation is counted; a price costs what it took, and a debt is waited for."""
    quotas = CallerQuotas(QuotaTerms(), (), CLOCK)
    with founded_world(tmp_path, quotas) as world:
        headers = world.everybody.shown(BANK_A)
        assert left(world.http.get("/v1/charges", headers=headers), "pricing") == 600
        # The first price of a process takes seconds, the others parts of one.
        rest = left(charge(world, "run-1"), "pricing")
        back = int(items(world.http.get("/v1/charges", headers=headers).headers["ratelimit"])["pricing"]["t"])
        assert 0 < rest < 600
        assert 0 < back <= 6 * (600 - rest)
        quotas.count_pricing(BANK_A, rest + 10)
        for refused in (
            charge(world, "run-2"),
            charge(world, "run-2", QUOTES),
            world.http.get("/v1/charges/run-1/epsilon", headers=headers),
            world.http.get("/v1/accounts", params={"partition": PARTITION, "as_of": "1"}, headers=headers),
            world.http.get("/v1/decisions", params={"since": "1"}, headers=headers),
        ):
            assert 60 <= exceeded(refused, "pricing") <= 66
        for read in ("/v1/charges/run-1", f"/v1/accounts?partition={PARTITION}"):
            assert world.http.get(read, headers=headers).status_code == 200
        hospital = world.everybody.shown(HOSPITAL)
        assert world.http.get("/v1/charges/run-1/epsilon", headers=hospital).status_code == 200
        CLOCK.now += 66
        assert charge(world, "run-2").status_code == 201


def test_requests_without_a_token_count_against_their_address(tmp_path: Path) -> None:
    """Public reads and bad tokens; a valid token from there passes, and so does the check of health."""
    with bounded(tmp_path, anonymous_per_minute=3) as world:
        bad = {"authorization": "Bearer nobody"}
        assert world.http.get("/v1/checkpoint").status_code == 200
        assert world.http.get("/v1/charges", headers=bad).status_code == 401
        assert world.http.post("/v1/challenges", headers=bad).status_code == 401
        for refused in (
            world.http.get("/v1/checkpoint"),
            world.http.get("/v1/charges", headers=bad),
            world.http.get("/v1/charges", headers={"authorization": ""}),
        ):
            assert exceeded(refused, "anonymous") == 20
        assert world.http.get("/v1/charges", headers=world.everybody.shown(HOSPITAL)).status_code == 200
        assert world.http.get("/livez").status_code == world.http.get("/readyz").status_code == 200
        assert charge(world, "run-1").status_code == 201
        CLOCK.now += 20
        assert world.http.get("/v1/checkpoint").status_code == 200


def test_a_proxy_s_address_is_not_counted(tmp_path: Path) -> None:
    """It speaks for many."""
    with bounded(tmp_path, (_LOOPBACK,), anonymous_per_minute=1) as world:
        for _ in range(3):
            answer = world.http.get("/v1/checkpoint")
            assert (answer.status_code, "ratelimit" in answer.headers) == (200, False)


@pytest.mark.parametrize(("field", "said"), [("x-forwarded-for", "{}"), ("forwarded", "proto=https;for={};by=_p")])
def test_who_a_proxy_speaks_for_is_counted(tmp_path: Path, field: str, said: str) -> None:
    """By what it wrote last; what a caller wrote in front of it, or in another field, changes nothing."""
    quotas = CallerQuotas(QuotaTerms(anonymous_per_minute=2), (_LOOPBACK,), CLOCK, field)
    with founded_world(tmp_path, quotas) as world:

        def asked(*callers: str) -> int:
            headers = {field: ", ".join(map(said.format, callers))} if callers else {}
            other = {"x-forwarded-for", "forwarded"} - {field}
            return world.http.get("/v1/checkpoint", headers={**headers, other.pop(): "for=203.0.113.9"}).status_code

        assert [asked("192.0.2.1"), asked("198.51.100.7", "192.0.2.1"), asked("192.0.2.1")] == [200, 200, 429]
        assert [asked("192.0.2.1", "192.0.2.2"), asked("192.0.2.2", _LOOPBACK), asked("192.0.2.2")] == [200, 200, 429]
        # A proxy that names nobody is one caller.
        assert [asked(), asked("192.0.2.3", "unknown"), asked(_LOOPBACK)] == [200, 200, 429]
        assert asked("192.0.2.3") == 200


def test_from_who_is_no_proxy_the_field_is_not_read(tmp_path: Path) -> None:
    """Whoever could name another caller would have a quota for each name."""
    quotas = CallerQuotas(QuotaTerms(anonymous_per_minute=2), ("192.0.2.8",), CLOCK, "x-forwarded-for")
    with founded_world(tmp_path, quotas) as world:
        answers = [world.http.get("/v1/checkpoint", headers={"x-forwarded-for": f"192.0.2.{one}"}) for one in range(3)]
        assert [one.status_code for one in answers] == [200, 200, 429]


def test_each_of_several_processes_admits_its_part(tmp_path: Path) -> None:
    """All together no more than the quota, streams too."""
    with bounded(tmp_path, anonymous_per_minute=5, processes=2, streams=1) as world:
        assert [world.http.get("/v1/checkpoint").status_code for _ in range(3)] == [200, 200, 429]
        policy = items(world.http.get("/v1/charges", headers=world.everybody.shown(BANK_A)).headers["ratelimit-policy"])
        assert {name: one["q"] for name, one in policy.items()} == {
            "commands": "3000", "questions": "300", "refusals": "150", "pricing": "300",
        }  # fmt: skip


@pytest.mark.parametrize("streams", [1, 2])
def test_the_number_of_streams_is_the_profile_s(tmp_path: Path, streams: int) -> None:
    """One more is refused."""
    with bounded(tmp_path, streams=streams) as world:
        headers = world.everybody.shown(BANK_A)
        held = [world.http.send(world.http.build_request("GET", "/v1/events", headers=headers), stream=True)]
        held += [
            world.http.send(world.http.build_request("GET", "/v1/events", headers=headers), stream=True)
            for _ in range(streams)
        ]
        assert [one.status_code for one in held] == [200] * streams + [429]
        for one in held:
            one.close()
