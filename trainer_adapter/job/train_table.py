"""The table ``[train]`` of a TOML file, before its members are read: its profile, and its privacy target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from client.http.problems import Refused
from client.profile.profile import Profile, read_table
from ledger.mechanisms.run_plan import RunPlan
from ledger.wire.malformed import Malformed
from trainer_adapter.job.job_fields import path_in, read_fields
from trainer_adapter.job.privacy_target import PrivacyTarget

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

PROFILE_FIELDS: Final = ("actor", "issuer", "key", "log", "service")
"""What a job may leave to its profile."""
Form = TypeVar("Form", bound="DataclassInstance")


def read_train_table(
    kind: type[Form], path: Path, planner: Callable[[PrivacyTarget, Form], RunPlan] | None, **unread: object
) -> Form:
    """Read the table ``[train]`` of a TOML file as ``kind``.

    Args:
        kind: an assignment or a job, a frozen dataclass whose fields :mod:`trainer_adapter.job.job_fields` reads.
        planner: chooses the plan where the table states a privacy target in its place; without it such a table is
            refused.
        unread: members that the table does not hold.

    Raises:
        Malformed, naming the field. OSError.
    """
    table = _with_profile(read_table(path, "train", ()), path.parent)
    try:
        if "privacy" not in table:
            return read_fields(kind, table, "", path.parent, **unread)
        target = _take_target(table, has_planner=planner is not None)
        form = read_fields(kind, {**table, "plan": target.placeholder.to_json()}, "", path.parent, **unread)
    except Malformed as error:
        raise error.under("train") from None
    assert planner is not None
    return replace(form, plan=planner(target, form), target=target)


def _take_target(table: dict[str, Any], *, has_planner: bool) -> PrivacyTarget:
    """Remove the privacy target from a table, and read it. Raises: Malformed."""
    if "plan" in table:
        raise Malformed("privacy", "is given together with plan: leave out one of the two")
    if not has_planner:
        raise Malformed("privacy", "needs the service, which knows contract and partition: write a plan instead")
    return PrivacyTarget.parse(table.pop("privacy"), "privacy")


def _with_profile(table: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The table with what its profile holds in place of the profile's name. Raises: Malformed, OSError."""
    if "profile" not in table:
        return table
    rest = {name: value for name, value in table.items() if name != "profile"}
    for name in PROFILE_FIELDS:
        if name in rest:
            raise Malformed(f"train.{name}", "is given together with profile, which holds it: leave out one of the two")
    try:
        profile = Profile.load(path_in(table["profile"], "train.profile", folder))
        own = {"actor": profile.actor, "issuer": profile.issuer, "key": str(profile.key.absolute())}
    except Refused as refused:
        raise Malformed("train.profile", refused.detail) from None
    return {**rest, **own, "log": profile.log.vkey, "service": profile.service}
