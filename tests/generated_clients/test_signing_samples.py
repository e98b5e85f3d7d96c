"""The samples of docs/signing.md: each signs as the test vectors say, and as the service verifies."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from client.keys.signer import Signer
from ledger.crypto import detached_jws
from ledger.crypto.detached_jws import Call

DOCS: Final = Path(__file__).parents[2] / "docs"
SAMPLES: Final = DOCS / "samples"
VECTORS: Final[Any] = json.loads((SAMPLES / "signatures.json").read_text(encoding="utf-8"))
SIGNER: Final = Signer.of_secret(base64.urlsafe_b64decode(VECTORS["key"]["d"] + "="))
LANGUAGES: Final = {"py": sys.executable, "mjs": "node", "sh": "sh"}


@pytest.mark.parametrize("call", VECTORS["calls"], ids=lambda call: str(call["id"]))
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_sample_signs_as_the_vectors_say(language: str, call: dict[str, Any], tmp_path: Path) -> None:
    """In each language, run as the page says."""
    SIGNER.save(tmp_path / "key.pem")
    sample = [LANGUAGES[language], str(SAMPLES / f"sign.{language}"), str(tmp_path / "key.pem")]
    done = subprocess.run(
        [*sample, call["url"], call["id"], str(call["iat"])],
        input=call["body"].encode(),
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode() == call["signature"] + "\n"


@pytest.mark.parametrize("call", VECTORS["calls"], ids=lambda call: str(call["id"]))
def test_a_vector_verifies_for_its_call(call: dict[str, Any]) -> None:
    """By the verifier of the service, and over no other byte."""
    named = Call(call["method"], call["url"], call["iat"], call["id"])
    assert (SIGNER.public.x, SIGNER.key_id) == (VECTORS["key"]["x"], VECTORS["key"]["kid"])
    assert detached_jws.verify(call["signature"], call["body"].encode(), SIGNER.public) == named
    with pytest.raises(ValueError, match="does not verify"):
        detached_jws.verify(call["signature"], call["body"].encode() + b" ", SIGNER.public)


def test_the_page_names_every_sample() -> None:
    """And nothing that is not there."""
    page = (DOCS / "signing.md").read_text(encoding="utf-8")
    assert all(f"](samples/{one.name})" in page for one in SAMPLES.iterdir())
