"""Authorisation: a table of roles by operation, deny by default, and which callers see the current state.

A role comes from the ledger's own record of an organisation; AUDITOR and OPERATOR may also come from an issuer. A
clean room (CCR) is known by the key that its charge names, and may do what concerns that charge alone. What an
operation then does is still decided by the book and the policy: this table only denies the request to others.

What a caller may not see does not exist for it: 404, as for a name that was never used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from api.http.problems import Problem
from ledger.commands.entry import Entry
from ledger.commands.registry import CLIENT_KINDS, KINDS
from ledger.domain.charge_record import Charge
from ledger.domain.facts import GLOBAL, Contract, Facts, Partition, holder_of
from ledger.domain.organisation_graph import knows
from ledger.domain.outcomes import Code
from ledger.domain.roles import AUDITOR, CCR, SRO, TDC, TDP, TSO
from ledger.organisation_lineage.contract_succession import continues
from ledger.store.projection_table import ProjectionTable

OPERATOR: Final = "OPERATOR"
ROLES: Final = (SRO, TSO, TDP, TDC, CCR, AUDITOR, OPERATOR)
_PARTIES: Final = (SRO, TSO, TDP, TDC)
_SEE_ALL: Final = frozenset({SRO, AUDITOR})

PUBLIC: Final = frozenset(
    {
        "read_docs",
        "read_docs_file",
        "read_live",
        "read_log",
        "read_checkpoint",
        "read_log_key_rotations",
        "read_consistency",
        "read_ready",
        "read_register",
        "read_tile",
        "read_openapi",
    }
)
"""Operations without a caller: a checkpoint and its hashes hold no party's data, and are meant to be compared."""

OPERATIONS: Final[Mapping[str, tuple[str, ...]]] = {
    **{f"submit_{name}": kind.roles for name, kind in CLIENT_KINDS.items()},
    "deposit_model_key": (CCR,),
    "issue_challenge": (CCR, TDC),
    "read_deposit_key": (TDC, CCR),
    "list_alerts": (SRO, TSO, TDP, TDC, AUDITOR),
    "list_charges": (SRO, TDP, TDC, CCR, AUDITOR),
    "list_contract_proposals": (SRO, TDP, TDC),
    "list_contracts": (SRO, TDP, TDC, CCR, AUDITOR),
    "list_datasets": (*_PARTIES, AUDITOR),
    "list_decisions": (*_PARTIES, CCR, AUDITOR),
    "list_frozen_accounts": (SRO, TSO, TDP, TDC, AUDITOR),
    "list_key_releases": (SRO, TDP, TDC, CCR, AUDITOR),
    "list_lineage": (SRO, TDP, TDC, AUDITOR),
    "list_model_openings": (SRO, TDP, TDC, CCR, AUDITOR),
    "list_model_releases": (SRO, TDP, TDC, CCR, AUDITOR),
    "list_organisations": (*_PARTIES, AUDITOR),
    "list_partitions": (*_PARTIES, AUDITOR),
    "list_policies": (*_PARTIES, CCR, AUDITOR),
    "list_publications": (SRO, TDP, TDC, CCR, AUDITOR),
    "list_release_notices": (SRO, TDP, TDC, CCR, AUDITOR),
    "list_signing_keys": (*_PARTIES, CCR, AUDITOR),
    "propose_contract": (SRO, TDP, TDC),
    "put_document": (*_PARTIES, CCR),
    "quote_charge": (TDC,),
    "ask_cap_report": (SRO, TDP, TDC, AUDITOR),
    "ask_handover_impact": (SRO, TDP),
    "ask_merger_impact": (SRO, TDP),
    "ask_policy_impact": (SRO,),
    "plan_run": (SRO, TDP, TDC),
    "read_coalition": (*_PARTIES, AUDITOR),
    "read_epsilon_curve": (SRO, TDP, TDC, CCR, AUDITOR),
    "read_exposure": (SRO, TDP, AUDITOR),
    "read_lineage": (SRO, TDP, TDC, AUDITOR),
    "read_smallest_coalitions": (SRO, TDP, AUDITOR),
    "read_accounts": (SRO, TSO, TDP, TDC, AUDITOR),
    "read_account_history": (SRO, TDP, TDC, AUDITOR),
    "read_account_proof": (SRO, TSO, TDP, TDC, AUDITOR),
    "read_charge": (SRO, TDP, TDC, CCR, AUDITOR),
    "read_charge_epsilon": (SRO, TDP, TDC, CCR, AUDITOR),
    "read_contract_head": (SRO, TDP, TDC, AUDITOR),
    "read_dataset": (*_PARTIES, AUDITOR),
    "read_decision": (*_PARTIES, CCR, AUDITOR),
    "read_decision_checks": (SRO, TDP, TDC, AUDITOR),
    "read_document": (*_PARTIES, CCR, AUDITOR),
    "read_entry_bundle": (SRO, AUDITOR),
    "read_inbox": (*_PARTIES, AUDITOR),
    "read_key_release": (SRO, TDP, TDC, CCR, AUDITOR),
    "read_model_release": (SRO, TDP, TDC, CCR, AUDITOR),
    "read_organisation": (*_PARTIES, CCR, AUDITOR),
    "read_policy": (*_PARTIES, CCR, AUDITOR),
    "read_policy_in_force": (*_PARTIES, CCR, AUDITOR),
    "read_recommendation": (*_PARTIES, AUDITOR),
    "read_stream": (*_PARTIES, AUDITOR),
    "read_metrics": (AUDITOR, OPERATOR),
    "read_watermark_key": (CCR,),
    "search_watermarks": (SRO, TDP, TDC, CCR, AUDITOR),
    "charge_batch": (TDC,),
    "stream_events": (*_PARTIES, CCR, AUDITOR),
    "report_progress": (CCR,),
    "read_contract": (SRO, TDP, TDC, CCR, AUDITOR),
    "read_entry": (*_PARTIES, CCR, AUDITOR),
    "read_partition": (*_PARTIES, CCR, AUDITOR),
    "read_receipt": (*_PARTIES, CCR, AUDITOR),
}
"""The roles that may call each operation, by operation id. An operation that is not listed is denied to all."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request.

    Attributes:
        organisation: that it acts for; for a clean room, the organisation that made its charge.
        roles: on record, or from the issuer; ``("",)`` for an organisation that is not on record.
        charge: of a clean room, the one charge it is for; else empty.
    """

    organisation: str
    roles: tuple[str, ...]
    charge: str = ""

    def check(self, operation: str) -> None:
        """Raises: Problem, unless one of its roles may call this operation."""
        allowed = OPERATIONS.get(operation, ())
        if not set(self.roles) & set(allowed):
            permitted = ", ".join(role for role in allowed if role) or "no role"
            raise Problem(
                Code.NOT_AUTHORISED,
                f"this is for the role {permitted}; the caller has the role {self._roles_text}",
                field="",
            )

    @property
    def _roles_text(self) -> str:
        return ", ".join(role for role in self.roles if role) or "an organisation that is not on record"

    def check_actor(self, actor: str) -> None:
        """Raises: Problem, unless a command's actor is the organisation that the caller speaks for."""
        if actor != self.organisation:
            raise Problem(Code.NOT_AUTHORISED, f"the token is {self.organisation}'s, not {actor}'s", field="actor")

    @property
    def sees_all(self) -> bool:
        """Whether nothing is hidden from it."""
        return bool(_SEE_ALL & set(self.roles))

    def sees_charge(self, charge: Charge, facts: Facts) -> bool:
        """Its maker and all organisations exposed to its run, its partitions' providers, and its own clean room."""
        if self.charge:
            return charge.id == self.charge
        if self.sees_all or self.organisation in {charge.actor, *map(provider_of, charge.partitions)}:
            return True
        organisation = facts.organisations.get(self.organisation)
        return organisation is not None and knows(facts.nodes, organisation.node, charge.author, charge.index)

    def _own_charge(self, facts: Facts) -> Charge | None:
        """The charge of a clean room; None in a past before it."""
        return facts.charges.get(self.charge)

    def sees_contract(self, contract: Contract, facts: Facts) -> bool:
        """Its parties and the organisations that the consumer became, and the clean room of a charge under it."""
        if self.charge:
            charge = self._own_charge(facts)
            return charge is not None and charge.contract == contract.document
        return self.sees_all or self.organisation in contract.providers or self.consumes(contract, facts)

    def sees_partition(self, partition: Partition, facts: Facts) -> bool:
        """Its provider, consumers with a contract of that provider, TSOs, and the clean rooms charged to it."""
        if self.charge:
            charge = self._own_charge(facts)
            return charge is not None and partition.ref in charge.partitions
        return self.sees_provider(partition.provider, facts)

    def sees_provider(self, provider: str, facts: Facts) -> bool:
        """Itself, consumers with a contract of it, TSOs, and the clean rooms charged to it: to its datasets."""
        if self.charge:
            charge = self._own_charge(facts)
            return charge is not None and provider in map(provider_of, charge.partitions)
        if self.sees_all or TSO in self.roles or provider == self.organisation:
            return True
        return provider in self._under_contract(facts)

    def _under_contract(self, facts: Facts) -> frozenset[str]:
        """The providers of its contracts as a consumer; all contracts are looked through once a snapshot."""
        known = _UNDER_CONTRACT.setdefault(facts, {})
        if self not in known:
            stored = facts.contracts
            every = (
                (contract for _, contract in stored.stored())
                if isinstance(stored, ProjectionTable)
                else stored.values()
            )
            known[self] = frozenset(
                did for contract in every if self.consumes(contract, facts) for did in contract.providers
            )
        return known[self]

    def consumes(self, contract: Contract, facts: Facts) -> bool:
        """Whether it is the consumer, or an organisation that the consumer became."""
        organisation = facts.organisations.get(self.organisation)
        return self.organisation == contract.consumer or (
            organisation is not None and continues(facts, organisation, contract)
        )

    def sees_account(self, partition: Partition, holder: str, facts: Facts) -> bool:
        """Everyone's and its own lineage's; those of others only if it is theirs to watch."""
        if self.watches(partition) or holder == GLOBAL:
            return True
        organisation = facts.organisations.get(self.organisation)
        if organisation is None:
            return False
        # What it was part of before is its own no more where others go on with it.
        left = (node for _, node in organisation.moves if not facts.nodes[node].members)
        return holder in map(holder_of, (organisation.node, *left))

    def watches(self, partition: Partition) -> bool:
        """Whether it is shown every account of a partition as it is; others see what they share with others rounded."""
        return self.sees_all or TSO in self.roles or partition.provider == self.organisation


_UNDER_CONTRACT: Final[WeakKeyDictionary[Facts, dict[Caller, frozenset[str]]]] = WeakKeyDictionary()
"""What was found on a snapshot, for as long as it is read."""


def _advised(entry: Entry) -> Iterator[str]:
    """The provider that a recommendation or stream is for; none where it was refused, for then no one knows."""
    header = entry.body.get("header")
    providers = header.get("providers") if isinstance(header, dict) else None
    yield from map(str, providers) if isinstance(providers, list) else ()


def provider_of(ref: str) -> str:
    """The provider in a partition's reference."""
    return ref.split("/", 1)[0]


def sees_entry(caller: Caller, entry: Entry, facts: Facts) -> bool:
    """Its actor; every caller who may see its subject; every organisation on record, where it binds all.

    Refusals name what was requested, which may exist or not: their actor and the named providers see them.
    """
    if caller.sees_all or (KINDS[entry.kind].binds_all and not entry.code.refused and not caller.charge):
        return True
    if entry.actor == caller.organisation and not caller.charge:
        return True
    request = entry.request
    if entry.kind in {"recommendation", "stream"}:
        return not caller.charge and any(caller.sees_provider(did, facts) for did in _advised(entry))
    charge = facts.charges.get(entry.id if entry.kind == "charge" else str(request.get("charge", "")))
    if charge is not None:
        return caller.sees_charge(charge, facts)
    partitions = request.get("partitions")
    refs = [str(partition) for partition in partitions] if isinstance(partitions, list) else []
    refs += [f"{request.get('provider')}/"] if "provider" in request else []
    refs += [str(request["partition"])] if entry.kind == "retirement" else []
    if not caller.charge and caller.organisation in map(provider_of, refs):
        return True
    contract = facts.contracts.get(str(request.get("contract" if entry.kind != "contract" else "document", "")))
    return contract is not None and caller.sees_contract(contract, facts)
