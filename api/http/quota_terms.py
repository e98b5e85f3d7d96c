"""The quotas of a service as its profile sets them: the table ``[serve.quotas]``, every line of it optional.

    [serve.quotas]
    anonymous_per_minute = 6000
    commands_per_minute = 6000
    connections = 512
    connections_per_address = 256
    pricing_s_per_hour = 600
    processes = 1
    questions_per_hour = 600
    refusals_per_hour = 300
    streams = 8

Each process of a service counts by itself, and admits the part of a quota that falls to one of ``processes``.
``docs/quotas.md`` says what counts as what.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final, Self

from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

COMMANDS_PER_MINUTE_MAX: Final = 6_000
"""Requests other than reads of one organisation or clean room in a minute, unless the profile says otherwise."""
QUESTIONS_PER_HOUR_MAX: Final = 600
"""Quotes, dry runs and what-if questions of one organisation in an hour, unless the profile says otherwise."""
REFUSALS_PER_HOUR_MAX: Final = 300
"""Recorded refusals of one organisation or clean room in an hour, unless the profile says otherwise."""
PRICING_S_PER_HOUR_MAX: Final = 600
"""Seconds of a processor for prices, what-if questions and past states of one organisation in an hour, unless the
profile says otherwise."""
ANONYMOUS_PER_MINUTE_MAX: Final = 6_000
"""Requests of one address without a token, or with an invalid one, in a minute, unless the profile says otherwise."""
CONNECTIONS_MAX: Final = 512
"""Open connections of a process, unless the profile says otherwise."""
CONNECTIONS_PER_ADDRESS_MAX: Final = 256
"""Of those from one address, unless the profile says otherwise."""
STREAMS_PER_ORGANISATION_MAX: Final = 8
"""Open event streams of one organisation, unless the profile says otherwise."""
_HIGHEST: Final = 10**9


@dataclass(frozen=True, slots=True)
class QuotaTerms:
    """How much one organisation, clean room or address may use.

    Attributes:
        anonymous_per_minute: requests of an address without a valid token.
        commands_per_minute: requests of an organisation, or of a clean room, other than reads.
        connections: open ones of a process.
        connections_per_address: of those from one address that is no proxy.
        pricing_s_per_hour: seconds of a processor for what is computed for an organisation.
        processes: of the service, on one book; a number of requests, streams or seconds is divided by it.
        questions_per_hour: quotes, dry runs and what-if questions of an organisation.
        refusals_per_hour: refusals that are entries, of an organisation or of a clean room.
        streams: open event streams of an organisation.
    """

    anonymous_per_minute: int = ANONYMOUS_PER_MINUTE_MAX
    commands_per_minute: int = COMMANDS_PER_MINUTE_MAX
    connections: int = CONNECTIONS_MAX
    connections_per_address: int = CONNECTIONS_PER_ADDRESS_MAX
    pricing_s_per_hour: int = PRICING_S_PER_HOUR_MAX
    processes: int = 1
    questions_per_hour: int = QUESTIONS_PER_HOUR_MAX
    refusals_per_hour: int = REFUSALS_PER_HOUR_MAX
    streams: int = STREAMS_PER_ORGANISATION_MAX

    @classmethod
    def parse(cls, value: object, where: str) -> Self:
        """Read the table. Raises: Malformed."""
        members = c.fields(value, where, (), tuple(asdict(cls())))
        read = {name: c.integer(number, f"{where}.{name}", 1, _HIGHEST) for name, number in members.items()}
        terms = cls(**read)
        if terms.connections_per_address > terms.connections:
            raise Malformed(f"{where}.connections_per_address", "must be at most 'connections'")
        return terms

    def share(self, amount: int) -> int:
        """What one process admits of a quota, rounded down: all together never more than it, but one each at least."""
        return max(1, amount // self.processes)
