"""Routes that read the registry: organisations, keys, policies, datasets, recommendations, contracts, documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from api.auth.authentication import Calling
from api.auth.authorisation import Caller
from api.auth.visibility import get_visible, not_found, visible_entry
from api.http.answers import Page
from api.http.etags import tagged_response
from api.http.field_types import PathDid, PathDigest, PathName
from api.http.pagination import Paging, fetch_from
from api.http.snapshots import AsOf
from api.wire import registry_answers as answers
from api.wire.responses import BINARY, BYTES_TYPE, json_response, shows, shows_tagged
from ledger.domain.entries import Entry
from ledger.domain.facts import Contract, Dataset, Facts, Organisation
from ledger.domain.gate import DOCUMENT_BYTES_MAX
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from policy.decisions.documents_in_force import policy_in_force, read_recommendation
from policy.documents.document_text import read_text

if TYPE_CHECKING:
    from api.http.pagination import Cursors
    from api.http.snapshots import SnapshotProvider
    from ledger.book.past_snapshot import PastSnapshot
    from ledger.store.snapshot import Snapshot

_LISTED = (401, 403, 422)
_MISSING = (401, 403, 404, 422)


def registry_router(snapshots: SnapshotProvider, cursors: Cursors) -> APIRouter:
    """GET routes over the registry."""
    router = APIRouter(tags=["registry"])
    _add_organisations(router, snapshots, cursors)
    _add_policies(router, snapshots, cursors)
    _add_datasets(router, snapshots, cursors)
    _add_contracts(router, snapshots, cursors)
    _add_documents(router, snapshots)
    return router


def _add_organisations(router: APIRouter, snapshots: SnapshotProvider, cursors: Cursors) -> None:
    @router.get(
        "/v1/organisations",
        operation_id="list_organisations",
        responses=shows(Page[answers.Organisation], *_LISTED),
    )
    def list_organisations(_caller: Calling, paging: Paging) -> Response:
        with snapshots.read() as facts:
            fetch = fetch_from(facts.organisations)
            return json_response(cursors.page("organisations", paging, fetch, answers.Organisation.of_record))

    @router.get(
        "/v1/organisations/{did}",
        operation_id="read_organisation",
        responses=shows_tagged(answers.Organisation, *_MISSING),
    )
    def read_organisation(request: Request, did: PathDid, _caller: Calling, as_of: AsOf = None) -> Response:
        with snapshots.read(as_of) as facts:
            return tagged_response(request, answers.Organisation.of_record(organisation_of(facts, did)))

    @router.get(
        "/v1/organisations/{did}/keys",
        operation_id="list_signing_keys",
        responses=shows_tagged(Page[answers.OwnedKey], *_MISSING),
    )
    def list_signing_keys(request: Request, did: PathDid, _caller: Calling) -> Response:
        with snapshots.read() as facts:
            index = organisation_of(facts, did).index
            key = answers.OwnedKey.of_registration(Entry.parse(facts.entry(index)), index)
            return tagged_response(request, Page(items=(key,), next_cursor=None))


def organisation_of(facts: Facts, did: str) -> Organisation:
    """An organisation by its DID. Raises: Malformed, Problem."""
    found = facts.organisations.get(c.did(did, "did"))
    if found is None:
        raise not_found(f"organisation {did}")
    return found


def _add_policies(router: APIRouter, snapshots: SnapshotProvider, cursors: Cursors) -> None:
    @router.get("/v1/policies", operation_id="list_policies", responses=shows(Page[answers.PolicyVersion], *_LISTED))
    def list_policies(_caller: Calling, paging: Paging) -> Response:
        with snapshots.read() as facts:
            fetch = fetch_from(facts.policies)
            show = lambda versions: answers.PolicyVersion.of(versions[-1])  # noqa: E731
            return json_response(cursors.page("policies", paging, fetch, show))

    @router.get(
        "/v1/policies/{domain}",
        operation_id="read_policy",
        responses=shows_tagged(answers.PolicyVersions, *_MISSING),
    )
    def read_policy(request: Request, domain: PathName, _caller: Calling, as_of: AsOf = None) -> Response:
        with snapshots.read(as_of) as facts:
            return tagged_response(request, policy_of(facts, domain))

    @router.get(
        "/v1/policies/{domain}/in-force",
        operation_id="read_policy_in_force",
        responses=shows_tagged(answers.PolicyVersion, *_MISSING),
    )
    def read_policy_in_force(request: Request, domain: PathName, _caller: Calling, as_of: AsOf = None) -> Response:
        with snapshots.read(as_of) as facts:
            found = policy_in_force(facts, c.name(domain, "domain"), snapshots.time(facts))
            if found is None:
                raise not_found(f"policy in force in the domain {domain}")
            return tagged_response(request, answers.PolicyVersion.of(found))


def policy_of(facts: Facts, domain: str) -> answers.PolicyVersions:
    """A domain's policy with all its versions. Raises: Malformed, Problem."""
    versions = facts.policies.get(c.name(domain, "domain"))
    if not versions:
        raise not_found(f"policy of the domain {domain}")
    return answers.PolicyVersions(domain=domain, versions=tuple(map(answers.PolicyVersion.of, versions)))


def _add_datasets(router: APIRouter, snapshots: SnapshotProvider, cursors: Cursors) -> None:
    @router.get("/v1/datasets", operation_id="list_datasets", responses=shows(Page[answers.Dataset], *_LISTED))
    def list_datasets(caller: Calling, paging: Paging) -> Response:
        with snapshots.read() as facts:

            def show(found: Dataset) -> answers.Dataset | None:
                return answers.Dataset.of(found) if caller.sees_provider(found.provider, facts) else None

            return json_response(cursors.page("datasets", paging, fetch_from(facts.datasets), show))

    @router.get(
        "/v1/datasets/{provider}/{dataset}",
        operation_id="read_dataset",
        responses=shows_tagged(answers.Dataset, *_MISSING),
    )
    def read_dataset(request: Request, provider: PathDid, dataset: PathName, caller: Calling) -> Response:
        with snapshots.read() as facts:
            return tagged_response(request, answers.Dataset.of(_dataset(facts, provider, dataset, caller)))

    @router.get(
        "/v1/recommendations/{provider}/{dataset}",
        operation_id="read_recommendation",
        responses=shows_tagged(answers.Recommendation, *_MISSING),
    )
    def read_recommended(request: Request, provider: PathDid, dataset: PathName, caller: Calling) -> Response:
        with snapshots.read() as facts:
            document = _dataset(facts, provider, dataset, caller).recommendation
            if document is None:
                raise not_found(f"recommendation for {provider}/{dataset}")
            found = read_recommendation(facts.documents[document])
            return tagged_response(request, answers.Recommendation.of_document(found, document))


def _dataset(facts: Facts, provider: str, dataset: str, caller: Caller) -> Dataset:
    found = facts.datasets.get((c.did(provider, "provider"), c.name(dataset, "dataset")))
    if found is None or not caller.sees_provider(found.provider, facts):
        raise not_found(f"dataset {provider}/{dataset}")
    return found


def _add_contracts(router: APIRouter, snapshots: SnapshotProvider, cursors: Cursors) -> None:
    @router.get("/v1/contracts", operation_id="list_contracts", responses=shows(Page[answers.Contract], *_LISTED))
    def list_contracts(caller: Calling, paging: Paging) -> Response:
        with snapshots.read() as facts:

            def show(found: Contract) -> answers.Contract | None:
                return answers.Contract.of(found) if caller.sees_contract(found, facts) else None

            return json_response(cursors.page("contracts", paging, fetch_from(facts.contracts), show))

    @router.get(
        "/v1/contracts/{sha256}",
        operation_id="read_contract",
        responses=shows_tagged(answers.Contract, *_MISSING),
    )
    def read_contract(request: Request, sha256: PathDigest, caller: Calling, as_of: AsOf = None) -> Response:
        with snapshots.read(as_of) as facts:
            found = facts.contracts.get(c.sha256(sha256, "sha256"))
            return tagged_response(
                request, answers.Contract.of(get_visible(found, caller.sees_contract, facts, f"contract {sha256}"))
            )

    @router.get(
        "/v1/contract-heads/{id}",
        operation_id="read_contract_head",
        responses=shows_tagged(answers.ContractHead, *_MISSING),
    )
    def read_contract_head(request: Request, id: PathName, caller: Calling) -> Response:  # noqa: A002 - the wire's name
        with snapshots.read() as facts:
            found = facts.contracts.get(facts.contract_heads.get(c.name(id, "id"), ""))
            return tagged_response(
                request, answers.ContractHead.of(get_visible(found, caller.sees_contract, facts, f"contract {id}"))
            )


def _add_documents(router: APIRouter, snapshots: SnapshotProvider) -> None:
    @router.get(
        "/v1/documents/{sha256}",
        operation_id="read_document",
        response_class=Response,
        responses=shows(BINARY, *_MISSING, media_type=BYTES_TYPE, description="Its bytes"),
    )
    def read_document(
        sha256: PathDigest,
        caller: Calling,
        entry: Annotated[str | None, Query(max_length=128, description="the id of an entry that names it")] = None,
    ) -> Response:
        with snapshots.read() as facts:
            data = facts.documents.get(c.sha256(sha256, "sha256"))
            if data is None or not _sees_document(caller, sha256, data, facts, entry):
                raise not_found(f"document {sha256}")
        headers = {"cache-control": "private, immutable, max-age=31536000", "content-disposition": "attachment"}
        return Response(data, media_type="application/octet-stream", headers=headers)


def _sees_document(caller: Caller, sha256: str, data: bytes, facts: Snapshot | PastSnapshot, entry: str | None) -> bool:
    if caller.sees_all:
        return True
    if entry is not None:
        return _mentions(visible_entry(facts, entry, caller)[1].request, sha256)
    contract = facts.contracts.get(sha256)
    return caller.sees_contract(contract, facts) if contract is not None else _is_open_to(caller, data)


def _is_open_to(caller: Caller, data: bytes) -> bool:
    """By what the document says: its parties may read a contract before it is entered, everybody what governs all."""
    try:
        known = read_text(data, DOCUMENT_BYTES_MAX).value
    except Malformed:
        return False
    if not isinstance(known, dict) or caller.charge:
        return False
    if known.get("kind") == "contract":
        parties = known.get("tdps")
        return caller.organisation in [known.get("tdc"), *(parties if isinstance(parties, list) else [])]
    return known.get("kind") in {"policy", "dataset", "recommendation"}


def _mentions(value: c.Json, sha256: str) -> bool:
    if isinstance(value, dict):
        return any(_mentions(one, sha256) for one in value.values())
    if isinstance(value, list):
        return any(_mentions(one, sha256) for one in value)
    return value == sha256
