"""What governs, in the model: contracts revoked, accounts that begin anew, models announced before they leave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.faults.lineage import Lineage
from tests.faults.standing import Ask, Contract, Run


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
        del ask
        run = self.runs.get(charge)
        if run is None:
            return "not_found"
        if run.state != "posted" or not run.released:
            return "conflict"
        if by != run.room:
            return "not_authorised"
        # One of a later time than now was announced before the log's time went back.
        if not run.may_name(model) or any(since <= now for since in run.notices.get(model, ())):
            return "conflict"
        return "permitted", lambda _: run.notices.setdefault(model, []).append(now)

    def _model_release(  # noqa: PLR0913, PLR0917 - what a release names
        self, ask: Ask, now: int, charge: str, by: str, model: str, post: str | None = None
    ) -> Any:  # noqa: ANN401
        del ask
        run = self.runs.get(charge)
        if run is None or by != run.room:
            return "not_authorised" if run else "not_found"
        if run.state != "posted" or not run.released or not run.may_name(model):
            return "conflict"
        if (post is not None or run.leases) and (post is None or post != run.post):
            return "conflict"
        announced = run.notices.get(model, [])[-1:]
        # A run whose post names no model has the first that it announced.
        own = run.model is not None or model == next(iter(run.notices), None)
        leaves = self.released and not self._newest(run).revoked and own and announced and announced[0] <= now
        return "permitted" if leaves else "policy_denied"

    def _newest(self, run: Run) -> Contract:
        """The newest version of a run's contract."""
        return self.contracts[self.heads[self.contracts[run.contract].id]]
