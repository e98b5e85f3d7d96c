"""Planning and impact in sentences, one a line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from policy.checks.field_readers import format_time
from policy.planning.account_caps import AccountStatus
from policy.planning.coalition_search import Coalitions
from policy.planning.merger_impact import MergedAccount
from policy.planning.policy_impact import Impact


def breach_lines(found: Sequence[AccountStatus]) -> Iterator[str]:
    """Accounts over their cap."""
    for one in found:
        yield f"account {one.holder} of {one.partition} is over its cap: {_used(one)}"
    yield "1 account is over its cap." if len(found) == 1 else f"{len(found)} accounts are over their cap."


def impact_lines(found: Impact) -> Iterator[str]:
    """What a policy would change."""
    yield f"{found.policy}, as of {format_time(found.at)}"
    for check in found.refused:
        yield f"  it would be refused: {check.text} ({check.code})"
    for one in found.fields:
        yield f"  {one.name}: {_value(one.before)} -> {_value(one.after)}"
    for one in found.partitions:
        yield f"  partition {one.name}: {_changes(one.before, one.after)}"
    for one in found.contracts:
        yield f"  contract {one.name}: {_changes(one.before, one.after)}"
    for change in found.accounts:
        before, after = change.before, change.after
        word = "would FREEZE" if change.freezes else "would take charges again" if change.thaws else "stays as it is"
        yield f"  account {after.holder} of {after.partition} {word}: {_used(before)} -> {_used(after)}"
    for named in found.undeclared:
        yield f"  coalition {named} charge nothing until it is declared"
    for charge in found.pending:
        touched = {
            "other evidence for its key": charge.attestation,
            "its model sealed": charge.sealed,
            "frozen": charge.frozen,
        }
        yield f"  pending charge {charge.charge}: {', '.join(word for word, holds in touched.items() if holds)}"
    counts = len(found.partitions), len(found.frozen), len(found.pending)
    yield "{} partitions change, {} accounts would be frozen, {} pending charges are touched.".format(*counts)


def _changes(before: Any, after: Any) -> str:  # noqa: ANN401 - JSON
    if not isinstance(before, dict) or not isinstance(after, dict):
        return f"{_value(before)} -> {_value(after)}"
    told = [f"{name} {_value(before[name])} -> {_value(after[name])}" for name in after if before[name] != after[name]]
    return ", ".join(told)


def _value(value: Any) -> str:  # noqa: ANN401 - JSON
    if value is None:
        return "none"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _used(one: AccountStatus) -> str:
    cap = "watched" if one.epsilon is None else f"cap {one.to_json()['epsilon_max']}"
    quota = "" if one.quota is None else f", quota {one.to_json()['share_max']}"
    return f"{one.percent} ({cap}{quota})"


def merger_lines(found: Iterable[MergedAccount]) -> Iterator[str]:
    """What merging would do."""
    listed = list(found)
    for one in listed:
        whose = "the union" if one.coalition is None else f"coalition {one.coalition}"
        before = " and ".join(stands.percent for stands in one.before)
        excess = one.to_json()["excess"]
        much = "" if excess is None else f", {excess} of its cap too much"
        word = f"would be FROZEN{much}" if one.after.over else "stays within its cap"
        yield f"{one.partition}: {whose} {word}: {before} -> {_used(one.after)}"
    if not listed:
        yield "None of them has charged anything."


def coalition_lines(found: Iterable[Coalitions]) -> Iterator[str]:
    """Who together would exceed a cap."""
    for one in found:
        told, shown = one.listing, one.to_json()
        yield f"{one.partition}, cap {shown['epsilon_max']}, {one.asked} organisations:"
        for members, _ in told.coalitions:
            yield f"  {len(members)}: {', '.join(members)}"
        if told.complete:
            all_of_them = "these are all of that size" if told.coalitions else "not even all together are over"
            yield f"  {all_of_them}; none smaller is."
        else:
            yield f"  not searched beyond {told.searched}: no coalition of at most so many is over; others may be."


def decision_lines(told: Any) -> Iterator[str]:  # noqa: ANN401 - JSON
    """Every check of a decision, and what binds."""
    decision = told["decision"]
    if "recorded" in told:
        yield f"Recorded: {told['recorded']}; decided again:"
    yield f"{decision['outcome']}{': ' + decision['detail'] if decision['detail'] else ''}"
    for check in decision["checks"]:
        source = f" [{check['source']}]" if check["source"] else ""
        yield f"  {'ok  ' if check['passed'] else 'FAIL'} {check['code']}: {check['text']}{source}"
    binding = decision["binding"]
    if binding:
        yield f"What binds: {binding['text']}"


def run_lines(told: Any) -> Iterator[str]:  # noqa: ANN401 - the report's JSON
    """What is told of a run somebody plans."""
    yield from decision_lines(told)
    steps = told["steps_most"]
    epochs = "" if steps["epochs"] is None else f", {steps['epochs']} epochs"
    yield f"At this noise at most {steps['steps']} steps would be charged{epochs}."
    noise = told["noise_multiplier_least"]
    yield f"These steps need a noise multiplier of at least {noise}." if noise else "No noise lets these steps pass."
    runs = told["runs"]
    more = f"{runs['more']} or more" if runs["or_more"] else str(runs["more"])
    yield f"{more} such runs would be charged one after another, if nobody else charges."
    for one in runs["accounts"]:
        yield f"  {one['holder']} of {one['partition']}: {one['used']} used, {one['runs']} runs fit"
    yield from _advice(told["advice"])
    for one in told["lasts"]:
        until = "is full now" if one["full"] else f"lasts until {one['projected_until'] or 'beyond a hundred years'}"
        yield f"  {one['holder']} of {one['partition']} {until}, charged on as since {one['rate_since']} (a projection)"


def _advice(advice: Any) -> Iterator[str]:  # noqa: ANN401 - JSON
    if advice is None:
        return
    for swap in advice["partitions"]:
        yield f"It would pass on {swap['instead']} instead of {swap['of']}."
    if advice["partitions_untried"]:
        yield f"{advice['partitions_untried']} other partitions were not tried."
