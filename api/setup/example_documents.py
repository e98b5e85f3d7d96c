"""Examples of a development folder: policy, dataset, records, partition, contract and a run to start from."""

from __future__ import annotations

from importlib.resources import files
from string import Template
from typing import Final

from api.setup.development_folder import SRO, TDC, TDP, DevelopmentFolder
from client.keys.signer import Signer
from ledger.files.atomic_file import SHARED, create_file, replace_file
from policy.checks.field_readers import format_time

POLICY: Final = "policy.yaml"
DOMAIN: Final = "development"
DATASET, PARTITION, CONTRACT, CHARGE = "dataset.yaml", "partition.json", "contract.yaml", "charge.json"
RECORDS: Final = "records.csv"
RECORDS_COUNT: Final = 1_000
"""As many as the example of a partition says."""
ATTESTER: Final = "https://attester.localhost"
_YEAR_MS: Final = 365 * 86_400_000


def write_policy(folder: DevelopmentFolder, now: int) -> None:
    """Write the development policy, in force from ``now`` (ms), over one that was never published. Raises: OSError."""
    replace_file(folder.path / POLICY, _filled(folder, POLICY, now), mode=SHARED)


def write_examples(folder: DevelopmentFolder, now: int) -> None:
    """Write the examples that are missing, with times from ``now`` (ms) on. Raises: OSError."""
    for name in (DATASET, PARTITION, CONTRACT, CHARGE):
        if not (folder.path / name).exists():
            create_file(folder.path / name, _filled(folder, name, now), mode=SHARED)
    if not (folder.path / RECORDS).exists():
        rows = (f"p{number:04},{20 + number * 7 % 60},{number % 2}" for number in range(RECORDS_COUNT))
        create_file(folder.path / RECORDS, "\n".join(("person,age,outcome", *rows, "")).encode("ascii"), mode=SHARED)


def _filled(folder: DevelopmentFolder, name: str, now: int) -> bytes:
    """A packaged document with its ``$`` names replaced: our own names and times, which need no escaping."""
    text = files("api.setup").joinpath("examples", name).read_text("utf-8")
    values = {
        "attester": ATTESTER,
        "attester_key": Signer.load(folder.key("attester")).public.x,
        "end": format_time(now + _YEAR_MS),
        "now": format_time(now),
        "sro": SRO.did,
        "tdc": TDC.did,
        "tdp": TDP.did,
    }
    return Template(text).substitute(values).encode("utf-8")
