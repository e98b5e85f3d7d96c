"""Reads of what a service has on record: documents, organisations, partitions, contracts, charges and accounts."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

from client.http.endpoints import DOCUMENTS, path_of
from client.http.problems import Refused
from client.http.transport import objects_of
from client.service.what_if_questions import WhatIfQuestions
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

NAMES_ONE_BY_ONE: Final = 4
"""So many organisations are requested one by one; of more, all names at once."""


class RegistryReads(WhatIfQuestions):
    """The records of one service, as one caller reads them."""

    def policy(self, domain: str) -> c.Object:
        """Every version of a domain's policy. Raises: Refused, Unreachable."""
        return self._get(f"/v1/policies/{path_of(domain)}")

    def policy_in_force(self, domain: str) -> c.Object:
        """The version of a domain's policy in force now. Raises: Refused, Unreachable."""
        return self._get(f"/v1/policies/{path_of(domain)}/in-force")

    def dataset(self, ref: str) -> c.Object:
        """A dataset by its reference, ``provider/dataset``. Raises: Refused, Unreachable."""
        provider, _, name = ref.rpartition("/")
        return self._get(f"/v1/datasets/{path_of(provider)}/{path_of(name)}")

    def document(self, digest: str) -> bytes:
        """The bytes of a stored document with this SHA-256. Raises: Refused, Unreachable, Malformed."""
        data = self._guard.send("GET", f"{DOCUMENTS}/{path_of(digest)}").content
        if c.digest(data) != digest:
            raise Malformed("document", f"is not {digest}: the service sent other bytes")
        return data

    def lineage(self, organisation: str) -> c.Object:
        """An organisation's node in the lineage graph and those near it. Raises: Refused, Unreachable."""
        return self._get(f"/v1/lineage/{path_of(organisation)}")

    def charge(self, charge: str) -> c.Object:
        """The current state of a charge. Raises: Refused, Unreachable."""
        return self._get(f"/v1/charges/{path_of(charge)}")

    def run_epsilon(self, charge: str) -> c.Object:
        """The ε of a charge's run, and with all that its model descends from. Raises: Refused, Unreachable."""
        return self._get(f"/v1/charges/{path_of(charge)}/epsilon")

    def contract(self, document: str) -> c.Object:
        """The current state of a contract, by its document's digest. Raises: Refused, Unreachable."""
        return self._get(f"/v1/contracts/{path_of(document)}")

    def organisation_names(self, dids: Sequence[str]) -> dict[str, str]:
        """The names of organisations, by DID; a clean room may request few. Raises: Refused, Unreachable."""
        few = len(dids) <= NAMES_ONE_BY_ONE
        listed = map(self._organisation, dids) if few else self._list("/v1/organisations", {})[1]
        return {
            str(organisation.get("organisation")): str(organisation["name"])
            for organisation in listed
            if organisation.get("name")
        }

    def _organisation(self, did: str) -> c.Object:
        """An organisation on record; nothing of one that is not."""
        try:
            return self._get(f"/v1/organisations/{path_of(did)}")
        except Refused as refused:
            if refused.status != HTTPStatus.NOT_FOUND:
                raise
            return {}

    def keys_of(self, organisation: str) -> list[c.Object]:
        """Every signing key that an organisation has or had. Raises: Refused, Unreachable."""
        return objects_of(self._get(f"/v1/organisations/{path_of(organisation)}/keys").get("items"))

    def signed_by(self, organisation: str, since: int) -> list[c.Object]:
        """The decisions since a time (Unix ms) on what the keys of an organisation signed, those that the caller sees.

        Raises:
            Refused, Unreachable, Malformed.
        """
        return self._list("/v1/decisions", {"signer": organisation, "since": str(since)})[1]

    def partition(self, ref: str) -> c.Object:
        """The current state of a partition. Raises: Refused, Unreachable."""
        return self._get(f"/v1/partitions/{path_of(ref)}")

    def partitions(self) -> tuple[str, ...]:
        """The references of all partitions. Raises: Refused, Unreachable."""
        return tuple(str(partition["partition"]) for partition in self._list("/v1/partitions", {})[1])

    def stream(self, provider: str, dataset: str) -> c.Object:
        """A stream with its slices and windows. Raises: Refused, Unreachable."""
        return self._get(f"/v1/streams/{path_of(provider)}/{path_of(dataset)}")

    def every_partition(self) -> tuple[c.Object, ...]:
        """The current state of all partitions that the caller sees. Raises: Refused, Unreachable."""
        return tuple(self._list("/v1/partitions", {})[1])

    def charges(self) -> tuple[str, ...]:
        """The ids of all charges that the caller sees. Raises: Refused, Unreachable."""
        return tuple(str(charge["id"]) for charge in self._list("/v1/charges", {})[1])

    def accounts(self, partition: str, as_of: int | None = None) -> c.Object:
        """Every account of a partition, now or after ``as_of`` entries of the log. Raises: Refused, Unreachable."""
        size = {} if as_of is None else {"as_of": str(as_of)}
        shared, items = self._list("/v1/accounts", {"partition": partition, **size})
        return {**shared, "accounts": [*items]}


def unit_records(partition: c.Object) -> int:
    """How many records one privacy unit of a partition has at most, as its service states it.

    An earlier service states none; then it is taken as one.
    """
    stated = partition.get("unit_records_max")
    return stated if isinstance(stated, int) else 1
