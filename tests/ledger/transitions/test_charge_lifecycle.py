"""The life of a charge as tables: a row an event, the last columns its outcome and where its charge then stands."""

import pytest

from ledger.accounting.renyi import price as price_of
from ledger.crypto.detached_jws import public_key
from ledger.domain.facts import GLOBAL, holder_of
from ledger.domain.outcomes import ChargeState
from ledger.filters import read_rule
from ledger.mechanisms.loss import Loss, Segment, loss_of
from ledger.mechanisms.mechanism import PoissonGaussian
from ledger.transitions.decide import LEDGER_ACTOR
from ledger.transitions.guards import Decision
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import parse_number
from tests.factories.documents import dense_plan
from tests.factories.memory import EVIDENCE, MODEL, World, ref_of, settled_world, snapshot
from tests.factories.people import BANKS, DAY_MS, HOSPITAL, private_key

BANK, OTHER_BANK = BANKS[0], BANKS[1]
STEPS = 40

# Events without a charge of their own end in "-". A charge is always of 40 steps.
TABLES = {
    "posted in full": """
        charge a          | pending         | pending
        release a         | permitted       | pending
        post a 40         | posted          | posted
        model a           | permitted       | posted
    """,
    "posted in part, the rest comes back": """
        charge a          | pending         | pending
        release a         | permitted       | pending
        post a 17         | posted          | posted
    """,
    "posted for no step": """
        charge a          | pending         | pending
        release a         | permitted       | pending
        post a 0          | posted          | posted
    """,
    "posted for more than was charged": """
        charge a          | pending         | pending
        post a 41         | malformed       | pending
        post a 40         | posted          | posted
    """,
    "posted twice": """
        charge a          | pending         | pending
        post a 10         | posted          | posted
        post a 10         | conflict        | posted
        post a 0          | conflict        | posted
        void a            | conflict        | posted
        release a         | conflict        | posted
        wait 2            | -               | posted
        lapse a           | conflict        | posted
    """,
    "voided before the key release": """
        charge a          | pending         | pending
        void a            | voided          | voided
        void a            | conflict        | voided
        post a 0          | conflict        | voided
        release a         | conflict        | voided
        model a           | conflict        | voided
        wait 2            | -               | voided
        lapse a           | conflict        | voided
    """,
    "voided by the clean room": """
        charge a          | pending         | pending
        void-by-room a    | voided          | voided
    """,
    "not voided after the key release": """
        charge a          | pending         | pending
        release a         | permitted       | pending
        void a            | conflict        | pending
        void-by-room a    | conflict        | pending
        post a 0          | posted          | posted
    """,
    "lapsed without a key release": """
        charge a          | pending         | pending
        lapse a           | conflict        | pending
        wait 1            | -               | pending
        lapse a           | conflict        | pending
        wait-a-moment     | -               | pending
        lapse a           | voided          | voided
        post a 5          | conflict        | voided
    """,
    "lapsed after a key release": """
        charge a          | pending         | pending
        release a         | permitted       | pending
        lapse a           | conflict        | pending
        wait 2            | -               | pending
        lapse a           | posted          | posted
        post a 5          | conflict        | posted
    """,
    "the order of entries decides, not a clock": """
        charge a          | pending         | pending
        wait 2            | -               | pending
        post a 5          | posted          | posted
        lapse a           | conflict        | posted
    """,
    "released twice": """
        charge a          | pending         | pending
        release a         | permitted       | pending
        release a         | conflict        | pending
    """,
    "released on no evidence": """
        charge a          | pending         | pending
        release-blind a   | not_found       | pending
    """,
    "model before the run was posted": """
        charge a          | pending         | pending
        model a           | conflict        | pending
        release a         | permitted       | pending
        model a           | conflict        | pending
        post a 40         | posted          | posted
        model a           | permitted       | posted
    """,
    "model of a run whose key was never released": """
        charge a          | pending         | pending
        post a 40         | posted          | posted
        model a           | conflict        | posted
    """,
    "another's key": """
        charge a          | pending         | pending
        charge b          | pending         | pending
        post-by-b a       | not_authorised  | pending
        post-by-bank a    | not_authorised  | pending
        post-by-other a   | not_authorised  | pending
        post-by-nobody a  | signature_invalid | pending
        void-by-other a   | not_authorised  | pending
        void-by-b a       | not_authorised  | pending
        void-by-hospital a | not_authorised | pending
        release-by-bank a | not_authorised  | pending
        lapse-by-bank a   | signature_invalid | pending
        post a 40         | posted          | posted
    """,
    "a charge that nobody made": """
        post-unknown z    | not_found       | -
        void-unknown z    | not_found       | -
        lapse-unknown z   | not_found       | -
        model-unknown z   | not_found       | -
    """,
    "what a charge may not be": """
        charge-by-hospital a | not_authorised | -
        charge-nowhere a  | not_found       | -
        charge-no-contract a | not_found    | -
        charge-late a     | malformed       | -
        charge-too-late a | malformed       | -
        charge a          | pending         | pending
        charge-same-room b | conflict       | -
        charge-by-room b  | not_authorised  | -
    """,
    "two partitions": """
        charge-both a     | pending         | pending
        release a         | permitted       | pending
        post a 3          | posted          | posted
    """,
}


class Life(World):
    """A world with two partitions and a contract, and an event for each word of the tables."""

    @classmethod
    def begin(cls) -> "Life":
        """Partitions ``one`` and ``two``, one contract for the bank."""
        base = settled_world()
        life = cls(state=base.state, index=base.index)
        for partition in ("one", "two"):
            assert life.open(partition).code.word == "permitted"
        life.digest = life.contract(BANK)
        return life

    digest: str = ""

    def event(self, words: list[str]) -> Decision | None:
        """Do what one row says."""
        verb, _, how = words[0].partition("-")
        if verb == "wait":
            self.now += 1 if how else int(words[1]) * DAY_MS
            return None
        name = words[1]
        if verb == "charge":
            return self.asked(how, name)
        how = how.removeprefix("by-")
        by = {"b": "room b", "bank": BANK, "other": OTHER_BANK, "nobody": "nobody", "hospital": HOSPITAL}.get(how)
        room = f"room {name}"
        actor = {"other": OTHER_BANK, "hospital": HOSPITAL}.get(how, BANK)
        body: c.Object = {"charge": name}
        if verb == "void":
            by = room if how == "room" else by or BANK
        if verb == "lapse":
            by, actor = (BANK, BANK) if how == "bank" else ("log", LEDGER_ACTOR)
        if verb == "post":
            body["steps"] = int(words[2]) if len(words) > 2 else 1
        if verb == "model":
            body["model"] = MODEL
        if verb == "release":
            evidence = c.digest(b"nothing" if how == "blind" else EVIDENCE)
            body |= {"evidence": evidence, "nonce": c.base64url(bytes([9]) * 32)}
        if how == "unknown":
            by = "log" if verb == "lapse" else BANK
        kind = {"release": "key_release", "model": "model_release"}.get(verb, verb)
        return self.submit(kind, f"{verb}-{self.index}", actor, body, by=by or room)

    def asked(self, how: str, name: str) -> Decision:
        """A charge, as it should be or with one thing wrong."""
        bank = HOSPITAL if how == "by-hospital" else BANK
        contract = "0" * 64 if how == "no-contract" else self.digest
        where = {"nowhere": ("one", "nowhere"), "both": ("one", "two")}.get(how, ("one",))
        plan = dense_plan(STEPS)
        if how == "late":
            return self.charge(name, bank, contract, where, plan, deadline=self.now)
        if how == "too-late":
            return self.charge(name, bank, contract, where, plan, deadline=self.now + 30 * DAY_MS + 1)
        if how == "same-room":
            room: c.Json = {
                "sealing": {"crv": "X25519", "kty": "OKP", "x": c.base64url(bytes([9]) * 32)},
                "signing": {"crv": "Ed25519", "kty": "OKP", "x": public_key(private_key("room a")).x},
            }
            return self.charge(name, bank, contract, where, plan, clean_room=room)
        by = "room a" if how == "by-room" else ""
        return self.charge(name, bank, contract, where, plan, by)

    def check_accounts(self) -> None:
        """Every account is the sum over the charges as they stand, computed again from their steps."""
        node = self.state.organisations[BANK].node
        for partition in ("one", "two"):
            rule = read_rule(self.state.partitions[ref_of(partition)].terms)
            names = [one for one in self.state.charges.values() if ref_of(partition) in one.partitions]
            orders = tuple(int(one.name.split()[1]) for one in rule.coordinates[:-1])
            step = PoissonGaussian(parse_number("0.1", ""), parse_number("2", ""), 1)
            price = price_of(step, "REPLACE_SPECIAL", orders)
            segment = (Segment(STEPS, (*price, 0)),)
            posted = pending = Loss.zero(len(rule.coordinates))
            for one in names:
                posted = posted + loss_of(segment, one.steps_posted or 0)
                pending = pending + loss_of(segment, STEPS if one.state is ChargeState.PENDING else 0)
            for holder in (GLOBAL, holder_of(node)):
                assert self.exposure(partition, holder) == ((posted, pending) if names else None)
        open_runs = [one for one in self.state.charges.values() if one.state is not ChargeState.VOIDED]
        assert self.state.contracts[self.digest].runs == len(open_runs)


@pytest.mark.parametrize("table", TABLES)
def test_the_life_of_a_charge(table: str) -> None:
    """Each row's outcome is the one its last columns say, and the accounts follow."""
    life = Life.begin()
    for row in TABLES[table].strip().splitlines():
        event, outcome, state = (cell.strip() for cell in row.split("|"))
        decided = life.event(event.split())
        assert (decided.code.word if decided else "-") == outcome, f"{event}: {decided and decided.detail}"
        words = event.split()
        stands = life.state.charges.get(words[1] if len(words) > 1 and words[0] != "wait" else "a")
        assert (stands.state.value if stands else "-") == state, event
        life.check_accounts()


def test_a_budget_that_is_used_up_names_every_account_and_the_steps_that_fit() -> None:
    """Both accounts are named with the share used; exactly the steps told fit, and one more does not."""
    life = Life.begin()
    life.lineage = parse_number("2.5", "")
    assert life.open("small", "3").code.word == "permitted"
    refused = life.charge("a", BANK, life.digest, ("small",), dense_plan(4_000))
    assert refused.code.word == "budget_exhausted"
    assert "the global account of" in refused.detail
    assert "the account of this lineage of" in refused.detail
    checks = refused.derived["checks"]
    assert isinstance(checks, list)
    node = life.state.organisations[BANK].node
    assert [one["source"] for one in checks if isinstance(one, dict)] == [GLOBAL, holder_of(node)]
    fit = min(
        int(part.split(" of the run's ")[0].split()[-1]) for part in refused.detail.split(" steps would fit")[:-1]
    )
    assert 0 < fit < 4_000
    assert life.charge("b", BANK, life.digest, ("small",), dense_plan(fit + 1)).code.word == "budget_exhausted"
    assert life.charge("c", BANK, life.digest, ("small",), dense_plan(fit)).code.word == "pending"
    assert life.charge("d", BANK, life.digest, ("small",), dense_plan(1)).code.word == "budget_exhausted"
    assert life.post("c", fit - 1).code.word == "posted"
    assert life.charge("e", BANK, life.digest, ("small",), dense_plan(1)).code.word == "pending"


def test_two_partitions_are_charged_or_neither_is() -> None:
    """One without room refuses the whole, names only itself, and leaves the other's account alone."""
    life = Life.begin()
    assert life.open("small", "3").code.word == "permitted"
    before = snapshot(life.state)
    refused = life.charge("a", BANK, life.digest, ("one", "small"), dense_plan(4_000))
    assert refused.code.word == "budget_exhausted"
    assert ref_of("small") in refused.detail
    assert ref_of("one") not in refused.detail
    assert life.state == before


def test_a_price_that_is_infinite_everywhere_is_never_admitted() -> None:
    """Hardly any noise: no order has a finite price, and no step fits."""
    life = Life.begin()
    refused = life.charge("a", BANK, life.digest, ("one",), dense_plan(1, noise="0.03", probability="1"))
    assert refused.code.word in {"budget_exhausted", "malformed"}
    assert not life.state.charges


def test_a_cap_too_small_for_any_order_is_a_denial() -> None:
    """Told with the least ε that has room."""
    life = Life.begin()
    life.lineage = parse_number("0.001", "")
    refused = life.charge("a", BANK, life.digest, ("one",), dense_plan(1))
    assert refused.code.word == "policy_denied"
    assert "the least that has some is" in refused.detail


def test_a_gate_that_denies_leaves_nothing() -> None:
    """Recorded with its reasons; no charge, no account, no key."""
    life = Life.begin()
    life.deny = ("too_late",)
    before, index = snapshot(life.state), life.index
    refused = life.charge("a", BANK, life.digest, ("one",), dense_plan(STEPS))
    assert refused.code.word == "policy_denied"
    assert "too_late on purpose" in refused.detail
    assert life.state == before
    assert life.index == index + 1


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"epsilon": "0"}, "body.epsilon"),
        ({"epsilon": "129"}, "body.epsilon"),
        ({"epsilon": "0.0001"}, "body.epsilon"),
        ({"delta": "0.000000000001"}, "body.delta"),
        ({"delta": "1"}, "body.delta"),
    ],
)
def test_a_partition_that_cannot_be_kept_is_refused_by_field(changes: dict[str, c.Json], field: str) -> None:
    """A budget out of range, or one with no room at any order."""
    life = Life.begin()
    decided = life.open("other", **{"epsilon": "3", **changes})  # type: ignore[arg-type] # fields by name
    assert (decided.code.word, decided.field) == ("malformed", field)


def test_what_was_done_is_not_done_again() -> None:
    """A partition opened or retired twice, an organisation or a key registered twice."""
    life = Life.begin()
    assert life.open("one").code.word == "conflict"
    for expected in ("permitted", "conflict"):
        retired = life.submit("retirement", f"retire-{life.index}", HOSPITAL, {"partition": ref_of("one")})
        assert retired.code.word == expected
    assert life.state.partitions[ref_of("one")].retired
    assert life.register(BANK, "TDC").code.word == "conflict"
