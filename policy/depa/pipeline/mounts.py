"""Where DEPA's clean room mounts the datasets of a contract: ``/mnt/remote/<owner>``, as its own policy demands.

A path below another folder, or one that leaves its folder, is no dataset of the contract, whatever a pipeline calls it.
"""

from __future__ import annotations

from typing import Final

from policy.depa.contract.contract import Contract, Dataset

_ROOT: Final = "/mnt/remote/"


def folder_of(path: str) -> str:
    """The folder of the root that a path lies in; empty if it is the root itself, or a path that may leave it."""
    if not path.startswith(_ROOT) or leaves_folder(path[1:]):
        return ""
    return path.removeprefix(_ROOT).partition("/")[0]


def leaves_folder(path: str) -> bool:
    """Whether a relative path may lead out of the folder that it is joined to."""
    return path.startswith("/") or not {".", ".."}.isdisjoint(path.split("/"))


def is_mount_of(path: str, datasets: list[Dataset], contract: Contract) -> bool:
    """Whether one of these datasets is mounted at a path, or above it.

    Old contracts name no owner: such a dataset has any one folder that is no other owner's.
    """
    folder = folder_of(path)
    owners = {dataset.owner for dataset in datasets}
    others = {dataset.owner for dataset in contract.datasets}
    return bool(folder) and (folder in owners or ("" in owners and folder not in others))
