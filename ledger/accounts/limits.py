"""Which caps limit a charge: the policy's on the global account and on its lineage, and those of its coalitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType

from ledger.accounts.headroom import CODE, Limit, silent
from ledger.accounts.pricing import COMPUTED, Bound, ComputedPrices
from ledger.domain.decision import Rejected
from ledger.domain.facts import GLOBAL, Facts, Organisation, Partition, holder_of
from ledger.domain.gate import Caps, Check, Verdict
from ledger.domain.organisation_graph import changed_since, coalitions_of
from ledger.domain.outcomes import Code
from ledger.filters import NoRoom


def limits_on(  # noqa: PLR0913, PLR0917 - who charges what, what was decided, and what is computed how
    facts: Facts,
    partitions: tuple[Partition, ...],
    verdict: Verdict,
    author: Organisation,
    numbers: ComputedPrices = COMPUTED,
    groups: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> list[Limit]:
    """Every cap that binds a charge by this author.

    Args:
        groups: of a charge that names ranges, the partitions of each group by the first one, which stands for all.

    Raises:
        Rejected: if one has no room for anything.
    """
    caps = dict(verdict.caps)

    def is_rounded(bound: Bound) -> bool:
        # What is said of a group may be of any of its partitions, and their policies may differ in what they show.
        ref = bound.partition.ref
        return bound.holder == GLOBAL and any(caps[member].rounded for member in groups.get(ref, (ref,)))

    bounds = _bounds(partitions, caps, author)
    own = [_limit(bound, caps[bound.partition.ref], numbers, rounded=is_rounded(bound)) for bound in bounds]
    limits = [*own, *_coalition_limits(facts, partitions, coalitions_of(facts.nodes, author.node), caps, numbers)]
    if any(stated.counts_rounded for stated in caps.values()):
        # One such partition is enough: a charge on several is admitted on all of them or refused.
        return [replace(limit, counted_for=holder_of(author.node)) for limit in limits]
    return limits


def limits_since(  # noqa: PLR0913, PLR0917 - as above, and since when
    facts: Facts,
    partitions: tuple[Partition, ...],
    verdict: Verdict,
    author: Organisation,
    index: int,
    numbers: ComputedPrices = COMPUTED,
) -> Iterator[Limit]:
    """The caps of this author's lineage and of its coalitions that lineage has changed by an entry after ``index``.

    What everyone knows together no lineage changes, and quotas are of charges alone.

    Raises:
        Rejected: if one has no room for anything.
    """
    caps = dict(verdict.caps)
    changed = changed_since(facts.nodes, author.node, index)
    if author.node in changed:
        for partition in partitions:
            stated = caps[partition.ref]
            bound = Bound(partition, holder_of(author.node), stated.lineage, source=stated.lineage_source)
            yield _limit(bound, stated, numbers, rounded=False)
    coalitions = [one for one in changed if one != author.node]
    yield from _coalition_limits(facts, partitions, coalitions, caps, numbers)


def _bounds(partitions: tuple[Partition, ...], caps: dict[str, Caps], author: Organisation) -> Iterator[Bound]:
    holder = holder_of(author.node)
    for partition in partitions:
        stated = caps[partition.ref]
        if stated.everyone is not None:
            yield Bound(partition, GLOBAL, stated.everyone)
        yield Bound(partition, holder, stated.lineage, source=stated.lineage_source)
        if stated.share is not None:
            yield Bound(partition, holder, partition.epsilon, stated.share, stated.share_source)


def _limit(bound: Bound, stated: Caps, numbers: ComputedPrices, *, rounded: bool) -> Limit:
    try:
        return Limit(bound.partition.ref, bound.holder, numbers.cap(bound), bound.share, bound.source, rounded)
    except NoRoom as closed:
        check = Check("cap_closed", passed=False, text=f"{_where(bound.partition, stated)}: {closed}")
        raise Rejected(Code.POLICY_DENIED, check.text, "", {"checks": [check.to_json()]}) from None


def _where(partition: Partition, stated: Caps) -> str:
    """The partition's name and, if a person may be in others too, which these are."""
    return f"{partition.ref}, {stated.slice_words}" if stated.slice_words else partition.ref


def coalition_caps(facts: Facts, author: Organisation) -> tuple[Fraction, ...]:
    """The ε of each coalition that follows an author, in order."""
    stated = (facts.nodes[coalition].epsilon for coalition in coalitions_of(facts.nodes, author.node))
    return tuple(epsilon for epsilon in stated if epsilon is not None)


def _coalition_limits(
    facts: Facts,
    partitions: tuple[Partition, ...],
    coalitions: Iterable[int],
    caps: Mapping[str, Caps],
    numbers: ComputedPrices,
) -> Iterator[Limit]:
    """The caps of coalitions that follow the author; never beyond a partition's own budget."""
    for coalition in coalitions:
        epsilon, holder = facts.nodes[coalition].epsilon, holder_of(coalition)
        assert epsilon is not None
        for partition in partitions:
            try:
                own = caps[partition.ref].of_coalition(epsilon, partition.epsilon)
                cap = numbers.cap(Bound(partition, holder, own))
            except NoRoom:
                words = silent(_where(partition, caps[partition.ref]), enough=False)
                full = Check(CODE, passed=False, text=words, source=holder)
                raise no_room([full]) from None
            yield Limit(partition.ref, holder, cap)


def no_room(full: list[Check]) -> Rejected:
    """The rejection that names every account without room."""
    detail = "; ".join(check.text for check in full)
    return Rejected(Code.BUDGET_EXHAUSTED, detail, "", {"checks": [check.to_json() for check in full]})
