"""Reports of planning, policy impact, mergers and coalitions as lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from policy.checks.field_readers import format_time
from policy.planning.account_caps import AccountStatus
from policy.planning.coalition_search import Coalitions
from policy.planning.merger_impact import MergedAccount
from policy.planning.policy_impact import Impact


def breach_lines(found: Sequence[AccountStatus]) -> Iterator[str]:
    """The accounts over their cap."""
    for one in found:
        yield f"account {one.holder} of {one.partition} is over its cap: {_used(one)}"
    yield "1 account is over its cap." if len(found) == 1 else f"{len(found)} accounts are over their cap."


def impact_lines(found: Impact) -> Iterator[str]:
    """What a policy would change."""
    yield f"{found.policy}, as of {format_time(found.at)}"
    for check in found.refused:
        yield f"  the policy would be refused: {check.text} ({check.code})"
    for one in found.fields:
        yield f"  {one.name}: {_value(one.before)} -> {_value(one.after)}"
    for one in found.partitions:
        yield f"  partition {one.name}: {_changes(one.before, one.after)}"
    for one in found.contracts:
        yield f"  contract {one.name}: {_changes(one.before, one.after)}"
    for change in found.accounts:
        before, after = change.before, change.after
        word = "would be frozen" if change.freezes else "would admit charges again" if change.thaws else "changes"
        yield f"  account {after.holder} of {after.partition} {word}: {_used(before)} -> {_used(after)}"
    for named in found.undeclared:
        yield f"  coalition {named}: its members cannot charge until it is declared"
    for charge in found.pending:
        touched = {
            "needs other attestation": charge.attestation,
            "model becomes sealed": charge.sealed,
            "account frozen": charge.frozen,
        }
        yield f"  pending charge {charge.charge}: {', '.join(word for word, holds in touched.items() if holds)}"
    counts = len(found.partitions), len(found.frozen), len(found.pending)
    yield "Summary: {} partitions change, {} accounts would be frozen, {} pending charges are affected.".format(*counts)


def _changes(before: Any, after: Any) -> str:  # noqa: ANN401 - JSON
    if not isinstance(before, dict) or not isinstance(after, dict):
        return f"{_value(before)} -> {_value(after)}"
    changes = (
        f"{name} {_value(before[name])} -> {_value(after[name])}" for name in after if before[name] != after[name]
    )
    return ", ".join(changes)


def _value(value: Any) -> str:  # noqa: ANN401 - JSON
    if value is None:
        return "none"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _used(one: AccountStatus) -> str:
    cap = "no cap" if one.epsilon is None else f"cap {one.to_json()['epsilon_max']}"
    quota = "" if one.quota is None else f", quota {one.to_json()['share_max']}"
    return f"{one.percent} ({cap}{quota})"


def merger_lines(found: Iterable[MergedAccount]) -> Iterator[str]:
    """The accounts after a merger."""
    listed = list(found)
    for one in listed:
        whose = "the merged lineage" if one.coalition is None else f"coalition {one.coalition}"
        before = " and ".join(status.percent for status in one.before)
        excess = one.to_json()["excess"]
        much = "" if excess is None else f", {excess} over its cap"
        word = f"would be frozen{much}" if one.after.over else "stays within its cap"
        yield f"{one.partition}: {whose} {word}: {before} -> {_used(one.after)}"
    if not listed:
        yield "None of these organisations has any privacy loss on record."


def coalition_lines(found: Iterable[Coalitions]) -> Iterator[str]:
    """The smallest coalitions over a cap."""
    for one in found:
        search, shown = one.listing, one.to_json()
        yield f"{one.partition}, cap {shown['epsilon_max']}, {one.asked} organisations:"
        for members, _ in search.coalitions:
            yield f"  {len(members)}: {', '.join(members)}"
        if search.complete:
            listed = "all of the smallest size are listed"
            result = listed if search.coalitions else "no coalition exceeds the cap"
            yield f"  Complete: {result}."
        else:
            yield f"  Incomplete: no coalition of up to {search.searched} exceeds the cap; larger ones are unknown."


def decision_lines(report: Any) -> Iterator[str]:  # noqa: ANN401 - JSON
    """Every check of a decision, and the binding one."""
    decision = report["decision"]
    if "recorded" in report:
        yield f"Recorded outcome: {report['recorded']}. Re-evaluated:"
    yield f"{decision['outcome']}{': ' + decision['detail'] if decision['detail'] else ''}"
    for check in decision["checks"]:
        source = f" [{check['source']}]" if check["source"] else ""
        yield f"  {'ok  ' if check['passed'] else 'FAIL'} {check['code']}: {check['text']}{source}"
    binding = decision["binding"]
    if binding:
        yield f"Binding constraint: {binding['text']}"


def run_lines(report: Any) -> Iterator[str]:  # noqa: ANN401 - the report's JSON
    """The report of a planned run."""
    yield from decision_lines(report)
    steps = report["steps_most"]
    epochs = "" if steps["epochs"] is None else f", {steps['epochs']} epochs"
    yield f"At this noise multiplier, at most {steps['steps']} steps would be admitted{epochs}."
    noise = report["noise_multiplier_least"]
    yield (
        f"These steps need a noise multiplier of at least {noise}."
        if noise
        else "No noise multiplier admits these steps."
    )
    runs = report["runs"]
    more = f"{runs['more']} or more" if runs["or_more"] else str(runs["more"])
    yield f"{more} such runs would be admitted one after another, if there are no other charges."
    for one in runs["accounts"]:
        yield f"  {one['holder']} of {one['partition']}: {one['used']} used, {one['runs']} runs fit"
    yield from _advice(report["advice"])
    for one in report["lasts"]:
        until = "is exhausted" if one["full"] else f"lasts until {one['projected_until'] or 'after 100 years'}"
        yield f"  {one['holder']} of {one['partition']} {until} at the rate since {one['rate_since']} (projection)"


def _advice(advice: Any) -> Iterator[str]:  # noqa: ANN401 - JSON
    if advice is None:
        return
    for swap in advice["partitions"]:
        yield f"The run would be admitted on {swap['instead']} instead of {swap['of']}."
    if advice["partitions_untried"]:
        yield f"{advice['partitions_untried']} other partitions were not tried."
