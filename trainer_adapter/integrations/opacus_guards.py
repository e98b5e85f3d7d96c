"""An optimiser of Opacus held to a charge: no noise without a step, no update without that noise, one draw a step.

Opacus calls its accountant through the one slot of ``attach_step_hook``, after the noise is drawn; a user who attaches
a hook takes its place there. So nothing is taken in the slot. A held optimiser takes its step where the noise is added,
before any is drawn, whatever hooks it has and whichever code calls it; and the optimiser beneath it, which changes the
weights, goes on only with noise that took one. An error on the way throws the gradients away. Where a run leases its
steps, noise and batches are drawn under new keys from each lease on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from hashlib import shake_256
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

import numpy as np
import torch
from opacus.data_loader import DPDataLoader
from opacus.optimizers import DPOptimizer
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from torch.utils.hooks import RemovableHandle

from trainer_adapter.dpsgd.csprng import SECRET_BYTES, CsprngRandomness
from trainer_adapter.dpsgd.engine import float_above, float_below
from trainer_adapter.dpsgd.poisson_sampler import draw
from trainer_adapter.session.hardware_secret import hardware_secret

Hook = Callable[[DPOptimizer], None]
_TWISTER: Final = slice(24, 24 + 8 * 624)
"""The 624 words of 32 bits, each in 64, in the bytes of a CPU generator's state; the first is that of its seed."""


class Refusal(RuntimeError):  # noqa: N818 - what it is
    """No step was left, or it was another than the one that was charged; the weights are as they were."""


class Take(Protocol):
    """Takes one step from the charge. Raises: Refusal; OSError, if its block cannot be made durable."""

    def __call__(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """With this noise, of a batch drawn at this rate."""


class PoissonDraws(UniformWithReplacementSampler):
    """Logical batches as the engine of this project draws them: 64-bit words of ChaCha20 under a fresh key.

    Opacus compares 24-bit numbers with the rate, which at small rates lets in more than were paid for, and takes them
    from a generator that a seed repeats.

    Attributes:
        drawn: how many batches, in all epochs.
        randomness: of the batches to come.
    """

    def __init__(self, records: int, probability: Fraction, begin: Callable[[], None]) -> None:
        """As many batches an epoch as take every record about once; ``begin`` is called at the start of each."""
        super().__init__(num_samples=records, sample_rate=float_below(probability), steps=int(1 / probability))
        self.drawn = 0
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
            yield draw(self.randomness.stream("sampler", self.drawn), self.num_samples, self._probability).tolist()


def hold(
    optimiser: DPOptimizer, loader: DPDataLoader, probability: Fraction, take: Take, lease: Callable[[], int]
) -> None:
    """Let the optimiser add no noise without a step, and the loader draw at most with this probability.

    Args:
        optimiser: of Opacus.
        loader: of Opacus.
        probability: of the plan.
        take: takes one step.
        lease: how many leases this process has begun to use, 0 where the run leases no steps.

    Raises:
        Refusal: for a loader that does not sample by Poisson, or draws more often.
    """
    sampler = loader.batch_sampler
    if type(sampler) is not UniformWithReplacementSampler:
        raise Refusal("the loader does not draw by Poisson sampling, as the plan does: it takes a DPDataLoader")
    if sampler.sample_rate > float_above(probability):
        raise Refusal(f"the loader draws with probability {sampler.sample_rate}, the plan with {float(probability)}")
    guard = _Guard(optimiser, take, lease)
    guard.draws = PoissonDraws(sampler.num_samples, min(probability, Fraction(sampler.sample_rate)), guard.forget)
    # A loader refuses another sampler once it is made, though it reads it anew whenever it is iterated.
    object.__setattr__(loader, "batch_sampler", guard.draws)
    beneath = optimiser.original_optimizer
    if (before := _beneath.pop(beneath, None)) is not None:
        before.remove()
    _beneath[beneath] = beneath.register_step_pre_hook(guard.update)
    optimiser.clip_and_accumulate, optimiser.add_noise = guard.clip_and_accumulate, guard.add_noise
    optimiser.attach_step_hook = lambda hook: chain(optimiser, hook)


def chain(optimiser: DPOptimizer, hook: Hook) -> None:
    """Attach a hook after those that are there: Opacus' own ``attach_step_hook`` puts it in their place."""
    before = optimiser.step_hook

    def both(stepped: DPOptimizer) -> None:
        if before is not None:
            before(stepped)
        hook(stepped)

    optimiser.step_hook = both


def unseeded(device: torch.device | str = "cpu") -> torch.Generator:
    """A generator of PyTorch's whose whole state is of fresh hardware entropy, and is kept nowhere.

    A seed alone would not do on a CPU: the Mersenne Twister there takes 32 bits of it, and so many can be searched.

    Raises:
        Refusal: for a PyTorch that keeps the state in another form.
    """
    seed = int.from_bytes(hardware_secret()) >> (8 * SECRET_BYTES - 63)
    made = torch.Generator(device).manual_seed(seed)
    if made.device.type != "cpu":
        return made
    state = made.get_state()
    words = state[_TWISTER].view(torch.int64)
    if int(words[0]) != seed & 0xFFFFFFFF:
        raise Refusal("this PyTorch keeps its generator's state in a form that this program does not know")
    drawn = np.frombuffer(shake_256(hardware_secret()).digest(4 * len(words)), np.uint32)
    words.copy_(torch.from_numpy(drawn.astype(np.int64)))
    return made.set_state(state)


class _Guard:
    """Replaces methods of the optimiser."""

    draws: PoissonDraws

    def __init__(self, optimiser: DPOptimizer, take: Take, lease: Callable[[], int]) -> None:
        self._optimiser, self._take = optimiser, take
        self._lease, self._entered = lease, 0
        self._clip, self._noise = optimiser.clip_and_accumulate, optimiser.add_noise
        self._taken, self._charged = 0, False

    def clip_and_accumulate(self) -> None:
        """One record whose gradient is not finite adds nothing, where it would make every weight NaN."""
        if self._optimiser.accumulated_iterations != 1:
            self.forget()
            raise Refusal("a step is one draw: gradients of several batches must not be accumulated")
        samples = self._optimiser.grad_samples
        finite = torch.stack([sample.flatten(1).isfinite().all(dim=1) for sample in samples]).all(dim=0)
        if not finite.all():
            for sample in samples:
                sample[~finite] = 0
        self._clip()

    def add_noise(self) -> None:
        """Take a step, then draw the noise; the gradients are thrown away if there is none."""
        self._charged = False
        try:
            self._step()
            self._noise()
        except BaseException:
            self.forget()
            raise
        self._charged = True

    def _step(self) -> None:
        optimiser = self._optimiser
        if optimiser.generator is None:
            # PyTorch's one generator gives the same noise again after the same seed.
            optimiser.generator = unseeded(optimiser.params[0].device)
        if self._taken >= self.draws.drawn:
            raise Refusal("no batch was drawn for this step: a batch is good for one")
        self._take(noise_multiplier=optimiser.noise_multiplier, sample_rate=self.draws.sample_rate)
        self._taken += 1
        if (entered := self._lease()) != self._entered:
            # A copy of this process would otherwise use the same noise, and the same draws, for other sums.
            self._entered, optimiser.generator = entered, unseeded(optimiser.params[0].device)
            self.draws.rekey()

    def update(self, *_: Any) -> None:  # noqa: ANN401 - what PyTorch gives a hook
        """Before the weights change. Raises: Refusal, if what they would change by has no noise that was charged."""
        if not self._charged:
            self.forget()
            raise Refusal("an update needs noise of its own that was taken from the charge")
        self._charged = False

    def forget(self) -> None:
        """Throw away all gradients, and which microbatches were still to come of a logical one.

        An epoch that ended early would otherwise leave a part of a batch to be added to the next one's.
        """
        optimiser = self._optimiser
        optimiser._step_skip_queue.clear()  # noqa: SLF001 - Opacus has no other way
        optimiser._is_last_step_skipped = False  # noqa: SLF001 - or the sum so far stays
        optimiser.zero_grad(set_to_none=True)


_beneath: Final[WeakKeyDictionary[torch.optim.Optimizer, RemovableHandle]] = WeakKeyDictionary()
"""What waits before the updates of an optimiser: one hold at a time."""
