"""Members that name documents: every digest in every kind of command is one, or is known to be none."""

from __future__ import annotations

from typing import Final

from ledger.commands.named_documents import NAMING, named_documents
from ledger.commands.registry import KINDS
from ledger.wire import canonical_json as c
from tests.ledger.commands.test_command_bodies import BODIES

DIGEST: Final = "ab" * 32
OTHER: Final = frozenset({"chain", "contract", "model", "output", "pipeline", "plan", "root", "state", "watermark"})
"""Digests of what is not stored as a document, or is on record under a rule of its own."""


def test_every_digest_of_a_command_is_told_apart() -> None:
    """A new member with a digest has to be put on one side."""
    annotated = {
        name
        for kind in KINDS.values()
        for name, annotation in kind.body.__annotations__.items()
        if "Sha256" in str(annotation)
    }
    assert annotated == {*NAMING, *OTHER} - {"plan"}


def test_what_names_documents() -> None:
    """Its members alone, and nothing below them."""
    named: c.Object = {"commitments": ["a", "b"], "document": "c", "evidence": "d", "signatures": ["e"]}
    assert [*named_documents(named)] == ["a", "b", "c", "d", "e"]
    assert [*named_documents(dict.fromkeys(OTHER, DIGEST))] == []
    assert [*named_documents({"document": {"document": DIGEST}, "signatures": [[DIGEST], 1], "evidence": None})] == []
    assert [*named_documents([DIGEST])] == [*named_documents(DIGEST)] == []


def test_bodies_of_every_kind_name_what_they_enter() -> None:
    """Those that enter a document, open a partition or give evidence."""
    naming = {kind for kind, body in BODIES.items() if [*named_documents(body)]}
    assert naming >= {"policy", "dataset", "contract", "recommendation", "stream", "key_release"}
    assert not naming & {"charge", "lapse", "model_release", "revocation", "step_lease", "void"}
