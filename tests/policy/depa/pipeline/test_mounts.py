"""Mounts: a dataset of the contract lies in its owner's folder, and nothing else is one."""

from typing import Any

import pytest

from tests.factories.depa_documents import checked, refusals
from tests.factories.path_changes import GONE

C, J = "pipeline|1|config", "pipeline|0|config"
AT, JOINED = "pipeline.pipeline[1].config", "pipeline.pipeline[0].config"

FAULTS: list[tuple[dict[str, Any], str, str]] = [
    *(
        ({f"{J}|datasets|0|mount_path": mount}, "mount_differs", f"{JOINED}.datasets[0].mount_path")
        for mount in (
            "/mnt/remote/",
            "/mnt/remote",
            "/",
            "/mnt/remote/lab",
            "/mnt/remote/hospital2",
            "/mnt/remote/hospital/../lab",
            "/mnt/remote/./hospital",
            "/mnt/remote//hospital",
            "mnt/remote/hospital",
            "/mnt/remote/*",
        )
    ),
    ({f"{J}|datasets|0|file": "../lab/t.csv"}, "mount_differs", f"{JOINED}.datasets[0].file"),
    ({f"{J}|datasets|0|file": "/mnt/remote/lab/t.csv"}, "mount_differs", f"{JOINED}.datasets[0].file"),
    (
        {f"{J}|datasets|0|mount_path": "/mnt/remote/", f"{C}|paths|input_dataset_path": "/mnt/remote/other/x.csv"},
        "input_unknown",
        AT,
    ),
    ({f"{C}|paths|input_dataset_path": "/mnt/remote/"}, "input_unknown", AT),
    ({f"{C}|dataset_config|file_pattern": "../lab/*"}, "input_unknown", f"{AT}.dataset_config.file_pattern"),
    (
        {f"{C}|dataset_config|pairing": {"folder_pattern": "/mnt/remote/lab/*"}},
        "input_unknown",
        f"{AT}.dataset_config.pairing.folder_pattern",
    ),
]
WITHIN: list[dict[str, Any]] = [
    {f"{J}|datasets|0|mount_path": "/mnt/remote/hospital/2026/", f"{J}|datasets|0|file": "a/v..csv"},
    {f"{J}|datasets|0|mount_path": GONE},
    {f"{C}|paths|input_dataset_path": "/mnt/remote/lab/2026..06/t.csv"},
    {f"{C}|paths|input_dataset_path": "/mnt/remote/lab"},
    {f"{C}|dataset_config|file_pattern": "2026/*..png"},
]


@pytest.mark.parametrize(("change", "code", "field"), FAULTS)
def test_what_lies_elsewhere_is_refused_by_name_and_place(change: dict[str, Any], code: str, field: str) -> None:
    """The root of all mounts, another's folder, and each spelling that leads there."""
    found = checked(None, change)
    assert (code, field) in refusals(found)
    assert found.contract is None


@pytest.mark.parametrize("change", WITHIN)
def test_what_lies_in_the_owner_s_folder_is_within(change: dict[str, Any]) -> None:
    """At any depth, and by names that have points."""
    assert refusals(checked(None, change)) == []


@pytest.mark.parametrize(("mount", "within"), [("hospital", True), ("lab", False), ("", False), ("..", False)])
def test_a_dataset_without_an_owner_has_a_folder_that_is_no_other_owner_s(mount: str, *, within: bool) -> None:
    """Old contracts name none; the folder that it was given is then an input like any other."""
    old = {"datasets|0|owner": GONE, "datasets|2|owner": GONE}
    paths = {
        f"{J}|datasets|0|mount_path": f"/mnt/remote/{mount}",
        f"{J}|datasets|0|provider": GONE,
        f"{C}|paths|input_dataset_path": f"/mnt/remote/{mount or 'hospital'}/v.csv",
    }
    found = refusals(checked(old, paths))
    assert (("mount_differs", f"{JOINED}.datasets[0].mount_path") not in found) == within
    assert (found == []) == within
