"""``epsilon policy``, what calls a service: publish a policy after a preview, show it, reset an account."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from client.cli.arguments import AsJson, CommandId, DryRun, PartitionRef, ProfilePath, account_holder, fresh_id
from client.cli.command_group import CommandGroup
from client.cli.error_report import errors_reported
from client.cli.output import cell, objects, print_json, print_outcome, print_rows, time_text
from client.cli.wording.confirmation import confirm
from client.cli.wording.outcome_names import named_document
from ledger.command_line.printable_text import printable_lines
from ledger.command_line.verbosity import is_verbose

if TYPE_CHECKING:
    from client.service.service import Service
    from ledger.wire.canonical_json import Json, Object

group = CommandGroup("policy", "An SRO's policies: publish one, and preview its effect.")
_PENDING: Final = {"attestation": "other evidence for its key", "frozen": "frozen", "sealed": "its model sealed"}
Row = tuple[str, str, str, str]


@group.command(
    "sro.toml policy.yaml",
    "sro.toml policy-2.json --dry-run --json",
    note="The effect is shown first, and confirmed at a terminal. Elsewhere a policy that changes an open "
    "partition, a contract, an account or a pending charge needs --yes. What would be refused is not sent.",
)
def publish(  # noqa: PLR0913 - each an argument
    profile: ProfilePath,
    document: Annotated[Path, typer.Argument(metavar="FILE", help="A policy or its next version, JSON or YAML.")],
    id: CommandId = "",  # noqa: A002 - the wire's name
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Publish without confirmation.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the effect and record nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Preview the effect of a policy; then sign and publish it: it binds from its effective date on."""
    from client.profile.profile import Profile
    from client.service.detached_signatures import read_document, require_kind

    name = fresh_id("policy", id)
    with errors_reported(as_json=as_json, id=name):
        caller, data = Profile.load(profile), read_document(document)
        require_kind(document, data, "policy")
        signer = caller.signer()
        with caller.open() as service:
            impact = service.policy_impact(data)
            if dry_run and as_json:
                print_json(impact)
            elif not as_json:
                print_impact(impact, to_stderr=not dry_run)
            _require_permitted(impact)
            if dry_run:
                return
            if not yes:
                _confirm(impact)
            stored = service.put_document(signer, data)
            body: Object = {"document": stored.document, "signatures": [stored.signature]}
            # It replaces the version that the impact was computed against, and is refused after another publication.
            replaces = impact.get("replaces")
            tag = replaces if isinstance(replaces, str) else None
            answer = service.submit(signer, caller.actor, "policy", body, name, replaces=tag)
    print_outcome(
        answer, named_document("policy", document, stored.document), as_json=as_json, extra={"impact": impact}
    )


def _require_permitted(impact: Any) -> None:  # noqa: ANN401 - the service's JSON
    """Raises: Refused, if the preview says that the policy would be refused."""
    from client.http.problems import Refused
    from ledger.domain.outcomes import Code

    if refused := impact["refused"]:
        reasons: list[Json] = [{"code": check["code"], "detail": check["text"]} for check in refused]
        detail = "; ".join(check["text"] for check in refused)
        problem: Object = {"code": Code.POLICY_DENIED.word, "detail": detail, "reasons": reasons}
        raise Refused(Code.POLICY_DENIED.http_status, problem)


def _confirm(impact: Object) -> None:
    """Raises: Malformed, unless a person says yes, or nothing in force changes and there is no terminal."""
    touched = any(impact.get(name) for name in ("accounts", "contracts", "partitions", "pending", "undeclared"))
    required = "the policy changes what is in force already" if touched else ""
    confirm("Publish it?", "was not confirmed: the policy is not published", required=required)


def _print_versions(policy: Object) -> None:
    names = ("version", "effective", "issuer", "document", "index")
    rows = [
        [cell(version.get(name)) if name != "effective" else time_text(version.get(name)) for name in names]
        for version in objects(policy.get("versions"))
    ]
    print_rows((*names[:-1], "entry"), rows)


@group.read_command("bank-a.toml health", "bank-a.toml health --json", table=_print_versions)
def show(
    service: Service, domain: Annotated[str, typer.Argument(metavar="DOMAIN", help="The domain that it governs.")]
) -> Object:
    """Show every version of a domain's policy: its effective date, issuer and document."""
    return service.policy(domain)


@group.command(
    'sro.toml did:web:hospital.example/scans/2026-q4 "Bank A" --reason "order 12 of 2026"',
    'sro.toml did:web:hospital.example/scans/2026-q4 global --reason "order 13 of 2026" --json',
)
def decree(  # noqa: PLR0913 - each an argument
    profile: ProfilePath,
    partition: PartitionRef,
    holder: Annotated[
        str,
        typer.Argument(metavar="HOLDER", help="An organisation by name or DID as `epsilon account` has it; or global."),
    ],
    id: CommandId = "",  # noqa: A002 - the wire's name
    *,
    reason: Annotated[str, typer.Option(help="Why; recorded permanently.")],
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Reset an account by the SRO's order: its lifetime odometer keeps counting, and the entry records the reason."""
    from client.profile.profile import Profile

    name = fresh_id("decree", id)
    with errors_reported(as_json=as_json, id=name):
        caller = Profile.load(profile)
        with caller.open() as service:
            body: Object = {
                "holder": account_holder(service, partition, holder),
                "partition": partition,
                "reason": reason,
            }
            answer = service.submit(caller.signer(), caller.actor, "decree", body, name, dry_run=dry_run)
    print_outcome(answer, f"reset of the account of {holder} on {partition}", as_json=as_json)


def print_impact(impact: Object, *, to_stderr: bool = False) -> None:
    """The effect of a policy as a table, where anything changes, and one sentence."""
    from rich.console import Console
    from rich.text import Text

    if rows := [*impact_rows(impact, whole=is_verbose())]:
        print_rows(("what", "name", "before", "after"), rows, fold_from=4, to_stderr=to_stderr)
    Console(stderr=to_stderr).print(Text(printable_lines(_summary(impact))), soft_wrap=True)


def impact_rows(impact: Any, *, whole: bool = False) -> Iterator[Row]:  # noqa: ANN401 - the service's JSON
    """What changes, its name, before and after; of a domain's first policy no field does, unless ``whole``."""
    for check in impact["refused"]:
        yield "would be refused", check["code"], "-", check["text"]
    for field in impact["fields"] if whole or not _is_first(impact) else ():
        yield "policy", field["name"], _value(field["before"]), _value(field["after"])
    for what in ("partition", "contract"):
        for change in impact[f"{what}s"]:
            yield what, change["name"], *_differing_fields(change["before"], change["after"])
    for account in impact["accounts"]:
        word = "account FROZEN" if account["freezes"] else "account thawed" if account["thaws"] else "account"
        before, after = account["before"], account["after"]
        yield word, f"{after.get('name', 'one')} on {after['partition']}", _used(before), _used(after)
    for cap in impact["caps"]:
        fits = "nothing runs" if not cap["usable"] else "the declared plan does not fit"
        yield f"cap: {fits}", cap["source"], "-", cap["text"]
    for ref in impact["undeclared"]:
        yield "coalition", ref, "-", "charge nothing until it is declared"
    for charge in impact["pending"]:
        changes = ", ".join(word for name, word in _PENDING.items() if charge[name])
        yield "pending charge", charge["charge"], "-", changes


def _is_first(impact: Any) -> bool:  # noqa: ANN401 - the service's JSON
    return any((field["name"], field["before"]) == ("version", None) for field in impact["fields"])


def _summary(impact: Any) -> str:  # noqa: ANN401 - the service's JSON
    frozen = sum(account["freezes"] for account in impact["accounts"])
    first = " the first policy of its domain;" if _is_first(impact) else ""
    return (
        f"{impact['policy']}, as of {time_text(impact['at'])}:{first} {len(impact['partitions'])} partitions change, "
        f"{frozen} accounts would be frozen, {len(impact['pending'])} pending charges are touched."
    )


def _differing_fields(before: Json, after: Json) -> tuple[str, str]:
    """The fields of two objects that differ."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return _value(before), _value(after)
    names = [name for name in after if before.get(name) != after[name]]
    old, new = (", ".join(f"{name} {_value(value.get(name))}" for name in names) for value in (before, after))
    return old, new


def _value(value: Json) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return "; ".join(f"{name} {_value(member)}" for name, member in value.items() if member is not None) or "none"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _used(account: Any) -> str:  # noqa: ANN401 - the service's JSON
    cap = "watched" if account["epsilon_max"] is None else f"cap {account['epsilon_max']}"
    quota = "" if account["share_max"] is None else f", quota {account['share_max']}"
    return f"{account['used']} ({cap}{quota})"
