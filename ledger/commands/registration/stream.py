"""A version of a dataset's stream is entered; the partitions that open in the dataset from then on are its slices."""

from __future__ import annotations

from typing import Final

from ledger.commands.command_kind import Change, CommandKind
from ledger.commands.registration.document import EnterDocument, Entered, decide
from ledger.domain.facts import StreamVersion
from ledger.domain.roles import TDP


def _apply(change: Change[EnterDocument]) -> None:
    header, provider = change.recorded(Entered).header, change.entry.actor
    version = StreamVersion(provider, header.id, header.version, change.body.document, change.index)
    streams, place = change.state.streams, (provider, header.id)
    streams[place] = (*streams.get(place, ()), version)


STREAM: Final = CommandKind(
    "stream", EnterDocument, decide, (TDP,), "/v1/streams", _apply, recorded=Entered, changes_prices=True
)
