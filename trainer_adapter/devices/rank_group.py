"""The processes of one run, one for each device, as ``torchrun`` starts them, and what they send each other.

Rank 0 leads: it alone speaks with the ledger. All ranks run in one clean room on one machine, and their messages stay
on its loopback interface, since they are clipped sums before noise, and records. Sums are gathered whole and added in
the order of ranks on each of them, in float64: so all ranks get the same bits, and two runs do too, which an
all-reduce around a ring promises for no more than one arrangement of it.

A rank that ends takes all others with it: their next message fails, and is :class:`RankLost`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Final, Self, TypeVar

import torch
from torch import Tensor
from torch import distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from ledger.wire.malformed import Malformed
from trainer_adapter.job.job_fields import DEVICES_MAX

STEP_S_MAX: Final = 600.0
"""How long a rank waits for another inside a step: a device that hangs ends the run."""
_VALUES_AT_ONCE: Final = 1 << 20
_BYTES_AT_ONCE: Final = 1 << 26
_LOOPBACK: Final = "lo"
_NAME_BYTES: Final = 56
_Result = TypeVar("_Result")


class RankLost(Malformed):
    """A rank ended or broke, and the run with it."""


class RankGroup:
    """This process's place among the ranks of one run.

    Attributes:
        rank: of this process, from 0.
        size: how many ranks there are.
        lost: why the group is no more; None as long as it is.
    """

    lost: RankLost | None = None

    def __init__(self, rank: int, size: int, store: Store, wait_s: float, step_s: float = STEP_S_MAX) -> None:
        """Join the group; returns once all ranks have.

        Args:
            rank: of this process.
            size: of the group.
            store: where ranks find each other; the same for all, and new for each run.
            wait_s: how long a rank waits for rank 0 between steps: while a run waits for its charge, keys or leases.
            step_s: the same inside a step.

        Raises:
            Malformed: for a size or a rank out of range. RankLost: if a rank does not come.
        """
        if not 2 <= size <= DEVICES_MAX:
            raise Malformed("devices", f"must lie between 2 and {DEVICES_MAX}, and there are {size} ranks")
        if not 0 <= rank < size:
            raise Malformed("devices", f"rank {rank} is none of {size}")
        self.rank: Final = rank
        self.size: Final = size
        os.environ["GLOO_SOCKET_IFNAME"] = _LOOPBACK
        self._step = 0
        self._own = not dist.is_initialized()
        self._orders: dist.ProcessGroup | None = None
        self._sums: dist.ProcessGroup | None = None
        self._sent(lambda: self._join(store, wait_s, step_s))

    def _join(self, store: Store, wait_s: float, step_s: float) -> None:
        if self._own:
            dist.init_process_group(
                "gloo", store=store, rank=self.rank, world_size=self.size, timeout=timedelta(seconds=wait_s)
            )
        self._orders = dist.new_group(backend="gloo", timeout=timedelta(seconds=wait_s))
        self._sums = dist.new_group(backend="gloo", timeout=timedelta(seconds=step_s))

    @classmethod
    def of_torchrun(cls, wait_s: float) -> Self:
        """The group of the processes that ``torchrun`` started beside this one. Raises: Malformed, RankLost."""
        names = ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
        known = {name: os.environ.get(name, "") for name in names}
        if not all(known.values()):
            raise Malformed("devices", "needs one process for each device: start it with torchrun")
        if known["LOCAL_WORLD_SIZE"] != known["WORLD_SIZE"]:
            rule = f"has {known['LOCAL_WORLD_SIZE']} of {known['WORLD_SIZE']} ranks on this machine"
            raise Malformed("devices", f"{rule}: a clean room is one machine, and sums before noise do not leave it")
        rank, size = int(known["RANK"]), int(known["WORLD_SIZE"])
        wait = timedelta(seconds=STEP_S_MAX)
        # The agent of torchrun keeps the store, so that no rank is the one to outlive the others.
        store = TCPStore(known["MASTER_ADDR"], int(known["MASTER_PORT"]), size, is_master=False, timeout=wait)
        return cls(rank, size, PrefixStore("epsilon", store), wait_s)

    @property
    def leads(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0

    def broadcast(self, message: bytes) -> bytes:
        """Rank 0's message, of a length that all know: other ranks give any bytes of it. Raises: RankLost."""
        held = torch.frombuffer(bytearray(message), dtype=torch.uint8)
        self._sent(lambda: dist.broadcast(held, 0, group=self._orders))
        return held.numpy().tobytes()

    def send(self, rank: int, message: bytes) -> None:
        """Send bytes to one rank, which calls :meth:`receive`. Raises: RankLost."""
        self._sent(lambda: dist.send(torch.tensor([len(message)]), rank, group=self._orders))
        whole = torch.frombuffer(bytearray(message), dtype=torch.uint8)
        for part in whole.split(_BYTES_AT_ONCE):
            self._sent(partial(dist.send, part, rank, group=self._orders))

    def receive(self) -> bytes:
        """The next message of rank 0. Raises: RankLost."""
        length = torch.zeros(1, dtype=torch.int64)
        self._sent(lambda: dist.recv(length, 0, group=self._orders))
        whole = torch.empty(int(length), dtype=torch.uint8)
        for part in whole.split(_BYTES_AT_ONCE):
            self._sent(partial(dist.recv, part, 0, group=self._orders))
        return whole.numpy().tobytes()

    def gather(self, message: bytes) -> list[bytes]:
        """The messages of all ranks, in order, each of the same length. Raises: RankLost."""
        own = torch.frombuffer(bytearray(message), dtype=torch.uint8)
        parts = [torch.empty_like(own) for _ in range(self.size)]
        self._sent(lambda: dist.all_gather(parts, own, group=self._orders))
        return [part.numpy().tobytes() for part in parts]

    def all_well(self, step: int, broken: str) -> None:
        """See whether every rank has its sum of a step; ``broken`` is the kind of this rank's error, if it has none.

        Raises:
            RankLost: on every rank, naming the first that broke, or that is in another step.
        """
        self._step = step
        said = self.gather(step.to_bytes(8, "big") + broken.encode()[:_NAME_BYTES].ljust(_NAME_BYTES, b"\0"))
        for rank, one in enumerate(said):
            kind, at = one[8:].rstrip(b"\0").decode("utf-8", "replace"), int.from_bytes(one[:8], "big")
            if kind:
                raise self._end(f"rank {rank} failed in step {step} ({kind}); its message may quote a record")
            if at != step:
                raise self._end(f"rank {rank} is in step {at}, and rank {self.rank} in step {step}")

    def total(self, part: Tensor) -> Tensor:
        """The sum of all ranks' vectors, float64, shape (n,), on the CPU; the same bits on each. Raises: RankLost."""
        whole = torch.empty_like(part)
        for values, own in zip(whole.split(_VALUES_AT_ONCE), part.split(_VALUES_AT_ONCE), strict=True):
            parts = [torch.empty_like(own) for _ in range(self.size)]
            self._sent(partial(dist.all_gather, parts, own, group=self._sums))
            values.copy_(parts[0])
            for other in parts[1:]:
                values.add_(other)
        return whole

    def close(self) -> None:
        """Leave the group; the messages of other ranks fail from here on."""
        self.lost = self.lost or RankLost("devices", f"rank {self.rank} has left")
        for group in (self._orders, self._sums):
            if group is not None:
                dist.destroy_process_group(group)
        self._orders = self._sums = None
        if self._own and dist.is_initialized():
            dist.destroy_process_group()

    def _end(self, rule: str) -> RankLost:
        self.lost = self.lost or RankLost("devices", rule)
        return self.lost

    def _sent(self, message: Callable[[], _Result]) -> _Result:
        if self.lost is not None:
            raise self.lost
        try:
            return message()
        except (RuntimeError, OSError) as error:
            at = f"in or after step {self._step}" if self._step else "before the first step"
            reason = " ".join(str(error).split())[-120:]
            raise self._end(f"a rank was lost {at}, and the run ends with it ({reason})") from None
