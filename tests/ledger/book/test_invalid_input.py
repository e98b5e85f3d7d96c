"""Bad input: each is refused by name, in one sentence, and leaves every row but the documents as it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from ledger.audit.replay import verify_book
from ledger.book.book import Submission
from ledger.wire import canonical_json as c
from ledger.wire.canonical_json import Json
from tests.factories.documents import PARTITION, contract, dataset, plan, policy
from tests.factories.people import BANK_A, HOSPITAL, LOG, SRO
from tests.factories.stored import StoredWorld, no_step, rows

Make = Callable[[StoredWorld], Submission]


def _policy(name: str, *signed_by: str, actor: str = SRO, **changes: Any) -> Make:  # noqa: ANN401 - JSON
    return lambda world: world.document("policy", {**policy(), "version": 2, **changes}, name, actor, *signed_by)


def _bytes_as_policy(world: StoredWorld) -> Submission:
    signature = world.book.put_document(world.signers[SRO].sign(b"no policy").encode())
    body: c.Object = {"document": world.book.put_document(b"no policy"), "signatures": [signature]}
    return world.command(SRO, "policy", body, "policy-2")


def _without_signatures(world: StoredWorld) -> Submission:
    body: c.Object = {"document": world.book.put_document(c.dump({**policy(), "version": 2})), "signatures": []}
    return world.command(SRO, "policy", body, "policy-2")


def _of_a_stranger(world: StoredWorld) -> Submission:
    sent = world.charge("run-1")
    return replace(sent, signature=world.signers[HOSPITAL].sign(sent.raw))


def _retirement_by_another(world: StoredWorld) -> Submission:
    return world.command(BANK_A, "retirement", {"partition": PARTITION}, "retire")


def _partition(**changes: Json) -> Make:
    return lambda world: world.partition("new", **changes)


def _charge_due(deadline: int) -> Make:
    return lambda world: world.charge("run-1", deadline=deadline)


def _named_nul(world: StoredWorld) -> Submission:
    """PostgreSQL keeps no such text."""
    sent = world.registration(BANK_A, "TDC")
    return Submission(sent.raw.replace(b'"name":"', b'"name":"\\u0000'), sent.signature)


def _without_contract(world: StoredWorld) -> Submission:
    return world.charge("run-1", contract="0" * 64)


def _charge_of(run: c.Object) -> Make:
    return lambda world: world.charge("run-1", run=run)


def _contract(*signed_by: str, **changes: Any) -> Make:  # noqa: ANN401 - JSON
    content = {**contract(BANK_A), "id": "second", **changes}
    return lambda world: world.document("contract", content, "contract-2", BANK_A, *signed_by)


UNRECORDED: Final[dict[str, tuple[Make, str, str]]] = {
    "policy with an unknown field": (_policy("p", SRO, colour="red"), "malformed", "colour"),
    "policy without a budget": (_policy("p", SRO, budget=None), "malformed", "budget"),
    "policy with a negative budget": (
        _policy("p", SRO, budget={"delta_max": "0.00001", "epsilon_max": "-1"}),
        "malformed",
        "epsilon_max",
    ),
    "policy of a Level there is not": (_policy("p", SRO, level=3), "malformed", "level"),
    "policy that is not JSON": (_bytes_as_policy, "malformed", "must be an object"),
    "policy with a NUL": (_policy("p", SRO, domain="a\0b"), "malformed", "U+0000"),
    "policy without signatures": (_without_signatures, "malformed", "signatures"),
    "policy signed by another": (_policy("p", HOSPITAL), "signature_missing", SRO),
    "partition with a negative epsilon": (_partition(epsilon="-1"), "malformed", "epsilon"),
    "partition with an epsilon of 0": (_partition(epsilon="0"), "malformed", "epsilon"),
    "partition with a NaN epsilon": (_partition(epsilon="NaN"), "malformed", "epsilon"),
    "partition with an infinite epsilon": (_partition(epsilon="Infinity"), "malformed", "epsilon"),
    "partition with a number for epsilon": (_partition(epsilon=6), "malformed", "epsilon"),
    "partition with a negative delta": (_partition(delta="-0.00001"), "malformed", "delta"),
    "partition with a NaN delta": (_partition(delta="nan"), "malformed", "delta"),
    "partition under a key that opens another": (_partition(data_key="digits-2026-q4"), "conflict", "data_key"),
    "partition with no record": (_partition(records=0), "malformed", "records"),
    "partition without room": (_partition(epsilon="0.0001"), "malformed", "the least that has some is"),
    "plan with an unknown field": (_charge_of({**plan(), "colour": "red"}), "malformed", "colour"),
    "plan with NaN noise": (_charge_of({**plan(), "noise_multiplier": "NaN"}), "malformed", "noise_multiplier"),
    "plan of no step": (_charge_of({**plan(), "steps": 0}), "malformed", "steps"),
    "contract signed by one side": (_contract(BANK_A), "signature_missing", HOSPITAL),
    "contract signed by the other side": (_contract(HOSPITAL), "signature_missing", BANK_A),
    "charge signed by another": (_of_a_stranger, "signature_invalid", "another key"),
    "organisation with a NUL": (_named_nul, "malformed", "U+0000"),
    "charge under no contract": (_without_contract, "not_found", "contract"),
    "charge after its deadline": (_charge_due(1), "malformed", "deadline"),
    "dataset of another provider's name": (
        lambda world: world.document("dataset", dataset(), "d", BANK_A, BANK_A),
        "not_authorised",
        "TDP",
    ),
    "retirement by another role": (_retirement_by_another, "not_authorised", "TDP"),
}


@pytest.mark.parametrize("case", UNRECORDED)
def test_it_is_refused_by_name_and_leaves_nothing(world: StoredWorld, case: str) -> None:
    """The outcome's code, what it names, and every table as before."""
    make, word, named = UNRECORDED[case]
    sent = make(world)
    before = rows(world.url)
    (outcome,) = world.submit(sent)
    assert (outcome.code.word, outcome.index, outcome.receipt) == (word, None, None), outcome.detail
    assert named in outcome.detail
    assert "\n" not in outcome.detail
    assert rows(world.url) == before


RECORDED: Final[dict[str, tuple[Make, str, str]]] = {
    "partition above the policy's epsilon": (_partition(epsilon="8.1"), "policy_denied", "epsilon"),
    "partition above the policy's delta": (_partition(delta="0.0001"), "policy_denied", "delta"),
    "partition of too few records": (_partition(records=99), "policy_denied", "records"),
    "policy of a version that is not next": (_policy("p", SRO, version=3), "policy_denied", "version"),
    "run above its contract": (_charge_of(plan(400)), "policy_denied", "epsilon of the run"),
}


@pytest.mark.parametrize("case", RECORDED)
def test_a_denial_is_an_entry_and_nothing_else(world: StoredWorld, case: str) -> None:
    """The log grows by the refusal with its reasons; no account and no registry row changes."""
    make, word, named = RECORDED[case]
    sent = make(world)
    before, size = rows(world.url), world.size
    (outcome,) = world.submit(sent)
    assert (outcome.code.word, outcome.index) == (word, size), outcome.detail
    assert named in outcome.detail
    assert outcome.body["checks"]
    after = rows(world.url)
    assert [name for name in before if after[name] != before[name]] == ["entry", "tree_node", "checkpoint"]
    assert verify_book(world.url, LOG, no_step).entries == size + 1


def test_a_retired_partition_takes_nothing_new(world: StoredWorld) -> None:
    """A charge is refused by name and recorded; what was pending still settles."""
    retire = world.command(HOSPITAL, "retirement", {"partition": PARTITION}, "retire")
    assert [one.code.word for one in world.submit(world.charge("run-1"), retire)] == ["pending", "permitted"]
    before = rows(world.url)
    (outcome,) = world.submit(world.charge("run-2"))
    assert (outcome.code.word, outcome.index) == ("policy_denied", 12)
    assert PARTITION in outcome.detail
    after = rows(world.url)
    assert [name for name in before if after[name] != before[name]] == ["entry", "tree_node", "checkpoint"]
    assert [one.code.word for one in world.submit(world.settle("run-1", 40))] == ["posted"]


def test_the_least_epsilon_that_is_named_has_room(world: StoredWorld) -> None:
    """The sentence for a budget without an open order tells one that opens and takes a charge."""
    (refused,) = world.submit(world.partition("new", epsilon="0.0001"))
    assert refused.field == "body.epsilon"
    least = refused.detail.rpartition(" ")[2]
    opened, charged = world.submit(
        world.command(HOSPITAL, "partition", _body(world, least), "again"),
        world.charge("run-1", run=plan(1, "64"), partitions=(f"{HOSPITAL}/digits/new",)),
    )
    assert (opened.code.word, charged.code.word) == ("permitted", "pending"), (opened.detail, charged.detail)


def _body(world: StoredWorld, epsilon: str) -> c.Object:
    value = c.parse(world.partition("new", epsilon=epsilon).raw, 32_768)
    assert isinstance(value, dict)
    body = value["body"]
    assert isinstance(body, dict)
    return body
