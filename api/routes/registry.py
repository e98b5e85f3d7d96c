"""Routes that read the registry: organisations, keys, policies, datasets, recommendations, contracts, documents."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Query
from fastapi.responses import Response

from api.auth.visibility import get_visible, not_found
from api.http.field_types import PathDid, PathDigest, PathName
from api.http.pagination import Page, fetch_from
from api.routes.read_routes import LISTED, PROBLEMS, ReadRoutes, View
from api.wire import registry_answers as answers
from api.wire.responses import BINARY, shows
from client.http.endpoints import BYTES_TYPE
from ledger.commands.entry import Entry
from ledger.commands.signing_keys.key_authority import terms_of
from ledger.domain.facts import Dataset, Facts, Organisation
from ledger.store.snapshot import Snapshot
from ledger.wire import canonical_json as c
from policy.decisions.documents_in_force import policy_in_force
from policy.decisions.documents_in_force import read_recommendation as parse_recommendation

ROUTES: Final = ReadRoutes("registry")


@ROUTES.route("/v1/organisations", LISTED, paged=True)
def list_organisations(view: View) -> Page[answers.Organisation]:
    """Every organisation."""
    return view.page("organisations", fetch_from(view.facts.organisations), answers.Organisation.of_record)


@ROUTES.route("/v1/organisations/{did}", as_of=True)
def read_organisation(view: View, did: PathDid) -> answers.Organisation:
    """One organisation. Raises: Malformed, Problem."""
    return answers.Organisation.of_record(organisation_of(view.facts, did))


@ROUTES.route("/v1/organisations/{did}/keys")
def list_signing_keys(view: View, did: PathDid) -> Page[answers.OwnedKey]:
    """Every key that it has or had, oldest first, with its terms now. Raises: Malformed, Problem."""
    facts = view.facts
    keys = (
        answers.OwnedKey.of_key(key, terms_of(facts, key), Entry.parse(facts.entry(key.index)), view.time)
        for key in facts.keys_of(organisation_of(facts, did).did)
    )
    return Page(items=tuple(keys), next_cursor=None)


def organisation_of(facts: Facts, did: str) -> Organisation:
    """An organisation by its DID. Raises: Malformed, Problem."""
    organisation = facts.organisations.get(c.did(did, "did"))
    if organisation is None:
        raise not_found(f"organisation {did}")
    return organisation


@ROUTES.route("/v1/policies", LISTED, paged=True)
def list_policies(view: View) -> Page[answers.PolicyVersion]:
    """The newest version of each domain's policy."""
    return view.page(
        "policies", fetch_from(view.facts.policies), lambda versions: answers.PolicyVersion.project(versions[-1])
    )


@ROUTES.route("/v1/policies/{domain}", as_of=True)
def read_policy(view: View, domain: PathName) -> answers.PolicyVersions:
    """A domain's policy with all its versions. Raises: Malformed, Problem."""
    return policy_of(view.facts, domain)


@ROUTES.route("/v1/policies/{domain}/in-force", as_of=True)
def read_policy_in_force(view: View, domain: PathName) -> answers.PolicyVersion:
    """The version in force. Raises: Malformed, Problem."""
    record = policy_in_force(view.facts, c.name(domain, "domain"), view.time)
    if record is None:
        raise not_found(f"policy in force in the domain {domain}")
    return answers.PolicyVersion.project(record)


def policy_of(facts: Facts, domain: str) -> answers.PolicyVersions:
    """A domain's policy with all its versions. Raises: Malformed, Problem."""
    versions = facts.policies.get(c.name(domain, "domain"))
    if not versions:
        raise not_found(f"policy of the domain {domain}")
    return answers.PolicyVersions(domain=domain, versions=tuple(map(answers.PolicyVersion.project, versions)))


@ROUTES.route("/v1/datasets", LISTED, paged=True)
def list_datasets(view: View) -> Page[answers.Dataset]:
    """The datasets that the caller may see."""
    sees, fetch = view.caller.sees_provider, fetch_from(view.facts.datasets)
    return view.page("datasets", fetch, answers.Dataset.project, lambda dataset, facts: sees(dataset.provider, facts))


@ROUTES.route("/v1/datasets/{provider}/{dataset}")
def read_dataset(view: View, provider: PathDid, dataset: PathName) -> answers.Dataset:
    """One dataset. Raises: Malformed, Problem."""
    return answers.Dataset.project(_dataset(view, provider, dataset))


@ROUTES.route("/v1/recommendations/{provider}/{dataset}")
def read_recommendation(view: View, provider: PathDid, dataset: PathName) -> answers.Recommendation:
    """The newest budget that is recommended for a dataset. Raises: Malformed, Problem."""
    document = _dataset(view, provider, dataset).recommendation
    if document is None:
        raise not_found(f"recommendation for {provider}/{dataset}")
    return answers.Recommendation.of_document(parse_recommendation(view.facts.documents[document]), document)


def _dataset(view: View, provider: str, dataset: str) -> Dataset:
    record = view.facts.datasets.get((c.did(provider, "provider"), c.name(dataset, "dataset")))
    if record is None or not view.caller.sees_provider(record.provider, view.facts):
        raise not_found(f"dataset {provider}/{dataset}")
    return record


@ROUTES.route("/v1/contracts", LISTED, paged=True)
def list_contracts(view: View) -> Page[answers.Contract]:
    """The contracts that the caller may see."""
    fetch = fetch_from(view.facts.contracts)
    return view.page("contracts", fetch, answers.Contract.project, view.caller.sees_contract)


@ROUTES.route("/v1/contracts/{sha256}", as_of=True)
def read_contract(view: View, sha256: PathDigest) -> answers.Contract:
    """One version of a contract. Raises: Malformed, Problem."""
    record = view.facts.contracts.get(c.sha256(sha256, "sha256"))
    return answers.Contract.project(get_visible(record, view.caller.sees_contract, view.facts, f"contract {sha256}"))


@ROUTES.route("/v1/contract-heads/{id}")
def read_contract_head(view: View, id: PathName) -> answers.ContractHead:  # noqa: A002 - the wire's name
    """The newest version of a contract. Raises: Malformed, Problem."""
    record = view.facts.contracts.get(view.facts.contract_heads.get(c.name(id, "id"), ""))
    return answers.ContractHead.project(get_visible(record, view.caller.sees_contract, view.facts, f"contract {id}"))


@ROUTES.route(
    "/v1/documents/{sha256}", content=shows(BINARY, *PROBLEMS, media_type=BYTES_TYPE, description="Its bytes")
)
def read_document(
    view: View,
    sha256: PathDigest,
    entry: Annotated[str | None, Query(max_length=128, description="the id of an entry that names it")] = None,
) -> Response:
    """The bytes of a document. Raises: Malformed, Problem."""
    assert isinstance(view.facts, Snapshot)
    data = view.context.documents.read(view.caller, view.facts, c.sha256(sha256, "sha256"), entry)
    if data is None:
        raise not_found(f"document {sha256}")
    headers = {"cache-control": "private, immutable, max-age=31536000", "content-disposition": "attachment"}
    return Response(data, media_type=BYTES_TYPE, headers=headers)
