"""What governs, in the model: contracts revoked, accounts that begin anew, models announced before they leave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.faults.lineage import Lineage
from tests.faults.standing import Ask


@dataclass
class Governing(Lineage):
    """Revocations, decrees, notices and releases of models."""

    def _in_force(self, digest: str, now: int) -> bool:
        """Whether a version of a contract is the newest, and neither revoked nor outside its dates."""
        contract = self.contracts[digest]
        return self.heads[contract.id] == digest and not contract.revoked and contract.starts <= now < contract.ends

    def _revocation(self, ask: Ask, now: int, digest: str) -> Any:  # noqa: ANN401
        del now
        if self.roles[ask.actor] != "TDP":
            return "not_authorised"
        found = self.contracts.get(digest)
        if found is None or found.revoked:
            return "conflict" if found else "not_found"
        if self.heads[found.id] != digest:
            return "policy_denied"
        return "permitted", lambda _: setattr(found, "revoked", True)

    def _decree(self, ask: Ask, now: int, ref: str, node: int | None) -> Any:  # noqa: ANN401
        del now
        if self.roles[ask.actor] != "SRO":
            return "not_authorised"
        if ref not in self.partitions:
            return "not_found"
        known = node is None or node in self.sets.knows
        posted = self.account(ref, node)[0] if known else ()
        return ("permitted", lambda _: self.forgiven.update({(ref, node): posted})) if any(posted) else "conflict"

    def _release_notice(self, ask: Ask, now: int, charge: str, by: str, model: str) -> Any:  # noqa: ANN401
        del ask, now
        run = self.runs.get(charge)
        if run is None:
            return "not_found"
        if run.state != "posted" or not run.released:
            return "conflict"
        if by != run.room:
            return "not_authorised"
        return "conflict" if model in run.notices else ("permitted", lambda _: run.notices.add(model))

    def _model_release(self, ask: Ask, now: int, charge: str, by: str, model: str) -> Any:  # noqa: ANN401
        del ask, now
        run = self.runs.get(charge)
        if run is None or by != run.room:
            return "not_authorised" if run else "not_found"
        if run.state != "posted" or not run.released:
            return "conflict"
        return "permitted" if self.released and model in run.notices else "policy_denied"
