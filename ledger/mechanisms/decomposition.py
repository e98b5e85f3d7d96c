"""A mechanism decomposed: its atoms, and the equal steps by which it is charged, settled and refunded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from ledger.mechanisms import mechanism as m
from ledger.wire.malformed import Malformed

PIECES_MAX: Final = 16
"""Pieces of one charge that are settled by themselves; each is recorded with its price."""
SELECTIONS_MAX: Final = 2
DEPTH_MAX: Final = 6

Steps = tuple[int, m.Mechanism]
"""A count of equal steps, and the atomic mechanism of each: a charge is priced and settled by them."""


def atoms(mechanism: m.Mechanism) -> Iterator[m.Mechanism]:
    """The atomic mechanisms inside: those that hold no other."""
    inner = _inner(mechanism)
    if not inner:
        yield mechanism
    for part in inner:
        yield from atoms(part)


def count_selections(mechanism: m.Mechanism) -> int:
    """How many private selections (``repeat_and_select``) are inside; each takes long to price."""
    return isinstance(mechanism, m.RepeatAndSelect) + sum(count_selections(part) for part in _inner(mechanism))


def depth(mechanism: m.Mechanism) -> int:
    """How many mechanisms deep it is nested, itself counted."""
    return 1 + max(map(depth, _inner(mechanism)), default=0)


def _inner(mechanism: m.Mechanism) -> tuple[m.Mechanism, ...]:
    match mechanism:
        case m.Composed():
            return mechanism.mechanisms
        case m.Group() | m.RepeatAndSelect() | m.SelfComposed():
            return (mechanism.mechanism,)
        case _:
            return ()


def kinds_of(mechanism: m.Mechanism) -> tuple[str, ...]:
    """The kinds that a policy must permit: those of everything inside, and tuning if it is used."""
    if isinstance(mechanism, m.RepeatAndSelect):
        return tuple(dict.fromkeys((mechanism.kind, *kinds_of(mechanism.mechanism))))
    inner = _inner(mechanism)
    return tuple(dict.fromkeys(kind for part in inner for kind in kinds_of(part))) if inner else (mechanism.kind,)


def to_steps(mechanism: m.Mechanism) -> tuple[Steps, ...]:
    """The pieces of a mechanism, in order: each a count of steps that are charged and refunded one by one.

    A repeated composition of several pieces counts its rounds as steps; a selection is one step.

    Raises:
        Malformed: if there are more than ``PIECES_MAX`` pieces, ``STEPS_MAX`` steps or ``GROUP_MAX`` in a group.
    """
    runs = _runs(mechanism)
    if len(runs) > PIECES_MAX:
        raise Malformed("", f"has more than {PIECES_MAX} pieces that are settled by themselves")
    if sum(count for count, _ in runs) > m.STEPS_MAX:
        raise Malformed("", f"has more than {m.STEPS_MAX} steps")
    return runs


def _runs(mechanism: m.Mechanism) -> tuple[Steps, ...]:  # noqa: PLR0911 - one a kind
    match mechanism:
        case m.PoissonGaussian() | m.SampledWithoutReplacement():
            return ((mechanism.steps, replace(mechanism, steps=1)),)
        case m.FullBatchEpochs():
            return ((mechanism.epochs, replace(mechanism, epochs=1)),)
        case m.Composed():
            return tuple(run for part in mechanism.mechanisms for run in _runs(part))
        case m.SelfComposed():
            inner = _runs(mechanism.mechanism)
            if len(inner) == 1:
                return ((inner[0][0] * mechanism.count, inner[0][1]),)
            return ((mechanism.count, mechanism.mechanism),)
        case m.Group():
            return tuple((count, group_privacy(mechanism.k, step)) for count, step in _runs(mechanism.mechanism))
        case _:
            return ((1, mechanism),)


def group_privacy(k: int, mechanism: m.Mechanism) -> m.Mechanism:
    """Group privacy: a mechanism as groups of ``k`` see it; a group of groups is one group. Raises: Malformed."""
    if isinstance(mechanism, m.Group):
        return m.Group(k * mechanism.k, mechanism.mechanism)
    return mechanism if k == 1 else m.Group(k, mechanism)


def first_steps(mechanism: m.Mechanism, steps: int) -> m.Mechanism | None:
    """The first ``steps`` steps of a mechanism, None for none of them."""
    pieces: list[m.Mechanism] = []
    for count, step in to_steps(mechanism):
        if ran := min(steps, count):
            whole = ran == 1 and not isinstance(step, m.Composed)
            pieces.append(step if whole else m.SelfComposed(ran, step))
            steps -= ran
    if not pieces:
        return None
    return pieces[0] if len(pieces) == 1 else m.Composed(tuple(pieces))


def check_pieces(mechanism: m.Mechanism) -> None:
    """Raises: Malformed, for more nesting, pieces or selections than are priced."""
    if depth(mechanism) > DEPTH_MAX:
        raise Malformed("", f"is nested deeper than {DEPTH_MAX} mechanisms")
    if sum(1 for _ in atoms(mechanism)) > m.LEAVES_MAX:
        raise Malformed("", f"holds more than {m.LEAVES_MAX} mechanisms")
    to_steps(mechanism)
    if count_selections(mechanism) > SELECTIONS_MAX:
        raise Malformed("", f"holds more than {SELECTIONS_MAX} selections")
