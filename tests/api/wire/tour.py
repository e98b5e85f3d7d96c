"""A tour of the service: every operation asked at least once on its good path, by somebody whom it is for."""

from __future__ import annotations

from contextlib import ExitStack
from fractions import Fraction
from typing import Final

import httpx
import numpy as np

from api.http.quota_terms import STREAMS_PER_ORGANISATION_MAX
from client.http.endpoints import BATCH, BYTES_TYPE, JSON_TYPE, MODEL_KEYS, SIGNATURE_HEADER, WATERMARK_SEARCHES
from client.keys.sealed_model import seal_deposit, seal_model
from client.keys.signer import Signer
from client.service.key_bodies import recovery, rotation
from client.watermarks.fingerprint_file import write_fingerprint
from client.watermarks.spread_spectrum import fingerprint
from ledger.accounting.epsilon_report import reported_epsilon
from ledger.commands.entry import Entry
from ledger.commands.governance.clock_correction import ClockClaim
from ledger.commands.registry import PATHS
from ledger.commands.runs.audit_report import claim_of
from ledger.commands.signing_keys.recovery import RecoveryClaim
from ledger.mechanisms.audited_plan import AuditedPlan
from ledger.mechanisms.plan_reader import parse_plan
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import format_number
from ledger.wire.records import write
from policy.checks.field_readers import format_time
from tests.api.two_of_each import TwoOfEach
from tests.api.wire.conforming import committed
from tests.api.wire.recorded import Recorder
from tests.factories.documents import stream
from tests.factories.lease_tables import lease_id
from tests.factories.people import BANK_A, BANK_B, CLINIC, HOSPITAL, HOUR_MS, SRO, CleanRoom
from tests.factories.service import OPENED, PLAN, ServedWorld, contract_document
from tests.factories.statements import state_now

RELATION: Final = "REPLACE_SPECIAL"
SEALED: Final = "run-7"
"""A run whose model stays sealed."""
_MORE_BANKS: Final = tuple(f"did:web:bank-{letter}.example" for letter in "cdefghi")


class Tour:
    """Goes through a world that nobody is registered in yet."""

    def __init__(self, world: ServedWorld) -> None:
        """Furnish it, and record from the first request on."""
        self.world = world
        self.recorder = Recorder(world, committed())
        world.contract = world.found_service()
        self.pairs = TwoOfEach(world)

    def go(self) -> None:
        """Everything, in an order in which it can happen."""
        self._ask()
        self._charge()
        self._model()
        self._audit()
        self._refused()
        self._read()
        self._lineage()
        self._govern()
        self._again()
        self.world.book.close()
        self._get("/readyz")

    def _submit(self, signer: Signer, actor: str, kind: str, body: c.Object, name: str) -> None:
        self.world.service.submit(signer, actor, kind, body, name)

    def _post(self, path: str, body: c.Json, role: str) -> httpx.Response:
        """Something that is not signed."""
        headers = {**self.pairs.people[role].shown, "content-type": JSON_TYPE}
        return self.world.http.post(path, content=c.dump(body), headers=headers)

    def _get(self, path: str, role: str = "AUDITOR", **query: str) -> httpx.Response:
        return self.world.http.get(path, params=query, headers=self.pairs.people[role].shown)

    def _ask(self) -> None:
        """Before anything is charged: quotes, plans, impacts."""
        world, pairs = self.world, self.pairs
        body = pairs.charge(pairs.own, CleanRoom())
        world.service.quote(world.bank, BANK_A, body, "run-5")
        self._post("/v1/plans", body, "TDC")
        self._post("/v1/plans", {**body, "plan": {**PLAN, "noise_multiplier": "0.8"}}, "TDC")
        self._post("/v1/handover-impacts", {"charge": pairs.own.charge}, "SRO")
        self._post("/v1/merger-impacts", {"organisations": [BANK_A, BANK_B]}, "SRO")
        later: c.Object = {
            "effective": format_time(world.begun + 1_000),
            "lineage": {"epsilon_max": "0.5"},
            "version": 2,
        }
        policy = c.dump({**world.policy(), **later})
        headers = {**pairs.people["SRO"].shown, "content-type": "application/octet-stream"}
        world.http.post("/v1/policy-impacts", content=policy, headers=headers)
        world.http.post("/v1/cap-reports", content=policy, headers=headers)

    def _charge(self) -> None:
        """Charged, told of, voided; many at once."""
        world, pairs = self.world, self.pairs
        self._post("/v1/charges/run-1/progress", {"steps": 40}, "CCR")
        self._get("/v1/charges/run-1/epsilon", "TDP")
        self._get("/v1/charges/run-1/watermark", "CCR")
        weights = write_fingerprint(fingerprint([np.eye(16, dtype=np.float32)]))
        headers = {**pairs.people["TDC"].shown, "content-type": BYTES_TYPE}
        world.http.post(WATERMARK_SEARCHES, content=weights, headers=headers)
        self._submit(world.bank, BANK_A, "charge", pairs.charge(pairs.own, CleanRoom()), "run-5")
        self._submit(world.bank, BANK_A, "void", {"charge": "run-5"}, "void-of-run-5")
        items: list[c.Json] = []
        for name, things in (("run-6", pairs.own), ("run-8", pairs.foreign)):
            raw = world.command_bytes(world.bank, BANK_A, "charge", pairs.charge(things, CleanRoom()), name)
            items.append({"command": c.parse(raw, len(raw)), "signature": world.sign(world.bank, BATCH, raw, name)})
        self._post(BATCH, {"charges": items}, "TDC")

    def _model(self) -> None:
        """A run, its sealed model, and another clean room that opens it."""
        world, pairs, room = self.world, self.pairs, CleanRoom()
        requested: c.Object = {**pairs.charge(pairs.own, room), "step_leases": True}
        self._submit(world.bank, BANK_A, "charge", requested, SEALED)
        nonce = world.service.challenge(SEALED)
        released: c.Object = {"charge": SEALED, "evidence": world.attest(room, SEALED, nonce), "nonce": nonce}
        self._submit(room.signer, BANK_A, "key_release", released, f"key-of-{SEALED}")
        lease = self._lease(room)
        sealed, key = seal_model(b"weights", SEALED)
        shown, model = world.everybody.shown_by(room.signer), c.digest(sealed)
        deposit = world.http.get("/v1/deposit-key", headers=shown).json()["x"]
        kept: c.Object = {"charge": SEALED, "model": model, "sealed": seal_deposit(key, deposit, SEALED, model)}
        headers = {**shown, "content-type": JSON_TYPE}
        headers[SIGNATURE_HEADER] = world.sign(room.signer, MODEL_KEYS, c.dump(kept), model)
        world.http.post(MODEL_KEYS, content=c.dump(kept), headers=headers)
        posted: c.Object = {"charge": SEALED, "generation": 2, "lease": lease, "model": model, "steps": 80}
        self._submit(room.signer, BANK_A, "post", posted, f"post-of-{SEALED}")
        self._submit(room.signer, BANK_A, "release_notice", {"charge": SEALED, "model": model}, f"notice-of-{SEALED}")
        leaves: c.Object = {"charge": SEALED, "model": model, "post": f"post-of-{SEALED}"}
        self._submit(room.signer, BANK_A, "model_release", leaves, f"model-of-{SEALED}")
        other = CleanRoom()
        fresh = self._post("/v1/challenges", {"charge": SEALED}, "TDC").json()["nonce"]
        evidence = world.attest(other, SEALED, fresh, signer=world.bank)
        body: c.Object = {"charge": SEALED, "clean_room": other.to_json(), "evidence": evidence, "model": model}
        self._submit(world.bank, BANK_A, "model_opening", {**body, "nonce": fresh}, f"opening-of-{SEALED}")

    def _audit(self) -> None:
        """An audited run, and what its clean room reports."""
        world, pairs, room, name = self.world, self.pairs, CleanRoom(), "run-12"
        pipeline, small = "a1" * 32, {**PLAN, "noise_multiplier": "8", "steps": 1}
        plan: c.Object = {"canaries": 500, "guesses": 200, "kind": "audited", "training": small, "v": 1}
        asked: c.Object = {**pairs.charge(pairs.own, room), "pipeline": pipeline, "plan": plan}
        self._submit(world.bank, BANK_A, "charge", asked, name)
        nonce = world.service.challenge(name)
        evidence = world.attest(room, name, nonce, c.digest(c.dump(plan)), pipeline=pipeline)
        released: c.Object = {"charge": name, "evidence": evidence, "nonce": nonce}
        self._submit(room.signer, BANK_A, "key_release", released, f"key-of-{name}")
        self._submit(room.signer, BANK_A, "post", {"charge": name, "steps": 1}, f"post-of-{name}")
        claim = claim_of(reported_epsilon(AuditedPlan.of(parse_plan(plan)).whole, Fraction("0.00001"), RELATION))
        found: c.Object = {"charge": name, "correct": 120, "epsilon_claimed": format_number(claim), "plan": plan}
        self._submit(room.signer, BANK_A, "audit_report", found, f"audit-of-{name}")

    def _lease(self, room: CleanRoom) -> str:
        """A resumed run leases all its steps; the id of its lease."""
        nonce = self.world.service.challenge(SEALED)
        taken: c.Object = {"charge": SEALED, "evidence": self.world.attest(room, SEALED, nonce), "nonce": nonce}
        self._submit(room.signer, BANK_A, "run_generation", taken, f"generation-of-{SEALED}")
        steps: c.Object = {"charge": SEALED, "first": 1, "generation": 2, "last": 80, "state": "0" * 64}
        lease = lease_id(SEALED)
        self._submit(room.signer, BANK_A, "step_lease", steps, lease)
        return lease

    def _refused(self) -> None:
        """One of each problem that anybody can bring about."""
        world, pairs = self.world, self.pairs
        self._get("/v1/charges", "no token")
        self._get("/v1/charges/run-99")
        self._get("/v1/charges", limit="0")
        world.http.delete("/v1/charges/run-1", headers=pairs.people["AUDITOR"].shown)
        self.world.http.post("/v1/plans", content=b"steps: 1", headers=pairs.people["TDC"].shown)
        self._post("/v1/plans", "x" * 40_000, "TDC")
        loud: c.Object = {**PLAN, "noise_multiplier": "0.8"}
        self._send("charge", {**pairs.charge(pairs.own, CleanRoom()), "plan": loud}, "run-9")
        self._submit(world.hospital, HOSPITAL, "partition", {**OPENED, **_SMALL}, "partition-small")
        small: c.Object = {**pairs.charge(pairs.own, CleanRoom()), "partitions": [f"{HOSPITAL}/digits/small"]}
        self._send("charge", small, "run-10")
        self._send("charge", {**small, "clean_room": CleanRoom().to_json()}, "run-11")

    def _send(self, kind: str, body: c.Object, name: str, **headers: str) -> None:
        """A command of the bank's, whatever it gets."""
        raw = self.world.command_bytes(self.world.bank, BANK_A, kind, body, name)
        self.world.post(PATHS[kind], raw, self.world.sign(self.world.bank, PATHS[kind], raw, name), **headers)

    def _read(self) -> None:
        """All that can be read, by an auditor where others may not see it."""
        pairs, size = self.pairs, str(self.world.size)
        things = pairs.own
        for path in (
            "/livez",
            "/readyz",
            "/v1/log",
            "/v1/checkpoint",
            "/docs",
            "/docs/start.js",
            "/docs/no.js",
            "/metrics",
            "/v1/consistency/9",
        ):
            self._get(path)
        self._get("/v1/log-key-rotations")
        for path in ("/tile/0/000.p/9", "/tile/entries/000.p/9", "/v1/entries/9"):
            self._get(path)
        for path in ("organisations", "policies", "datasets", "contracts", "partitions"):
            self._pages(f"/v1/{path}", "1")
        self._pages("/v1/charges", "1", state="posted", partition=things.partition, as_of=size)
        self._pages("/v1/decisions", "1", kind="charge", refused="true", signer=BANK_A, since="1")
        for path in ("accounts", "frozen-accounts"):
            self._pages(f"/v1/{path}", "1", partition=things.partition, as_of=size)
        at_that_size = ("policies/health", "policies/health/in-force", f"organisations/{BANK_A}", f"lineage/{BANK_A}")
        of_things = (f"charges/{things.charge}", f"contracts/{things.contract}", f"partitions/{things.partition}")
        for path in (*at_that_size, *of_things, f"coalitions/{things.coalition}"):
            self._unchanged(f"/v1/{path}", as_of=size)
        registered = (
            f"datasets/{HOSPITAL}/digits",
            f"recommendations/{HOSPITAL}/digits",
            f"organisations/{BANK_A}/keys",
        )
        self._get(f"/v1/streams/{CLINIC}/claims")
        released = (f"key-releases/key-of-{SEALED}", f"model-releases/model-of-{things.run}")
        for path in (*registered, *released, "contract-heads/digits-bank-a", "decisions/run-10"):
            self._unchanged(f"/v1/{path}")
        with self.world.book.read() as facts:
            entered = Entry.parse(facts.entry(facts.contracts[things.contract].index)).id
        self._get(f"/v1/documents/{things.contract}", entry=entered)
        self._get(f"/v1/receipts/{things.charge}", cosigned="true")
        state_now(self.world.book)
        self._get("/v1/accounts/global/proof", partition=things.partition)
        self._overviews()
        self._get("/v1/smallest-coalitions", partition=things.partition, epsilon="5")
        self._get("/v1/exposures", partition=things.partition, member=BANK_A)
        self._follow()

    def _overviews(self) -> None:
        """What gathers several parts of the book."""
        things = self.pairs.own
        self._pages("/v1/decisions", "1", newest="true", actor=BANK_A)
        for path in ("alerts", "key-releases", "lineage", "model-openings", "model-releases", "publications"):
            self._pages(f"/v1/{path}", "1")
        self._pages("/v1/release-notices", "1")
        self._pages("/v1/register", "1")
        self.world.service.propose_contract(self.world.bank, c.dump({**contract_document(self.world.begun), "id": "b"}))
        shown = self.pairs.people["TDC"].shown
        tag = self.world.http.get("/v1/contract-proposals", headers=shown).headers["etag"]
        self.world.http.get("/v1/contract-proposals", headers={**shown, "if-none-match": tag})
        self._unchanged("/v1/inbox")
        self._get("/v1/account-history", partition=things.partition)
        self._get(f"/v1/charges/{things.charge}/curve")
        self._get(f"/v1/decisions/{things.charge}/checks")

    def _pages(self, path: str, limit: str, **query: str) -> None:
        """The first page of a list, and the next one."""
        cursor = self._get(path, limit=limit, **query).json()["next_cursor"]
        if cursor is not None:
            self._get(path, limit=limit, cursor=cursor, **query)

    def _follow(self) -> None:
        """Events, until as many streams are open as anybody may have."""
        headers = {**self.pairs.people["AUDITOR"].shown, "last-event-id": "8"}
        with ExitStack() as open_ones:
            for _ in range(STREAMS_PER_ORGANISATION_MAX):
                stream = self.world.http.stream("GET", "/v1/events", params={"after": "8"}, headers=headers)
                reported = open_ones.enter_context(stream)
            lines = reported.iter_lines()
            data = "".join(f"{next(lines)}\n" for _ in range(10))
            self.recorder.keep_stream("stream_events", reported, data.encode())
            self._get("/v1/events")

    def _unchanged(self, path: str, **query: str) -> None:
        """Read, and read again by whoever has it already."""
        tag = self._get(path, **query).headers["etag"]
        shown = self.pairs.people["AUDITOR"].shown
        self.world.http.get(path, params=query, headers={**shown, "if-none-match": tag})

    def _lineage(self) -> None:
        """What becomes of organisations."""
        world = self.world
        one, two, three, four, five, six, seven = _MORE_BANKS
        for did in _MORE_BANKS:
            world.register(did, "TDC", Signer.generate())
        bodies: dict[str, c.Object] = {
            "merger": {"organisation": one, "parents": [two, three]},
            "acquisition": {"acquired": [five], "organisation": four},
            "collusion": {"effective": world.clock.now - 1, "organisations": [six, BANK_B]},
            "split": {"child": seven, "organisation": BANK_A},
            "transfer": {"charge": SEALED, "giver": BANK_A, "recipient": BANK_B},
            "publication": {"charge": SEALED, "giver": BANK_A},
        }
        for kind, body in bodies.items():
            self._submit(world.sro, SRO, kind, body, f"{kind}-1")

    def _govern(self) -> None:
        """A reset, a retirement, a revocation, a next version of each document that has one."""
        world, pairs = self.world, self.pairs
        order: c.Object = {"holder": "global", "partition": pairs.own.partition, "reason": "an order of the court"}
        self._submit(world.sro, SRO, "decree", order, "decree-1")
        self._submit(world.hospital, HOSPITAL, "retirement", {"partition": world.open_partition("old")}, "retirement-1")
        world.enter("stream", stream(CLINIC), CLINIC, pairs.clinic)
        agreed = {**contract_document(world.begun), "version": 2}
        signed = [world.service.put_document(signer, c.dump(agreed)) for signer in (world.bank, world.hospital)]
        body: c.Object = {"document": signed[0].document, "signatures": [one.signature for one in signed]}
        self._send("contract", body, "contract-2")
        self._send("contract", body, "contract-2", **{"if-match": '"AAAAAAAAAAAAAAAAAAAAAA"'})
        self._send("contract", body, "contract-2", **{"if-match": str(signed[0].replaces)})
        world.enter("policy", {**world.policy(), "lineage": {"epsilon_max": "1"}, "version": 2}, SRO, world.sro)
        self._pages("/v1/frozen-accounts", "1", partition=pairs.own.partition, as_of=str(world.size))
        revoked: c.Object = {"contract": pairs.foreign.contract}
        self._submit(pairs.clinic, CLINIC, "revocation", revoked, "revocation-1")
        self._change_keys()
        self._correct_clock()

    def _change_keys(self) -> None:
        """Bank B's key is rotated, suspended, resumed and revoked; a hospital may recover the SRO's, which is lost."""
        world, pairs, new, sro = self.world, self.pairs, Signer.generate(), Signer.generate()
        old, until = pairs.other_bank, world.clock.now + HOUR_MS
        self._submit(old, BANK_B, "key_rotation", rotation(BANK_B, old.key_id, new, until), "rotation-1")
        stated: c.Object = {"keys": [old.key_id], "reason": "a laptop is missing"}
        self._submit(new, BANK_B, "key_suspension", {**stated, "suspended": True}, "suspension-1")
        self._submit(new, BANK_B, "key_suspension", {**stated, "suspended": False}, "suspension-2")
        self._submit(new, BANK_B, "key_revocation", stated, "revocation-of-key")
        self._get(f"/v1/organisations/{BANK_B}/keys")
        self._submit(world.sro, SRO, "recovery_quorum", {"members": [CLINIC], "threshold": 1}, "quorum-1")
        body = recovery(SRO, sro, "its key was lost", "recovery-1")
        claim = write(RecoveryClaim("recovery-1", SRO, sro.public, "its key was lost"))
        signed: c.Object = {**body, "signatures": [pairs.clinic.sign(claim)]}
        self._submit(pairs.clinic, CLINIC, "key_recovery", signed, "recovery-1")
        world.sro = sro

    def _correct_clock(self) -> None:
        """The clock was a second ahead, and is right again."""
        world = self.world
        ahead = world.clock.now
        world.clock.now -= 1_000
        name, reason = "clock-correction-1", "the clock was a second ahead"
        claim = write(ClockClaim(ahead, name, reason, world.clock.now))
        body: c.Object = {"ahead": ahead, "reason": reason, "signatures": [world.sro.sign(claim)]}
        self._submit(world.sro, SRO, "clock_correction", {**body, "time": world.clock.now}, name)
        world.clock.now = ahead

    def _again(self) -> None:
        """Each command once more as it was sent, which gets the answer that it got."""
        for one in self.recorder.exchanges[:]:
            if one.status == "201":
                client = self.world.http
                headers = {name: value for name, value in one.request.headers.items() if name != "content-length"}
                client.post(one.request.url, content=one.request.content, headers=headers)


_SMALL: Final[c.Object] = {"data_key": "small-key", "epsilon": "0.8", "partition": "small"}
