"""The life of a charge as tables: a row an event, the last columns its outcome and the charge's state after it.

A wait has no outcome, and nothing is read after it: what is due may settle at any moment.
They run on every :class:`~tests.factories.world.World`. Where a service answers before its book is reached, because
it knows who calls, the outcome has a second code: that over HTTP.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ledger.accounting.renyi import price as price_of
from ledger.domain.facts import GLOBAL
from ledger.filters import read_rule
from ledger.mechanisms.loss import Loss, Segment, loss_of
from ledger.mechanisms.mechanism import PoissonGaussian
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import parse_number
from tests.factories.documents import DIGITS, dense_plan
from tests.factories.lease_tables import KINDS, LEASE_TABLES, Leasing, lease_id
from tests.factories.people import BANK_A, BANK_B, DAY_MS, HOSPITAL, CleanRoom
from tests.factories.world import HOLDER, World

STEPS: Final = 40
PLAN: Final = dense_plan(STEPS)
MODEL: Final = "ab" * 32
# Events without a charge of their own end in "-". A charge is always of 40 steps.
TABLES: Final = {
    **LEASE_TABLES,
    "posted in full": """
        charge a          | pending         | pending
        release a         | permitted       | pending
        post a 40         | posted          | posted
        announce a        | permitted       | posted
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
        announce a        | conflict        | posted
        model a           | conflict        | posted
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
        release a         | conflict / not_authorised | posted
        wait 2            | -               | -
        lapse a           | conflict        | posted
    """,
    "voided before the key release": """
        charge a          | pending         | pending
        void a            | voided          | voided
        void a            | conflict        | voided
        post a 0          | conflict        | voided
        release a         | conflict / not_authorised | voided
        model a           | conflict        | voided
        wait 2            | -               | -
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
        wait 1            | -               | -
        lapse a           | conflict        | pending
        wait-a-moment     | -               | -
        lapse a           | voided          | voided
        post a 5          | conflict        | voided
    """,
    "lapsed after a key release": """
        charge a          | pending         | pending
        release a         | permitted       | pending
        lapse a           | conflict        | pending
        wait 2            | -               | -
        lapse a           | posted          | posted
        post a 5          | conflict        | posted
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
        model a           | policy_denied   | posted
        announce a        | permitted       | posted
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
        post-by-b a       | not_authorised / not_found | pending
        post-by-bank a    | not_authorised  | pending
        post-by-other a   | not_authorised  | pending
        post-by-nobody a  | signature_invalid / not_authorised | pending
        void-by-other a   | not_authorised / not_found | pending
        void-by-b a       | not_authorised / not_found | pending
        void-by-hospital a | not_authorised | pending
        release-by-bank a | not_authorised  | pending
        post a 40         | posted          | posted
    """,
    "a charge that nobody made": """
        post-unknown z    | not_found / not_authorised | -
        void-unknown z    | not_found       | -
        model-unknown z   | not_found / not_authorised | -
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


@dataclass
class ChargeTable:
    """One of the tables on one book: its charges and partitions have names of their own, so tables can share the book.

    Attributes:
        table: its name.
        over_http: whether a service stands before the book.
    """

    world: World
    table: str
    over_http: bool = False
    partitions: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Of each charge that was asked for."""
    sent: int = 0
    leasing: Leasing = field(default_factory=Leasing)

    @property
    def case(self) -> str:
        """How its names begin."""
        return f"t{[*TABLES].index(self.table)}"

    def rows(self) -> list[tuple[str, ...]]:
        """The events of the table, each with the outcome that it has here and the charge's state after it."""
        reported: list[tuple[str, ...]] = []
        for row in TABLES[self.table].strip().splitlines():
            event, outcomes, state = (cell.strip() for cell in row.split("|"))
            reported.append((event, outcomes.split(" / ")[-1 if self.over_http else 0], state))
        return reported

    def run(self) -> list[tuple[str, ...]]:
        """The rows as they come out, down to the first that differs; after each the accounts are computed again."""
        for partition in ("one", "two"):
            self.world.found(self.world.partition(f"{self.case}-{partition}", epsilon="8"))
        runs = self.world.runs(self.world.contracts[BANK_A])
        found: list[tuple[str, ...]] = []
        for row in self.rows():
            words = row[0].split()
            outcome = self._event(words)
            charge = None if outcome is None else self.world.charge_read(self._name(words[1]))
            found.append((row[0], outcome or "-", charge.state if charge else "-"))
            if found[-1] != row:
                return found
            if outcome is not None:
                self._check_accounts(runs)
        return found

    def _name(self, charge: str) -> str:
        return f"{self.case}-{charge}"

    def _ref(self, partition: str) -> str:
        return f"{DIGITS}/{self.case}-{partition}"

    def _event(self, words: list[str]) -> str | None:
        verb, _, how = words[0].partition("-")
        if verb == "wait":
            self.world.clock.now += 1 if how else int(words[1]) * DAY_MS
            return None
        name = self._name(words[1])
        if verb == "lapse":
            return self.world.lapse(name)
        if verb == "charge":
            return self._charge(how, name)
        return self._of_charge(verb, how.removeprefix("by-"), name, [int(one) for one in words[2:]])

    def _of_charge(self, verb: str, how: str, name: str, numbers: list[int]) -> str:
        """A command about a charge: by its clean room, a void by its bank; by another where ``how`` says so."""
        room, actor = CleanRoom(name).signer, {"other": BANK_B, "hospital": HOSPITAL}.get(how, BANK_A)
        signer = {
            "b": CleanRoom(self._name("b")).signer,
            "nobody": self.world.signers["nobody"],
            "room": room,
            "unknown": self.world.signers[BANK_A],
        }.get(how, self.world.signers[actor] if how in {"bank", "other", "hospital"} or verb == "void" else room)
        body: c.Object = {"charge": name}
        if verb == "post":
            body["steps"] = numbers[0] if numbers else 1
        if verb in {"announce", "model"}:
            body["model"] = MODEL
        if verb in {"release", "resume"}:
            nonce = self.world.nonce(name)
            evidence = (
                c.digest(b"nothing") if how == "blind" else self.world.evidence(name, CleanRoom(name), PLAN, nonce)
            )
            body |= {"evidence": evidence, "nonce": nonce}
        self.leasing.fill(body, verb, how, numbers, MODEL)
        self.sent += 1
        sent = f"{self.case}-{verb}-{self.sent}"
        sent = lease_id(sent) if verb == "lease" and how != "badly" else sent
        found = self.world.send(actor, KINDS.get(verb, verb), body, sent, signer)
        if not found.code.refused:
            self.leasing.took_place(verb, name, sent)
        return found.code.word

    def _charge(self, how: str, name: str) -> str:
        """A charge, as it should be or with one thing wrong."""
        now, partitions = (
            self.world.clock(),
            {"nowhere": ("one", "nowhere"), "both": ("one", "two")}.get(how, ("one",)),
        )
        room = CleanRoom(name).to_json()
        if how == "same-room":
            room = {**room, "signing": CleanRoom(self._name("a")).to_json()["signing"]}
        body: c.Object = {
            "clean_room": room,
            "contract": "0" * 64 if how == "no-contract" else self.world.contracts[BANK_A],
            "deadline": now + {"late": 0, "too-late": 30 * DAY_MS + 1}.get(how, DAY_MS),
            "partitions": [self._ref(one) for one in partitions],
            "plan": PLAN,
            **({"step_leases": True} if how == "leasing" else {}),
        }
        self.partitions[name] = partitions
        actor = HOSPITAL if how == "by-hospital" else BANK_A
        signer = CleanRoom(self._name("a")).signer if how == "by-room" else self.world.signers[actor]
        return self.world.send(actor, "charge", body, name, signer).code.word

    def _check_accounts(self, runs: int) -> None:
        """Every account is the sum over the charges in their states, computed again from their steps."""
        charges = {name: self.world.charge_read(name) for name in self.partitions}
        for partition in ("one", "two"):
            price, accounts = _price(self.world.terms(ref := self._ref(partition))), self.world.accounts(ref)
            known = [one for name, one in charges.items() if one and partition in self.partitions[name]]
            posted = pending = price(0)
            for one in known:
                posted = posted + price(one.steps_posted or 0)
                pending = pending + price(STEPS if one.state == "pending" else 0)
            for holder in (GLOBAL, HOLDER):
                assert accounts.get(holder) == ((posted, pending) if known else None)
        counted = [one for one in charges.values() if one and one.state != "voided"]
        assert self.world.runs(self.world.contracts[BANK_A]) - runs == len(counted)


def _price(terms: str) -> Callable[[int], Loss]:
    """What so many steps cost under a rule."""
    orders = tuple(int(one.name.split()[1]) for one in read_rule(terms).coordinates[:-1])
    step = PoissonGaussian(parse_number("0.1", ""), parse_number("2", ""), 1)
    segments = (Segment(STEPS, (*price_of(step, "REPLACE_SPECIAL", orders), 0)),)
    return lambda steps: loss_of(segments, steps)
