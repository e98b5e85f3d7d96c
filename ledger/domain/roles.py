"""The roles of senders of commands: an organisation's are registered, a clean room's follows from its key."""

from __future__ import annotations

from typing import Final

SRO, TSO, TDP, TDC, AUDITOR = "SRO", "TSO", "TDP", "TDC", "AUDITOR"
ORGANISATION_ROLES: Final = (SRO, TSO, TDP, TDC, AUDITOR)
"""The roles that an organisation may be registered with."""
CCR: Final = "CCR"
"""The clean room of one charge."""
FIRST: Final = ""
"""An unregistered organisation: in an empty book it may register itself as the first."""
