"""Decisions: permits and refusals, newest first, and every check of one with what would pass instead."""

from __future__ import annotations

import shlex
from typing import Final

from api.console.frame import cells
from api.console.frame.addresses import address, given
from api.console.frame.cells import Cell
from api.console.frame.entry_rows import ENTRY_COLUMNS, entry_row, newest_first, parse_index, read_filter
from api.console.frame.names import CHECK_COLUMNS, check, organisation, partition
from api.console.frame.pages import ROWS_MAX, Inputs, Page, Pages
from api.console.frame.reader import Reader
from api.console.frame.tables import Table
from api.console.views.planner import advice_tables
from api.http.problems import Problem
from api.routes import log as log_routes
from api.routes import planning, registry
from api.routes.overviews import decision_checks
from api.wire.command_answers import Decision
from ledger.commands.registry import KINDS
from ledger.commands.runs.charge import CHARGE
from ledger.domain.decision import Rejected
from ledger.domain.gate import Check
from ledger.store.snapshot import Snapshot
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from ledger.wire.records import convert
from policy.decisions.documents_in_force import dataset_of, policy_in_force
from policy.planning.plan_report import PlanReport

PAGES: Final = Pages()
_NAMED: Final = ("contract", "document", "charge", "organisation", "provider", "dataset", "model")


@PAGES.page("/decisions", "Decisions", log_routes.list_decisions)
def decisions(reader: Reader, inputs: Inputs) -> Page:
    """The decisions that the caller may see, newest first. Raises: Malformed."""
    wanted, chosen = read_filter(inputs)
    entries, before = newest_first(reader, parse_index(inputs.get("before"), reader.facts.size), wanted)
    table = Table(
        "decisions",
        "Decisions, newest first",
        ENTRY_COLUMNS,
        tuple(entry_row(reader, index, entry) for index, entry in entries),
        "No decision that you may see among these entries.",
        following=address("decisions", before=before, **given(chosen)) if before else "",
    )
    return Page("decisions.html", "Decisions", (table,), {"kinds": sorted(KINDS), "chosen": chosen})


@PAGES.page("/decisions/{id}", "", log_routes.read_decision)
def decision(reader: Reader, inputs: Inputs) -> Page:
    """One decision with every check on record. Raises: Malformed, Problem."""
    answer = reader.read(log_routes.read_decision, inputs.path["id"])
    # As the entry has them: the API's answer passes them through.
    checks = convert(tuple[Check, ...], [*answer.checks], "checks")
    failed = [check for check in checks if not check.passed]
    facts = [
        ("Outcome", cells.mark(answer.outcome.replace("_", " "), passed=answer.permit)),
        ("Kind", cells.text(answer.kind.replace("_", " "))),
        ("By", organisation(reader, answer.actor)),
        ("Time", cells.moment(answer.time)),
        *_policies(reader, answer),
        ("Entry, with its receipt", cells.count(answer.index, address("log", str(answer.index)))),
        ("Signed with", cells.digest(answer.key_id)),
    ]
    refused = answer.kind == CHARGE.name and not answer.permit
    now = _planned_now(reader, answer) if refused else None
    values = {
        "about": facts,
        "known": answer,
        "binding": failed[0] if failed else None,
        "again": _again(reader, answer, checks),
        "refused": refused,
        "now": now,
        "receipt": shlex.join(["epsilon", "receipt", "book.sqlite", answer.id, "evidence"]),
    }
    changes = () if now is None else advice_tables(now)
    return Page("decision.html", f"Decision on {answer.id}", (_checks(checks), *changes, _names_table(answer)), values)


def _policies(reader: Reader, answer: Decision) -> list[tuple[str, Cell]]:
    """The version of each policy that bound the partitions of a charge when it was decided."""
    request = answer.request if isinstance(answer.request, dict) else {}
    facts = reader.facts
    assert isinstance(facts, Snapshot)
    refs = _refs(request.get("partitions"))[:ROWS_MAX]
    facts.fetch_partitions(refs)
    opened = [found for ref in refs if (found := facts.partitions.get(ref)) is not None]
    domains = dict.fromkeys(dataset_of(facts, one).domain for one in opened)
    linked = reader.may(registry.read_policy)
    versions = ((domain, policy_in_force(facts, domain, answer.time, answer.index)) for domain in domains)
    return [
        (
            f"Policy of {domain} in force",
            cells.text(f"version {version.version}", address("policies", domain) if linked else ""),
        )
        for domain, version in versions
        if version is not None
    ]


def _planned_now(reader: Reader, answer: Decision) -> PlanReport | None:
    """What a refused run would get now, with the smallest changes that would pass; None where the caller gets none.

    It counts as a question of the planner. A caller whose questions are used up, or who may not ask about this run,
    sees the decision without it.
    """
    view, quotas = reader.view, reader.view.context.quotas
    if not reader.may(planning.plan_run):
        return None
    try:
        quotas.admit_questions(view.caller)
        quotas.check_pricing(view.caller)
        with view.context.snapshots.long.taken(view.caller.organisation, 0), quotas.metered(view.caller):
            return reader.read(planning.plan_run, c.dump(answer.request), search=False)
    except (Problem, Malformed, Rejected, ArithmeticError):
        return None


def _again(reader: Reader, answer: Decision, checks: tuple[Check, ...]) -> str:
    """The address of the checks of a charge's permit, which its entry does not hold; empty for none."""
    again = answer.kind == CHARGE.name and not checks and reader.may(decision_checks.read_decision_checks)
    return address("decisions", answer.id, "checks") if again else ""


@PAGES.page("/decisions/{id}/checks", "", decision_checks.read_decision_checks, slow=True)
def checks(reader: Reader, inputs: Inputs) -> Page:
    """Every check of a decision, those of a permit decided again. Raises: Malformed, Problem."""
    answer = reader.read(decision_checks.read_decision_checks, inputs.path["id"])
    failed = [check for check in answer.checks if not check.passed]
    facts = [
        ("Decision", cells.text(answer.id, address("decisions", answer.id))),
        ("Entry", cells.count(answer.index, address("log", str(answer.index)))),
        ("Outcome", cells.mark("permitted" if answer.permit else "refused", passed=answer.permit)),
        (
            "Checks",
            cells.text("as the entry has them" if answer.recorded else f"on the state at {answer.index} entries"),
        ),
    ]
    values = {
        "about": facts,
        "binding": failed[0] if failed else None,
        "recorded": answer.recorded,
        "beyond": answer.recorded and answer.permit and bool(answer.checks),
        "command": shlex.join(["epsilon", "plan", "again", "book.sqlite", answer.id]),
    }
    return Page("checks.html", f"Checks of {answer.id}", (_checks(answer.checks),), values)


def _checks(checks: tuple[Check, ...]) -> Table:
    empty = "The entry holds no check: of a permit it records what was decided, and the rules of its versions hold."
    return Table("checks", "Checks", CHECK_COLUMNS, tuple(map(check, checks)), empty)


def _names_table(decided: Decision) -> Table:
    """What the command named, and nothing of its plan."""
    request = decided.request if isinstance(decided.request, dict) else {}
    values = ((name, request.get(name)) for name in _NAMED)
    rows = [(cells.text(name), _cell(name, value)) for name, value in values if isinstance(value, str)]
    rows += [(cells.text("partition"), partition(ref)) for ref in _refs(request.get("partitions"))]
    return Table("named", "What the command names", ("Name", "Value"), tuple(rows), "Nothing by name.")


def _refs(value: c.Json) -> list[str]:
    return [ref for ref in value if isinstance(ref, str) and ref.count("/") == 2] if isinstance(value, list) else []


def _cell(name: str, value: str) -> Cell:
    if name in {"contract", "document", "model"}:
        return cells.digest(value)
    return cells.text(value, address("runs", value) if name == "charge" else "")
