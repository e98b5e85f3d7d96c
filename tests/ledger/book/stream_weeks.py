"""A stream of weekly slices, week by week: what its provider does, what three banks ask for, and what each is told.

Each answer is compared with what the entries say (:mod:`tests.ledger.book.slice_sums`), and each number told with a
loop of quotes. A bank's runs end in turn: posted at once for a part, posted two weeks later, voided, and lapsed with
keys and without; so runs are pending on slices that retire.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final

from ledger.book.book import Outcome
from ledger.commands.runs.model_ancestry import charged_body
from ledger.domain.charge_record import Charge
from ledger.domain.facts import GLOBAL, holder_of
from ledger.domain.range_names import Opened, OpenPartitions, ranges_named
from ledger.mechanisms.loss import loss_of
from ledger.mechanisms.plan_reader import parse_plan
from ledger.store.snapshot import Snapshot
from ledger.wire import canonical_json as c
from policy.checks.field_readers import format_time
from policy.documents.partition_commitments import MAGIC, PERSONS_MAGIC
from policy.planning.account_caps import empty_account
from policy.planning.hypothetical_facts import HypotheticalFacts
from policy.planning.streams.slice_status import PAST_AGE
from policy.planning.streams.stream_report import StreamFigures, StreamReport
from policy.planning.what_if import PlannedRun, WhatIf
from tests.factories.documents import DIGITS, contract, plan, policy, stream
from tests.factories.people import BANKS, DAY_MS, HOSPITAL, MERGED, ROLES
from tests.factories.stored import StoredWorld
from tests.ledger.book.governed import faults, words
from tests.ledger.book.slice_sums import SliceSums

WEEK: Final = 7 * DAY_MS
RECORDS: Final = 100
LINEAGE_EPSILON: Final = 5
THREE: Final = BANKS[:3]
ENDS: Final = ("posted", "posted late", "voided", "lapsed", "lapsed unreleased")
"""How a bank's runs end, in turn."""


def commitments(magic: bytes, name: str) -> bytes:
    """Of records or persons that no other slice has."""
    each = (sha256(f"{magic!r} {name} {number}".encode()).digest() for number in range(RECORDS))
    return magic + sha256(b"the key").digest() + b"".join(sorted(each))


class StreamWeeks:
    """A book with a stream, and what happens to it.

    Attributes:
        sums: what the entries say.
        answers: how often a run was charged, or refused by which word.
        told: how often a number of runs was compared with quotes.
        most_open: the most slices that were open at once.
    """

    def __init__(self, world: StoredWorld, weeks: int, window: int, steps: int) -> None:
        """Found it; a slice is open for so many weeks as a run may cover slices, and each run is of so many steps."""
        self.world, self.window, self.weeks = world, window, weeks
        self.plan, self._steps = plan(steps), steps
        self.sums = SliceSums()
        self.answers, self.told, self.most_open = Counter[str](), Counter[bool](), 0
        self._asked, self._newest, self._week = 0, dict[str, str](), 0
        self._lineages = {bank: {bank} for bank in THREE}
        self._later: list[tuple[int, str, str, str]] = []
        until = format_time(world.begun + (weeks + 60) * WEEK)
        contracts = [contract(bank, starts=world.begun, ends=until) for bank in THREE]
        world.contracts |= {str(one["tdc"]): c.digest(c.dump(one)) for one in contracts}
        governing = policy(world.begun, partition_age_days_max=(window + 60) * 7)
        roles = {**ROLES, **dict.fromkeys(THREE, "TDC")}
        world.found(*world.founding_with(roles=roles, governing=governing, partitions={}, contracts=contracts))
        stated = stream(records_min=RECORDS, life_days=window * 7, window_max=window)
        world.found(world.document("stream", stated, "stream", HOSPITAL, HOSPITAL))

    def run(self) -> None:
        """All weeks, with a merger half-way; then everything settles."""
        for week in range(self.weeks):
            self._pass(week)
            if week == self.weeks // 2:
                self._merge()
            self._advance()
            for bank in THREE:
                self._ask(bank)
            self._check()
        for after in range(1, 5):
            self._pass(self.weeks + after)
        assert words(self.world.submit(self.world.void("none"))) == ["not_found"]
        self._check()

    def _pass(self, week: int) -> None:
        """A week goes by, and runs of before end."""
        self.world.clock.now += WEEK
        self._week = week
        for due, how, name, bank in [one for one in self._later if one[0] <= week]:
            ended = self.world.void(name, bank) if how == "voided" else self.world.settle(name, self._steps, bank)
            assert words(self.world.submit(ended)) == [how], (name, due)
        self._later = [one for one in self._later if one[0] > week]

    def _merge(self) -> None:
        """The first two banks become one."""
        assert words(self.world.submit(self.world.merger())) == ["permitted"]
        both = {*THREE[:2], MERGED}
        self._lineages |= dict.fromkeys(THREE[:2], both)

    def _advance(self) -> None:
        """What the stream says: what is past its age retires, and the last period that is over opens."""
        with self.world.book.read() as facts:
            told = self._report(facts)
        for one in told.slices:
            if one.status == PAST_AGE:
                self._retire(one.period)
        assert told.last_complete in told.may_open, told.may_open
        terms, name = told.slice, str(told.last_complete)
        digests = [self.world.book.put_document(commitments(magic, name)) for magic in (MAGIC, PERSONS_MAGIC)]
        changes: c.Object = {"epsilon": terms.epsilon, "delta": terms.delta, "records": terms.records_min}
        self.world.found(self.world.partition(name, **changes, commitments=[*digests]))

    def _retire(self, name: str) -> None:
        body: c.Object = {"partition": f"{DIGITS}/{name}"}
        done = self.world.send(HOSPITAL, "retirement", body, f"retire-{name}")
        assert done.code.word == "permitted", done
        newest = [*self.sums.opened][-1]
        refused = self._quote(THREE[2], {"dataset": DIGITS, "first": name, "last": newest})
        assert faults(refused) >= {"partition_retired"}, refused
        assert f"{DIGITS}/{name} is not open" in refused.detail

    def _ask(self, bank: str) -> None:
        """A run over the last slices; its answer and the numbers told are those of the entries."""
        self._read()
        with self.world.book.read() as facts:
            open_ = [one for one in self.sums.opened if one not in self.sums.retired]
            self.most_open = max(self.most_open, len(open_))
            named = f"digits[last {min(self.window, len(open_))}]"
            _, (ranged,) = ranges_named([named], OpenPartitions(lambda: _listed(facts)))
            self._check_told(facts, bank, ranged)
        if len(open_) > self.window:
            beyond = self._quote(bank, {**ranged, "first": open_[0]})
            assert faults(beyond) == {"window_too_long"}, beyond
        self._asked += 1
        name, window = f"run-{self._asked}", open_[-self.window :]
        assert (ranged["first"], ranged["last"]) == (window[0], window[-1])
        (done,) = self.world.submit(self._charge(name, bank, ranged))
        self.answers[done.code.word] += 1
        self._check_answer(done, bank, window)
        if done.code.word == "pending":
            self._newest[bank] = name
            self._end(name, bank)

    def _charge(self, name: str, bank: str, ranged: c.Object) -> Any:  # noqa: ANN401 - a submission
        deadline = self.world.clock.now + 20 * DAY_MS
        return self.world.charge(name, bank, self.plan, deadline=deadline, partitions=(), ranges=[ranged])

    def _quote(self, bank: str, ranged: c.Object) -> Outcome:
        return self.world.book.quote(self._charge("quoted", bank, ranged))

    def _end(self, name: str, bank: str) -> None:
        how = ENDS[self._asked % len(ENDS)]
        if how in {"posted", "posted late", "lapsed"}:
            assert words(self.world.submit(self.world.release(name, self.plan, bank))) == ["permitted"]
        if how == "posted":
            assert words(self.world.submit(self.world.settle(name, self._steps * 3 // 5, bank))) == ["posted"]
        elif how == "posted late":
            self._later.append((self._week + 2, "posted", name, bank))
        elif how == "voided":
            self._later.append((self._week + 1, "voided", name, bank))

    def _check_answer(self, done: Outcome, bank: str, window: Sequence[str]) -> None:
        """It is charged if and only if there is room everywhere; else the slices without room are named."""
        if not self.sums.runs:
            assert done.code.word == "pending", done
            return
        like = next(reversed(self.sums.runs.values()))
        full = self.sums.without_room(window, like, (), 6)
        own = self.sums.without_room(window, like, self._lineages[bank], LINEAGE_EPSILON)
        assert done.code.word == ("budget_exhausted" if full or own else "pending"), (done, full, own)
        for some in filter(None, (full, own)):
            ends = f"[{some[0]}..{some[-1]}]" if len(some) > 1 else f"/{some[0]}"
            # The oldest have most runs: what is full is in a row, unless what is pending came late.
            row = window[window.index(some[0]) : window.index(some[-1]) + 1]
            where = f"{DIGITS}{ends};" if [*row] == some else f"{DIGITS}"
            assert f"no room on {len(some)} of {len(window)} partitions: {where}" in done.detail, (done, some)

    def _check_told(self, facts: Snapshot, bank: str, ranged: c.Object) -> None:
        """The window told is the one that is named, and so many runs fit as quotes admit one after the other."""
        report = self._report(facts, bank)
        window = report.newest_window
        assert (window.first, window.last) == (ranged["first"], ranged["last"])
        assert (window.runs is None) == (bank not in self._newest)
        if window.runs is None:
            return
        last, whole = facts.charges[self._newest[bank]], range(window.runs + 1)
        assert (last.actor, parse_plan(self.plan)) == (bank, charged_body(facts, last).plan)
        for more in whole if self._week % 16 == 0 else {max(0, window.runs - 1), window.runs}:
            admitted = admits_after(facts, last, ranged, more, self.world.clock.now)
            assert admitted == (more < window.runs), (bank, more, window)
        self.told[window.runs > 0] += 1

    def _report(self, facts: Snapshot, bank: str = "") -> StreamReport:
        """What the provider reads, or a bank of its own lineage."""
        partitions = [*facts.partitions.values()]
        last = facts.charges[self._newest[bank]] if bank in self._newest else None
        whose = holder_of(facts.organisations[bank].node) if bank else GLOBAL
        run = None if last is None else charged_body(facts, last)
        agreed = facts.contracts[last.contract] if last else None
        now = self.world.clock.now
        found = StreamFigures(facts, HOSPITAL, "digits", now, partitions, whose, run, agreed).report()
        assert found is not None
        return found

    def _read(self) -> None:
        with self.world.book.read() as facts:
            self.sums.read(facts.entries(self.sums.read_to, facts.size))

    def _check(self) -> None:
        """No slice is over its budget, and each account is the sum of the entries."""
        self._read()
        assert self.sums.over() == []
        with self.world.book.read() as facts:
            lineages = {holder_of(facts.organisations[bank].node): self._lineages[bank] for bank in THREE}
            whose = {GLOBAL: set[str](), **lineages}
            facts.fetch_accounts([f"{DIGITS}/{name}" for name in self.sums.opened], [*whose])
            for name in self.sums.opened:
                for holder, actors in whose.items():
                    account = facts.accounts.get((f"{DIGITS}/{name}", holder))
                    lost = self.sums.lost(name, actors)
                    assert (list(account.loss.finite) if account else [0] * len(lost)) == lost, (name, holder)


def admits_after(facts: Snapshot, last: Charge, ranged: c.Object, more: int, at: int) -> bool:
    """Whether a quote at a time (ms) admits a run like the last one over a range, after so many more like it."""
    run = charged_body(facts, last)
    loss = loss_of(last.prices[0][1], last.steps).times(more)
    stated: c.Object = {"contract": last.contract, "partitions": [], "plan": run.plan.to_json(), "ranges": [ranged]}
    body = PlannedRun.parse(stated, actor=last.actor)
    whose = (GLOBAL, holder_of(facts.organisations[last.actor].node))
    accounts = {
        (one.ref, who): known._replace(pending=known.pending + loss)
        for one in WhatIf(facts, body, at).partitions
        for who in whose
        for known in (facts.accounts.get((one.ref, who)) or empty_account(one, who),)
    }
    return WhatIf(HypotheticalFacts(facts, accounts=accounts), body, at).is_admitted


def _listed(facts: Snapshot) -> list[Opened]:
    """Every partition, as the service lists it."""
    return [Opened(one.ref, one.index, one.retired) for one in facts.partitions.values()]
