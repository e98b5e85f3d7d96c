"""``epsilon plan``, ``epsilon policy impact`` and ``breaches`` for a service, by a profile, as well as for a book.

Each command is that of :mod:`policy.cli`, with the same answer in words and in JSON. A profile's service answers about
what its organisation may see; a book's file answers about everything, at any time and under any policy.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from client.cli.command_group import CommandGroup, as_command
from client.cli.error_report import errors_reported
from client.cli.planned_run.charge_file import Changes, read_charge
from ledger.command_line.verbosity import set_verbose
from policy.cli import lineage, plan
from policy.cli.answers import file_bytes, print_answer

if TYPE_CHECKING:
    from client.service.service import Service
    from ledger.wire.canonical_json import Object

PLAN: Final = CommandGroup("plan", "Preview runs, mergers and coalitions; nothing is recorded.")
POLICY: Final = CommandGroup("policy")
_SUFFIX: Final = ".toml"
_SOURCE: Final = Annotated[
    str, typer.Argument(metavar="PROFILE|BOOK", help="A profile (.toml), whose service answers; or the book itself.")
]
Function = Callable[..., Any]


def _option(name: str) -> str:
    return "--policy" if name == "document" else f"--{name.replace('_', '-')}"


class Reply(NamedTuple):
    """What a service answered: for programs, for people, and whether it is a refusal."""

    value: Object
    lines: Iterator[str]
    refused: bool = False


def _question(group: CommandGroup, of_book: Function, *examples: str, note: str = "") -> Callable[[Function], None]:
    """Declare how a service answers a command of a book, with those of the command's options that it names."""

    def declare(of_service: Function) -> None:
        own = inspect.signature(of_book).parameters
        taken = set(inspect.signature(of_service).parameters)

        def run(*, book: str, as_json: bool, verbose: bool, **given: Any) -> None:  # noqa: ANN401 - arguments of any type
            if not book.endswith(_SUFFIX):
                of_book(book=book, as_json=as_json, verbose=verbose, **given)
                return
            set_verbose(wanted=verbose)
            from client.profile.profile import Profile
            from ledger.wire.malformed import Malformed

            own_names = {"policy": "--policy", "at": "--at", "days": "--days", "as_of": "--as-of"}
            fields = own_names | _typed(given)
            with errors_reported(as_json=as_json, fields=fields):
                for name, value in given.items():
                    if name not in taken and value != own[name].default:
                        raise Malformed(
                            _option(name), f"is of a book only: leave it out, or name a book instead of {book}"
                        )
                arguments = {name: value for name, value in {**given, "book": book}.items() if name in taken}
                with Profile.load(Path(book)).open() as service:
                    reply: Reply = of_service(service, **arguments)
            print_answer(reply.value, reply.lines, as_json=as_json, refused=reply.refused)

        options = [_option(name) for name in own if name not in {*taken, "book", "as_json", "verbose"}]
        only = f"Of a book only: {', '.join(options)}." if options else ""
        command = as_command(of_book, run, types={"book": _SOURCE})
        group.add(of_book, command, examples, " ".join(filter(None, (note, only))))

    return declare


def _typed(given: dict[str, Any]) -> dict[str, str]:
    """How the user typed each field of a charge that is planned."""
    if not isinstance(given.get("charge"), Path):
        return {}
    changes = Changes(noise=given["noise"], steps=given["steps"], partitions=tuple(given["partition"] or ()))
    return changes.typed(given["charge"])


_DECIDED: Final = "Exits with 0 if the run would be charged, and with 3 if it would be refused."


@_question(
    PLAN,
    plan.run,
    "bank-a.toml charge.json --contract contract.yaml",
    "demo/book.sqlite charge.json --actor did:web:bank-a.example --epochs 20 --json",
    note=_DECIDED,
)
def _run(  # noqa: PLR0913, PLR0917 - each an option
    service: Service,
    book: str,
    charge: Path,
    contract: str,
    epochs: str,
    noise: str,
    steps: int | None,
    partition: list[str] | None,
    days: int,
    at: str,
    as_of: int | None,
    document: Path | None,
) -> Reply:
    from client.service.named_ranges import fix_ranges
    from ledger.wire.records import convert
    from policy.cli.planned_changes import Changes as PlanChanges
    from policy.cli.planned_changes import passing_lines
    from policy.cli.text_report import run_lines
    from policy.planning.plan_report import PlanReport

    changes = PlanChanges(epochs, noise, steps, tuple(partition or ()))
    named = changes.applied(read_charge(charge, Changes(contract)))
    answer = service.plan_report(fix_ranges(named, service), as_of, _moment(at), days, _policy(document))
    report = convert(PlanReport, answer)
    options = plan.run_options(contract=contract, days=days, at=at, as_of=as_of, document=document)
    advice = passing_lines(report.advice, named, changes, ("plan", "run", book, charge), options)
    return Reply(answer, chain(run_lines(report), advice), not report.decision.permit)


@_question(
    PLAN, plan.again, "bank-a.toml run-1", "demo/book.sqlite run-1 --policy next-policy.json --json", note=_DECIDED
)
def _again(service: Service, name: str, as_of: int | None, document: Path | None) -> Reply:
    from client.http.problems import Refused
    from ledger.domain.outcomes import Code
    from ledger.wire.records import convert
    from policy.cli.text_report import decision_lines
    from policy.planning.what_if import DecisionReport, PlannedCharge

    recorded: Any = service.decision(name)
    if recorded["kind"] != "charge":
        word = Code.NOT_FOUND.word
        raise Refused(Code.NOT_FOUND.http_status, {"code": word, "detail": f"there is no charge {name}"})
    fields = PlannedCharge.__struct_fields__
    body = {field: value for field, value in recorded["request"].items() if field in fields}
    size = recorded["index"] if as_of is None else as_of
    answer = service.plan_report(body, size, recorded["time"], policy=_policy(document))
    decision = convert(DecisionReport, answer["decision"])
    lines = chain((f"Recorded outcome: {recorded['outcome']}. Re-evaluated:",), decision_lines(decision))
    value: Object = {"decision": answer["decision"], "recorded": recorded["outcome"]}
    return Reply(value, lines, not decision.permit)


@_question(
    PLAN,
    lineage.merger,
    "sro.toml did:web:bank-a.example did:web:bank-b.example",
    "demo/book.sqlite did:web:bank-a.example did:web:bank-b.example --json",
    note="A TDP is shown what it means for its own data.",
)
def _merger(service: Service, organisations: list[str], at: str) -> Reply:
    from ledger.wire.records import convert
    from policy.cli.text_report import merger_lines
    from policy.planning.merger_impact import MergedAccount

    answer = service.merger_impact(organisations, _moment(at))
    return Reply({"accounts": [*answer]}, merger_lines(convert(tuple[MergedAccount, ...], answer)))


@_question(
    PLAN,
    lineage.transfer,
    "hospital.toml run-1 did:web:bank-b.example",
    "demo/book.sqlite run-1 did:web:bank-b.example --json",
    note="A TDP is shown what it means for its own data.",
)
def _transfer(service: Service, charge: str, recipient: str, giver: str, at: str) -> Reply:
    return _handed_over(service, {"charge": charge, "recipient": recipient, **({"giver": giver} if giver else {})}, at)


@_question(
    PLAN,
    lineage.publication,
    "hospital.toml run-1",
    "demo/book.sqlite run-1 --json",
    note="A TDP is shown what it means for its own data.",
)
def _publication(service: Service, charge: str, giver: str, at: str) -> Reply:
    return _handed_over(service, {"charge": charge, **({"giver": giver} if giver else {})}, at)


def _handed_over(service: Service, body: Object, at: str) -> Reply:
    from ledger.wire.records import convert
    from policy.cli.text_report import exposure_lines
    from policy.planning.lineage_impact import ExposureChange

    answer = service.handover_impact(body, _moment(at))
    return Reply({"accounts": [*answer]}, exposure_lines(convert(tuple[ExposureChange, ...], answer)))


@_question(
    PLAN,
    lineage.coalitions,
    "hospital.toml",
    "demo/book.sqlite --partition did:web:hospital.example/scans/2026-q4 --epsilon 5",
    note="A TDP is shown those on its own partitions.",
)
def _coalitions(service: Service, partition: list[str] | None, epsilon: str, at: str) -> Reply:
    from client.http.problems import Refused
    from ledger.domain.outcomes import Code
    from ledger.wire.records import convert
    from policy.cli.text_report import coalition_lines
    from policy.planning.coalition_search import SmallestCoalitions

    coalitions = []
    for ref in partition or service.open_partitions():
        try:
            coalitions.append(service.smallest_coalitions(ref, epsilon, _moment(at)))
        except Refused as refused:
            # Of all partitions those are left out on which no cap leaves any room.
            if partition or refused.code != Code.NOT_FOUND.word:
                raise
    return Reply({"partitions": [*coalitions]}, coalition_lines(convert(tuple[SmallestCoalitions, ...], coalitions)))


@_question(POLICY, plan.impact, "sro.toml next-policy.yaml", "demo/book.sqlite next-policy.json --json")
def _impact(service: Service, document: Path, at: str) -> Reply:
    from ledger.wire.records import convert
    from policy.cli.text_report import impact_lines
    from policy.planning.policy_impact import Impact

    answer = service.policy_impact(file_bytes(document, "policy"), _moment(at))
    changes: Object = {name: value for name, value in answer.items() if name != "replaces"}
    return Reply(changes, impact_lines(convert(Impact, changes)))


@_question(
    POLICY,
    plan.breaches,
    "hospital.toml",
    "demo/book.sqlite --json",
    note="Exits with 3 if any account is over its cap.",
)
def _breaches(service: Service, at: str) -> Reply:
    from ledger.wire.records import convert
    from policy.cli.text_report import breach_lines
    from policy.planning.account_caps import AccountStatus

    listed = [account for ref in service.partitions() for account in service.frozen_accounts(ref, _moment(at))]
    breaches = [{name: account[name] for name in AccountStatus.__struct_fields__} for account in listed]
    return Reply({"breaches": [*breaches]}, breach_lines(convert(tuple[AccountStatus, ...], breaches)), bool(breaches))


def _moment(at: str) -> int | None:
    from policy.cli.answers import moment

    return moment(at) if at else None


def _policy(document: Path | None) -> str:
    """The text of a policy's file. Raises: Malformed, OSError."""
    from ledger.wire.malformed import Malformed

    if document is None:
        return ""
    try:
        return file_bytes(document, "--policy").decode("utf-8")
    except UnicodeDecodeError as error:
        raise Malformed("--policy", f"is not UTF-8 at byte {error.start}") from None
