"""A market without a book: real documents, the real gate, real prices, everything in memory."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from ledger.crypto.detached_jws import sign
from ledger.domain.facts import Facts
from ledger.domain.gate import Request, Verdict
from ledger.domain.outcomes import Code
from ledger.mechanisms.plan import parse_plan
from ledger.wire import canonical_json as c
from policy.checks.field_readers import format_time
from policy.decisions.gate import gate
from policy.planning.what_if import PlannedRun, WhatIf
from tests.factories.documents import contract, dataset, dense_plan
from tests.factories.memory import ROLES, START, World, ref_of
from tests.factories.people import BANKS, DAY_MS, HOSPITAL, SRO, private_key, short_name
from tests.policy.scene import POLICY


def policy_bytes(version: int = 1, **changes: Any) -> bytes:  # noqa: ANN401 - whatever a policy holds
    """A version of the one domain's policy, in force from the start."""
    base = {
        **POLICY,
        "effective": format_time(START),
        "lineage": {"epsilon_max": "5"},
        "mechanisms": ["poisson_gaussian", "laplace"],
        "run": {"epsilon_max": "2.5"},
        "version": version,
        **changes,
    }
    return c.dump({name: value for name, value in base.items() if value is not None})


@dataclass
class Market(World):
    """A hospital's digits, an SRO's policy, and a contract of each bank."""

    def gate(self, request: Request, facts: Facts) -> Verdict:
        """The policy's."""
        return gate(request, facts)

    def enter(self, data: bytes, name: str, actor: str, *signers: str) -> str:
        """Store a document with the signatures of these and enter it; its digest."""
        signatures: list[c.Json] = []
        for did in signers:
            signature = sign(private_key(did), data).encode()
            self.state.documents = {**self.state.documents, c.digest(signature): signature}
            signatures.append(c.digest(signature))
        self.state.documents = {**self.state.documents, c.digest(data): data}
        body: c.Object = {"document": c.digest(data), "signatures": signatures}
        decided = self.submit(json.loads(data)["kind"], name, actor, body)
        assert not decided.code.refused, decided.detail
        return c.digest(data)

    def contract_of(self, bank: str, **changes: Any) -> str:  # noqa: ANN401 - JSON
        """A bank's contract with the hospital."""
        ends = format_time(START + 300 * DAY_MS)
        document = contract(bank, starts=START, **{"ends": ends, "runs_max": 1_000, **changes})
        return self.enter(c.dump(document), f"contract-{short_name(bank)}", bank, bank, HOSPITAL)

    def ask(self, run: c.Object, *partitions: str, bank: str = BANKS[0], digest: str = "") -> WhatIf:
        """The question what a run would get now."""
        document = digest or self.state.contract_heads[f"digits-{short_name(bank)}"]
        refs = tuple(ref_of(one) for one in partitions or ("one",))
        return WhatIf(
            self.state,
            PlannedRun(
                actor=bank,
                contract=self.state.contracts[document].document,
                partitions=refs,
                plan=parse_plan(run),
            ),
            self.now,
        )

    def charged(self, name: str, run: c.Object, *partitions: str, bank: str = BANKS[0]) -> Code:
        """A run charged for good."""
        digest = self.state.contract_heads[f"digits-{short_name(bank)}"]
        return self.charge(name, bank, digest, partitions or ("one",), run).code


def opened(*partitions: str, epsilon: str = "6", **policy: Any) -> Market:  # noqa: ANN401 - as above
    """A market with partitions and a contract of each bank."""
    market = Market()
    for did, role in ROLES.items():
        assert not market.register(did, role).code.refused
    market.enter(policy_bytes(**policy), "policy", SRO, SRO)
    market.enter(c.dump(dataset()), "dataset", HOSPITAL, HOSPITAL)
    for name in partitions or ("one",):
        decided = market.open(name, epsilon)
        assert not decided.code.refused, decided.detail
    for bank in BANKS:
        market.contract_of(bank)
    return market


PLAN: Final = dense_plan(40, "2")
