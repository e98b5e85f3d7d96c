"""What ends, lifts or narrows what was agreed: revocations, decrees, quotas, recommendations; on both engines."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Final

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from sqlalchemy import text
from typer.testing import CliRunner

from ledger.accounts import headroom
from ledger.accounts.account_loss import counted_loss, frozen_accounts
from ledger.audit.replay import VerificationFailed, verify_book
from ledger.commands import verdict_cache
from ledger.commands.governance.model_release_notice import NOTICES_MAX
from ledger.crypto.organisation_keys import parse_organisation_key
from ledger.domain.facts import GLOBAL, holder_of
from ledger.filters import read_rule
from ledger.mechanisms.loss import Loss
from ledger.store.engine import engine_of
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import LOSS_MAX, NAT
from policy.checks.field_readers import format_time
from policy.cli.plan import app
from policy.planning.account_caps import accounts_over_cap
from tests.factories.documents import PARTITION, dataset, plan, policy
from tests.factories.people import BANK_A, BANK_B, HOSPITAL, LOG, SRO, CleanRoom
from tests.factories.stored import StoredWorld, no_step
from tests.ledger.book.governed import (
    MODEL,
    admitted,
    amended,
    announce,
    decree,
    faults,
    opening,
    publish,
    revoke,
    run,
    words,
)


def verified(world: StoredWorld) -> None:
    """Replay agrees with every row."""
    assert verify_book(world.url, LOG, no_step).entries == world.size


def test_a_revoked_contract_admits_and_releases_nothing(world: StoredWorld) -> None:
    """By any TDP, and from that entry on: what is pending settles, a version signed by all begins anew."""
    run(world, "first", PARTITION)
    world.submit(world.charge("waiting"), world.charge("released"))
    world.submit(world.release("released"))
    assert revoke(world, BANK_A).code.word == "not_authorised"
    assert revoke(world).code.word == "permitted"
    assert revoke(world).code.word == "conflict"
    (key,), (new,) = world.submit(world.release("waiting")), world.submit(world.charge("new"))
    assert faults(key) == faults(new) == faults(opening(world, "first", "inside")) == {"contract_revoked"}
    assert words(world.submit(world.void("waiting"), world.settle("released", 40))) == ["voided", "posted"]
    assert words(world.submit(world.charge("other", BANK_B))) == ["pending"]
    again = world.document("contract", amended(), "amended", BANK_A, BANK_A, HOSPITAL)
    assert words(world.submit(again)) == ["permitted"]
    (back,) = world.submit(world.charge("back", contract=c.digest(c.dump(amended()))))
    assert back.code.word == "pending"
    verified(world)


def test_a_decree_lifts_a_freeze_and_forgets_nothing(world: StoredWorld) -> None:
    """A Level raised freezes an account; only the domain's SRO resets it, and the lifetime goes on counting."""
    publish(world, 2, level=0, partition_age_days_max=None)
    world.submit(world.partition("open"))
    ref = f"{HOSPITAL}/digits/open"
    _run_over(world, ref)
    publish(world, 3)
    with world.book.read() as facts:
        cap = read_rule(facts.partitions[ref].terms).cap(facts.partitions[ref].epsilon)
        before = facts.accounts[ref, GLOBAL]
        (frozen,) = frozen_accounts(facts, facts.accounts_of(GLOBAL), {ref: cap})
        assert frozen.excess is not None
        assert frozen.excess > 0
    assert admitted(world, BANK_B, 1, ref) == 0
    assert decree(world, GLOBAL, ref, HOSPITAL).code.word == "not_authorised"
    assert decree(world, "lineage:99", ref).code.word == "conflict"
    done = decree(world, GLOBAL, ref)
    assert done.code.word == "permitted"
    assert done.body["forgiven"] == before.posted.to_json()
    with world.book.read() as facts:
        assert facts.accounts[ref, GLOBAL] == before
        assert counted_loss(facts, before) == before.pending
        assert frozen_accounts(facts, facts.accounts_of(GLOBAL), {ref: cap}) == []
        assert (ref, GLOBAL) in facts.forgiven
        assert (PARTITION, GLOBAL) not in facts.forgiven
    assert admitted(world, BANK_B, 1, ref) == 1
    verified(world)


def _run_over(world: StoredWorld, ref: str) -> None:
    """Runs of both banks, all but one posted, that together pass the budget."""
    names = []
    for bank, prefix in ((BANK_A, "a"), (BANK_B, "b")):
        requested = [f"{prefix}-{n}" for n in range(7)]
        done = world.submit(*(world.charge(name, bank, partitions=(ref,)) for name in requested))
        assert words(done) == ["pending"] * 7
        names += [(name, bank) for name in requested]
    world.submit(*(world.release(name, bank=bank) for name, bank in names[:-1]))
    assert words(world.submit(*(world.settle(name, 100, bank) for name, bank in names[:-1]))) == ["posted"] * 13


def test_a_notice_is_the_clean_rooms_own_word_on_a_run_that_was_posted(world: StoredWorld) -> None:
    """Once for each model, and never before there can be one."""
    world.submit(world.charge("first"), world.release("first"))
    assert announce(world, "first").code.word == "conflict"
    world.submit(world.settle("first", 10))
    body: c.Object = {"charge": "first", "model": MODEL}
    assert world.send(BANK_A, "release_notice", body, "by-bank").code.word == "not_authorised"
    assert world.send(HOSPITAL, "release_notice", body, "by-hospital").code.word == "not_authorised"
    assert announce(world, "first").code.word == "permitted"
    assert announce(world, "first").code.word == "conflict"
    for name in range(1, NOTICES_MAX):
        more: c.Object = {"charge": "first", "model": f"{name:064x}"}
        assert (
            world.send(BANK_A, "release_notice", more, f"n-{name}", CleanRoom("first").signer).code.word == "permitted"
        )
    last: c.Object = {"charge": "first", "model": "f" * 64}
    assert world.send(BANK_A, "release_notice", last, "n-last", CleanRoom("first").signer).code.word == "conflict"
    verified(world)


@pytest.mark.damages
def test_a_decree_forged_in_the_rows_is_found(world: StoredWorld) -> None:
    """What an account is let off is what the decree's entry says."""
    run(world, "first", PARTITION)
    assert decree(world, GLOBAL, PARTITION).code.word == "permitted"
    verified(world)
    engine = engine_of(world.url, writes=True)
    try:
        with engine.begin() as connection:
            row = connection.execute(text("SELECT loss FROM forgiven")).scalar_one()
            more = Loss.parse(json.loads(row))
            twice = json.dumps((more + more).to_json())
            connection.execute(text("UPDATE forgiven SET loss = :loss"), {"loss": twice})
    finally:
        engine.dispose()
    with pytest.raises(VerificationFailed, match="forgiven: the row of"):
        verify_book(world.url, LOG, no_step)


def test_a_quota_keeps_one_lineage_from_draining_a_partition(world: StoredWorld) -> None:
    """A third of twelve runs is four; merged, two lineages share one quota; the other lineage still has its own."""
    publish(world, 2, quota={"share_max": "1/3"})
    assert [admitted(world, bank, 6, PARTITION) for bank in (BANK_A, BANK_B)] == [4, 4]
    (full,) = world.submit(world.charge("more"))
    assert "the quota of this lineage, 1/3 of all," in full.detail
    verified(world)


def test_alerts_are_each_partitions_own_and_replay_finds_them_again(world: StoredWorld) -> None:
    """One run over two domains with different thresholds: what is told is what its own policy asks for."""
    publish(world, 2, alerts=["0.05"])
    other = {**policy(), "domain": "other", "id": "other-policy", "alerts": ["0.9"]}
    letters = {**dataset(), "domain": "other", "id": "letters"}
    both = amended(datasets=[{"dataset": name, "provider": HOSPITAL} for name in ("digits", "letters")])
    done = world.submit(
        world.document("policy", {**other, "effective": format_time(world.clock.now)}, "other", SRO, SRO),
        world.document("dataset", letters, "letters", HOSPITAL, HOSPITAL),
        world.partition("letters", dataset="letters"),
        world.document("contract", both, "both", BANK_A, BANK_A, HOSPITAL),
    )
    assert words(done) == ["permitted"] * 4
    refs = (PARTITION, f"{HOSPITAL}/letters/letters")
    world.contracts[BANK_A] = c.digest(c.dump(both))
    (first,) = world.submit(world.charge("first", partitions=refs))
    told = first.body["alerts"]
    assert isinstance(told, list)
    assert [(one["partition"], one["share"]) for one in told if isinstance(one, dict)] == [(PARTITION, "0.05")] * 2
    (second,) = world.submit(world.charge("second", partitions=refs))
    assert "alerts" not in second.body
    verified(world)


def test_a_contracts_share_binds_where_it_is_smaller(world: StoredWorld) -> None:
    """A sixth of twelve runs is two, whatever the policy leaves."""
    publish(world, 2, quota={"share_max": "1/3"})
    narrow = amended(share_max="1/6")
    world.submit(world.document("contract", narrow, "narrow", BANK_A, BANK_A, HOSPITAL))
    world.contracts[BANK_A] = c.digest(c.dump(narrow))
    assert [admitted(world, bank, 6, PARTITION) for bank in (BANK_A, BANK_B)] == [2, 4]
    verified(world)


def test_a_budget_above_the_recommended_one_needs_a_reason(world: StoredWorld) -> None:
    """A TSO recommends; the partition's entry keeps the reason."""
    tso = "did:web:tso.example"
    advice = {
        "budget": {"delta_max": "0.00001", "epsilon_max": "5"},
        "dataset": "digits",
        "id": "digits-2026",
        "issuer": tso,
        "kind": "recommendation",
        "provider": HOSPITAL,
        "v": 1,
        "version": 1,
    }
    world.submit(world.registration(tso, "TSO"))
    assert words(world.submit(world.document("recommendation", advice, "advice", tso, tso))) == ["permitted"]
    later = world.document("recommendation", {**advice, "version": 3}, "later", tso, tso)
    assert [faults(one) for one in world.submit(later)] == [{"version_not_next"}]
    bare, told = world.submit(world.partition("bare"), world.partition("told", reason="few such records exist"))
    assert (faults(bare), told.code.word) == ({"reason_missing"}, "permitted")
    assert words(world.submit(world.partition("small", epsilon="5"))) == ["permitted"]
    verified(world)


def test_collusion_found_late_is_a_breach_with_its_excess(world: StoredWorld) -> None:
    """Each was within its cap; together they are over, from that entry on, and the past is as it was."""
    assert [admitted(world, bank, 6, PARTITION) for bank in (BANK_A, BANK_B)] == [6, 6]
    with world.book.read() as facts:
        assert list(accounts_over_cap(facts, world.clock.now)) == []
    body: c.Object = {"effective": 0, "organisations": [BANK_A, BANK_B]}
    assert world.send(SRO, "collusion", body, "collusion").code.word == "permitted"
    with world.book.read() as facts:
        (found,) = accounts_over_cap(facts, world.clock.now)
    requested = ["policy", "breaches", world.url, "--at", format_time(world.clock.now)]
    done = CliRunner().invoke(app, [*requested, "--json"])
    assert (done.exit_code, json.loads(done.output)) == (3, {"breaches": [found.to_json()]})
    with world.book.read() as facts:
        assert found.holder == holder_of(facts.organisations[BANK_A].node)
        assert found.used.share is not None
        assert found.used.share > 1
    members = ", ".join(one.removeprefix("did:web:") for one in (BANK_A, BANK_B))
    assert f"the account of {members} on {PARTITION} is over its cap: " in CliRunner().invoke(app, requested).output
    assert admitted(world, BANK_A, 1, PARTITION) == 0
    verified(world)


def test_an_organisation_signs_with_the_keys_it_has(world: StoredWorld) -> None:
    """RS256 and ES256 sign documents and commands as Ed25519 does, and replay verifies them."""
    for name, key in (("rsa", RSA_KEY), ("ec", EC_KEY)):
        did = f"did:web:{name}.example"
        signer = world.signers[did] = Foreign(key)  # type: ignore[assignment] # signs like ours
        described = {**dataset(), "id": name, "provider": did}
        done = world.submit(world.registration(did, "TDP"), world.document("dataset", described, name, did, did))
        assert words(done) == ["permitted", "permitted"], done
        forged = world.command(did, "retirement", {"partition": PARTITION}, f"forged-{name}")
        (wrong,) = world.submit(replace(forged, raw=forged.raw.replace(b"2026-q4", b"2026-q5")))
        assert wrong.code.word == "signature_invalid"
        assert signer.key_id == parse_organisation_key(signer.jwk, "key").thumbprint
    verified(world)


RSA_KEY: Final = rsa.generate_private_key(65537, 2048)
EC_KEY: Final = ec.derive_private_key(7, ec.SECP256R1())


class Foreign:
    """A signer with a key that is not Ed25519."""

    def __init__(self, key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> None:
        self.key = key
        if isinstance(key, rsa.RSAPrivateKey):
            self.algorithm, modulus = "RS256", key.public_key().public_numbers().n
            self.jwk: c.Object = {"e": "AQAB", "kty": "RSA", "n": c.base64url(modulus.to_bytes(256, "big"))}
        else:
            self.algorithm, point = "ES256", key.public_key().public_numbers()
            x, y = (c.base64url(one.to_bytes(32, "big")) for one in (point.x, point.y))
            self.jwk = {"crv": "P-256", "kty": "EC", "x": x, "y": y}
        self.key_id = parse_organisation_key(self.jwk, "jwk").thumbprint

    def sign(self, payload: bytes) -> str:
        """A detached JWS."""
        header = c.base64url(c.dump({"alg": self.algorithm, "b64": False, "crit": ["b64"], "kid": self.key_id}))
        message = header.encode() + b"." + payload
        if isinstance(self.key, rsa.RSAPrivateKey):
            return f"{header}..{c.base64url(self.key.sign(message, padding.PKCS1v15(), hashes.SHA256()))}"
        pair = decode_dss_signature(self.key.sign(message, ec.ECDSA(hashes.SHA256())))
        return f"{header}..{c.base64url(b''.join(one.to_bytes(32, 'big') for one in pair))}"


def test_the_domains_own_sro_decrees(world: StoredWorld) -> None:
    """Another SRO of the book governs other domains."""
    other = "did:web:other-sro.example"
    world.submit(world.registration(other, "SRO"))
    run(world, "first", PARTITION)
    with world.book.read() as facts:
        holder = holder_of(facts.organisations[BANK_A].node)
    assert faults(decree(world, holder, PARTITION, other)) == {"actor_not_issuer"}
    assert decree(world, holder, PARTITION, SRO).code.word == "permitted"
    verified(world)


FAR: Final = plan(100, "0.3", "0.000000001")
"""A run that costs 187 nat at order 5, and next to nothing where its account is decided."""


def test_a_decree_forgives_what_an_entry_can_hold(world: StoredWorld) -> None:
    """At a coordinate that decides nothing an account may have more than 53 bits."""
    for number in range(45):
        name = f"far-{number}"
        sent = world.charge(name, run=FAR), world.release(name, run=FAR), world.settle(name, 100)
        assert words([outcome for one in sent for outcome in world.submit(one)]) == ["pending", "permitted", "posted"]
    with world.read() as facts:
        holder = holder_of(facts.organisations[BANK_A].node)
        posted = facts.accounts[PARTITION, holder].posted
    assert max(posted.finite) > c.INTEGER_MAX
    assert decree(world, holder, PARTITION).code.word == "permitted"
    with world.read() as facts:
        forgiven = facts.forgiven[PARTITION, holder]
    assert forgiven.finite == tuple(min(at, c.INTEGER_MAX) for at in posted.finite)
    verified(world)


def test_a_holder_that_no_index_can_be_has_no_account(world: StoredWorld) -> None:
    """Before any database is asked for it."""
    body: c.Object = {"holder": f"lineage:{'9' * 32}", "partition": PARTITION, "reason": "by order"}
    quoted = world.book.quote(world.command(SRO, "decree", body, "far"))
    assert (quoted.code.word, quoted.field) == ("conflict", "body.holder")


def test_no_account_outgrows_what_a_database_holds(world: StoredWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Charges on a partition whose sum would are refused, before the budget is exhausted; others go on."""
    assert verdict_cache.COUNTED_MAX * LOSS_MAX + headroom.SUM_MAX < 1 << 63
    monkeypatch.setattr(headroom, "SUM_MAX", 5 * 188 * NAT)
    monkeypatch.setattr(verdict_cache, "COUNTED_MAX", 1)
    outcomes = world.submit(*(world.charge(f"far-{number}", run=FAR) for number in range(12)))
    assert set(words(outcomes[:5])) == {"pending"}
    assert set(words(outcomes[8:])) == {"budget_exhausted"}
    assert "too great a sum at one coordinate: open another partition" in outcomes[-1].detail
    assert words(world.submit(world.void("far-0"), world.charge("again", run=FAR)))[0] == "voided"
    verified(world)
