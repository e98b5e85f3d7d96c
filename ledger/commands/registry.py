"""The registry of commands: every kind, and the readers of commands, which know the kinds."""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import Raw, Struct
from msgspec.json import decode

from ledger.commands.command_kind import CommandKind
from ledger.commands.context import PendingCommand
from ledger.commands.governance.account_reset import DECREE
from ledger.commands.governance.clock_correction import CLOCK_CORRECTION
from ledger.commands.governance.contract_revocation import REVOCATION
from ledger.commands.governance.model_opening import MODEL_OPENING
from ledger.commands.governance.model_release_notice import RELEASE_NOTICE
from ledger.commands.governance.state_statement import STATEMENT
from ledger.commands.organisation_lineage.coalition import COALITION
from ledger.commands.organisation_lineage.collusion import COLLUSION
from ledger.commands.organisation_lineage.merger import ACQUISITION, MERGER
from ledger.commands.organisation_lineage.model_publication import PUBLICATION
from ledger.commands.organisation_lineage.model_transfer import TRANSFER
from ledger.commands.organisation_lineage.split import SPLIT
from ledger.commands.registration.document import CONTRACT, DATASET, POLICY, RECOMMENDATION
from ledger.commands.registration.organisation import ORGANISATION
from ledger.commands.registration.partition import PARTITION
from ledger.commands.registration.retirement import RETIREMENT
from ledger.commands.registration.stream import STREAM
from ledger.commands.runs.audit_report import AUDIT_REPORT
from ledger.commands.runs.charge import CHARGE
from ledger.commands.runs.charge_reader import matched_once
from ledger.commands.runs.key_release import KEY_RELEASE
from ledger.commands.runs.model_release import MODEL_RELEASE
from ledger.commands.runs.run_generation import RUN_GENERATION
from ledger.commands.runs.settlement import LAPSE, POST, VOID
from ledger.commands.runs.step_lease import STEP_LEASE
from ledger.commands.signing_keys.log_key_rotation import ROTATION_OF_LOG
from ledger.commands.signing_keys.log_key_suspension import SUSPENSION_OF_LOG
from ledger.commands.signing_keys.recovery import QUORUM, RECOVERY
from ledger.commands.signing_keys.revocation import KEY_REVOCATION
from ledger.commands.signing_keys.rotation import ROTATION
from ledger.commands.signing_keys.suspension import KEY_SUSPENSION
from ledger.domain.command import COMMAND_BYTES_MAX, Command
from ledger.wire.field_types import Did, KeyBytes, Name
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record, canonical_reader, read

KINDS: Final[dict[str, CommandKind[Any]]] = {
    kind.name: kind
    for kind in (
        ORGANISATION,
        POLICY,
        DATASET,
        STREAM,
        PARTITION,
        RETIREMENT,
        CONTRACT,
        CHARGE,
        KEY_RELEASE,
        RUN_GENERATION,
        STEP_LEASE,
        POST,
        VOID,
        LAPSE,
        AUDIT_REPORT,
        MODEL_RELEASE,
        RECOMMENDATION,
        REVOCATION,
        DECREE,
        CLOCK_CORRECTION,
        RELEASE_NOTICE,
        MODEL_OPENING,
        MERGER,
        ACQUISITION,
        COLLUSION,
        SPLIT,
        TRANSFER,
        PUBLICATION,
        COALITION,
        STATEMENT,
        ROTATION,
        KEY_REVOCATION,
        KEY_SUSPENSION,
        QUORUM,
        RECOVERY,
        ROTATION_OF_LOG,
        SUSPENSION_OF_LOG,
    )
}
"""By name."""
CLIENT_KINDS: Final = {name: kind for name, kind in KINDS.items() if kind.path}
"""The kinds that clients send; the book itself lapses charges, states its state, suspends and replaces its key."""
PATHS: Final = {name: kind.path for name, kind in CLIENT_KINDS.items()}
"""The HTTP path of each of these."""


class _Envelope(Struct, frozen=True, forbid_unknown_fields=True):
    """A command whose body is not decoded; its kind and its actor, which repeat, are matched afterwards."""

    actor: str
    body: Raw
    id: Name
    key_id: KeyBytes
    kind: str
    v: Literal[1]


_envelope: Final = canonical_reader(_Envelope)
_match_actor: Final = matched_once(Did)


def read_command(raw: bytes, signature: str = "") -> PendingCommand:
    """A command from its canonical bytes, its body too, and its signature, not yet verified. Raises: Malformed."""
    envelope = _envelope(raw) if len(raw) <= COMMAND_BYTES_MAX else None
    if envelope is not None and envelope.kind in KINDS:
        data = bytes(envelope.body)
        body: Record | None = KINDS[envelope.kind].read_certain(data) if _is_did(envelope.actor) else None
        # Each part is certainly canonical, and so is the whole; the strict reader reads all others and reports the
        # error.
        if body is not None:
            command = Command(envelope.kind, envelope.id, envelope.actor, envelope.key_id, decode(data))
            return PendingCommand(command, body, raw, signature, request=data)
    command = read(Command, raw, COMMAND_BYTES_MAX)
    if command.kind not in KINDS:
        raise Malformed("kind", f"must be one of {', '.join(KINDS)}")
    return PendingCommand(command, read_body(command), raw, signature)


def _is_did(actor: str) -> bool:
    try:
        _match_actor(actor)
    except Malformed:
        return False
    return True


def read_body(command: Command) -> Record:
    """The typed body of a command. Raises: Malformed, with the field under ``body``."""
    body: Record = KINDS[command.kind].read_body(command)
    return body
