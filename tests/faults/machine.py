"""The state machine that drives a whole book beside the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from msgspec.structs import replace

from ledger.audit.replay import verify_book
from ledger.book.book import Outcome
from ledger.domain.facts import GLOBAL, holder_of
from ledger.wire.exact_numbers import NAT
from tests.factories.memory import MemoryWorld
from tests.factories.people import BANK_A, HOUR_MS, LOG
from tests.factories.state_agreement import check_agreement, check_memory
from tests.factories.stored import no_step
from tests.faults.asking import KINDS_ASKED, Asking
from tests.faults.lineage import AGREED_SINCE
from tests.faults.modelled_world import ModelledWorld, model_of, ref_of
from tests.faults.standing import Vector

NUMBER: Final = st.integers(0, 2_000)
ASKED: Final = st.lists(st.tuples(st.sampled_from(KINDS_ASKED), NUMBER, NUMBER, NUMBER), min_size=8, max_size=48)
AGREE_EVERY: Final = 4
"""Calls after which memory, rows and replay are compared."""
TALLY: Final = Counter[str]()
"""What all machines of this process have seen."""


class WholeBook(RuleBasedStateMachine):
    """The kinds of command that :mod:`tests.faults.asking` knows, in every order; book and model must say the same.

    Attributes:
        begin: a founded world of its own, and what lets go of it.
    """

    compared = calls = 0
    engine: ClassVar[str]
    begin: ClassVar[Callable[[], tuple[ModelledWorld, Callable[[], None]]]]

    @initialize(late=st.booleans())
    def found(self, *, late: bool) -> None:
        """A book like every other; half of them go on after the date since which models are given by agreement."""
        self.world, self.end = type(self).begin()
        if late:
            self.world.clock.now = AGREED_SINCE + HOUR_MS
        self.model = model_of()
        self.world.follow()
        self.asking = Asking(self.world, self.model)

    @rule(asked=ASKED)
    def call(self, asked: list[tuple[str, int, int, int]]) -> None:
        """Commands sent together are answered one by one, each by what those before it did."""
        # What is asked rests on what stands before the call; what stands within it, the model follows.
        sent = []
        for one in asked:
            sent.append(self.asking.next(*one))
            # What comes after colluders were found, or at another time, is asked in the knowledge of it.
            if sent[-1][0].kind in {"collusion", "clock_correction"}:
                break
        told = self.model.call([(ask, submission.raw) for ask, submission in sent], self.world.clock.now)
        outcomes = self.world.submit(*(submission for _, submission in sent))
        for (ask, _), expected, got in zip(sent, told, outcomes, strict=True):
            seen = (got.code.word, got.index, got.repeated)
            assert seen == tuple(expected), (ask, seen, expected, got.field, got.detail)
            TALLY[f"{ask.kind} {got.code.word}"] += 1
        self.check_bytes(outcomes, self._straight.submit(*(submission for _, submission in sent)))
        TALLY["commands"] += len(sent)
        self.look()
        self.calls += 1
        if self.calls % AGREE_EVERY == 0:
            # While the book is open: rows are what memory is, and memory is what the entries so far make.
            assert self.world.book.compare_rows() is None
            check_memory(self.world.book, self._straight.state)

    @rule(hours=st.integers(-48, 12))
    def pass_time(self, hours: int) -> None:
        """The clock jumps, more often back than forth; or the book is closed and opened anew."""
        if hours == 0:
            self.world.reopen()
            TALLY["openings"] += 1
        else:
            self.world.clock.now += hours * HOUR_MS
        # What is due now lapses by itself soon. A quote waits for it, so that the next jump finds it done.
        told = self.model.call([], self.world.clock.now)
        got = self.world.book.quote(self.world.charge("quoted", partitions=(ref_of("none"),)))
        counts = self.model.keys[BANK_A].counts(max(self.world.clock.now, self.model.last))
        assert (got.code.word, told) == ("not_found" if counts else "signature_invalid", [])
        self._straight.lapse_due()

    @property
    def _straight(self) -> MemoryWorld:
        assert self.world.straight is not None
        return self.world.straight

    def check_bytes(self, outcomes: Sequence[Outcome], straight: Sequence[Outcome]) -> None:
        """The book answers what the core decides by the straight path, and its entries are the same bytes."""
        for got, wanted in zip(outcomes, straight, strict=True):
            assert replace(got, prove=None, detail="") == replace(wanted, detail=""), (got, wanted)
        log = self._straight.log
        with self.world.book.read() as facts:
            assert facts.size == len(log)
            for index in range(self.compared, facts.size):
                assert facts.entry(index) == log[index], index
        self.compared = len(log)

    def look(self) -> None:
        """Every account is what the model adds up, every charge stands where it says."""
        with self.world.book.read() as facts:
            assert facts.size == self.model.size
            for name, run in self.model.runs.items():
                found = facts.charges[name]
                assert (found.state.value, found.steps_posted or 0) == (run.state, run.ran), name
            standing = {None, *self.model.sets.stands.values(), *self.model.coalitions}
            for ref, part in self.model.partitions.items():
                unit = NAT if part.kind == "pure" else 1
                for node in standing:
                    kept = facts.accounts.get((ref, GLOBAL if node is None else holder_of(node)))
                    got = (kept.posted.finite, kept.pending.finite) if kept else None
                    self._same(got, self.model.account(ref, node), unit, (ref, node))

    @staticmethod
    def _same(got: tuple[tuple[int, ...], ...] | None, wanted: tuple[Vector, Vector], unit: int, where: object) -> None:
        expected = tuple(tuple(at * unit for at in one) for one in wanted)
        assert got == expected or (got is None and not any(map(any, expected))), (where, got, expected)

    def teardown(self) -> None:
        """At the end all of it is verified from its own entries."""
        if not hasattr(self, "world"):
            return
        try:
            self.look()
            assert verify_book(self.world.url, LOG, no_step).entries == self.model.size
            assert check_agreement(self.world.book, self.world.url) == self.model.size
            TALLY["books"] += 1
            TALLY["entries"] += self.model.size
        finally:
            self.end()
