"""The draws of a loader of Opacus: which batch it handed out last, of which draw, and how many records that holds.

A sampler is read ahead, by ``list(loader)`` or by workers that prefetch. So the number of batches that it drew does
not show the batch that a step is taken on. What counts is what the loader hands out, in the order of the draws.
What workers read ahead their dataset and collator have seen, whether or not the loop is handed it: so each batch is
reported when it is read, too, and an epoch before it begins.
``BatchMemoryManager`` of Opacus makes a loader of its own, which hands out a draw in parts; that one is watched too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import wraps
from typing import Any, Final

from opacus.utils import batch_memory_manager
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from torch.utils.data import DataLoader

from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.dpsgd.engine import float_below
from trainer_adapter.dpsgd.poisson_sampler import draw


class PoissonDraws(UniformWithReplacementSampler):
    """Logical batches as the engine of this project draws them: 64-bit words of ChaCha20 under a fresh key.

    Opacus compares 24-bit numbers with the rate, which at small rates lets in more than were paid for, and takes them
    from a generator that a seed repeats.

    Attributes:
        drawn: how many batches, in all epochs.
        token: equal to that of no other sampler.
        records: how many the newest of them has; private.
        randomness: of the batches to come.
    """

    def __init__(self, records: int, probability: Fraction, begin: Callable[[], None]) -> None:
        """As many batches an epoch as take every record about once; ``begin`` is called at the start of each."""
        super().__init__(num_samples=records, sample_rate=float_below(probability), steps=int(1 / probability))
        self.drawn = self.records = 0
        self.token: Final = object()
        self._probability, self._begin = probability, begin
        self.rekey()

    def rekey(self) -> None:
        """Draw all batches from here on under a key of fresh hardware entropy."""
        self.randomness = CsprngRandomness.fresh()

    def __iter__(self) -> Iterator[list[int]]:
        """One epoch: the places of the records of each batch, rising."""
        self._begin()
        for _ in range(self.steps):
            self.drawn += 1
            places = draw(self.randomness.stream("sampler", self.drawn), self.num_samples, self._probability).tolist()
            self.records = len(places)
            yield places


@dataclass(frozen=True, slots=True)
class Part:
    """What a loader hands out at once: a draw, or a part of one.

    Attributes:
        draw: the number of the draw.
        whole: how many records the draw has; private.
        records: how many of them are in this part; private.
        last: whether the draw's other parts came before it.
    """

    draw: int
    whole: int
    records: int
    last: bool


@dataclass(frozen=True, slots=True)
class DrawCallbacks:
    """What is called of a loader's batches.

    Attributes:
        epoch: before an epoch begins. Raises: Refusal, where none may.
        read: when a batch is read, to be made out of its records.
        handed_out: before a batch that was read leaves. Raises: Refusal.
    """

    epoch: Callable[[], None]
    read: Callable[[], None]
    handed_out: Callable[[Part], None]


class _Recorded:
    """A sampler of batches that notes what is read of it, for the loader that reads it."""

    def __init__(self, sampler: Any, draws: PoissonDraws, callbacks: DrawCallbacks) -> None:  # noqa: ANN401 - of Opacus
        self.sampler, self.draws, self.callbacks, self.parts = sampler, draws, callbacks, deque[Part]()

    def __iter__(self) -> Iterator[list[int]]:
        """One epoch."""
        return self._read(self.parts)

    def _read(self, parts: deque[Part]) -> Iterator[list[int]]:
        newest = before = 0
        for places in self.sampler:
            before = before if newest == self.draws.drawn else 0
            newest, before = self.draws.drawn, before + len(places)
            parts.append(Part(newest, self.draws.records, len(places), last=before == self.draws.records))
            self.callbacks.read()
            yield places

    def __len__(self) -> int:
        """Batches an epoch."""
        return len(self.sampler)


class HandsOut(DataLoader[Any]):
    """A loader that reports each batch when it reads it and when it hands it out."""

    recorded: _Recorded

    @property
    def _index_sampler(self) -> Any:  # noqa: ANN401 - as the class above has it
        return self.recorded

    def __iter__(self) -> Any:  # noqa: ANN401 - an iterator of whatever the loader gives
        """One epoch, as it was; each batch is reported before it leaves. Raises: Refusal, where none may begin."""
        self.recorded.callbacks.epoch()
        self.recorded.parts = parts = deque[Part]()
        return self._hand_out(parts, super().__iter__())

    def _hand_out(self, parts: deque[Part], batches: Iterator[object]) -> Iterator[object]:
        callbacks = self.recorded.callbacks
        while True:
            try:
                batch = next(batches)
            except BaseException as broken:
                # A collator that fails, however it does, shows the loop something of the draw: that is handed out.
                if parts:
                    callbacks.handed_out(parts.popleft())
                if isinstance(broken, StopIteration):
                    return
                raise
            callbacks.handed_out(parts.popleft())
            yield batch


def report_draws(loader: DataLoader[Any], draws: PoissonDraws, callbacks: DrawCallbacks) -> None:
    """Let a loader report each batch that it reads or hands out, and those that ``BatchMemoryManager`` makes of it."""
    kind = type(loader)
    # Of its own class still, which users may have derived from Opacus'.
    object.__setattr__(loader, "__class__", type(kind.__name__, (HandsOut, kind), {}))
    vars(loader).update(recorded=_Recorded(loader.batch_sampler, draws, callbacks))
    if batch_memory_manager.wrap_data_loader is not _split:
        batch_memory_manager.wrap_data_loader = _split


_whole: Final = batch_memory_manager.wrap_data_loader


@wraps(_whole)
def _split(*, data_loader: DataLoader[Any], **options: Any) -> DataLoader[Any]:  # noqa: ANN401 - Opacus's signature
    made: DataLoader[Any] = _whole(data_loader=data_loader, **options)
    if isinstance(data_loader, HandsOut):
        report_draws(made, data_loader.recorded.draws, data_loader.recorded.callbacks)
    return made
