"""What the shell completes beside commands: ids of charges, as the profile's actor sees them.

Asked between two strokes of a key: a service that does not answer completes nothing, and no fault is told.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import typer

SHOWN_MAX: Final = 200


def charges(ctx: typer.Context, incomplete: str) -> list[str]:
    """Ids of charges that begin so."""
    from client.http.problems import Refused, Unreachable
    from client.profile.profile import Profile
    from ledger.wire.malformed import Malformed

    try:
        with Profile.load(Path(str(ctx.params["profile"]))).open(attempts=1) as service:
            found = [name for name in service.charges() if name.startswith(incomplete)]
    except (KeyError, OSError, Malformed, Refused, Unreachable):
        return []
    return found[:SHOWN_MAX]
