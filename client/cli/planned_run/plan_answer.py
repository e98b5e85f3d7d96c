"""What a planned run would get, as people read it: its ε, the share of each account, what fits, and what would pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from client.cli.output import cell, epsilon_lines, objects
from client.cli.planned_run.charge_file import Changes
from ledger.command_line.missing_fields import missing_field
from ledger.command_line.verbosity import plain
from ledger.wire.canonical_json import Json, Object


def permitted_lines(report: Object) -> Iterator[str]:
    """The answer to a run that would be charged."""
    uncertain = _object(report.get("decision")).get("detail")
    yield f"The run may be admitted: {cell(uncertain)}." if uncertain else "The run would be admitted."
    yield from (f"  {line}" for line in epsilon_lines(report.get("run_epsilon")))
    runs = _object(report.get("runs"))
    for account in objects(runs.get("accounts")):
        after = f", {cell(account['used_after'])} with this run" if account.get("used_after") else ""
        used, fit = cell(account.get("used")), cell(account.get("runs"))
        yield f"  {cell(account.get('name'))}: {used} used now{after}; {fit} such runs fit"
    more = f"{cell(runs.get('more'))}{' or more' if runs.get('or_more') else ''}"
    yield f"Such runs that would be admitted, this one included: {more}."
    if binding := _object(runs.get("binding")):
        yield f"After that this binds: {plain(cell(binding.get('text')))}"
    steps, noise = _object(report.get("steps_most")).get("steps"), report.get("noise_multiplier_least")
    if noise is not None:
        yield f"Its steps need a noise multiplier of at least {cell(noise)}; at its noise, {cell(steps)} steps fit."


def changes_that_pass(report: Object, changes: Changes, partitions: Sequence[str]) -> Iterator[tuple[str, Changes]]:
    """The smallest changes that would each be admitted by itself: a sentence, and the command line's options for it."""
    from dataclasses import replace

    advice = _object(report.get("advice"))
    noise, steps = advice.get("noise_multiplier"), advice.get("steps")
    if isinstance(noise, str):
        yield f"a noise multiplier of at least {noise}", replace(changes, noise=noise)
    if isinstance(steps, int):
        yield f"at most {steps} steps", replace(changes, steps=steps)
    for swap in objects(advice.get("partitions")):
        of, instead = cell(swap.get("of")), cell(swap.get("instead"))
        refs = tuple(instead if ref == of else ref for ref in partitions)
        yield f"the partition {instead} instead of {of}", replace(changes, partitions=refs)


def blocked_lines(report: Object) -> Iterator[str]:
    """The checks that fail whatever the noise and the steps are."""
    for check in objects(_object(report.get("advice")).get("blocked")):
        yield f"no noise and no number of steps passes this: {plain(cell(check.get('text')))}"
        yield from missing_field(str(check.get("code")))


def _object(value: Json) -> Object:
    return value if isinstance(value, dict) else {}
