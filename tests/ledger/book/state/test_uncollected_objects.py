"""What the garbage collector leaves out while books are open."""

from __future__ import annotations

import gc
import weakref

from ledger.book.batch import Batch
from ledger.book.state.uncollected_objects import UncollectedObjects
from tests.factories.documents import SMALL
from tests.factories.stored import StoredWorld


class Cycle:
    """Garbage that only a search finds."""

    def __init__(self) -> None:
        self.itself = self


def test_the_last_release_has_everything_searched_again() -> None:
    """A cycle that is alive at the first hold outlives a search until the second of two holders releases."""
    held, cycle = UncollectedObjects(), Cycle()
    seen = weakref.ref(cycle)
    held.hold()
    held.hold()
    del cycle
    gc.collect()
    assert seen() is not None
    held.release()
    gc.collect()
    assert seen() is not None, "one still holds"
    held.release()
    gc.collect()
    assert seen() is None


def test_new_objects_are_searched_less_often_while_somebody_holds() -> None:
    """What was set before is set again at the end, even where it was more."""
    before, held = gc.get_threshold(), UncollectedObjects()
    try:
        for own, least in ((700, 20_000), (50_000, 50_000)):
            gc.set_threshold(own, 11, 12)
            held.hold()
            held.hold()
            assert gc.get_threshold() == (least, 11, 12)
            held.release()
            assert gc.get_threshold() == (least, 11, 12)
            held.release()
            assert gc.get_threshold() == (own, 11, 12)
    finally:
        gc.set_threshold(*before)


def test_what_comes_after_a_hold_is_searched() -> None:
    """Only what was alive is left out; with more held, that too."""
    held = UncollectedObjects()
    held.hold()
    late = Cycle()
    seen = weakref.ref(late)
    del late
    gc.collect()
    assert seen() is None
    late = Cycle()
    seen = weakref.ref(late)
    held.hold_more()
    del late
    gc.collect()
    assert seen() is not None
    held.release()
    gc.collect()
    assert seen() is None


def test_what_a_batch_decided_is_freed_without_a_search(world: StoredWorld) -> None:
    """A batch and the outcomes that its callers hold are no cycle: the collector finds nothing in a busy book."""
    gc.disable()
    try:
        held = [world.submit(world.charge(f"run-{n}", run=SMALL), world.settle(f"run-{n}", 0)) for n in range(4)]
        # The writer may hold the newest two.
        assert sum(isinstance(one, Batch) for one in gc.get_objects()) <= 2
    finally:
        gc.enable()
    assert all(one.receipt for outcomes in held for one in outcomes)
