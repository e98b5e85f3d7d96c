"""The roles of those who send commands: organisations by what is on record of them, clean rooms by their key."""

from __future__ import annotations

from typing import Final

SRO, TSO, TDP, TDC, AUDITOR = "SRO", "TSO", "TDP", "TDC", "AUDITOR"
ORGANISATION_ROLES: Final = (SRO, TSO, TDP, TDC, AUDITOR)
"""What an organisation may be registered as."""
CCR: Final = "CCR"
"""The clean room of one charge."""
FIRST: Final = ""
"""An organisation that is not on record: of an empty book it may ask to be the first."""
