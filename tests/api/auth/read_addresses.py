"""The address of each operation about something: of the caller's own, of another's, of what was never there."""

from __future__ import annotations

from typing import Final

from tests.api.two_of_each import MISSING, Things, TwoOfEach
from tests.factories.people import BANK_A, BANK_B, CLINIC, HOSPITAL, STRANGER

OF_A_PARTITION: Final = {
    "list_frozen_accounts",
    "read_account_history",
    "read_account_proof",
    "read_accounts",
    "read_exposure",
    "read_smallest_coalitions",
}
_WHO: Final = {"own": (BANK_A, HOSPITAL), "foreign": (BANK_B, CLINIC), "none": (STRANGER, STRANGER)}


def _named(operation: str, things: Things, index: str, ownership: str) -> dict[str, str]:
    did, provider = _WHO[ownership]
    missing = things is MISSING
    head = {"own": "digits-bank-a", "foreign": "digits-bank-b", "none": "nothing"}[ownership]
    return {
        "dataset": "claims" if operation == "read_stream" else "digits",
        "did": did,
        "holder": "global",
        "domain": "nowhere" if missing else "health",
        "id": {
            "read_contract_head": head,
            "read_key_release": f"key-of-{things.charge}",
            "read_model_release": f"model-of-{things.run}",
        }.get(operation, things.charge),
        "name": "start.js",
        "index": things.coalition if operation == "read_coalition" else index,
        "old": "0" if missing else "1",
        "path": f"{'' if operation == 'read_entry_bundle' else '0/'}000.p/{255 if missing else 1}",
        "provider": provider,
        "ref": things.partition,
        "sha256": things.contract,
    }


def address(pairs: TwoOfEach, operation: str, path: str, ownership: str) -> tuple[str, dict[str, str]]:
    """The address of an operation about what is *own* (of the first bank and hospital), *foreign* or *none*; its query.

    Args:
        path: of the operation, as the document has it.
    """
    things = {"own": pairs.own, "foreign": pairs.foreign, "none": MISSING}[ownership]
    index = {"own": "index", "foreign": "other", "none": "9999"}[ownership]
    if operation == "read_entry" and ownership != "none":
        with pairs.world.book.read() as facts:
            index = str(facts.charges[things.charge].index)
    query = {"partition": things.partition} if operation in OF_A_PARTITION else {}
    query |= {"member": BANK_A} if operation == "read_exposure" else {}
    return path.format(**_named(operation, things, index, ownership)), query
