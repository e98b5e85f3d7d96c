"""What a person is told of a run's loss: the ledger's own numbers, from the prices that its charge was given.

The ε told is the odometer of the partition's rule at the partition's δ, of this run alone: it holds however early the
run ends. Where a run touches several partitions, the greatest is told.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from client.http.problems import Reason, Refused
from client.service.service import Service
from ledger.filters import Rule, read_rule
from ledger.mechanisms.loss import Loss, Segment, loss_of, read_segments
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import ceil_decimal, format_number, parse_positive
from ledger.wire.malformed import Malformed
from trainer_adapter.session.protocol import Room

PLACES: Final = 4


@dataclass(frozen=True, slots=True)
class Spent:
    """A loss of privacy in words that people know; ``epsilon`` is rounded up, None where it is infinite."""

    epsilon: Fraction | None
    delta: Fraction
    accountant: str

    def __str__(self) -> str:
        """As ``ε 0.7312``."""
        return f"ε {self.number}"

    @property
    def number(self) -> str:
        """As ``0.7312``."""
        return "infinite" if self.epsilon is None else ceil_decimal(self.epsilon, PLACES)


class Telling:
    """The price of one run on each of its partitions."""

    def __init__(self, service: Service, prices: c.Json, partitions: Iterable[str]) -> None:
        """The prices as the entry of a charge holds them. Raises: Refused, Unreachable, Malformed."""
        if not isinstance(prices, dict):
            raise Malformed("prices", "must be an object")
        self._told: dict[int, Spent] = {}
        self.of: Final = {ref: _priced(service.partition(ref), prices[ref]) for ref in partitions}

    def spent(self, steps: int) -> Spent:
        """The loss of the first steps of the run; asked for each step of a block, it is worked out once."""
        if steps not in self._told:
            self._told = {steps: self._spent(steps)}
        return self._told[steps]

    def _spent(self, steps: int) -> Spent:
        told = [_spent(rule, loss_of(segments, steps)) for rule, segments in self.of.values()]
        return max(told, key=lambda one: (one.epsilon is None, one.epsilon or 0))


@dataclass(frozen=True, slots=True)
class Left:
    """One account as it would stand after the run.

    Attributes:
        cap: the ε that binds it. share: of its capacity, used then. runs: how many more such runs would fit.
    """

    partition: str
    holder: str
    cap: Fraction
    share: Fraction
    runs: int

    def __str__(self) -> str:
        """One line for people."""
        return (
            f"{self.partition}, {self.holder}: {ceil_decimal(100 * self.share, 1)} % of ε {format_number(self.cap)} "
            f"used, {self.runs} more such runs fit"
        )


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What a run would get now.

    Attributes:
        permitted: whether it would be charged. reasons: why not.
        spent: the loss of the whole run; None where it was refused before it was priced.
        accounts: every account that it would be charged to.
    """

    permitted: bool
    reasons: tuple[Reason, ...]
    spent: Spent | None
    accounts: tuple[Left, ...]

    def __str__(self) -> str:
        """For people."""
        if not self.permitted:
            return "\n".join(["The run would be refused:", *(f"  {one.code}: {one.detail}" for one in self.reasons)])
        lines = [f"The run would be charged {self.spent}.", *(f"  {one}" for one in self.accounts)]
        return "\n".join(lines)


def foresee(service: Service, room: Room, partitions: tuple[str, ...]) -> Foreseen:
    """Ask what the charge would get; nothing is recorded. Raises: Refused, Unreachable, Malformed.

    A refusal that a budget, a policy or a rule would give is an answer; any other is raised.
    """
    try:
        body = room.quote()
    except Refused as refused:
        if not refused.reasons and refused.exit_code != _EXIT_REFUSED:
            raise
        reasons = refused.reasons or (Reason(refused.code, refused.detail),)
        return Foreseen(permitted=False, reasons=reasons, spent=None, accounts=())
    telling = Telling(service, body["prices"], partitions)
    steps = room.steps
    limits = body["limits"]
    assert isinstance(limits, list)
    accounts = tuple(_left(service, telling, one, steps) for one in limits)
    return Foreseen(permitted=True, reasons=(), spent=telling.spent(steps), accounts=accounts)


_EXIT_REFUSED: Final = 3


def _left(service: Service, telling: Telling, limit: c.Json, steps: int) -> Left:
    known = c.fields(limit, "limits", ("cap", "holder", "partition"))
    ref, holder = c.string(known["partition"], "partition"), c.string(known["holder"], "holder")
    epsilon = parse_positive(c.fields(known["cap"], "cap", ("capacity", "epsilon"))["epsilon"], "epsilon")
    rule, segments = telling.of[ref]
    run, cap = loss_of(segments, steps), rule.cap(epsilon)
    after = _stands(service, ref, holder, len(run.finite)) + run
    return Left(ref, holder, epsilon, rule.share(after, cap), rule.runs(after, cap, run))


def _stands(service: Service, ref: str, holder: str, width: int) -> Loss:
    listed = service.accounts(ref)["accounts"]
    assert isinstance(listed, list)
    total = Loss.zero(width)
    for one in listed:
        if isinstance(one, dict) and one["holder"] == holder:
            total = total + _loss(one["pending"]) + _loss(one["posted"])
    return total


def _loss(value: c.Json) -> Loss:
    known = c.fields(value, "loss", ("finite", "infinite"))
    return Loss(tuple(int(one) for one in known["finite"]), tuple(known["infinite"]))


def _priced(partition: c.Object, prices: c.Json) -> tuple[Rule, tuple[Segment, ...]]:
    return read_rule(c.dump(partition["terms"]).decode()), read_segments(prices)


def _spent(rule: Rule, loss: Loss) -> Spent:
    kind = str(rule.to_json()["kind"])
    try:
        return Spent(rule.odometer(loss), rule.delta, f"{kind} odometer")
    except ArithmeticError:
        return Spent(None, rule.delta, f"{kind} odometer")
