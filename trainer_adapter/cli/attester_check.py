"""Whether the policies over a job's data trust its attester: for the evidence of any other no data key is released."""

from __future__ import annotations

from typing import Any, Final

from client.http.problems import Refused
from client.keys.signer import Signer
from client.service.detached_signatures import parse_document
from client.service.service import Service
from ledger.domain.exit_codes import ExitCode
from ledger.domain.partition_ranges import dataset_of_ref
from ledger.wire.malformed import Malformed
from trainer_adapter.job.job_spec import Assignment
from trainer_adapter.session.slice_files import with_slices

_NO_KEY: Final = "no data key would be released to this run"


def check_attester(job: Assignment, service: Service) -> None:
    """See that every policy in force over the job's data pins the key of its attester, under its issuer's name.

    Whether an attester is suspended, and what else its evidence must claim, is decided when the key is requested. Where
    no policy is in force, the decision on the charge says so.

    Raises:
        Malformed: naming ``issuer`` or ``key`` of ``[train.attester]``. Refused, Unreachable, OSError.
    """
    issuer, key = job.attester.issuer, Signer.load(job.attester.key).jwk["x"]
    for dataset in dict.fromkeys(dataset_of_ref(ref) for ref in with_slices(job, service).data):
        policy = _policy_over(service, dataset)
        if policy is None:
            continue
        pinned, domain = _pinned(policy), policy["domain"]
        if issuer not in pinned:
            rule = f"{issuer} is not trusted by the policy of {domain}, which names {' and '.join(pinned)}: {_NO_KEY}"
            raise Malformed("train.attester.issuer", rule)
        if key not in pinned[issuer]:
            rule = f"{job.attester.key} is not the key that the policy of {domain} names for {issuer}: {_NO_KEY}"
            raise Malformed("train.attester.key", rule)


def _policy_over(service: Service, dataset: str) -> Any | None:  # noqa: ANN401 - a validated document
    """The policy in force over a dataset; None where there is none, or no such dataset."""
    try:
        domain = str(service.dataset(dataset)["domain"])
        document = service.document(str(service.policy_in_force(domain)["document"]))
    except Refused as refused:
        if refused.exit_code == ExitCode.NOT_FOUND:
            return None
        raise
    return parse_document(document)


def _pinned(policy: Any) -> dict[str, set[object]]:  # noqa: ANN401 - a validated document
    """By issuer, the Ed25519 keys that a policy names."""
    pinned: dict[str, set[object]] = {}
    for attester in policy["attestation"]["attesters"]:
        # An attester in Azure's form has RSA keys, which the development attester cannot hold.
        pinned.setdefault(str(attester["issuer"]), set()).add(attester.get("key", {}).get("x"))
    return pinned
