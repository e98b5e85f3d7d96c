"""``epsilon contract``: parties on different machines sign the same bytes, and one of them enters it for all."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from client.cli.command_group import CommandGroup, Result
from client.cli.wording.organisation_names import learn_names, organisation
from client.service.command_documents import SignedDocument
from ledger.command_line.printable_text import say
from ledger.command_line.verbosity import is_verbose

if TYPE_CHECKING:
    from client.profile.profile import Profile
    from client.service.service import Service
    from ledger.wire.canonical_json import Object

group = CommandGroup("contract", "Contracts between TDPs and a TDC: propose, sign, enter, revoke.")

_File = Annotated[Path, typer.Argument(metavar="FILE", help="The contract, JSON or YAML: the same bytes for all.")]
_Contract = Annotated[
    str, typer.Argument(metavar="CONTRACT", help="The file that was entered, or the SHA-256 of its bytes.")
]


def _print_caps(report: list[Object]) -> None:
    for cap in report:
        say(str(cap.get("text")))
    if not report:
        say("There is no open partition of its datasets under a policy in force.")


@group.read_command(
    "hospital.toml contract.json",
    "bank-a.toml contract.json --json",
    table=_print_caps,
    note="The service reads the file; nothing is stored. Of each cap: which declared plan could run under it, and the "
    "least ε at which one would.",
)
def check(service: Service, document: _File) -> list[Object]:
    """Show what could run under a contract's caps before it is signed."""
    from client.service.detached_signatures import read_document

    return service.cap_report(read_document(document))


@group.profile_command(
    "hospital.toml contract.json > hospital.jws",
    "hospital.toml contract.json --json",
    note="The signature is not sent. The service reads the contract and stores nothing: an invalid one is not "
    "signed, and a cap under which no run, or not the declared plan, could be admitted is a warning. With --offline "
    "the service is not called.",
)
def sign(
    caller: Profile,
    document: _File,
    *,
    offline: Annotated[
        bool, typer.Option("--offline", help="Do not call a service for what could run under it.")
    ] = False,
) -> Result:
    """Sign a contract's bytes with the profile's key, as a detached JWS for the party that enters the contract."""
    from client.service.detached_signatures import parse_document, read_document, require_kind, sign_document
    from ledger.wire.malformed import Malformed

    data = read_document(document)
    if parse_document(data) is None:
        raise Malformed(str(document), "is neither JSON nor YAML, so it was not signed")
    require_kind(document, data, "contract")
    signer = caller.signer()
    if not offline:
        _warn(caller, document, data)
    signature = sign_document(signer, data)
    by = f" (SHA-256 {signature['document']}) with key {signature['key_id']}" if is_verbose() else ""
    say(f"Signed {document}{by}; it was not sent.", err=True)
    if not _is_named(caller.actor, data):
        warning = f"{caller.actor} is no party of {document}, so this signature does not count: check the profile."
        say(f"Warning: {warning}", err=True)
    return Result(signature, str(signature["signature"]))


def _is_named(did: str, contract: bytes) -> bool:
    """Whether a contract's text names an organisation anywhere."""
    return re.search(rf"(?<![\w.%:-]){re.escape(did)}(?![\w.%:-])".encode(), contract) is not None


def _warn(caller: Profile, path: Path, contract: bytes) -> None:
    """Write each cap that bars the declared plan to stderr, or that the caps are unknown; then signing goes on.

    Raises:
        Malformed: where the service reads the file, and it is not a valid contract.
    """
    from client.http.problems import Refused, Unreachable
    from ledger.domain.exit_codes import ExitCode
    from ledger.wire.malformed import Malformed

    try:
        with caller.open(attempts=1) as service:
            report = service.cap_report(contract)
    except (OSError, Malformed, Refused, Unreachable) as error:
        if isinstance(error, Refused) and error.exit_code == ExitCode.INVALID:
            raise Malformed(str(path), f"is not a valid contract, so it was not signed: {error.detail}") from None
        say(f"What could run under this contract is unknown: {error}", err=True)
        return
    for cap in report:
        if not cap["usable"] or (cap["plan_steps"] is not None and cap["steps"] != cap["plan_steps"]):
            say(f"Warning: {cap['text']}", err=True)


@group.profile_command(
    "hospital.toml contract.json",
    "hospital.toml contract.json --json",
    note="The service stores the contract and the signature and shows them to its parties alone, for thirty days. "
    "Nothing is decided until a party enters it, and any of them may: propose what you would sign. At most 20 are open "
    "at a time.",
)
def propose(caller: Profile, document: _File) -> Result:
    """Sign a contract and leave it with the service, for its other parties to see, sign and enter."""
    from client.service.detached_signatures import read_document

    data = read_document(document)
    with caller.open() as service:
        answer = service.propose_contract(caller.signer(), data)
        learn_names(service, answer)
    return Result(answer, f"{document} is proposed; {_waits_for(answer)}.")


def _waits_for(proposal: Object) -> str:
    unsigned = proposal.get("unsigned")
    names = ", ".join(organisation(str(did)) for did in unsigned) if isinstance(unsigned, list) else ""
    return f"it waits for the signature of {names}" if names else "all have signed it, and one of them is to enter it"


def _print_proposals(answer: Object) -> None:
    from client.http.transport import objects_of

    items = objects_of(answer.get("items"))
    for item in items:
        say(f"{item.get('id')}, version {item.get('version')} ({item.get('document')}): {_waits_for(item)}")
    if not items:
        say("No contract that names you is proposed.")


@group.read_command(
    "bank-a.toml",
    "bank-a.toml --into proposed --json",
    table=_print_proposals,
    note="With --into each is written to FOLDER, under its SHA-256: read it, and sign these very bytes.",
)
def proposals(
    service: Service,
    *,
    into: Annotated[
        Path | None, typer.Option("--into", metavar="FOLDER", help="Write the proposed contracts to this folder.")
    ] = None,
) -> Object:
    """List the contracts that name you, are proposed, and are not entered."""
    from client.http.transport import objects_of
    from ledger.wire.canonical_json import sha256

    answer = service.contract_proposals()
    if into is not None:
        into.mkdir(parents=True, exist_ok=True)
        for item in objects_of(answer.get("items")):
            digest = sha256(item.get("document"), "document")
            (into / digest).write_bytes(service.document(digest))
    return answer


@group.signed_command(
    "contract",
    "bank-a.toml contract.json --signature hospital.jws",
    "bank-a.toml contract-2.json --signature hospital.jws --signature clinic.jws --json",
    "bank-a.toml contract.json --proposed",
    note="To amend a contract, enter its next version: all parties of both versions sign.",
)
def enter(
    document: _File,
    *,
    signature: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Another party's signature, as `contract sign` wrote it. May be repeated."),
    ] = None,
    proposed: Annotated[
        bool, typer.Option("--proposed", help="Take the signatures with which the other parties have proposed it.")
    ] = False,
) -> SignedDocument:
    """Sign a contract, or its next version, and record it with the signatures of all other parties."""
    return SignedDocument(document, signature or (), proposed)


@group.signed_command(
    "revocation",
    "hospital.toml contract.json",
    "hospital.toml 5d41402abc4b2a76b9719d911017c592ae1d1f3e4b8b9a4f0c6e7d8a9b0c1d2e --json",
)
def revoke(contract: _Contract) -> Object:
    """Revoke a contract permanently as one of its TDPs: new charges under it are refused."""
    from client.service.detached_signatures import digest_of

    return {"contract": digest_of(contract)}


@group.read_command(
    "bank-a.toml contract.json", "bank-a.toml 5d41402abc4b2a76b9719d911017c592ae1d1f3e4b8b9a4f0c6e7d8a9b0c1d2e --json"
)
def show(service: Service, contract: _Contract) -> Object:
    """Show the current state of a contract: parties, dates, version, and how many runs it has had."""
    from client.service.detached_signatures import digest_of

    return service.contract(digest_of(contract))
