"""The pieces of a mechanism: what it is charged, settled and refunded by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ledger.mechanisms.mechanism import (
    STEPS_MAX,
    Composed,
    FullBatchEpochs,
    Group,
    Mechanism,
    PoissonGaussian,
    RepeatAndSelect,
    SampledWithoutReplacement,
    SelfComposed,
)
from ledger.wire.malformed import Malformed

RUNS_MAX: Final = 16
"""Pieces of one charge that are settled by themselves; each is recorded with its price."""

Run = tuple[int, Mechanism]
"""So many equal steps, each of one atomic mechanism: what a charge is priced and settled by."""


def leaves(mechanism: Mechanism) -> Iterator[Mechanism]:
    """The mechanisms inside that hold no other."""
    inner = _held(mechanism)
    if not inner:
        yield mechanism
    for one in inner:
        yield from leaves(one)


def selections(mechanism: Mechanism) -> int:
    """How many of the mechanisms inside are tunings, each of which takes long to price."""
    return isinstance(mechanism, RepeatAndSelect) + sum(selections(one) for one in _held(mechanism))


def _held(mechanism: Mechanism) -> tuple[Mechanism, ...]:
    match mechanism:
        case Composed():
            return mechanism.mechanisms
        case Group() | RepeatAndSelect() | SelfComposed():
            return (mechanism.mechanism,)
        case _:
            return ()


def kinds_of(mechanism: Mechanism) -> tuple[str, ...]:
    """The kinds a policy must permit: of everything inside, and tuning where it is used."""
    if isinstance(mechanism, RepeatAndSelect):
        return tuple(dict.fromkeys((mechanism.kind, *kinds_of(mechanism.mechanism))))
    inner = _held(mechanism)
    return tuple(dict.fromkeys(kind for one in inner for kind in kinds_of(one))) if inner else (mechanism.kind,)


def runs_of(mechanism: Mechanism) -> tuple[Run, ...]:
    """The pieces of a mechanism, in order: each so many steps that are charged and refunded one by one.

    A repeated composition of several pieces counts its rounds as steps; a selection is one step.

    Raises:
        Malformed: if there are more than ``RUNS_MAX`` pieces, ``STEPS_MAX`` steps or ``GROUP_MAX`` in a group.
    """
    runs = _runs(mechanism)
    if len(runs) > RUNS_MAX:
        raise Malformed("", f"has more than {RUNS_MAX} pieces that are settled by themselves")
    if sum(count for count, _ in runs) > STEPS_MAX:
        raise Malformed("", f"has more than {STEPS_MAX} steps")
    return runs


def _runs(mechanism: Mechanism) -> tuple[Run, ...]:  # noqa: PLR0911 - one a kind
    match mechanism:
        case PoissonGaussian() | SampledWithoutReplacement():
            return ((mechanism.steps, replace(mechanism, steps=1)),)
        case FullBatchEpochs():
            return ((mechanism.epochs, replace(mechanism, epochs=1)),)
        case Composed():
            return tuple(run for one in mechanism.mechanisms for run in _runs(one))
        case SelfComposed():
            inner = _runs(mechanism.mechanism)
            if len(inner) == 1:
                return ((inner[0][0] * mechanism.count, inner[0][1]),)
            return ((mechanism.count, mechanism.mechanism),)
        case Group():
            return tuple((count, grouped(mechanism.k, step)) for count, step in _runs(mechanism.mechanism))
        case _:
            return ((1, mechanism),)


def grouped(k: int, mechanism: Mechanism) -> Mechanism:
    """A mechanism seen by groups of ``k``; a group of groups is one group. Raises: Malformed."""
    if isinstance(mechanism, Group):
        return Group(k * mechanism.k, mechanism.mechanism)
    return mechanism if k == 1 else Group(k, mechanism)


def first_steps(mechanism: Mechanism, steps: int) -> Mechanism | None:
    """The first ``steps`` steps of a mechanism, None for none of them."""
    pieces: list[Mechanism] = []
    for count, step in runs_of(mechanism):
        if ran := min(steps, count):
            whole = ran == 1 and not isinstance(step, Composed)
            pieces.append(step if whole else SelfComposed(ran, step))
            steps -= ran
    if not pieces:
        return None
    return pieces[0] if len(pieces) == 1 else Composed(tuple(pieces))
