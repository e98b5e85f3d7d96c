"""A key that an earlier program released without asking for VMPL 0: replay accepts it up to a date, and not later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ledger.audit.replay import VerificationFailed, verify_book
from ledger.book.book import Outcome
from ledger.wire import canonical_json as c
from policy.attestation.token import VMPL
from policy.attestation.verification import VMPL_SINCE_MS
from policy.checks.findings import Findings
from policy.decisions.gate import gate
from tests.factories.documents import NONCE, SMALL
from tests.factories.people import BANK_A, HOUR_MS, LOG, CleanRoom
from tests.factories.stored import StoredWorld, no_step, open_world
from tests.ledger.book.governed import faults, publish, words
from tests.policy.attestation.test_azure_tokens import FLAT, policy, signed


def release(world: StoredWorld, run: str, **claims: c.Json) -> Outcome:
    """A data key asked for with a token of Azure's."""
    room, now_s = CleanRoom(run), world.clock.now // 1_000
    keys: dict[str, Any] = room.to_json()
    bound: dict[str, Any] = {
        "charge": run,
        "keys": [{"kid": name, **keys[name]} for name in ("signing", "sealing")],
        "nonce": NONCE,
        "plan": c.digest(c.dump(SMALL)),
    }
    times = {"exp": now_s + 28_800, "iat": now_s, "nbf": now_s}
    evidence = world.put(signed({**FLAT, **times, **claims, "x-ms-runtime": bound}), room.signer)
    body: c.Object = {"charge": run, "evidence": evidence, "nonce": NONCE}
    return world.send(BANK_A, "key_release", body, f"release-{run}", room.signer)


def _without_vmpl(equal: Any) -> Any:  # noqa: ANN401 - a method
    def checked(findings: Any, code: str, subject: str, *values: Any) -> None:  # noqa: ANN401
        if subject != VMPL:
            equal(findings, code, subject, *values)

    return checked


@pytest.mark.parametrize("late", [False, True])
def test_a_key_that_was_released_without_vmpl_0(tmp_path: Path, *, late: bool) -> None:
    """The book refuses it at any time; a log of before the date may hold one, and no later one."""
    with open_world(tmp_path) as world:
        world.clock.now = VMPL_SINCE_MS if late else VMPL_SINCE_MS - HOUR_MS
        publish(world, 2, attestation=policy())
        charged = world.submit(world.charge("older", run=SMALL), world.charge("today", run=SMALL))
        assert words(charged) == ["pending"] * 2
        with pytest.MonkeyPatch.context() as earlier:
            # The program of then.
            earlier.setattr(Findings, "equal", _without_vmpl(Findings.equal))
            assert release(world, "older", **{"x-ms-sevsnpvm-vmpl": 1}).code.word == "permitted"
        refused = release(world, "today", **{"x-ms-sevsnpvm-vmpl": 1})
        assert faults(refused) == {"attestation_vmpl"}
        size = world.size
        if not late:
            assert verify_book(world.url, LOG, no_step, gate=gate).entries == size
            return
        with pytest.raises(VerificationFailed, match="policy_denied follows") as found:
            verify_book(world.url, LOG, no_step, gate=gate)
        assert found.value.index == size - 2
