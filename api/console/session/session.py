"""A session: the organisation that a person logged in for, its end, and the token that its forms carry."""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass
from typing import Final, Self

from api.auth.access_tokens import Token
from api.auth.issuer_bounds import OWN_ROLES
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

LIFE_S: Final = 900
"""The longest session; it never outlives the token that it was made from."""
_CSRF_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Session:
    """What a sealed cookie says of a person.

    Attributes:
        id: random; the tokens of its forms are made from it.
        issuer: that authenticated the person.
        ends_s: Unix seconds.
    """

    id: str
    issuer: str
    subject: str
    organisation: str
    roles: tuple[str, ...]
    ends_s: int

    @classmethod
    def begin(cls, token: Token, issuer: str, now_s: int, token_ends_s: int) -> Self:
        """A fresh one, of at most fifteen minutes."""
        ends_s = min(now_s + LIFE_S, token_ends_s)
        return cls(secrets.token_urlsafe(16), issuer, token.subject, token.organisation, token.roles, ends_s)

    @classmethod
    def parse(cls, value: c.Object) -> Self | None:
        """Read what was sealed; None where an earlier program sealed it otherwise."""
        try:
            members = c.fields(value, "", ("ends", "id", "issuer", "organisation", "roles", "subject"))
            roles = members["roles"] if isinstance(members["roles"], list) else []
            return cls(
                c.string(members["id"], "id", 64),
                c.string(members["issuer"], "issuer", 500),
                c.string(members["subject"], "subject", 500),
                c.did(members["organisation"], "organisation"),
                tuple(role for role in OWN_ROLES if role in roles),
                c.integer(members["ends"], "ends", 0, 2**53 - 1),
            )
        except Malformed:
            return None

    def to_json(self) -> c.Object:
        """What is sealed."""
        return {
            "ends": self.ends_s,
            "id": self.id,
            "issuer": self.issuer,
            "organisation": self.organisation,
            "roles": [*self.roles],
            "subject": self.subject,
        }

    @property
    def token(self) -> Token:
        """The claims of its access token."""
        return Token(self.subject, self.organisation, "", self.roles)


def form_token(key: bytes, session: str) -> str:
    """The token that the forms of a session carry: another site cannot know it."""
    return c.base64url(hmac.digest(key, b"form " + session.encode(), "sha256")[:_CSRF_BYTES])


def is_form_token(key: bytes, session: str, given: str) -> bool:
    """Whether a form came from a page of this session."""
    return hmac.compare_digest(form_token(key, session).encode(), given.encode())
