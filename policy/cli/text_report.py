"""Reports of planning, policy impact, mergers and coalitions as lines of text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from ledger.command_line.verbosity import is_verbose, plain
from ledger.domain.gate import Check
from ledger.filters.catalogue_prices import Corner
from ledger.wire.exact_numbers import format_number
from policy.checks.field_readers import format_time
from policy.planning.account_caps import AccountStatus
from policy.planning.coalition_search import SmallestCoalitions
from policy.planning.lineage_impact import ExposureChange
from policy.planning.merger_impact import MergedAccount
from policy.planning.plan_report import PlanReport
from policy.planning.policy_impact import Change, Impact
from policy.planning.what_if import DecisionReport

_HOLDER: Final = re.compile(r"global|lineage:[0-9]+")


def breach_lines(breaches: Sequence[AccountStatus]) -> Iterator[str]:
    """The accounts over their cap."""
    for breach in breaches:
        yield f"the account of {breach.name} on {breach.partition} is over its cap: {_used_text(breach)}"
    yield "1 account is over its cap." if len(breaches) == 1 else f"{len(breaches)} accounts are over their cap."


def price_lines(offers: Sequence[Corner]) -> Iterator[str]:
    """Prices to choose from, each with the runs that it would admit."""
    for offer in offers:
        prices, alone = ", ".join(map(str, offer.prices)), " or ".join(map(str, offer.alone))
        yield f'"prices": [{prices}]  {alone} of each kind alone, or {offer.loads} of the whole load'
    yield "Kinds are in the order of the declared load; put the prices you choose into the partition's file."


def impact_lines(impact: Impact) -> Iterator[str]:
    """The impact of a policy."""
    yield f"{impact.policy}, as of {format_time(impact.at)}"
    for check in impact.refused:
        yield f"  the policy would be refused: {plain(check.text)} ({check.code})"
    first = any((field.name, field.before) == ("version", None) for field in impact.fields)
    if first:
        yield "  the first policy of its domain: nothing is in force there yet"
    for field in impact.fields if is_verbose() or not first else ():
        yield f"  {field.name}: {_changes(field)}"
    for partition in impact.partitions:
        yield f"  partition {partition.name}: {_changes(partition)}"
    for bounds in impact.contracts:
        yield f"  contract {bounds.name}: {_changes(bounds)}"
    for change in impact.accounts:
        before, after = change.before, change.after
        word = "would be frozen" if change.freezes else "would admit charges again" if change.thaws else "changes"
        yield f"  the account of {after.name} on {after.partition} {word}: {_used_text(before)} -> {_used_text(after)}"
    yield from (f"  {plain(cap.text)}" for cap in impact.caps)
    for coalition in impact.undeclared:
        yield f"  coalition {coalition}: its members cannot charge until it is declared"
    for charge in impact.pending:
        touched = {
            "needs other attestation": charge.attestation,
            "model becomes sealed": charge.sealed,
            "account frozen": charge.frozen,
        }
        yield f"  pending charge {charge.charge}: {', '.join(word for word, holds in touched.items() if holds)}"
    counts = len(impact.partitions), sum(account.freezes for account in impact.accounts), len(impact.pending)
    yield "{} would change, {} would be frozen, {} would be affected.".format(
        *map(_count, counts, ("partition", "account", "pending charge"))
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _changes(change: Change[Any]) -> str:
    members = change.to_json()
    before, after = members["before"], members["after"]
    if not isinstance(before, dict) or not isinstance(after, dict):
        return f"{_value(before)} -> {_value(after)}"
    changes = (
        f"{name} {_value(before[name], name)} -> {_value(after[name], name)}"
        for name in after
        if before[name] != after[name]
    )
    return ", ".join(changes)


def _value(value: Any, name: str = "") -> str:  # noqa: ANN401 - JSON
    if value is None:
        return "none"
    if name == "closes":
        return format_time(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return "; ".join(f"{name} {_value(item)}" for name, item in value.items() if item is not None) or "none"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _used_text(account: AccountStatus) -> str:
    cap = "no cap" if account.epsilon_max is None else f"cap {format_number(account.epsilon_max)}"
    quota = "" if account.share_max is None else f", quota {format_number(account.share_max)}"
    return f"{account.used} ({cap}{quota})"


def merger_lines(merged: Iterable[MergedAccount]) -> Iterator[str]:
    """The accounts after a merger."""
    listed = list(merged)
    for account in listed:
        whose = "the merged lineage" if account.coalition is None else account.after.name
        before = " and ".join(status.used for status in account.before)
        much = "" if account.excess is None else f", {account.excess} over its cap"
        word = f"would be frozen{much}" if account.after.over else "stays within its cap"
        yield f"{account.partition}: {whose} {word}: {before} -> {_used_text(account.after)}"
    if not listed:
        yield "None of these organisations has any privacy loss on record."


def exposure_lines(changes: Iterable[ExposureChange]) -> Iterator[str]:
    """The accounts that a lineage event would change."""
    listed = list(changes)
    for change in listed:
        whose = change.after.name
        much = "" if change.excess is None else f", {change.excess} over its cap"
        word = f"would be frozen{much}" if change.after.over else "stays within its cap"
        yield f"{change.partition}: {whose} {word}: {change.before.used} -> {_used_text(change.after)}"
    frozen = sum(account.after.over and not account.before.over for account in listed)
    yield f"{_count(len(listed), 'account')} would change, {frozen} would be frozen."


def coalition_lines(searches: Iterable[SmallestCoalitions]) -> Iterator[str]:
    """The smallest coalitions over a cap."""
    listed = list(searches)
    if not listed:
        yield "There is no open partition on which such a cap leaves any room."
    for account in listed:
        searched = _count(account.asked, "organisation")
        yield f"{account.partition}, cap {format_number(account.epsilon_max)}, {searched}:"
        for over in account.coalitions:
            yield f"  {len(over.members)}: {over.name}"
        if account.complete:
            complete = "all of the smallest size are listed"
            result = complete if account.coalitions else "no coalition exceeds the cap"
            yield f"  Complete: {result}."
        else:
            smaller = f"no coalition of up to {account.searched_up_to} exceeds the cap"
            yield f"  Incomplete: {smaller}; larger ones are unknown."


def decision_lines(decision: DecisionReport) -> Iterator[str]:
    """A decision with the failed checks and the binding constraint; if verbose, with every check and its arithmetic."""
    if not is_verbose():
        yield from _brief(decision)
        return
    yield f"{decision.outcome}{': ' + decision.detail if decision.detail else ''}"
    for check in decision.checks:
        yield _line(check)
    if decision.binding:
        yield f"Binding constraint: {decision.binding.text}"


def _brief(decision: DecisionReport) -> Iterator[str]:
    failed = [check for check in decision.checks if not check.passed]
    # A detail that only repeats the failed checks is omitted.
    detail = f": {plain(decision.detail)}" if decision.detail and not failed else ""
    yield f"{decision.outcome}{detail}"
    yield from (plain(_line(check)) for check in failed)
    if passed := len(decision.checks) - len(failed):
        yield f"  {passed} {'check passes' if passed == 1 else 'checks pass'}; --verbose lists each."
    if decision.binding and not failed:
        yield f"What binds: {plain(decision.binding.text)}"


def _line(check: Check) -> str:
    # The text names the account already; its holder is for programs.
    source = f" [{check.source}]" if check.source and not _HOLDER.fullmatch(check.source) else ""
    return f"  {'ok  ' if check.passed else 'FAIL'} {check.code}: {check.text}{source}"


def run_lines(report: PlanReport) -> Iterator[str]:
    """The report of a planned run."""
    yield from decision_lines(report.decision)
    yield from (f"The run: {line}." for line in report.run_epsilon)
    steps, noise, runs = report.steps_most, report.noise_multiplier_least, report.runs
    epochs = "" if steps.epochs is None else f", {format_number(steps.epochs)} epochs"
    yield f"At this noise multiplier, at most {steps.steps} steps would be admitted{epochs}."
    yield (
        "No noise multiplier admits these steps."
        if noise is None
        else f"These steps need a noise multiplier of at least {format_number(noise)}."
    )
    more = f"{runs.more} or more" if runs.or_more else str(runs.more)
    yield f"{more} such {'run' if more == '1' else 'runs'} would be admitted one after another, if no one else charges."
    for account in runs.accounts:
        yield f"  {account.name} on {account.partition}: {account.used} used, {account.runs} runs fit"
    if report.advice and report.advice.partitions_untried:
        yield f"{report.advice.partitions_untried} other partitions were not tried."
    for lasts in report.lasts:
        until = "after 100 years" if lasts.projected_until is None else format_time(lasts.projected_until)
        how = "is exhausted" if lasts.full else f"lasts until {until}"
        rate = f"at the rate since {format_time(lasts.rate_since)}"
        yield f"  the account of {lasts.name} on {lasts.partition} {how} {rate} (projection)"
