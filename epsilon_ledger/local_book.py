"""A book of one person: all parties in one process, their keys in one file beside it, no service.

The commands, the policy's gate and the book are those of a service, so ``epsilon verify`` and ``epsilon log`` read it.
The newest checkpoint is kept in the state folder of the user: an older copy of the book is not opened.
"""

from __future__ import annotations

import json
import os
import secrets
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import migrations
from client.dataset_files.record_commitments import SIZE, RecordCommitments, read_values
from client.keys.private_file import read_private
from client.keys.signer import Signer
from epsilon_ledger.known_records import find_records, follows
from epsilon_ledger.record_names import BY_IDENTITIES, BY_NUMBERS, RecordNames
from ledger.book.book import Book
from ledger.book.checkpoint_file import default_path
from ledger.book.submitted_command import Outcome, Submission
from ledger.book.wall_clock import unix_ms
from ledger.domain.command import Command
from ledger.files.atomic_file import create_file, replace_file
from ledger.mechanisms.plan import Plan
from ledger.store.engine import url_of
from ledger.verifier import LogKey
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import format_number
from ledger.wire.malformed import Malformed
from policy.checks.field_readers import format_time
from policy.decisions.gate import gate
from trainer_adapter.session.clean_room_identity import SOFTWARE, CleanRoomIdentity, DevelopmentAttester

RELATION: Final = "REPLACE_SPECIAL"
DATASET: Final = "records"
PARTITIONS_MAX: Final = 16
"""Of one charge."""
_ROLES: Final = ("SRO", "TDP", "TDC")
_SECRETS: Final = (*_ROLES, "attester", "commitments", "log")
_ORIGIN: Final = "local.invalid/ledger"
_ATTESTER: Final = "https://attester.local.invalid"
_OTHERWISE: Final = {
    # By how the names of a book's partitions begin.
    BY_IDENTITIES: "must be given: the records of {} are known by identities",
    BY_NUMBERS: "must not be given: the records of {} are known by their numbers; name another book",
}
_DAY_MS: Final = 86_400_000
_FILE_MAX: Final = 4_096


class LocalRefused(RuntimeError):  # noqa: N818 - what is the case
    """The book refused a command: what it says, with every reason."""


class LocalBook:
    """An open book, with the keys of all its parties."""

    def __init__(self, path: Path, budget: Fraction, delta: Fraction) -> None:
        """Open it, or make it. Raises: Malformed, OSError, BookUnusable, LocalRefused."""
        self._budget, self._delta = budget, delta
        self._path, keys = path, path.with_name(f"{path.name}.keys")
        if path.exists() != keys.exists():
            missing = keys if path.exists() else path
            raise Malformed("book", f"lacks {missing}: a book and its keys lie side by side, and were made together")
        fresh = not path.exists()
        if fresh:
            migrations.upgrade(url_of(path))
            made = {name: c.base64url(os.urandom(SIZE)) for name in _SECRETS}
            create_file(keys, json.dumps(made, indent=1, sort_keys=True).encode())
        self._keys = _read_keys(keys)
        log_key = Ed25519PrivateKey.from_private_bytes(self._keys["log"])
        log = LogKey(_ORIGIN, log_key.public_key().public_bytes_raw())
        if fresh:
            replace_file(path.with_name(f"{path.name}.vkey"), f"{log.vkey}\n".encode("ascii"))
        self._book = Book.open(
            url_of(path),
            gate=gate,
            log_key=log_key,
            origin=_ORIGIN,
            clock=unix_ms,
            kept=default_path(log),
            # A book that this user or machine has not met before: a line says so.
            first_start=True,
            statements=False,
        )
        try:
            self.contract = self._register_parties() if self._size() == 0 else self._existing_contract()
        except BaseException:
            self._book.close()
            raise

    def close(self) -> None:
        """Close the book."""
        self._book.close()

    def partitions(self, names: RecordNames) -> list[str]:
        """The partitions that hold any of these records; those that none holds get one of their own.

        Raises:
            Malformed: for more partitions than one run may touch, for more records than one can hold, or for records
                known otherwise than the book's. LocalRefused.
        """
        key = self._keys["commitments"]
        RecordCommitments(key).add(names.names)
        with self._book.read() as facts:
            schemes = {ref: ref.rpartition("/")[2][0] for ref in facts.partitions}
            # Partitions of an earlier form of book do not say how they know their records: any way may be theirs.
            if _OTHERWISE.keys() >= set(schemes.values()):
                for other in set(schemes.values()) - {names.scheme}:
                    raise Malformed("identities", _OTHERWISE[other].format(self._path))
            held = (
                (ref, frozenset(value for one in partition.commitments for value in read_values(facts.documents[one])))
                for ref, partition in facts.partitions.items()
            )
            touched, new, beside = find_records(names, key, [*facts.partitions], held)
        if new:
            touched.append(self._open_partition(names.scheme, new))
        if len(touched) > PARTITIONS_MAX:
            rule = f"share records with {len(touched)} sets of this book, and a run may touch {PARTITIONS_MAX}"
            raise Malformed("data", rule)
        for followed, known in beside.items():
            self._open_partition(names.scheme, known, followed)
        return touched

    def _open_partition(self, scheme: str, new: set[bytes], followed: frozenset[str] = frozenset()) -> str:
        name = f"{scheme}{secrets.token_hex(6)}"
        ref = f"{did('TDP')}/{DATASET}/{name}"
        commitments = RecordCommitments(self._keys["commitments"])
        commitments.add([*new, *(follows(ref, other) for other in followed)])
        documents: list[c.Json] = [self._book.put_document(document) for document in commitments.documents()]
        body: c.Object = {
            "commitments": documents,
            "data_key": name,
            "dataset": DATASET,
            "delta": format_number(self._delta),
            "epsilon": format_number(self._budget),
            "partition": name,
            "provider": did("TDP"),
            "records": len(new),
            "relation": RELATION,
            "rule": "renyi",
            "unit": "record",
        }
        self._submit("TDP", "partition", body)
        return ref

    def charge(self, name: str, plan: Plan, partitions: list[str], most: int) -> CleanRoomIdentity:
        """Charge a run and enter its key release: from then on it counts in full unless it is posted.

        Args:
            most: how many records of one name the run has at most.

        Raises:
            LocalRefused: with every reason.
        """
        room = CleanRoomIdentity.fresh(self._book.now() + _DAY_MS)
        body: c.Object = {
            "clean_room": room.public(),
            "contract": self.contract,
            "deadline": room.deadline,
            "partitions": list[c.Json](partitions),
            "plan": plan.to_json(),
            **({"unit_records_max": most} if most > 1 else {}),
        }
        self._submit("TDC", "charge", body, name)
        attester = DevelopmentAttester(_ATTESTER, Ed25519PrivateKey.from_private_bytes(self._keys["attester"]))
        nonce = c.base64url(os.urandom(SIZE))
        claims: c.Object = {"charge": name, "cnf": room.public(), "eat_nonce": nonce, "plan": plan.digest}
        evidence = self._book.put_document(attester.attest(claims, self._book.now() // 1000))
        self._submit("TDC", "key_release", {"charge": name, "evidence": evidence, "nonce": nonce}, signer=room.signer)
        return room

    def post(self, name: str, room: CleanRoomIdentity, steps: int) -> None:
        """Settle a charge for the steps that ran. Raises: LocalRefused."""
        self._submit("TDC", "post", {"charge": name, "steps": steps}, signer=room.signer)

    def _submit(
        self, role: str, kind: str, body: c.Object, name: str | None = None, signer: Signer | None = None
    ) -> Outcome:
        by = signer or self._signer(role)
        command = Command(kind, name or f"{kind}-{secrets.token_hex(8)}", did(role), by.key_id, body)
        raw = command.to_bytes()
        (outcome,) = self._book.submit([Submission(raw, by.sign(raw))])
        if outcome.code.word not in {"permitted", "pending", "posted"}:
            raise LocalRefused(f"{kind}: {outcome.detail or outcome.code.word}{_reasons(outcome.body)}")
        return outcome

    def _signer(self, role: str) -> Signer:
        return Signer.of_secret(self._keys[role])

    def _size(self) -> int:
        with self._book.read() as facts:
            return facts.size

    def _register_parties(self) -> str:
        """Everything that a charge needs; the contract's digest."""
        for role in _ROLES:
            signer = self._signer(role)
            claim: c.Object = {"key": signer.jwk, "name": f"local {role}", "organisation": did(role), "roles": [role]}
            self._submit("SRO", "organisation", {**claim, "possession": signer.sign(c.dump(claim))})
        now = self._book.now() // 1000 * 1000
        self._enter("policy", self._policy(now), "SRO")
        dataset: c.Object = {
            "deidentification": "none: it is one's own",
            "domain": "local",
            "id": DATASET,
            "kind": "dataset",
            "membership": "the first set of this book that held the record",
            "provider": did("TDP"),
            "schema": "any",
            "unit": "record",
            "v": 1,
        }
        self._enter("dataset", dataset, "TDP")
        return self._enter("contract", self._contract(now), "TDC", "TDP")

    def _enter(self, kind: str, document: c.Object, *roles: str) -> str:
        data = c.dump(document)
        digest = self._book.put_document(data)
        signatures: list[c.Json] = [
            self._book.put_document(self._signer(role).sign(data).encode("ascii")) for role in roles
        ]
        self._submit(roles[0], kind, {"document": digest, "signatures": signatures})
        return digest

    def _policy(self, now: int) -> c.Object:
        budget, attester = format_number(self._budget), Signer.of_secret(self._keys["attester"])
        return {
            "attestation": {
                "attesters": [{"issuer": _ATTESTER, "key": attester.jwk}],
                "claims": {"swname": SOFTWARE},
            },
            "budget": {"delta_max": format_number(self._delta), "epsilon_max": budget},
            "commitments": True,
            "domain": "local",
            "effective": format_time(now),
            "id": "local",
            "issuer": did("SRO"),
            "kind": "policy",
            "level": 1,
            "lineage": {"epsilon_max": budget},
            "mechanisms": ["poisson_gaussian"],
            "model_release": True,
            "partition_age_days_max": 36_500,
            "records_min": 1,
            "relation": RELATION,
            "rules": ["renyi"],
            "run": {"epsilon_max": budget},
            "unit": "record",
            "v": 1,
            "version": 1,
        }

    def _contract(self, now: int) -> c.Object:
        return {
            "datasets": [{"dataset": DATASET, "provider": did("TDP")}],
            "ends": format_time(now + 36_500 * _DAY_MS),
            "id": "local",
            "kind": "contract",
            "purpose": "one's own models",
            "run": {"epsilon_max": format_number(self._budget)},
            "runs_max": 1_000_000,
            "starts": format_time(now),
            "tdc": did("TDC"),
            "tdps": [did("TDP")],
            "v": 1,
            "version": 1,
        }

    def _existing_contract(self) -> str:
        """The contract of a book that was made before. Raises: Malformed, for another budget."""
        with self._book.read() as facts:
            for digest in facts.contracts:
                made = json.loads(facts.documents[digest])
                if made["run"]["epsilon_max"] != format_number(self._budget):
                    rule = f"is {made['run']['epsilon_max']} in {self._path}: a budget is fixed for the life of a book"
                    raise Malformed("budget", rule)
                for partition in facts.partitions.values():
                    if partition.delta != self._delta:
                        rule = (
                            f"is {format_number(partition.delta)} in {self._path}: it is fixed for the life of a book"
                        )
                        raise Malformed("delta", rule)
                return str(digest)
        raise Malformed("book", f"{self._path} was not made by epsilon_ledger.local, or not to its end: name another")


def did(role: str) -> str:
    """A party of a local book."""
    return f"did:web:{role.lower()}.local.invalid"


def _read_keys(path: Path) -> dict[str, bytes]:
    data = read_private(path, _FILE_MAX, "book")
    try:
        members = c.fields(json.loads(data), str(path), _SECRETS)
    except ValueError:
        raise Malformed("book", f"its keys in {path} cannot be read") from None
    return {name: c.unbase64url(members[name], name) for name in _SECRETS}


def _reasons(body: Any) -> str:  # noqa: ANN401 - an entry's body
    reasons = body.get("reasons", []) if isinstance(body, dict) else []
    details = [str(reason.get("detail", reason)) if isinstance(reason, dict) else str(reason) for reason in reasons]
    return "".join(f"; {detail}" for detail in details)
