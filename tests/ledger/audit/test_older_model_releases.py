"""Two models of one run whose post named none: the second is refused; a log of before the date may hold one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ledger.audit.replay import VerificationFailed, verify_book
from ledger.book.book import Outcome
from policy.checks.findings import Findings
from policy.decisions.gate import gate
from policy.decisions.releases import ONE_MODEL_SINCE_MS
from tests.factories.documents import PARTITION
from tests.factories.people import BANK_A, HOUR_MS, LOG, CleanRoom
from tests.factories.stored import StoredWorld, no_step, open_world
from tests.ledger.book.governed import announce, faults, leave, run

OTHER = "ef" * 32


def release_other(world: StoredWorld) -> Outcome:
    """The clean room announces a second model of its run, and asks for its release."""
    body = {"charge": "first", "model": OTHER}
    room = CleanRoom("first").signer
    world.send(BANK_A, "release_notice", {**body}, f"notice-{world.size}", room)
    return world.send(BANK_A, "model_release", {**body}, f"model-{world.size}", room)


def _without_first(check: Any) -> Any:  # noqa: ANN401 - a method
    def checked(findings: Any, code: str, *values: Any) -> None:  # noqa: ANN401
        if code != "model_not_first":
            check(findings, code, *values)

    return checked


def test_a_run_without_leases_whose_post_names_no_model_has_one_all_the_same(tmp_path: Path) -> None:
    """The first that it announced; as often as the other is announced and its release requested, it stays."""
    with open_world(tmp_path) as world:
        run(world, "first", PARTITION)
        assert announce(world, "first").code.word == "permitted"
        assert faults(release_other(world)) == {"model_not_first"}
        assert leave(world, "first").code.word == "permitted"
        assert faults(release_other(world)) == {"model_not_first"}
        assert leave(world, "first").code.word == "permitted"
        assert verify_book(world.url, LOG, no_step, gate=gate).entries == world.size


@pytest.mark.parametrize("late", [False, True])
def test_a_second_model_that_an_earlier_program_let_go(tmp_path: Path, *, late: bool) -> None:
    """Replay accepts it up to a date, and not later."""
    with open_world(tmp_path) as world:
        world.clock.now = ONE_MODEL_SINCE_MS + (HOUR_MS if late else -24 * HOUR_MS)
        run(world, "first", PARTITION)
        announce(world, "first")
        assert leave(world, "first").code.word == "permitted"
        with pytest.MonkeyPatch.context() as earlier:
            # The program of then.
            earlier.setattr(Findings, "check", _without_first(Findings.check))
            assert release_other(world).code.word == "permitted"
        size = world.size
        if not late:
            assert verify_book(world.url, LOG, no_step, gate=gate).entries == size
            return
        with pytest.raises(VerificationFailed, match="policy_denied follows") as found:
            verify_book(world.url, LOG, no_step, gate=gate)
        assert found.value.index == size - 1
