"""A book whose writer counted the part of others exactly, where the policy has it counted rounded up, is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from ledger.audit.replay import VerificationFailed, verify_book
from ledger.domain.facts import Facts
from ledger.domain.gate import Request, Verdict
from policy.decisions.gate import gate
from tests.factories.documents import PARTITION
from tests.factories.people import BANK_A, BANK_B, LOG
from tests.factories.stored import no_step, open_world
from tests.ledger.book.governed import admitted, publish

THEIRS: Final = 5
"""Of twelve runs that the budget holds: five twelfths are rounded up to nine twentieths, beside which six fit."""
FIT: Final = 6


def _exact(request: Request, facts: Facts) -> Verdict:
    """The gate of a program that does not know the policy's rule."""
    verdict = gate(request, facts)
    return replace(verdict, caps=tuple((ref, replace(cap, counts_rounded=False)) for ref, cap in verdict.caps))


def test_a_charge_that_the_rounded_part_leaves_no_room_for(tmp_path: Path) -> None:
    """By the gate that is given; without one the recorded verdict is used, and the budget holds all the same."""
    with open_world(tmp_path) as world:
        publish(world, 2, shared_accounts="rounded_decisions")
        assert admitted(world, BANK_B, THEIRS, PARTITION) == THEIRS
        assert admitted(world, BANK_A, FIT + 2, PARTITION) == FIT
        size = world.size
        assert verify_book(world.url, LOG, no_step, gate=gate).entries == size
        world.book.close()
        world.book = world.open(gate=_exact)
        assert admitted(world, BANK_A, 1, PARTITION) == 1
        assert verify_book(world.url, LOG, no_step).entries == world.size
        with pytest.raises(VerificationFailed, match="rounded up there was no room") as found:
            verify_book(world.url, LOG, no_step, gate=gate)
        assert found.value.index == size
