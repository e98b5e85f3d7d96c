"""A world in memory that real documents govern: a policy, a data set and contracts under the real gate and prices."""

from __future__ import annotations

from typing import Any, Final

from ledger.domain.outcomes import Code
from ledger.mechanisms.plan_reader import parse_plan
from ledger.wire import canonical_json as c
from policy.checks.field_readers import format_time
from policy.planning.what_if import PlannedRun, WhatIf
from tests.factories.decision_scene import POLICY
from tests.factories.documents import NOW, contract, contract_id, dataset, dense_plan
from tests.factories.memory import FOUR_BANKS, MemoryWorld, ref_of
from tests.factories.people import BANKS, DAY_MS, HOSPITAL, SRO, short_name


def policy_bytes(version: int = 1, **changes: Any) -> bytes:  # noqa: ANN401 - whatever a policy holds
    """A version of the one domain's policy, as bytes."""
    return c.dump(policy_document(version, **changes))


def policy_document(version: int = 1, **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever a policy holds
    """A version of the one domain's policy, in force from the start."""
    base = {
        **POLICY,
        "effective": format_time(NOW),
        "lineage": {"epsilon_max": "5"},
        "mechanisms": ["poisson_gaussian", "laplace"],
        "run": {"epsilon_max": "2.5"},
        "version": version,
        **changes,
    }
    return {name: value for name, value in base.items() if value is not None}


class DocumentedWorld(MemoryWorld):
    """A hospital's digits, an SRO's policy, and a contract of each bank, all in memory."""

    def enter(self, content: dict[str, Any], name: str, actor: str, *signers: str) -> str:
        """Store a document with the signatures of these and enter it; its digest."""
        decided = self.decide_pending(self.document(str(content["kind"]), content, name, actor, *signers).pending)
        assert not decided.code.refused, decided.detail
        return c.digest(c.dump(content))

    def contract_of(self, bank: str, **changes: Any) -> str:  # noqa: ANN401 - JSON
        """A bank's contract with the hospital."""
        ends = format_time(NOW + 300 * DAY_MS)
        document = contract(bank, starts=NOW, **{"ends": ends, "runs_max": 1_000, **changes})
        return self.enter(document, f"contract-{short_name(bank)}", bank, bank, HOSPITAL)

    def ask(self, run: c.Object, *partitions: str, bank: str = BANKS[0], digest: str = "") -> WhatIf:
        """The question what a run would get now."""
        document = digest or self.state.contract_heads[contract_id(bank)]
        refs = tuple(ref_of(one) for one in partitions or ("one",))
        return WhatIf(
            self.state,
            PlannedRun(
                actor=bank,
                contract=self.state.contracts[document].document,
                partitions=refs,
                plan=parse_plan(run),
            ),
            self.clock(),
        )

    def charged(self, name: str, run: c.Object, *partitions: str, bank: str = BANKS[0]) -> Code:
        """A run charged for good."""
        digest = self.state.contract_heads[contract_id(bank)]
        return self.decide_charge(name, bank, digest, partitions or ("one",), run).code


def opened(*partitions: str, epsilon: str = "6", **policy: Any) -> DocumentedWorld:  # noqa: ANN401 - as above
    """A world with partitions and a contract of each bank."""
    world = DocumentedWorld()
    for did, role in FOUR_BANKS.items():
        assert not world.register(did, role).code.refused
    world.enter(policy_document(**policy), "policy", SRO, SRO)
    world.enter(dataset(), "dataset", HOSPITAL, HOSPITAL)
    for name in partitions or ("one",):
        decided = world.open(name, epsilon)
        assert not decided.code.refused, decided.detail
    for bank in BANKS:
        world.contract_of(bank)
    return world


PLAN: Final = dense_plan(40, "2")
