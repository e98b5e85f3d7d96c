"""Random books in memory: runs that stop, mergers, coalitions, decrees, policies that change, old partitions."""

from __future__ import annotations

import random
from typing import Any, Final

from ledger.domain.charge_record import Charge
from ledger.domain.facts import GLOBAL, Contract, holder_of
from ledger.domain.outcomes import ChargeState
from ledger.mechanisms.loss import Loss, loss_of
from ledger.mechanisms.plan_reader import parse_plan
from ledger.wire import canonical_json as c
from policy.checks.field_readers import format_time
from policy.decisions.last_run import LastRun
from policy.planning.account_figures import AccountFigures, PartitionFigures
from tests.factories.documented import DocumentedWorld, policy_document
from tests.factories.documents import contract, contract_id, dataset, plan
from tests.factories.memory import FOUR_BANKS, ref_of
from tests.factories.people import BANKS, DAY_MS, HOSPITAL, MERGED, SRO

PLANS: Final = (plan(60, "2"), plan(100, "2"), plan(30, "1.5"), plan(400, "4"))
"""Prices between a fortieth and a fifth of a budget."""
KINDS: Final[dict[str, Any]] = {
    "kind": "composed",
    "mechanisms": [
        {"kind": "poisson_gaussian", "noise_multiplier": noise, "probability": "0.0625", "steps": steps, "v": 1}
        for steps, noise in ((60, "2"), (400, "4"))
    ],
    "v": 1,
}
"""Of the plans the first, the second and the last: the third has less noise, and so a price of its own."""
CATALOGUE: Final[dict[str, Any]] = {
    "load": {"kind": "mechanism", "mechanism": KINDS, "v": 1},
    "prices": [1, 1],
    "rule": "catalogue",
}
RULES: Final[tuple[dict[str, Any], ...]] = (
    *({},) * 4,
    {"load": PLANS[0]},
    {"load": PLANS[1], "rule": "reference"},
    {"rule": "gaussian"},
    *(CATALOGUE,) * 2,
)
REF: Final = ref_of("one")
NAMED: Final = "the-two"


class RandomBook(DocumentedWorld):
    """One book of a seed: opened, then changed at random."""

    def __init__(self, seed: int) -> None:
        """Found it."""
        super().__init__()
        self.source = random.Random(seed)  # noqa: S311 - the same books every time
        self.asked, self.version = 0, 1
        self.banks = list(BANKS)
        for did, role in FOUR_BANKS.items():
            self.register(did, role)
        self.enter(self._policy(), "policy", SRO, SRO)
        self.enter(dataset(), "dataset", HOSPITAL, HOSPITAL)
        assert not self.open("one", self.source.choice(["3", "6"]), **self.source.choice(RULES)).code.refused
        for bank in BANKS:
            self.contract_of(bank, **self._terms())

    def _policy(self) -> dict[str, Any]:
        pick = self.source.choice
        level, coalition = pick([0, 1, 1, 2]), {"epsilon_max": "5", "members": [*BANKS[:2]], "name": NAMED}
        return policy_document(
            self.version,
            level=level,
            model_release=level < 2,
            lineage={"epsilon_max": pick(["2", "3", "5"])},
            run=self._run_bounds() | {"epsilon_max": pick(["1.25", "1.4", "2.5", "2.5", "2.5"])},
            mechanisms=pick([["poisson_gaussian", "laplace"]] * 9 + [["laplace"]]),
            rules=["renyi", "reference", "gaussian", "catalogue"],
            quota=pick([None, None, {"share_max": "0.4"}, {"share_max": "0.75"}]),
            partition_age_days_max=pick([20, 90]) if level else None,
            coalitions=pick([None, None, None, [coalition]]),
            effective=format_time(self.clock.now),
        )

    def _terms(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.source.random() < 0.3:
            found["lineage"] = {"epsilon_max": self.source.choice(["2", "4"])}
        if self.source.random() < 0.2:
            found["share_max"] = "0.5"
        if self.source.random() < 0.2:
            found["runs_max"] = self.source.randint(1, 12)
        found["run"] = self._run_bounds() | {"epsilon_max": self.source.choice(["1.3", "2.5", "2.5", "2.5"])}
        return found

    def _run_bounds(self) -> dict[str, Any]:
        """What is said of one run, rarely; some of it bars some of the plans."""
        stated: dict[str, Any] = {
            "delta_max": "0.00001",
            "noise_multiplier_min": self.source.choice(["1.5", "2"]),
            "probability_max": "0.0625",
            "steps_max": self.source.choice([60, 400]),
        }
        return {name: value for name, value in stated.items() if self.source.random() < 0.1}

    def change(self) -> None:
        """One event; most are runs, and what is refused changes nothing."""
        events = (self._charge,) * 12 + (
            *(self._settle,) * 5,
            self._merge,
            self._coalition,
            self._decree,
            self._govern,
            self._amend,
            self._wait,
            self._retire,
        )
        self.source.choice(events)()

    def charge_as(self, bank: str, run: c.Object) -> bool:
        """Whether a run is charged."""
        self.asked += 1
        digest = self.state.contract_heads[contract_id(bank)]
        return not self.decide_charge(f"run-{self.asked}", bank, digest, ("one",), run).code.refused

    def _charge(self) -> None:
        self.charge_as(self.source.choice(BANKS), self.source.choice(PLANS))

    def _settle(self) -> None:
        pending = [one for one in self.state.charges.values() if one.state is ChargeState.PENDING]
        if pending:
            one = self.source.choice(pending)
            if self.source.random() < 0.5:
                self.decide_void(one.id)
            else:
                self.post(one.id, self.source.randint(0, one.steps))

    def _merge(self) -> None:
        if self.source.random() < 0.3 and MERGED not in self.state.organisations:
            self.register(MERGED, "TDC")
            self.merge(MERGED, tuple(self.source.sample(BANKS, 2)))

    def _coalition(self) -> None:
        body: c.Object = {"epsilon": self.source.choice(["3", "5"]), "members": [*BANKS[:2]]}
        self.decide("coalition", f"coalition-{self.index}", SRO, body)

    def _decree(self) -> None:
        settled = sorted(one.holder for one in self.state.accounts.values() if not one.posted.empty)
        holder = self.source.choice(settled or [GLOBAL])
        body: c.Object = {"holder": holder, "partition": REF, "reason": "an order"}
        self.decide("decree", f"decree-{self.index}", SRO, body)

    def _govern(self) -> None:
        self.version += 1
        self.enter(self._policy(), f"policy-{self.version}", SRO, SRO)

    def _amend(self) -> None:
        """Another version of a bank's contract, or its end; refused for one that merged."""
        bank = self.source.choice(BANKS)
        ends = format_time(self.clock.now + self.source.choice([3, 200]) * DAY_MS)
        body = contract(bank, starts=self.clock.now, **{"ends": ends, "runs_max": 1_000, **self._terms()})
        body["version"] = self._held(bank).version + 1
        self.decide_pending(self.document("contract", body, f"amend-{self.index}", bank, bank, HOSPITAL).pending)

    def _wait(self) -> None:
        self.clock.now += self.source.choice([1, 5, 12]) * DAY_MS

    def _retire(self) -> None:
        if self.source.random() < 0.2:
            self.decide("retirement", f"retire-{self.index}", HOSPITAL, {"partition": REF})

    @property
    def last(self) -> tuple[Charge, Loss, c.Object] | None:
        """The newest charge, what it cost, and its plan."""
        newest = max(self.state.charges.values(), key=lambda one: one.index, default=None)
        if newest is None:
            return None
        run = next(one for one in PLANS if c.digest(c.dump(one)) == newest.plan)
        return newest, loss_of(dict(newest.prices)[REF], newest.steps), run

    def _held(self, bank: str) -> Contract:
        """The newest version of a bank's contract."""
        return self.state.contracts[self.state.contract_heads[contract_id(bank)]]

    def figures_of(self, holder: str, contract: Contract | None = None) -> AccountFigures:
        """What is told of an account, its lineage under a contract."""
        last = None if self.last is None else LastRun(self.last[1], parse_plan(self.last[2]))
        return PartitionFigures.at(self.state, self.state.partitions[REF], self.clock(), last).of(holder, contract)

    def figures(self, bank: str) -> AccountFigures:
        """What is told of a bank's lineage."""
        return self.figures_of(holder_of(self.state.organisations[bank].node), self._held(bank))


def random_book(seed: int) -> RandomBook:
    """A book after some events."""
    book = RandomBook(seed)
    for _ in range(book.source.randint(3, 25)):
        book.change()
    return book


def admitted(book: RandomBook, bank: str, run: c.Object, most: int) -> int:
    """How many such runs a loop of quotes admits, each charged before the next is asked."""
    digest = book.state.contract_heads[contract_id(bank)]
    for count in range(most):
        if not book.ask(run, bank=bank, digest=digest).is_admitted:
            return count
        assert book.charge_as(bank, run)
    return most
