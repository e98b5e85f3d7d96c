"""Who signed a command: the key that it names, of its own actor, over this very command; for the book, the log's.

A guard of a decision that no test misses is no guard, so each of them is met here by a command that fails it alone.
"""

from __future__ import annotations

from typing import Final

import pytest
from msgspec import structs

from ledger.commands.context import PendingCommand
from ledger.commands.decide import decide, verify_signer
from ledger.commands.registry import read_command
from ledger.crypto.detached_jws import Call
from ledger.domain.command import LEDGER_ACTOR
from ledger.domain.decision import Decision, Rejected
from ledger.domain.outcomes import Code
from ledger.wire import canonical_json as c
from tests.factories.memory import LOG_PUBLIC, PermissiveWorld
from tests.factories.people import BANK_A, BANK_B, HOSPITAL, SRO


def founded() -> PermissiveWorld:
    """One partition, which is retired by whoever may."""
    world = PermissiveWorld.settled()
    assert world.open("one", "6").code.word == "permitted"
    return world


WORLD: Final = founded()
REF: Final = f"{HOSPITAL}/digits/one"
RETIRE: Final[c.Object] = {"partition": REF}


def retirement(by: str = HOSPITAL) -> PendingCommand:
    """The provider's own command, signed by the key called ``by``."""
    return WORLD.pending("retirement", "retire-1", HOSPITAL, RETIRE, by)


def decided(pending: PendingCommand) -> Decision:
    """A decision on the founded world, which stays as it is."""
    return decide(WORLD.state, pending, WORLD.clock(), WORLD.index, WORLD.gate, LOG_PUBLIC.x)


def test_the_provider_s_own_signature_is_enough() -> None:
    """What every refusal below differs from."""
    assert decided(retirement()).code is Code.PERMITTED
    assert verify_signer(WORLD.state, retirement(), LOG_PUBLIC.x).x == WORLD.signers[HOSPITAL].jwk["x"]


@pytest.mark.parametrize("by", [BANK_A, BANK_B, SRO])
def test_the_key_of_another_actor_signs_nothing(by: str) -> None:
    """It is registered, and the signature over the very bytes is good: only the owner is another."""
    refused = decided(retirement(by))
    assert (refused.code, refused.field) == (Code.NOT_AUTHORISED, "actor")
    assert HOSPITAL in refused.detail


def test_a_key_that_no_one_registered_signs_nothing() -> None:
    """It names itself, and nobody vouches for it."""
    refused = decided(retirement("nobody"))
    assert (refused.code, refused.field) == (Code.SIGNATURE_INVALID, "key_id")


def test_a_signature_made_for_another_command_is_no_signature() -> None:
    """Its jti is the idempotency key of what was signed: the same bytes under another id were never asked for."""
    pending = retirement()
    signer, now = WORLD.signers[HOSPITAL], WORLD.clock() // 1_000
    for name, code in (("retire-1", Code.PERMITTED), ("retire-2", Code.SIGNATURE_INVALID)):
        call = Call("POST", "https://ledger.example/v1/retirements", now, name)
        again = structs.replace(pending, signature=signer.sign(pending.raw, call))
        assert decided(again).code is code, name
    assert "jti" in decided(again).detail


def test_only_the_key_that_is_requested_has_been_seen_to_verify() -> None:
    """A verification that was done beforehand counts for its own key, and for no other; so does one that failed."""
    own, other = (str(WORLD.signers[one].jwk["x"]) for one in (HOSPITAL, BANK_A))
    good, broken = retirement(), structs.replace(retirement(), signature=retirement(BANK_A).signature)
    assert decided(broken).code is Code.SIGNATURE_INVALID
    assert decided(structs.replace(broken, verified_by=own)).code is Code.PERMITTED
    assert decided(structs.replace(broken, verified_by=other)).code is Code.SIGNATURE_INVALID
    assert decided(structs.replace(good, refused_by=(other, "by another key"))).code is Code.PERMITTED
    assert decided(structs.replace(good, refused_by=(own, "seen before"))).detail == "seen before"


def test_the_book_s_own_entries_are_the_log_key_s() -> None:
    """A lapse that another key signed, or that names another key than the log's."""
    body: c.Object = {"charge": "run-1"}
    for by in (SRO, HOSPITAL):
        with pytest.raises(Rejected) as refused:
            verify_signer(WORLD.state, WORLD.pending("lapse", "lapse-1", LEDGER_ACTOR, body, by), LOG_PUBLIC.x)
        assert (refused.value.decided.code, refused.value.decided.field) == (Code.SIGNATURE_INVALID, "key_id")
    own = WORLD.pending("lapse", "lapse-1", LEDGER_ACTOR, body, by="log")
    assert verify_signer(WORLD.state, own, LOG_PUBLIC.x).x == LOG_PUBLIC.x
    foreign = WORLD.pending("lapse", "lapse-1", LEDGER_ACTOR, body, by=SRO)
    named = structs.replace(foreign.command, key_id=own.command.key_id)
    forged = read_command(named.to_bytes(), WORLD.signers[SRO].sign(named.to_bytes()))
    with pytest.raises(Rejected) as refused:
        verify_signer(WORLD.state, forged, LOG_PUBLIC.x)
    assert (refused.value.decided.code, refused.value.decided.field) == (Code.SIGNATURE_INVALID, "signature")
