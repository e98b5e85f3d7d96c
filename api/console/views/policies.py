"""Policies: the version in force of each domain, versions side by side, and what a draft would change."""

from __future__ import annotations

from typing import Final

from api.console.frame import cells
from api.console.frame.addresses import address
from api.console.frame.cells import Cell
from api.console.frame.document_fields import document_fields
from api.console.frame.names import organisation, partition
from api.console.frame.pages import ROWS_MAX, Inputs, Page, Pages
from api.console.frame.reader import Reader
from api.console.frame.tables import Table, first_of
from api.routes import planning, registry
from ledger.wire.malformed import Malformed
from ledger.wire.records import to_json
from policy.decisions.documents_in_force import policy_in_force, read_policy
from policy.planning.account_caps import PartitionBounds
from policy.planning.policy_impact import Impact

PAGES: Final = Pages()
CHANGES_MAX: Final = 200
"""Partitions and accounts that change, of which a page shows so many."""
VERSIONS_MAX: Final = 4
"""The newest versions of a policy that are shown beside one another."""


@PAGES.page("/policies", "Policies", registry.list_policies)
def policies(reader: Reader, inputs: Inputs) -> Page:
    """The newest version of each domain's policy. Raises: Malformed."""
    page = reader.page(registry.list_policies, ROWS_MAX, inputs.get("cursor"))
    rows = tuple(
        (
            cells.text(item.domain, address("policies", item.domain)),
            cells.count(item.version),
            organisation(reader, item.issuer),
            cells.moment(item.effective),
            cells.count(item.index, address("log", str(item.index))),
        )
        for item in page.items
    )
    columns = ("Domain", "Newest version", "Issuer", "In force from", "Entry")
    following = address("policies", cursor=page.next_cursor) if page.next_cursor else ""
    empty = "No policy is published. An SRO publishes one."
    table = Table("policies", "Policies", columns, rows, empty, following)
    return Page("list.html", "Policies", (table,))


@PAGES.page("/policies/{domain}", "", registry.read_policy)
def policy(reader: Reader, inputs: Inputs) -> Page:
    """A domain's policy, its newest versions side by side. Raises: Malformed, Problem."""
    domain = inputs.path["domain"]
    answer = reader.read(registry.read_policy, domain)
    newest = sorted(answer.versions, key=lambda version: -version.version)[:VERSIONS_MAX]
    documents = [read_policy(reader.facts.documents[version.document]) for version in newest]
    current = policy_in_force(reader.facts, domain, reader.view.time)
    names = [
        f"version {version.version}"
        + (", in force" if current is not None and version.document == current.document else "")
        for version in newest
    ]
    compared = document_fields(names, [to_json(document) for document in documents])
    return Page(
        "policy.html",
        f"Policy of {domain}",
        (compared.table(),),
        {
            "about": _facts(reader, newest[0].issuer, current.version if current else None, len(answer.versions)),
            "changed": compared.changed,
            "impact": address("policy-impact") if reader.may(planning.ask_policy_impact) else "",
        },
    )


def _facts(reader: Reader, issuer: str, version: int | None, count: int) -> list[tuple[str, Cell]]:
    return [
        ("Issuer", organisation(reader, issuer)),
        ("Version in force", cells.count(version)),
        ("Versions", cells.count(count)),
    ]


@PAGES.page("/policy-impact", "", planning.ask_policy_impact, slow=True, form=True)
def policy_impact(reader: Reader, inputs: Inputs) -> Page:
    """What a draft of a policy would change, before it is published. Raises: Malformed, Problem."""
    text, impact, wrong = inputs.form.get("document", ""), None, ""
    if text:
        try:
            impact = reader.read(planning.ask_policy_impact, text.encode())
        except Malformed as error:
            wrong = str(error)
    tables = () if impact is None else _impact_tables(impact)
    return Page(
        "policy_impact.html",
        "What a policy would change",
        tables,
        {"text": text, "wrong": wrong, "answered": impact is not None},
    )


def _impact_tables(impact: Impact) -> tuple[Table, ...]:
    """What changes, each before and after."""
    fields = tuple((cells.text(field.name), _word(field.before), _word(field.after)) for field in impact.fields)
    partitions = tuple(
        (partition(change.name), *_bounds(change.before), *_bounds(change.after))
        for change in impact.partitions[:CHANGES_MAX]
    )
    accounts = tuple(
        (
            partition(account.after.partition),
            Cell(account.after.name, exact=account.after.holder),
            cells.share(account.before.used.share, str(account.before.used)),
            cells.share(account.after.used.share, str(account.after.used)),
            cells.mark(
                "freezes" if account.freezes else "thaws" if account.thaws else "as before", passed=not account.freezes
            ),
        )
        for account in impact.accounts[:CHANGES_MAX]
    )
    refused = tuple(
        (cells.mark(check.code.replace("_", " "), passed=False), cells.text(check.text)) for check in impact.refused
    )
    return (
        Table("fields", "What it says", ("Field", "Now", "Then"), fields, "No field changes."),
        Table(
            "partitions",
            first_of("Partitions whose bounds change", len(impact.partitions), CHANGES_MAX),
            ("Partition", "Level now", "Cap now", "Level then", "Cap then"),
            partitions,
            "No open partition changes.",
        ),
        Table(
            "accounts",
            first_of("Accounts whose cap changes", len(impact.accounts), CHANGES_MAX),
            ("Partition", "Whose", "Used now", "Used then", "Effect"),
            accounts,
            "No account changes.",
        ),
        Table("refused", "Checks that it would fail", ("Check", "Why"), refused, "None: its issuer could enter it."),
    )


def _word(value: object) -> Cell:
    if isinstance(value, list):
        return cells.text(", ".join(word for word in map(str, value) if not word.startswith("batch_size")))
    return cells.text("–" if value is None else value)


def _bounds(value: PartitionBounds | None) -> tuple[Cell, Cell]:
    if value is None:
        return cells.text("–"), cells.text("–")
    return cells.count(value.level), cells.bound(value.lineage_epsilon_max)
