"""Who may do what: each operation of the OpenAPI document, asked by each role, of its own, of another's, of nothing.

``access_matrix.json`` has a status for every cell: by operation, by role, for *own*, *foreign* and *none*. A command on
what is the caller's own is right in every way and a dry run, so where the role may ask it is 200 and moves nothing, but
for what does not stand to be done (:data:`tests.api.auth.permitted.STANDING`). Where a kind names no
resource that is anybody's, *foreign* is a command in somebody else's name, and *none* names what was never stored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from api.app import create_app
from api.auth.authorisation import OPERATIONS, ROLES
from api.server.http_server import LOOPBACK, base_url, listen, serving
from client.http.endpoints import DOCUMENTS, PROPOSALS, QUOTES, SIGNATURE_HEADER
from client.keys.sealed_model import seal_deposit
from ledger.commands.entry import Entry
from ledger.commands.registry import PATHS
from ledger.wire import canonical_json as c
from policy.documents.contract import WAIVABLE
from tests.api.auth.permitted import STANDING, own
from tests.api.auth.read_addresses import address
from tests.api.two_of_each import MISSING, Person, Things, TwoOfEach
from tests.factories.documents import contract
from tests.factories.people import BANK_A, BANK_B, CLINIC, HOSPITAL, SRO, STRANGER, CleanRoom
from tests.factories.service import NOW, OPENED, PLAN, open_world
from tests.factories.statements import state_now

TABLE: Final[dict[str, dict[str, list[int]]]] = json.loads((Path(__file__).parent / "access_matrix.json").read_text())
OWNERSHIPS: Final = ("own", "foreign", "none")
COLUMNS: Final = (*ROLES, "", "no token")
_MODEL: Final = "a" * 64
_DOCUMENT: Final[c.Object] = {"document": "0" * 64, "signatures": ["0" * 64]}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoOfEach]:
    """Two of everything, which no cell of the table changes."""
    with open_world(tmp_path_factory.mktemp("pairs")) as world:
        world.contract = world.found_service()
        pairs = TwoOfEach(world)
        state_now(world.book)
        yield pairs


@pytest.fixture(scope="module")
def operations(pairs: TwoOfEach) -> dict[str, str]:
    """The path of each operation, as the document has it."""
    paths = pairs.world.http.get("/v1/openapi.json").json()["paths"]
    return {what["operationId"]: path for path, methods in paths.items() for what in methods.values()}


def _of_things(pairs: TwoOfEach, kind: str, things: Things) -> c.Object | None:
    """A command's body about these things; None where the kind is about nothing that is anybody's."""
    room = CleanRoom()
    on_charge: c.Object = {"charge": things.charge}
    sealed: c.Object = {"clean_room": room.to_json(), "evidence": "0" * 64, "model": _MODEL, "nonce": "A" * 43}
    bodies: dict[str, c.Object] = {
        "audit_report": {**on_charge, "correct": 1, "epsilon_claimed": "1", "plan": PLAN},
        "charge": pairs.charge(things, room),
        "decree": {"holder": "lineage:9999", "partition": things.partition, "reason": "an order"},
        "key_release": {**on_charge, "evidence": "0" * 64, "nonce": "A" * 43},
        "model_opening": {**on_charge, **sealed},
        "model_release": {**on_charge, "model": _MODEL},
        "post": {**on_charge, "steps": 1},
        "publication": {**on_charge, "giver": STRANGER},
        "release_notice": {**on_charge, "model": _MODEL},
        "run_generation": {**on_charge, "evidence": "0" * 64, "nonce": "A" * 43},
        "step_lease": {**on_charge, "first": 1, "generation": 1, "last": 1, "state": _MODEL},
        "retirement": {"partition": things.partition},
        "revocation": {"contract": things.contract},
        "transfer": {**on_charge, "giver": STRANGER, "recipient": BANK_B},
        "void": on_charge,
    }
    return bodies.get(kind)


def _of_nothing(kind: str) -> c.Object:
    """A command's body that names what was never stored or registered."""
    bodies: dict[str, c.Object] = {
        "acquisition": {"acquired": [CLINIC], "organisation": STRANGER},
        "coalition": {"epsilon": "1", "members": [STRANGER, CLINIC]},
        "collusion": {"effective": NOW, "organisations": [STRANGER, CLINIC]},
        "merger": {"organisation": "did:web:new.example", "parents": [STRANGER, CLINIC]},
        "organisation": {
            "key": CleanRoom().signer.jwk,
            "name": "nobody",
            "organisation": STRANGER,
            "possession": "e30..e30",
            "roles": ["TDC"],
        },
        "partition": {**OPENED, "dataset": "letters", "partition": "2027-q1"},
        "split": {"child": "did:web:child.example", "organisation": STRANGER},
    }
    return bodies.get(kind, _DOCUMENT)


def _dry(pairs: TwoOfEach, kind: str, path: str, role: str) -> httpx.Response:
    """A command that is right, as far as its caller is."""
    caller, (body, replaces) = pairs.people[role], own(pairs, kind, role)
    raw = pairs.world.command_bytes(caller.signer, caller.did, kind, body, f"{kind}-own")
    at = path if path == QUOTES else f"{path}?dry_run=true"
    tag = {} if replaces is None else {"if-match": replaces}
    signature = pairs.world.sign(caller.signer, at, raw, f"{kind}-own")
    return pairs.world.post(at, raw, signature, **tag, **caller.shown)


def _command(pairs: TwoOfEach, kind: str, path: str, role: str, ownership: str) -> httpx.Response:
    if ownership == "own":
        return _dry(pairs, kind, path, role)
    caller, things = pairs.people[role], {"foreign": pairs.foreign, "none": MISSING}[ownership]
    body = _of_things(pairs, kind, things)
    actor = caller.did
    if body is None:
        body = _of_nothing(kind)
        actor = HOSPITAL if ownership == "foreign" and caller.did != HOSPITAL else actor
        actor = CLINIC if ownership == "foreign" and caller.did == HOSPITAL else actor
    name = f"{kind}-{ownership}"
    raw = pairs.world.command_bytes(caller.signer, actor, kind, body, name)
    return pairs.world.post(path, raw, pairs.world.sign(caller.signer, path, raw, name), **caller.shown)


def _batch(pairs: TwoOfEach, path: str, caller: Person, ownership: str) -> httpx.Response:
    """One charge, signed for a batch that is a dry run."""
    things = {"own": pairs.own, "foreign": pairs.foreign, "none": MISSING}[ownership]
    name, path = f"batch-{ownership}", f"{path}?dry_run=true"
    raw = pairs.world.command_bytes(caller.signer, caller.did, "charge", pairs.charge(things, CleanRoom()), name)
    signature = pairs.world.sign(caller.signer, path, raw, name)
    sent = c.dump({"charges": [{"command": c.parse(raw, len(raw)), "signature": signature}]})
    return pairs.world.http.post(path, content=sent, headers={**caller.shown, "content-type": "application/json"})


def _status(operation: str, response: httpx.Response) -> int:
    """Of the one charge in it, where a batch is answered."""
    if operation == "charge_batch" and response.is_success:
        return int(response.json()["outcomes"][0]["status"])
    return response.status_code


def _deposit(pairs: TwoOfEach, path: str, caller: Person, things: Things) -> httpx.Response:
    """The key of a model, sealed to the store."""
    sealed = seal_deposit(bytes(32), str(pairs.world.keys.deposit), things.charge, _MODEL)
    raw = c.dump({"charge": things.charge, "model": _MODEL, "sealed": sealed})
    return pairs.world.post(path, raw, pairs.world.sign(caller.signer, path, raw, _MODEL), **caller.shown)


def _document(pairs: TwoOfEach, caller: Person, ownership: str, to: str = DOCUMENTS) -> httpx.Response:
    """Signed by the caller, by somebody else on record, or by nobody known."""
    data = c.dump({"kind": "note", "said": ownership, "v": 1} if to == DOCUMENTS else _proposal(pairs))
    path = f"{to}/{c.digest(data)}"
    signer = {"own": caller.signer, "foreign": pairs.clinic, "none": CleanRoom().signer}[ownership]
    signature = pairs.world.sign(signer, path, data, c.digest(data), "PUT")
    return pairs.world.http.put(path, content=data, headers={SIGNATURE_HEADER: signature, **caller.shown})


def _proposal(pairs: TwoOfEach) -> c.Object:
    """A contract that the regulator signs too, for a waiver of its."""
    agreed = contract(BANK_A, starts=pairs.world.begun)
    waiver = {"ends": agreed["ends"], "issuer": SRO, "pipeline": "0" * 64, "reason": "none", "waives": WAIVABLE[0]}
    return {**agreed, "id": "proposed", "waivers": [waiver]}


def _ask(  # noqa: PLR0911 - one return for each way to ask
    pairs: TwoOfEach, operation: str, path: str, role: str, ownership: str
) -> httpx.Response:
    """One cell."""
    caller = pairs.people[role]
    things = {"own": pairs.own, "foreign": pairs.foreign, "none": MISSING}[ownership]
    if operation.startswith("submit_"):
        return _command(pairs, operation.removeprefix("submit_"), path, role, ownership)
    if operation == "quote_charge":
        return _command(pairs, "charge", path, role, ownership)
    if operation in {"put_document", "propose_contract"}:
        return _document(pairs, caller, ownership, DOCUMENTS if operation == "put_document" else PROPOSALS)
    if operation == "charge_batch":
        return _batch(pairs, path, caller, ownership)
    if operation == "issue_challenge":
        return pairs.world.http.post(path, json={"charge": things.charge}, headers=caller.shown)
    if operation == "deposit_model_key":
        return _deposit(pairs, path, caller, things)
    url, query = address(pairs, operation, path, ownership)
    if operation in QUESTIONS:
        body = QUESTIONS[operation](pairs, things)
        return pairs.world.http.post(url, content=body, headers={**caller.shown, "content-type": "application/json"})
    with pairs.world.http.stream("GET", url, params=query, headers=caller.shown) as response:
        if operation != "stream_events":
            response.read()
        return response


QUESTIONS: Final[dict[str, Callable[[TwoOfEach, Things], bytes]]] = {
    "ask_cap_report": lambda _, __: b"{}",
    "ask_handover_impact": lambda _, things: c.dump({"charge": things.charge}),
    "ask_merger_impact": lambda _, things: c.dump({"organisations": [STRANGER if things is MISSING else BANK_A]}),
    "ask_policy_impact": lambda _, __: b"{}",
    "plan_run": lambda pairs, things: c.dump(pairs.charge(things, CleanRoom())),
    "report_progress": lambda _, __: c.dump({"steps": 0}),
    "search_watermarks": lambda _, __: b"{}",
}
"""The question of each: of a policy, and of weights, something that is none."""


def test_every_cell_has_its_status(pairs: TwoOfEach, operations: dict[str, str]) -> None:
    """No operation, role or ownership without one, none that the document lacks, and each is what is answered."""
    size = pairs.world.size
    found = {
        operation: {
            role: [_status(operation, _ask(pairs, operation, path, role, ownership)) for ownership in OWNERSHIPS]
            for role in COLUMNS
        }
        for operation, path in operations.items()
    }
    assert found == TABLE
    assert pairs.world.size == size


def test_the_table_and_the_roles_agree(operations: dict[str, str]) -> None:
    """A role that an operation is not for gets 403 in every cell, nobody's token 401; whoever may ask gets on."""
    for operation, rows in TABLE.items():
        if operation not in OPERATIONS:
            assert {status for row in rows.values() for status in row} <= {200, 404}
            continue
        assert rows["no token"] == [401, 401, 401]
        for role in (*ROLES, ""):
            if (role, operation) in STANDING:
                assert (role in OPERATIONS[operation], rows[role][0]) == (True, STANDING[role, operation])
                continue
            assert (rows[role][0] == 403) == (role not in OPERATIONS[operation]), (operation, role)
            if operation.startswith("submit_") and role in OPERATIONS[operation]:
                assert rows[role][0] == 200, (operation, role)
    assert set(OPERATIONS) <= set(operations)


def test_who_has_two_roles_may_what_either_may(pairs: TwoOfEach, operations: dict[str, str]) -> None:
    """Asked about nothing, each operation of one or the other gets as far as with that role alone; others are 403."""
    for operation, path in operations.items():
        if operation not in OPERATIONS:
            continue
        held = [role for role in ("TDP", "TDC") if role in OPERATIONS[operation]]
        got = _status(operation, _ask(pairs, operation, path, "TDP and TDC", "none"))
        assert got == (TABLE[operation][held[0]][2] if held else 403), operation


def test_a_route_without_an_entry_is_nobody_s(pairs: TwoOfEach) -> None:
    """Deny by default: whoever adds a route and forgets the table has added nothing."""
    world = pairs.world
    door = listen(LOOPBACK, 0)
    app = create_app(
        world.book,
        world.keys,
        url=base_url(door),
        log=world.log,
        clock=world.clock,
        issuers=[world.everybody.issuer()],
    )

    @app.get("/v1/secrets", operation_id="read_secrets")
    def read_secrets() -> dict[str, str]:
        return {"secret": "told"}

    @app.get("/v1/unnamed")
    def unnamed() -> dict[str, str]:
        return {"secret": "told"}

    with serving(app, door) as url:
        for path in ("/v1/secrets", "/v1/unnamed"):
            got = {
                role: httpx.get(f"{url}{path}", headers=person.shown, trust_env=False)
                for role, person in pairs.people.items()
            }
            assert {role: one.status_code for role, one in got.items()} == {
                **dict.fromkeys(got, 403),
                "no token": 401,
            }
            assert not any("told" in one.text for one in got.values())


_READS: Final = (
    "/v1/charges/{charge}",
    "/v1/receipts/{charge}",
    "/v1/contracts/{contract}",
    "/v1/partitions/{partition}",
)


def _told(response: httpx.Response, things: Things) -> dict[str, Any]:
    """A problem with the name that was asked for taken out, and the headers beside it."""
    text = response.text
    for name in (things.contract, things.partition, things.charge):
        text = text.replace(name, "THIS")
    headers = {
        name: value
        for name, value in response.headers.items()
        if name not in {"date", "content-length", "ratelimit", "x-request-id"}
    }
    return {"body": json.loads(text), "status": response.status_code, "headers": headers}


@pytest.mark.parametrize("role", ["TDP", "TDC", "CCR"])
def test_what_is_another_s_reads_as_what_is_not(pairs: TwoOfEach, role: str) -> None:
    """Body, status and headers: nothing tells a hidden thing from a missing one."""
    person = pairs.people[role]
    for path in (*_READS, "/v1/accounts?partition={partition}"):
        if role == "CCR" and "accounts" in path:
            continue
        hidden, missing = (
            _told(pairs.world.http.get(path.format(**_fields(things)), headers=person.shown), things)
            for things in (pairs.foreign, MISSING)
        )
        assert hidden == missing
        assert hidden["status"] == 404


def _fields(things: Things) -> dict[str, str]:
    return {"charge": things.charge, "contract": things.contract, "partition": things.partition}


@pytest.mark.parametrize(
    ("role", "kind"),
    [
        ("TDC", "charge"),
        ("TDC", "void"),
        ("TDC", "model_opening"),
        ("TDC", "transfer"),
        ("TDP", "retirement"),
        ("TDP", "revocation"),
        ("CCR", "key_release"),
        ("CCR", "run_generation"),
        ("CCR", "step_lease"),
        ("CCR", "audit_report"),
        ("CCR", "post"),
        ("CCR", "void"),
        ("CCR", "model_release"),
        ("CCR", "release_notice"),
    ],
)
def test_a_command_about_another_s_thing_is_told_what_one_about_nothing_is(
    pairs: TwoOfEach, role: str, kind: str
) -> None:
    """Signed well or badly; nothing is recorded."""
    world, person, size = pairs.world, pairs.people[role], pairs.world.size
    for signer, status in ((person.signer, 404), (pairs.clinic, 401)):
        told = []
        for things in (pairs.foreign, MISSING):
            body = _of_things(pairs, kind, things)
            assert body is not None
            raw = world.command_bytes(person.signer, person.did, kind, body, "asked-1")
            signature = world.sign(signer, PATHS[kind], raw, "asked-1")
            told.append(_told(world.post(PATHS[kind], raw, signature, **person.shown), things))
        assert told[0] == told[1]
        assert told[0]["status"] == status
    assert world.size == size


def test_a_coalition_s_accounts_are_told_to_whom_they_concern(pairs: TwoOfEach) -> None:
    """That it is declared, everybody may know; how it stands, its members, who watches, and each provider its own."""

    def told(role: str, things: Things) -> list[str]:
        path = f"/v1/coalitions/{things.coalition}"
        answer = pairs.world.http.get(path, headers=pairs.people[role].shown).json()
        assert len(answer["members"]) == 2
        return [one["partition"] for one in answer["accounts"]]

    own, foreign = pairs.own, pairs.foreign
    for role in ("SRO", "TSO", "AUDITOR"):
        assert (told(role, own), told(role, foreign)) == ([own.partition], [foreign.partition])
    for role in ("TDP", "TDC"):
        assert (told(role, own), told(role, foreign)) == ([own.partition], [])


def test_entries_of_coalitions_and_recommendations_are_shown_as_their_routes_show_them(pairs: TwoOfEach) -> None:
    """Whoever reads the one reads the other; so it is with the recommendation's document, whoever knows its digest."""
    facts, http = pairs.world.book.read, pairs.world.http
    with facts() as snapshot:
        every = [(index, Entry.parse(snapshot.entry(index))) for index in range(snapshot.size)]
    advice = [(index, entry.request["document"]) for index, entry in every if entry.kind == "recommendation"]
    seen = 0
    for things, provider, (index, document) in zip((pairs.own, pairs.foreign), (HOSPITAL, CLINIC), advice, strict=True):
        recommended, coalition = f"/v1/recommendations/{provider}/digits", f"/v1/coalitions/{things.coalition}"
        for person in pairs.people.values():

            def shown(path: str, headers: dict[str, str] = person.shown) -> bool:
                return http.get(path, headers=headers).status_code == 200

            assert shown(f"/v1/entries/{index}") is shown(recommended)
            assert shown(f"/v1/documents/{document}") is shown(recommended)
            assert shown(f"/v1/entries/{things.coalition}") is shown(coalition)
            seen += shown(recommended)
    assert seen == 2 * len(("SRO", "TSO", "AUDITOR")) + len(("TDP", "TDC"))


def _refs(page: dict[str, Any]) -> list[str] | None:
    return [one["partition"] for one in page["items"]] if "items" in page else None


def test_lists_hold_what_the_caller_may_see(pairs: TwoOfEach) -> None:
    """Partitions: each hospital's own, each bank's and clean room's under contract, and all for those who watch."""
    own, both = [pairs.own.partition], sorted([pairs.own.partition, pairs.foreign.partition])
    expected = {"TDP": own, "TDC": own, "CCR": None, "SRO": both, "TSO": both, "AUDITOR": both}
    people = pairs.people
    for role, listed in expected.items():
        response = pairs.world.http.get("/v1/partitions", headers=people[role].shown)
        assert _refs(response.json()) == listed
    assert {f"submit_{kind}" for kind in PATHS} <= set(OPERATIONS)
