"""What paths and queries name, for the document: the routes read it themselves, and have their own words for faults."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Path, Query

from api.schemas import DID, DIGEST, NAME, REF

_PLACE: Final = {"pattern": "^(0|[1-9][0-9]{0,15})$", "example": "7"}

Did = Annotated[str, Path(json_schema_extra=DID)]
Name = Annotated[str, Path(json_schema_extra=NAME)]
Digest = Annotated[str, Path(json_schema_extra=DIGEST)]
Place = Annotated[str, Path(json_schema_extra=_PLACE)]
Ref = Annotated[str, Path(json_schema_extra=REF)]
AskedRef = Annotated[str, Query(json_schema_extra=REF)]
DryRun = Annotated[str, Query(pattern="^(true|false)$", description="the decision, and nothing recorded")]
