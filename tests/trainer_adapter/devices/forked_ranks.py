"""Ranks for tests: processes that are forked off and joined by gloo over the loopback interface."""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch._C._distributed_c10d import FileStore

from trainer_adapter.devices.rank_group import RankGroup

Work = Callable[[RankGroup], Any]


class Ended(NamedTuple):
    """How a rank ended: its wait status, and what its work gave, or the words of what it raised."""

    status: int
    value: Any


def forked(folder: Path, size: int, work: Work, step_s: float = 60.0) -> list[Ended]:
    """Run the same work on so many ranks, each a process of its own; in the order of ranks."""
    folder.mkdir(parents=True, exist_ok=True)
    store = folder / "store"
    store.unlink(missing_ok=True)
    children = [
        _fork(folder / f"rank-{rank}", work, partial(_joined, rank, size, store, step_s)) for rank in range(size)
    ]
    statuses = [os.waitpid(child, 0)[1] for child in children]
    return [Ended(status, _read(folder / f"rank-{rank}")) for rank, status in enumerate(statuses)]


def _joined(rank: int, size: int, store: Path, step_s: float) -> RankGroup:
    return RankGroup(rank, size, FileStore(str(store), size), 60.0, step_s)


def _fork(path: Path, work: Work, join: Callable[[], RankGroup]) -> int:
    path.unlink(missing_ok=True)
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        torch.set_num_threads(1)
        group = join()
        path.write_bytes(pickle.dumps(work(group)))
        group.close()
        status = 0
    except BaseException as error:  # noqa: BLE001 - whatever it is, the test shows it
        path.write_bytes(pickle.dumps(f"{type(error).__name__}: {error}"))
        if os.environ.get("EPSILON_SHOW"):
            traceback.print_exc()
    finally:
        os._exit(status)


def _read(path: Path) -> Any:  # noqa: ANN401 - whatever the work gave
    return pickle.loads(path.read_bytes()) if path.exists() else None  # noqa: S301 - our own child's
