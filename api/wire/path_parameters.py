"""What paths and queries name, for the document: the routes read it themselves, and have their own words for faults."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Path, Query

from api.http.json_schema import DID, DIGEST, NAME, PLACE_PATTERN, REF, Form, text


def _said(form: Form, description: str) -> Form:
    return {**form, "description": description}


_PLACE: Final = text(PLACE_PATTERN, "an index in the log, or how many entries it had")
_REF: Final = _said(REF, "a partition: provider/dataset/partition")

Did = Annotated[str, Path(json_schema_extra=_said(DID, "an organisation"))]
Name = Annotated[str, Path(json_schema_extra=_said(NAME, "the name that it was given"))]
Digest = Annotated[str, Path(json_schema_extra=_said(DIGEST, "the SHA-256 digest of its bytes"))]
Place = Annotated[str, Path(json_schema_extra=_PLACE)]
_BUNDLE: Final = r"(x[0-9]{3}/)*[0-9]{3}(\.p/[1-9][0-9]{0,2})?$"
TilePath = Annotated[
    str, Path(json_schema_extra=text(f"^(0|[1-9][0-9]?)/{_BUNDLE}", "level and place, as C2SP tlog-tiles writes them"))
]
BundlePath = Annotated[str, Path(json_schema_extra=text(f"^{_BUNDLE}", "place, as C2SP tlog-tiles writes it"))]
Ref = Annotated[str, Path(json_schema_extra=_REF)]
AskedRef = Annotated[str, Query(json_schema_extra=_REF)]
DryRun = Annotated[str, Query(pattern="^(true|false)$", description="the decision, and nothing recorded")]
