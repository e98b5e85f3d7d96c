"""Running the service: health, metrics, request ids, and a log that holds no secret."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys

import pytest

from api.middleware.json_log import FIELDS, JsonLines, log_to
from api.middleware.request_limits_and_log import REQUEST_ID
from client.http.problems import Refused
from ledger.commands.registry import PATHS
from ledger.wire import canonical_json as c
from tests.factories.documents import PARTITION
from tests.factories.parties_walk import ROOT
from tests.factories.people import BANK_A, HOSPITAL, CleanRoom
from tests.factories.service import PLAN, ServedWorld
from tests.ledger.store.test_postgresql import execute


def test_health_is_reported_without_a_token_and_metrics_are_not(world: ServedWorld) -> None:
    """A stopped book lives and is not ready; metrics are for operators."""
    bare = {"authorization": ""}
    operator = {"authorization": f"Bearer {world.everybody.token('ops', organisation=BANK_A, roles=['OPERATOR'])}"}
    assert world.http.get("/readyz", headers=bare).json() == {"entries": world.size, "ready": True}
    text = world.http.get("/metrics", headers=operator).text
    assert f"epsilon_log_entries {float(world.size)}" in text
    assert 'epsilon_requests_total{operation="read_ready",status="200"} 1.0' in text
    assert world.http.get("/metrics", headers=world.everybody.shown(BANK_A)).status_code == 403
    world.book.close()
    assert world.http.get("/livez", headers=bare).status_code == 200
    late = world.http.get("/readyz", headers=bare)
    assert (late.status_code, late.json()["code"], late.headers["retry-after"]) == (503, "stopped", "30")


@pytest.mark.damages
@pytest.mark.parametrize(
    "statement", ["UPDATE account SET posted = posted + 1", "UPDATE partition SET epsilon = '600'"]
)
def test_a_changed_row_is_reported_and_no_figure_is(world: ServedWorld, statement: str) -> None:
    """Not ready, by the name of the table; who asks for a figure or a price gets none; the log alone has the row."""
    url = str(world.book._reads.url)  # noqa: SLF001 - the file of the service's book
    world.service.submit(world.bank, BANK_A, "charge", world.charge_body(world.contract, CleanRoom()), "run-0")
    size = world.size
    execute(url, statement)
    table = {"account": "accounts", "partition": "partitions"}[statement.split()[1]]
    if table == "partitions":
        body = {**world.charge_body(world.contract, CleanRoom("b")), "plan": {**PLAN, "steps": 3}}
        raw = world.command_bytes(world.bank, BANK_A, "charge", body, "run-1")
        reported = world.post(PATHS["charge"], raw, world.sign(world.bank, PATHS["charge"], raw, "run-1"))
        assert (reported.status_code, reported.json()["code"]) == (503, "stopped")
        assert reported.json()["detail"] == "a row was changed by another hand: the service's log names it"
    else:
        assert world.book.compare_rows() is not None
    ready = world.http.get("/readyz", headers={"authorization": ""})
    assert (ready.status_code, ready.headers["retry-after"]) == (503, "30")
    assert ready.json()["detail"] == f"{table}: a row was changed by another hand: the service's log names it"
    for path in (f"/v1/accounts?partition={PARTITION}", "/v1/entries/0", "/v1/checkpoint"):
        shown = world.http.get(path, headers=world.everybody.shown(BANK_A))
        assert (shown.status_code, shown.json()["code"]) == (503, "stopped"), path
    assert world.book._writer._state.size == size  # noqa: SLF001 - of the entries, which nobody is shown


def test_an_answer_carries_the_request_s_id(quiet: ServedWorld) -> None:
    """The caller's own where it is a plain word, else a fresh one; on problems too."""
    assert quiet.http.get("/v1/log", headers={REQUEST_ID: "mine-1"}).headers[REQUEST_ID] == "mine-1"
    for bad in ("a b", "x" * 65, ""):
        reported = quiet.http.get("/v1/nothing", headers={REQUEST_ID: bad}).headers[REQUEST_ID]
        assert reported not in {"", bad}


def test_the_log_holds_no_secret(world: ServedWorld) -> None:
    """Tokens, signatures, nonces, documents, keys and bodies go through the service, and none of them into its log."""
    stream = io.StringIO()
    handler, root = log_to(stream, logging.DEBUG), logging.getLogger()
    try:
        room = CleanRoom()
        body = world.charge_body(world.contract, room)
        raw = world.command_bytes(world.bank, BANK_A, "charge", body, "run-1")
        signature = world.sign(world.bank, PATHS["charge"], raw, "run-1")
        token = world.everybody.shown(BANK_A)["authorization"].removeprefix("Bearer ")
        world.post(PATHS["charge"], raw, signature)
        nonce = world.service.challenge("run-1")
        evidence = world.attest(room, "run-1", nonce)
        release: c.Object = {"charge": "run-1", "evidence": evidence, "nonce": nonce}
        world.service.submit(room.signer, BANK_A, "key_release", release)
        with pytest.raises(Refused):
            world.service.challenge("run-7")
        document = c.dump({"kind": "note", "said": "confidential", "v": 1})
        world.service.put_document(world.hospital, document)
        world.http.get("/v1/charges?as_of=hunter2", headers={"authorization": "Bearer hunter2"})
    finally:
        root.removeHandler(handler)
        handler.close()
        root.setLevel(logging.WARNING)
    data_key = world.keys.data_key(HOSPITAL, "digits-key")
    assert data_key is not None
    key = data_key.reveal()
    reported = stream.getvalue()
    assert '"operation": "submit_key_release"' in reported
    secrets = (token, signature, nonce, "confidential", "hunter2", key.hex(), c.base64url(key))
    assert not [secret for secret in secrets if secret in reported]
    for line in reported.splitlines():
        assert set(json.loads(line)) <= {*FIELDS, "level", "logger", "message", "time", "fault", "frames"}


def test_what_an_exception_says_is_not_logged() -> None:
    """Its type and where it was raised are."""
    record = logging.LogRecord("api", logging.ERROR, __file__, 1, "failed", (), None)
    try:
        int("hunter2")
    except ValueError as fault:
        record.exc_info = (type(fault), fault, fault.__traceback__)
    reported = json.loads(JsonLines().format(record))
    assert reported["fault"] == "ValueError"
    assert "hunter2" not in json.dumps(reported)


_WARMED: str = """
import sys
from fractions import Fraction
from api.cli.service_process import preload_pricing
from ledger.accounting.epsilon_report import reported_epsilon
from ledger.mechanisms.plan_reader import parse_plan
preload_pricing().join()
loaded = set(sys.modules)
plan = parse_plan({plan})
reported_epsilon(plan.mechanism(plan.steps), Fraction(1, 100_000), "REPLACE_SPECIAL")
print(sorted(set(sys.modules) - loaded))
"""


def test_a_first_price_loads_nothing_more() -> None:
    """What takes seconds to load is loaded when the service starts, not when a charge waits."""
    script = _WARMED.replace("{plan}", repr(PLAN))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
