"""Single lineage events: who may enter them, what they carry, and what they refuse."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from ledger.accounts.account_loss import Frozen, frozen_accounts
from ledger.domain.decision import Decision
from ledger.domain.facts import holder_of
from ledger.domain.organisation_graph import NodeKind
from ledger.filters import read_rule
from ledger.mechanisms.loss import loss_of
from ledger.wire import canonical_json as c
from tests.factories.documents import dense_plan
from tests.factories.memory import PermissiveWorld, ref_of
from tests.factories.people import BANKS, DAY_MS, HOSPITAL, LATE, SRO
from tests.ledger.organisation_lineage.test_lineage_graph import CONTRACTS, Play, check_account, names_known

A, B, C, D = BANKS
LOUD, QUIET = dense_plan(3, "0.3", "0.5"), dense_plan(1)


def fresh() -> PermissiveWorld:
    """Four banks, two partitions."""
    return Play().world


def run(
    world: PermissiveWorld, name: str, bank: str, plan: c.Object = QUIET, where: str = "one", **named: c.Json
) -> Decision:
    """A run that is posted in full; an event takes a millisecond."""
    world.clock.now += 1
    decided = world.decide_charge(name, bank, CONTRACTS[bank], (where,), plan, **named)
    if not decided.code.refused:
        assert world.post(name, int(str(plan["steps"]))).code.word == "posted"
    return decided


def enter(world: PermissiveWorld, kind: str, actor: str = SRO, **body: c.Json) -> Decision:
    """A lineage event."""
    world.clock.now += 1
    return world.decide(kind, f"{kind}-{world.index}", actor, body)


def knows(world: PermissiveWorld, did: str) -> set[str]:
    """The runs that a bank's lineage knows; its accounts are the sums over them."""
    node = world.state.organisations[did].node
    names = names_known(world.state, node)
    check_account(world.state, holder_of(node), names)
    return names


@pytest.mark.parametrize("named", [{}, {"recipients": [B]}, {"recipients": "everyone"}])
def test_a_seed_that_leaks_is_in_the_receivers_exposure(named: dict[str, Any]) -> None:
    """A seeds r1 by the output of r0 and hands r1 over. Its receiver knows r0, and later runs only if unplanned."""
    world = fresh()
    run(world, "r0", A, LOUD)
    run(world, "r1", A, where="two", **named)
    run(world, "r2", A)
    assert enter(world, "transfer", A, charge="r1", recipient=B).code.word == "permitted"
    assert knows(world, B) == ({"r0", "r1"} if named else {"r0", "r1", "r2"})
    account = world.state.accounts[ref_of("one"), holder_of(world.state.organisations[B].node)]
    (_, loud), *_ = world.state.charges["r0"].prices
    assert all(at >= part for at, part in zip(account.loss.finite, loss_of(loud, 3).finite, strict=True))
    assert enter(world, "transfer", A, charge="r1", recipient=B).code.word == "conflict"
    run(world, "r3", A)
    assert "r3" not in knows(world, B)


def test_who_was_not_named_gets_everything() -> None:
    """A plan that names another recipient fixes nothing for this one; nor does it for who hands on."""
    world = fresh()
    run(world, "r0", A, recipients=[B])
    run(world, "r1", A)
    assert not enter(world, "transfer", A, charge="r0", recipient=C).code.refused
    assert knows(world, C) == {"r0", "r1"}
    run(world, "r2", C)
    assert not enter(world, "transfer", C, charge="r0", recipient=B).code.refused
    assert knows(world, B) == {"r0", "r1", "r2"}


@pytest.mark.parametrize(
    ("actor", "body", "word"),
    [
        (A, {"charge": "open", "recipient": B}, "conflict"),
        (SRO, {"charge": "open", "recipient": B}, "permitted"),
        (B, {"charge": "done", "recipient": C}, "not_authorised"),
        (SRO, {"charge": "done", "recipient": C, "giver": B}, "conflict"),
        (A, {"charge": "done", "recipient": C, "giver": B}, "not_authorised"),
        (HOSPITAL, {"charge": "done", "recipient": C}, "not_authorised"),
        (A, {"charge": "none", "recipient": C}, "not_found"),
        (A, {"charge": "done", "recipient": LATE}, "not_found"),
        (A, {"charge": "done", "recipient": A}, "conflict"),
        (A, {"charge": "done", "recipient": C}, "permitted"),
        (SRO, {"charge": "done", "recipient": C, "giver": A}, "permitted"),
    ],
)
def test_who_may_hand_over_what(actor: str, body: dict[str, c.Json], word: str) -> None:
    """A TDC for itself and what was posted; an SRO reports what happened, whatever it is."""
    world = fresh()
    run(world, "done", A)
    assert world.decide_charge("open", A, CONTRACTS[A], ("one",), QUIET).code.word == "pending"
    before = knows(world, C)
    decided = enter(world, "transfer", actor, **body)
    assert decided.code.word == word, decided.detail
    assert (knows(world, C) == before) == (word != "permitted" or body["recipient"] != C)


def test_fine_tuning_carries_the_base() -> None:
    """A run that starts from another's model is charged once the transfer is entered, and hands the base on."""
    world = fresh()
    run(world, "base", A, LOUD)
    assert run(world, "tuned", B, base=["nothing"]).code.word == "not_found"
    refused = run(world, "tuned", B, base=["base"])
    assert (refused.code.word, refused.field) == ("conflict", "body.base[0]")
    assert "enter the transfer of its model first" in refused.detail
    assert not enter(world, "transfer", A, charge="base", recipient=B).code.refused
    assert run(world, "tuned", B, base=["base"], recipients=[C]).code.word == "pending"
    assert world.state.charges["tuned"].base == ("base",)
    assert not enter(world, "transfer", B, charge="tuned", recipient=C).code.refused
    assert knows(world, C) == {"base", "tuned"}
    assert run(world, "more", B, recipients=[LATE]).code.word == "not_found"


def test_a_model_declared_for_everyone_brings_what_its_author_knew_when_it_asked() -> None:
    """What the author chose by, and the run; neither later runs nor those of others. The base need not be named."""
    world = fresh()
    run(world, "seed", A, LOUD)
    run(world, "meant", A, where="two", recipients="everyone")
    run(world, "later", A)
    assert world.state.charges["meant"].recipients == ("everyone",)
    assert not enter(world, "publication", charge="meant").code.refused
    for did in (B, C, SRO, HOSPITAL):
        assert knows(world, did) == {"seed", "meant"}
    refused = enter(world, "publication", charge="meant")
    assert (refused.code.word, refused.field) == ("conflict", "body.charge")
    assert "all that charge meant rests on is public already" in refused.detail


def test_who_registers_later_knows_every_publication() -> None:
    """A declared model's own ancestry lacks what was published after its charge: an arrow from there brings it."""
    world = fresh()
    run(world, "meant", A, recipients="everyone")
    run(world, "other", B)
    assert not enter(world, "publication", charge="other").code.refused
    assert not enter(world, "publication", charge="meant").code.refused
    assert not world.register(LATE, "TDC").code.refused
    assert knows(world, LATE) == {"meant", "other"}


def test_only_the_declaring_author_publishes_for_less() -> None:
    """Who got the model gives all it knows, and so does an author that was found to collude."""
    world = fresh()
    run(world, "meant", A, recipients="everyone")
    assert not enter(world, "transfer", A, charge="meant", recipient=B).code.refused
    run(world, "mine", B)
    assert not enter(world, "publication", charge="meant", giver=B).code.refused
    assert knows(world, D) == {"meant", "mine"}
    run(world, "also", A, recipients="everyone")
    run(world, "hidden", C)
    run(world, "after", A)
    assert not enter(world, "collusion", organisations=[A, C], effective=world.clock.now).code.refused
    assert not enter(world, "publication", charge="also").code.refused
    assert knows(world, D) == {"meant", "mine", "also", "hidden", "after"}


def test_what_is_public_is_known_to_all_present_and_to_come() -> None:
    """With all that its giver knew then, and nothing later; a second publication brings the rest."""
    world = fresh()
    run(world, "r0", A)
    assert not enter(world, "publication", charge="r0").code.refused
    run(world, "r1", A)
    assert not world.register(LATE, "TDC").code.refused
    for did in (B, LATE, SRO, HOSPITAL):
        assert knows(world, did) == {"r0"}
    run(world, "mine", B)
    assert knows(world, LATE) == {"r0"}
    assert not enter(world, "publication", charge="mine").code.refused
    assert knows(world, LATE) == {"r0", "mine"}
    assert enter(world, "publication", charge="r0", giver=B).code.word == "conflict"
    assert enter(world, "publication", A, charge="r0").code.word == "not_authorised"
    assert enter(world, "publication", charge="r1", giver=LATE).code.word == "conflict"


def test_a_group_is_divided_and_both_keep_everything() -> None:
    """A leaves the group it merged into: each goes on alone, with all that was known, and other members stay."""
    world = fresh()
    for bank in (A, B, C):
        run(world, f"of-{bank[8:]}", bank)
    assert not enter(world, "merger", organisation=A, parents=[B, C]).code.refused
    assert not enter(world, "split", organisation=A, child=B).code.refused
    joint = {f"of-{bank[8:]}" for bank in (A, B, C)}
    run(world, "later-b", B)
    run(world, "later-c", C)
    assert knows(world, B) == {*joint, "later-b"}
    assert knows(world, A) == knows(world, C) == {*joint, "later-c"}
    assert enter(world, "split", organisation=A, child=A).code.word == "malformed"
    assert enter(world, "split", organisation=D, child=A).code.word == "conflict"


def test_who_left_before_a_model_came_does_not_know_it() -> None:
    """C leaves the group after the run was charged and before its model comes: pending or posted, it is not C's."""
    world = fresh()
    assert not enter(world, "merger", organisation=B, parents=[C]).code.refused
    assert world.decide_charge("r0", A, CONTRACTS[A], ("one",), QUIET).code.word == "pending"
    assert not enter(world, "split", organisation=B, child=C).code.refused
    assert not enter(world, "transfer", charge="r0", recipient=B).code.refused
    assert (knows(world, B), knows(world, C)) == ({"r0"}, set())
    assert world.post("r0", 1).code.word == "posted"
    assert (knows(world, B), knows(world, C)) == ({"r0"}, set())


def test_collusion_reaches_who_descends_from_the_colluders_then() -> None:
    """B merged with C after the date, D did not: a, b and c are one; D, who merged before nothing, is not."""
    world = fresh()
    run(world, "of-a", A)
    since = world.clock.now
    assert not enter(world, "merger", organisation=B, parents=[C]).code.refused
    run(world, "of-c", C)
    old = world.state.organisations[A].node
    assert enter(world, "collusion", organisations=[A, B], effective=world.clock.now + 2).code.word == "malformed"
    assert not enter(world, "collusion", organisations=[A, B], effective=since).code.refused
    for did in (A, B, C):
        assert knows(world, did) == {"of-a", "of-c"}
    assert knows(world, D) == set()
    assert names_known(world.state, old) == {"of-a"}, "where they stood stays as it was"
    run(world, "next", C)
    assert "next" in knows(world, A)
    assert enter(world, "collusion", organisations=[B, C], effective=world.clock.now).code.word == "conflict"


@pytest.mark.parametrize("gift", ["transfer", "publication"])
def test_a_model_given_since_the_date_carried_what_all_colluders_knew(gift: str) -> None:
    """B gave a model to D after the date, and D to nobody before: D's lineage, no colluder, knows a's earlier run."""
    world = fresh()
    run(world, "of-a", A)
    run(world, "of-b", B)
    before = world.clock.now
    body = {"recipient": D} if gift == "transfer" else {}
    assert not enter(world, gift, charge="of-b", **body).code.refused
    run(world, "of-a-later", A)
    assert not enter(world, "merger", organisation=D, parents=[C]).code.refused
    assert knows(world, D) == {"of-b"}
    assert not enter(world, "collusion", organisations=[A, B], effective=before).code.refused
    assert knows(world, D) == {"of-a", "of-b"}
    run(world, "of-d", D)
    assert "of-d" not in knows(world, A)


def test_collusion_within_collusion_is_never_understated() -> None:
    """A and b are found first, then b and c: c's model, given in between, carried what a knew through b."""
    world = fresh()
    run(world, "of-a", A)
    run(world, "of-c", C)
    since = world.clock.now
    assert not enter(world, "transfer", C, charge="of-c", recipient=D).code.refused
    assert not enter(world, "collusion", organisations=[A, B], effective=since).code.refused
    assert not enter(world, "collusion", organisations=[B, C], effective=since).code.refused
    assert knows(world, D) == {"of-a", "of-c"}


def test_a_coalition_refuses_and_tells_no_amounts() -> None:
    """Both members charge to its account; full, it says only that there is no room; others go on."""
    world = fresh()
    assert not enter(world, "coalition", members=[A, B], epsilon="3").code.refused
    names = [f"a-{place}" for place in range(40)]
    reported = [run(world, name, A if place % 2 else B, dense_plan(20)) for place, name in enumerate(names)]
    refused = [one for one in reported if one.code.refused]
    assert 0 < len(refused) < len(reported)
    (check,) = world_checks(refused[0])
    coalition = next(node.index for node in world.state.nodes.values() if node.kind is NodeKind.COALITION)
    assert check["source"] == holder_of(coalition)
    assert refused[0].detail == f"an account of a coalition has no room on {ref_of('one')}"
    assert not any(sign.isdigit() for sign in str(check["text"]).replace(ref_of("one"), ""))
    assert run(world, "free", C, dense_plan(20)).code.word == "pending"
    assert run(world, "small", A, where="two").code.word == "pending"
    limits = world_limits(run(world, "elsewhere", B, where="two"))
    assert limits == [holder_of(world.state.organisations[B].node), holder_of(coalition)]


def world_checks(decided: Decision) -> list[dict[str, Any]]:
    """The checks of a refusal."""
    found: Any = decided.derived["checks"]
    return list(found)


def world_limits(decided: Decision) -> list[str]:
    """The holders that bound a charge."""
    found: Any = decided.derived["limits"]
    return [one["holder"] for one in found]


def test_a_coalition_follows_its_members() -> None:
    """Into a merger, and out of it again when the group is divided; the group left behind is not followed."""
    world = fresh()
    assert not enter(world, "coalition", members=[A, B], epsilon="100").code.refused
    coalition = world.index - 1
    assert not enter(world, "merger", organisation=A, parents=[C]).code.refused
    run(world, "with-c", C)
    assert names_known(world.state, coalition) == {"with-c"}
    assert not enter(world, "split", organisation=C, child=A).code.refused
    run(world, "alone-c", C)
    run(world, "alone-a", A)
    assert names_known(world.state, coalition) == {"with-c", "alone-a"}
    check_account(world.state, holder_of(coalition), {"with-c", "alone-a"})
    assert world.state.nodes[coalition].members == (A, B)


def test_what_splits_off_from_a_member_stays_in_its_coalition() -> None:
    """A new body, and one that stood elsewhere: what either does counts, and its refusal is the coalition's."""
    world = fresh()
    assert not enter(world, "coalition", members=[A, B], epsilon="3").code.refused
    coalition = world.index - 1
    run(world, "before", C)
    run(world, "of-a", A)
    assert not enter(world, "split", organisation=A, child=C).code.refused
    assert world.state.nodes[coalition].members == (A, B, C)
    run(world, "after", C)
    assert names_known(world.state, coalition) == {"before", "of-a", "after"}
    check_account(world.state, holder_of(coalition), {"before", "of-a", "after"})
    reported = [run(world, f"more-{place}", C, dense_plan(20)) for place in range(40)]
    assert [check["source"] for check in world_checks(reported[-1])] == [holder_of(coalition)]
    assert not enter(world, "split", organisation=C, child=D).code.refused
    assert world_checks(run(world, "of-d", D, dense_plan(20)))[0]["source"] == holder_of(coalition)


def test_a_cap_with_no_order_is_silent_too() -> None:
    """A coalition whose ε opens no order refuses everything, in the same words."""
    world = fresh()
    assert not enter(world, "coalition", members=[A, B], epsilon="0.0001").code.refused
    refused = run(world, "a", A)
    assert refused.code.word == "budget_exhausted"
    assert refused.detail == f"an account of a coalition has no room on {ref_of('one')}"


def test_frozen_accounts_and_by_how_much() -> None:
    """Exactly the share beyond one; accounts within their cap, or without one, are not named."""
    world = fresh()
    for bank in (A, B):
        run(world, f"of-{bank[8:]}", bank, dense_plan(200))
        run(world, f"two-{bank[8:]}", bank, where="two")
    assert not enter(world, "merger", organisation=A, parents=[B]).code.refused
    holder = holder_of(world.state.organisations[A].node)
    rule = read_rule(world.state.partitions[ref_of("one")].terms)
    cap = rule.cap(Fraction(3))
    loss = world.state.accounts[ref_of("one"), holder].loss
    share = min(
        Fraction(at, bound) for at, bound in zip(loss.finite[:-1], cap.capacity[:-1], strict=True) if bound is not None
    )
    assert share > 1
    caps = {ref_of("one"): cap, ref_of("two"): cap}
    assert frozen_accounts(world.state, world.state.accounts_of(holder), caps) == [
        Frozen(ref_of("one"), holder, share - 1)
    ]
    assert frozen_accounts(world.state, world.state.accounts_of(holder), {ref_of("two"): cap}) == []
    assert frozen_accounts(world.state, world.state.accounts_of("lineage:9999"), caps) == []


@pytest.mark.parametrize("kind", ["merger", "acquisition", "collusion", "split", "publication", "coalition"])
def test_only_an_sro_enters_what_became_of_organisations(kind: str) -> None:
    """And each body it names has to be registered."""
    bodies: dict[str, dict[str, Any]] = {
        "merger": {"organisation": A, "parents": [B]},
        "acquisition": {"organisation": A, "acquired": [B]},
        "collusion": {"organisations": [A, B], "effective": 0},
        "split": {"organisation": A, "child": B},
        "publication": {"charge": "r0"},
        "coalition": {"members": [A, B], "epsilon": "1"},
    }
    world = fresh()
    run(world, "r0", A)
    assert enter(world, kind, A, **bodies[kind]).code.word == "not_authorised"
    unknown = str(bodies[kind]).replace(B, LATE).replace("r0", "r9")
    assert enter(world, kind, **eval(unknown)).code.word == "not_found"  # noqa: S307 - our own words
    assert enter(world, kind, **bodies[kind]).code.word == "permitted"
    assert world.clock.now < world.state.charges["r0"].deadline + DAY_MS


def test_who_leaves_a_lineage_stays_in_every_coalition_that_names_its_parent() -> None:
    """Also where others of the lineage are in coalitions of their own."""
    world = fresh()
    assert not enter(world, "collusion", organisations=[A, B], effective=world.clock.now).code.refused
    for members in ((B, C), (A, D), (B, D)):
        assert not enter(world, "coalition", epsilon="5", members=[*members]).code.refused
    world.register(LATE, "TDC")
    run(world, "known", A)
    assert not enter(world, "split", organisation=A, child=LATE).code.refused
    coalitions = [node.members for node in world.state.nodes.values() if node.kind is NodeKind.COALITION]
    assert sorted(coalitions) == sorted([tuple(sorted(one)) for one in ((B, C), (A, D, LATE), (B, D))])


def test_a_coalition_follows_its_members_and_not_who_was_at_their_node() -> None:
    """Of three colluders one splits off another: the coalition of the third stays with the third."""
    world = fresh()
    assert not enter(world, "collusion", organisations=[A, B, C], effective=world.clock.now).code.refused
    assert not enter(world, "coalition", epsilon="5", members=[C, D]).code.refused
    assert not enter(world, "split", organisation=A, child=B).code.refused
    (coalition,) = (index for index, node in world.state.nodes.items() if node.kind is NodeKind.COALITION)
    followed = {index for index, node in world.state.nodes.items() for at in node.children if at.node == coalition}
    assert followed == {world.state.organisations[did].node for did in (C, D)}


def test_a_merger_of_those_who_know_nothing_opens_no_account() -> None:
    """A charge that was voided leaves its author's account, and gives its heirs none."""
    world = fresh()
    assert world.decide_charge("voided", A, CONTRACTS[A], ("one",), QUIET).code.word == "pending"
    assert not world.decide_void("voided").code.refused
    world.register(LATE, "TDC")
    assert not enter(world, "merger", organisation=LATE, parents=[A, B]).code.refused
    holder = holder_of(world.state.organisations[LATE].node)
    assert [ref for ref, at in world.state.accounts if at == holder] == []
