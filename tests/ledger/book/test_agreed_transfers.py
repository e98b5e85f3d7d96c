"""No consumer blocks another by handing it a model that it has not agreed to take, and no book hides one that did."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ledger.audit.replay import verify_book
from ledger.commands.organisation_lineage.model_transfer import AGREED_SINCE_MS
from ledger.wire import canonical_json as c
from tests.factories.people import BANK_A, BANK_B, DAY_MS, LOG, LOG_KEY
from tests.factories.stored import StoredWorld, no_step, open_world
from tests.ledger.audit.forge import broken, entries_of, forged
from tests.ledger.book.governed import words


def _fill(world: StoredWorld) -> list[str]:
    """Runs of bank A that never begin, until its cap is full."""
    names: list[str] = []
    while words(world.submit(world.charge(f"a-{len(names) + 1}"))) == ["pending"]:
        names.append(f"a-{len(names) + 1}")
    return names


def _founded(world: StoredWorld, now: int, steps: int) -> None:
    """A run of each bank, so late: bank A's was posted for so many steps, bank B's waits for its keys."""
    world.clock.now = now
    done = world.submit(world.charge("b-0", BANK_B), world.charge("a-0"), world.settle("a-0", steps))
    assert words(done) == ["pending", "pending", "posted"]


@pytest.mark.parametrize("steps", [0, 1])
@pytest.mark.parametrize("late", [False, True])
def test_a_consumer_blocks_no_competitor_for_nothing(world: StoredWorld, steps: int, *, late: bool) -> None:
    """Charges that never begin, and a transfer that only its giver reports: until a date that held the other back."""
    _founded(world, AGREED_SINCE_MS + (DAY_MS if late else -DAY_MS), steps)
    filled = _fill(world)
    assert filled
    (given,) = world.submit(world.command(BANK_A, "transfer", {"charge": "a-0", "recipient": BANK_B}, "gift"))
    refused = "signature_missing" if steps else "conflict"
    assert given.code.word == (refused if late else "permitted"), given.detail
    charged, released = words(world.submit(world.charge("b-1", BANK_B), world.release("b-0", bank=BANK_B)))
    assert (charged, released) == (("pending", "permitted") if late else ("budget_exhausted", "conflict"))
    verify_book(world.url, LOG, no_step)


def test_a_book_with_agreements_verifies_and_a_forged_one_is_found(tmp_path: Path) -> None:
    """The giver signs the command again over another agreement; rows, tree and checkpoint fit it."""
    with open_world(tmp_path) as world:
        _founded(world, AGREED_SINCE_MS + DAY_MS, 10)
        agreement = world.agreement("a-0", BANK_A, BANK_B, 1)
        body: c.Object = {"agreement": agreement, "charge": "a-0", "recipient": BANK_B}
        assert world.send(BANK_A, "transfer", body, "gift").code.word == "permitted"
        assert words(world.submit(world.charge("b-1", BANK_B))) == ["pending"]
        assert verify_book(world.url, LOG, no_step).charges == 3
        place = world.size - 2
        without: c.Object = {"charge": "a-0", "recipient": BANK_B}
        by_giver = world.agreement("a-0", BANK_A, BANK_B, 1, world.signers[BANK_A])
        lies: dict[str, c.Object] = {
            "signature_invalid": {**without, "agreement": by_giver},
            "signature_missing": without,
        }
        signed = {word: world.command(BANK_A, "transfer", lie, "gift").signature for word, lie in lies.items()}
    entries = entries_of(world.path)
    for word, lie in lies.items():
        entry: Any = replace(entries[place], body={**entries[place].body, "request": lie}, signature=signed[word])
        lied = [entry if index == place else one for index, one in enumerate(entries)]
        found = broken(forged(world.path, tmp_path / word, lied, LOG_KEY))
        assert found.index == place
        assert f"is permitted, but {word} follows" in str(found)
