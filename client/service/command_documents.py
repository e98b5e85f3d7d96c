"""Commands that name documents: the documents are stored first, and the command's body names them by digest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from client.keys.signer import Signer
    from client.service.answers import Answer
    from client.service.service import Service
    from ledger.wire.canonical_json import Json, Object

Sent: TypeAlias = "Object | SignedDocument | BodyWithDocuments"
"""What a command sends: its body, or that and documents."""


@dataclass(frozen=True, slots=True)
class SignedDocument:
    """A document that a command enters, with the files of other parties' detached signatures over it.

    ``proposed``: those with which the others have proposed it to the service are sent, too.
    """

    path: Path
    signatures: Sequence[Path] = ()
    proposed: bool = False

    def read(self, kind: str) -> tuple[bytes, dict[str, str]]:
        """The bytes of a document of this kind, and the others' signatures by key id. Raises: Malformed, OSError."""
        from client.service.detached_signatures import read_document, read_signatures, require_kind

        data = read_document(self.path)
        require_kind(self.path, data, kind)
        return data, read_signatures(self.signatures)


@dataclass(frozen=True, slots=True)
class BodyWithDocuments:
    """A command's body, and files that are stored first: the list ``field`` of the body names them by digest."""

    body: Object
    field: str
    documents: Sequence[Path]

    def read(self) -> list[bytes]:
        """The documents' bytes. Raises: Malformed, OSError."""
        from client.service.detached_signatures import read_document

        return [read_document(path) for path in self.documents]


def submit_with_documents(  # noqa: PLR0913 - the members of a command
    service: Service,
    signer: Signer,
    actor: str,
    kind: str,
    sent: BodyWithDocuments,
    *,
    data: Sequence[bytes],
    id: str,  # noqa: A002 - the wire's name
    dry_run: bool,
) -> tuple[Answer, Object]:
    """Store the documents, whose bytes are ``data``, and send the command; the answer, and the body.

    Raises:
        Refused, Unreachable.
    """
    digests: list[Json] = [service.put_document(signer, document).document for document in data]
    body: Object = {**sent.body, sent.field: digests}
    return service.submit(signer, actor, kind, body, id, dry_run=dry_run), body


def submit_signed_document(  # noqa: PLR0913 - the members of a command
    service: Service,
    signer: Signer,
    actor: str,
    kind: str,
    sent: SignedDocument,
    *,
    data: tuple[bytes, Mapping[str, str]],
    id: str,  # noqa: A002 - the wire's name
    dry_run: bool,
) -> tuple[Answer, str]:
    """Sign and store a document, store the others' signatures, and enter it; the answer, and the document's digest.

    ``data`` is what ``sent.read()`` gave.

    Raises:
        Refused, Unreachable.
    """
    from client.http.problems import Refused
    from ledger.domain.outcomes import Code

    document, signatures = data
    # A dry run stores them too: the decision is about documents that the service holds, and storing binds no one.
    stored = service.put_document(signer, document)
    others = [
        service.put_document(signer, signature.encode("ascii")).document
        for key_id, signature in signatures.items()
        if key_id != signer.key_id
    ]
    if sent.proposed:
        others += _proposed_signatures(service, stored.document, actor)
    body: Object = {"document": stored.document, "signatures": [stored.signature, *others]}
    try:
        answer = service.submit(signer, actor, kind, body, id, replaces=stored.replaces, dry_run=dry_run)
    except Refused as refused:
        if signatures and refused.code == Code.SIGNATURE_INVALID.word:
            # The own signature was verified when it was stored.
            files = ", ".join(map(str, sent.signatures))
            refused.detail = f"{files}: does not verify over the bytes of {sent.path}"
            refused.next_step = f"Nothing was recorded: have {sent.path} signed as it is (`epsilon contract sign`)."
        raise
    return answer, stored.document


def _proposed_signatures(service: Service, document: str, actor: str) -> list[str]:
    """The digests of the signatures of other parties that have proposed a document. Raises: Refused, Unreachable."""
    from client.http.transport import objects_of

    found = (item for item in objects_of(service.contract_proposals().get("items")) if item.get("document") == document)
    signed = (one for item in found for one in objects_of(item.get("signed")))
    return [str(one["signature"]) for one in signed if one.get("organisation") != actor]
