"""The organisations that an answer mentions, by name, as far as the service has their names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from ledger.organisation_lineage.organisation_mentions import OrganisationMentions

if TYPE_CHECKING:
    from client.service.service import Service

_DID: Final = re.compile(r"did:[a-z0-9]+:[^/\s]+")
_MENTIONS: Final[ContextVar[OrganisationMentions | None]] = ContextVar("mentions", default=None)


def learn_names(service: Service, answer: object) -> None:
    """Fetch the names of the organisations in an answer; where the service has none, DIDs are shown."""
    from client.http.problems import Refused, Unreachable
    from ledger.wire.malformed import Malformed

    dids = sorted({*_dids(answer)})
    try:
        _MENTIONS.set(OrganisationMentions(service.organisation_names(dids) if dids else {}))
    except (Malformed, Refused, Unreachable):
        # What was answered is shown all the same.
        _MENTIONS.set(None)


def organisation(text: str) -> str:
    """An organisation's name, the first time with its DID; any other text as it is."""
    mentions = _MENTIONS.get()
    return text if mentions is None else mentions.text(text)


def _dids(value: Any) -> Iterator[str]:  # noqa: ANN401 - JSON
    if isinstance(value, str):
        yield from [value] if _DID.fullmatch(value) else []
    elif isinstance(value, dict):
        for member in value.values():
            yield from _dids(member)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _dids(item)
