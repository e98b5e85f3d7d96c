"""Steps that are leased, generations of a run and openings of sealed models, in the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tests.faults.signing_keys import SigningKeys
from tests.faults.standing import Ask, Run

LEASES_MAX: Final = 400
GENERATIONS_MAX: Final = 100


@dataclass
class Leasing(SigningKeys):
    """Leases, generations, openings; and what a post must say of them."""

    def _of_live_generation(self, run: Run, steps: int, generation: int | None, lease: str | None) -> bool:
        """Whether a post is of the live generation and its newest lease, and counts all that was leased."""
        if not run.leases or not run.released:
            return generation is None and lease is None
        return generation == run.generation and (lease or "") == run.newest and steps >= run.leased

    def _leased_run(self, charge: str, by: str) -> str:
        """Why a run cannot lease steps now."""
        run = self.runs.get(charge)
        if run is None or by != run.room:
            return "not_authorised" if run else "not_found"
        return "" if run.state == "pending" and run.leases and run.released else "conflict"

    def _step_lease(self, ask: Ask, now: int, charge: str, by: str, **reported: Any) -> Any:  # noqa: ANN401, PLR0911
        del now
        word = self._leased_run(charge, by)
        if word:
            return word
        run = self.runs[charge]
        if reported["generation"] != run.generation:
            return "conflict"
        if len(ask.id) != len("lease-") + 64:
            return "malformed"
        if reported["first"] != run.leased + 1:
            return "conflict"
        if not reported["first"] <= reported["last"] <= run.steps:
            return "malformed"
        if run.granted >= LEASES_MAX:
            return "conflict"
        if self._newest(run).revoked:
            return "policy_denied"

        def change(index: int) -> None:
            del index
            run.leased, run.newest, run.granted = reported["last"], ask.id, run.granted + 1

        return "permitted", change

    def _run_generation(self, ask: Ask, now: int, charge: str, by: str, flawed: bool, **_: Any) -> Any:  # noqa: ANN401, FBT001
        del ask
        word = self._leased_run(charge, by)
        if word:
            return word
        run = self.runs[charge]
        if run.generation >= GENERATIONS_MAX:
            return "conflict"
        if flawed or run.room != run.id or not self._in_force(run.contract, now):
            return "policy_denied"

        def change(index: int) -> None:
            del index
            run.generation, run.newest = run.generation + 1, ""

        return "permitted", change

    def _model_opening(self, ask: Ask, now: int, charge: str, room: str, **reported: Any) -> Any:  # noqa: ANN401, PLR0911
        if self.roles[ask.actor] != "TDC":
            return "not_authorised"
        run = self.runs.get(charge)
        if run is None:
            return "not_found"
        if run.state != "posted" or not run.released:
            return "conflict"
        if charge not in self.sets.knows[self.sets.stands[ask.actor]]:
            return "not_authorised"
        if room in self.rooms:
            return "conflict"
        newest = self.heads[self.contracts[run.contract].id]
        if reported["flawed"] or not self._in_force(newest, now) or newest not in self.rights[ask.actor]:
            return "policy_denied"
        return "permitted", lambda _: self.rooms.update({room: ask.actor})
