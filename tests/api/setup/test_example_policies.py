"""The policies that are shipped as examples ask for what protects records: leases, a stated refund, commitments."""

from __future__ import annotations

import json
from pathlib import Path
from string import Template
from typing import Final

import pytest

from policy.documents import Policy

ROOT: Final = Path(__file__).parents[3]
STATED: Final = {
    "attester": "https://attester.example",
    "attester_key": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
    "now": "2026-12-01T00:00:00Z",
}
WHOLE: Final = ("api/setup/examples/policy.yaml", "docs/example/policy.yaml")


@pytest.mark.parametrize("name", WHOLE)
def test_example_policies_ask_for_leases_and_commitments(name: str) -> None:
    """Of two copies of a run one goes on, what is leased counts, and no record comes back."""
    text = Template((ROOT / name).read_text("utf-8")).substitute(STATED, sro="did:web:sro.example")
    policy = Policy.parse(text.encode())
    assert (policy.step_leases, policy.refund, policy.commitments) == (True, "never", True)


def test_the_demonstration_asks_for_the_same() -> None:
    """Its document lacks its issuer and its attester, so it is no whole policy."""
    requested = json.loads((ROOT / "api" / "demo" / "documents.json").read_text("utf-8"))["policy"]
    assert (requested["step_leases"], requested["refund"], requested["commitments"]) == (True, "never", True)
