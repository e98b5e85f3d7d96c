"""Policy decisions on governance: a contract revoked by a TDP, an SRO's decree, a correction of the log's time."""

from __future__ import annotations

from typing import Final

from ledger.commands.governance.account_reset import DECREE, Decree
from ledger.commands.governance.clock_correction import CLOCK_CORRECTION, CorrectClock
from ledger.commands.governance.contract_revocation import REVOCATION, Revoke
from policy.decisions.charges import check_newest
from policy.decisions.documents_in_force import dataset_of, policy_in_force, read_contract
from policy.decisions.request import Case, on


def revocation(case: Case, body: Revoke) -> None:
    """Decide a revocation: the newest version of a contract, by one of its TDPs."""
    contract = case.exists("contract_unknown", case.facts.contracts.get(body.contract), f"contract {body.contract}")
    if contract is None:
        return
    document = read_contract(case.facts.documents[contract.document])
    case.check("actor_not_provider", case.actor in document.tdps, case.actor, "one of its TDPs", document.source)
    check_newest(case, contract, document)


def decree(case: Case, body: Decree) -> None:
    """Decide a decree: only by the SRO whose policy is in force for the partition."""
    partition = case.exists("partition_unknown", case.facts.partitions.get(body.partition), body.partition)
    if partition is None:
        return
    domain = dataset_of(case.facts, partition).domain
    in_force = policy_in_force(case.facts, domain, case.now)
    version = case.exists("policy_missing", in_force, f"domain {domain}", "under a policy in force")
    if version is not None:
        case.equal("actor_not_issuer", "actor", case.actor, version.issuer, f"policy of {domain}")


def clock_correction(case: Case, _body: CorrectClock) -> None:
    """Decide a clock correction: by an SRO. The ledger checks that every SRO with an open partition has signed."""
    actor = case.facts.organisations.get(case.actor)
    case.check("actor_not_sro", actor is not None and "SRO" in actor.roles, case.actor, "registered as SRO")


VERDICTS: Final = (on(REVOCATION, revocation), on(DECREE, decree), on(CLOCK_CORRECTION, clock_correction))
"""By kind of command."""
