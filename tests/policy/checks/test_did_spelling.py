"""One spelling of a DID: what means the same is written in one way, and what means another stays."""

import pytest

from ledger.wire import canonical_json as c
from policy.checks.did_spelling import canonical_did

SPELLINGS = {
    "did:web:a.example": (
        "did:web:A.example",
        "did:web:%61.example",
        "did:web:%41.EXAMPLE",
        "did:web:a%2eexample",
        "did:web:a.example.",
        "did:web:a.example%2E",
        "did:web:a.example%3A443",
        "did:web:a.example%3a443",
    ),
    "did:web:a.example%3A8443:Part%20A": (
        "did:web:A.example%3a8443:P%61rt%20%41",
        "did:web:a.example.%3A8443:Part%20A",
    ),
    "did:web:a.example:Part": ("did:web:A.example:%50art", "did:web:a.example%3A443:Part"),
    "did:web:a.example:part": ("did:web:A.example:part",),
    "did:web:b%C3%BC.example": ("did:web:B%c3%bc.example",),
    "did:key:z6MkA": ("did:key:z6Mk%41",),
    "did:key:z6mka": ("did:key:z6mk%61",),
}


@pytest.mark.parametrize("canonical", SPELLINGS)
def test_what_means_the_same_has_one_spelling(canonical: str) -> None:
    """And that one is its own; every spelling is a DID, which the ledger would compare letter by letter."""
    spelled = [canonical, *SPELLINGS[canonical]]
    assert [c.did(one, "did") for one in spelled] == spelled
    assert {canonical_did(one) for one in spelled} == {canonical}


@pytest.mark.parametrize("did", ["did:web:a%", "did:web:a%4", "did:web:a%zz", "did:web:a%4.example", "did:web:a%%41"])
def test_a_percent_sign_without_its_octet_has_none(did: str) -> None:
    """Such a DID is none by DID Core, though earlier books may have it."""
    assert canonical_did(c.did(did, "did")) is None
