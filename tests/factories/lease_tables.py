"""The life of a charge that leases its steps, as tables: see :mod:`tests.factories.charge_tables`.

``lease a 1 10 2`` leases the steps 1 to 10 to generation 2, under an id of its own each time. ``post-leased a 20 1``
posts 20 steps for generation 1 with its newest lease, ``post-stale`` with the first lease that there was.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from ledger.wire import canonical_json as c

STATE: Final = "cd" * 32
OTHER_MODEL: Final = "ef" * 32
KINDS: Final = {
    "announce": "release_notice",
    "lease": "step_lease",
    "model": "model_release",
    "release": "key_release",
    "resume": "run_generation",
}
"""The kind of a command by its verb, where that is another word."""
LEASE_TABLES: Final = {
    "leased, posted and released": """
        charge-leasing a  | pending         | pending
        lease a 1 10 1    | conflict        | pending
        release a         | permitted       | pending
        lease a 2 10 1    | conflict        | pending
        lease a 1 10 1    | permitted       | pending
        lease a 1 10 1    | conflict        | pending
        lease a 5 20 1    | conflict        | pending
        lease a 12 20 1   | conflict        | pending
        lease a 11 41 1   | malformed       | pending
        lease a 11 10 1   | malformed       | pending
        lease a 11 20 2   | conflict        | pending
        lease-badly a 11 20 1 | malformed   | pending
        lease-by-bank a 11 20 1 | not_authorised | pending
        lease a 11 20 1   | permitted       | pending
        post a 40         | conflict        | pending
        post-leased a 19 1 | conflict       | pending
        post-stale a 20 1 | conflict        | pending
        post-leased a 20 2 | conflict       | pending
        void a            | conflict        | pending
        post-leased a 20 1 | posted         | posted
        lease a 21 30 1   | conflict        | posted
        post-leased a 20 1 | conflict       | posted
        announce-another a | conflict        | posted
        announce a        | permitted       | posted
        model a           | conflict        | posted
        model-another a   | conflict        | posted
        model-posted a    | permitted       | posted
        model-posted a    | permitted       | posted
    """,
    "leased, and taken over": """
        charge-leasing a  | pending         | pending
        resume a          | conflict        | pending
        release a         | permitted       | pending
        lease a 1 10 1    | permitted       | pending
        resume-by-bank a  | not_authorised  | pending
        resume-blind a    | not_found       | pending
        resume a          | permitted       | pending
        lease a 11 20 1   | conflict        | pending
        post-leased a 10 1 | conflict       | pending
        lease a 1 10 2    | conflict        | pending
        lease a 11 20 2   | permitted       | pending
        resume a          | permitted       | pending
        post-leased a 20 2 | conflict       | pending
        post-stale a 20 3 | conflict        | pending
        post-leased a 20 3 | posted         | posted
        announce a        | permitted       | posted
        model-posted a    | permitted       | posted
    """,
    "leased to its last step": """
        charge-leasing a  | pending         | pending
        release a         | permitted       | pending
        lease a 1 40 1    | permitted       | pending
        lease a 41 41 1   | malformed       | pending
        post-leased a 39 1 | conflict       | pending
        post-leased a 40 1 | posted         | posted
    """,
    "no step, no model": """
        charge-leasing a  | pending         | pending
        release a         | permitted       | pending
        post-leased a 0 1 | malformed       | pending
        post-bare a 0 1   | posted          | posted
        announce a        | conflict        | posted
        model-posted a    | conflict        | posted
    """,
    "steps without a model": """
        charge-leasing a  | pending         | pending
        release a         | permitted       | pending
        lease a 1 10 1    | permitted       | pending
        post-bare a 10 1  | posted          | posted
        announce a        | conflict        | posted
        model-posted a    | conflict        | posted
    """,
    "leased and lapsed": """
        charge-leasing a  | pending         | pending
        release a         | permitted       | pending
        lease a 1 10 1    | permitted       | pending
        wait 2            | -               | -
        lapse a           | posted          | posted
        lease a 11 20 1   | conflict        | posted
        announce a        | conflict        | posted
        model a           | conflict        | posted
    """,
    "without leases": """
        charge a          | pending         | pending
        release a         | permitted       | pending
        lease a 1 10 1    | conflict        | pending
        resume a          | conflict        | pending
        post-leased a 10 1 | conflict       | pending
        post-named a 10   | posted          | posted
        announce-another a | conflict        | posted
        announce a        | permitted       | posted
        model-another a   | conflict        | posted
        model a           | permitted       | posted
    """,
}


class Leasing:
    """What a clean room knows of its leases: the ids of the run's first and newest, and of its newest post."""

    def __init__(self) -> None:
        """Nothing is leased."""
        self.first: dict[str, str] = {}
        self.newest: dict[str, str] = {}
        self.posted: dict[str, str] = {}

    def fill(self, body: c.Object, verb: str, how: str, numbers: list[int], model: str) -> None:
        """Add to the body of a command what concerns leases."""
        name = str(body["charge"])
        if verb == "lease":
            body |= {"first": numbers[0], "last": numbers[1], "generation": numbers[2], "state": STATE}
        if verb == "post" and how in {"leased", "stale", "bare"}:
            lease = (self.first if how == "stale" else self.newest).get(name)
            body |= {"generation": numbers[1], **({"lease": lease} if lease else {})}
        if verb == "post" and how in {"leased", "stale", "named"}:
            body["model"] = model
        if verb == "model" and how in {"posted", "another"} and name in self.posted:
            body["post"] = self.posted[name]
        if verb in {"announce", "model"} and how == "another":
            body["model"] = OTHER_MODEL

    def took_place(self, verb: str, charge: str, sent: str) -> None:
        """Note a command that was permitted."""
        if verb == "lease":
            self.first.setdefault(charge, sent)
            self.newest[charge] = sent
        if verb == "resume":
            self.newest.pop(charge, None)
        if verb == "post":
            self.posted[charge] = sent


def lease_id(name: str) -> str:
    """The id of a lease, for a name that is used once."""
    return f"lease-{sha256(name.encode()).hexdigest()}"
