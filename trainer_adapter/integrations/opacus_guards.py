"""An optimiser of Opacus held to a charge: no noise without a step, no update without that noise, one draw a step.

Opacus calls its accountant through the one slot of ``attach_step_hook``, after the noise is drawn; a user who attaches
a hook takes its place there. So nothing is taken in the slot. A held optimiser takes its step where the noise is added,
before any is drawn, whatever hooks it has and whichever code calls it; and the optimiser beneath it, which changes the
weights, goes on only with noise that took one. An error on the way throws the gradients away. Where a run leases its
steps, noise and batches are drawn under new keys from each lease on.

A step is good on the batch that the loader handed out last, once, with as many gradients as that has records, after a
pass of the model that was looked at (:mod:`trainer_adapter.integrations.opacus_models`). And each draw that is handed
out is a step, an empty one too: a loop that passes over some, having seen them, samples the others at another rate than
the one that is charged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

import torch
from opacus.data_loader import DPDataLoader
from opacus.optimizers import DPOptimizer
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from torch import nn
from torch.utils.hooks import RemovableHandle

from ledger.wire.malformed import Malformed
from trainer_adapter.dpsgd.engine import float_above
from trainer_adapter.integrations.opacus_batches import DrawCallbacks, Part, PoissonDraws, report_draws
from trainer_adapter.integrations.opacus_generator import unseeded
from trainer_adapter.integrations.opacus_gradients import FixedTerms, drop_gradients, exact_products, widen
from trainer_adapter.integrations.opacus_models import PassWatch
from trainer_adapter.integrations.opacus_refusal import Refusal
from trainer_adapter.layers.weight_writes import PassWrites
from trainer_adapter.per_sample.model_checks import check_modules

Hook = Callable[[DPOptimizer], None]


class Take(Protocol):
    """Takes one step from the charge. Raises: Refusal; OSError, if its block cannot be made durable."""

    def __call__(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """With this noise, of a batch drawn at this rate."""


@dataclass(frozen=True)
class Terms:
    """What a held optimiser is held to.

    Attributes:
        probability: of the plan.
        take: takes one step.
        lease: how many leases this process has begun to use, 0 where the run leases no steps.
        doubt: called with the reason, where a pass over records turns out to be one that no plan covers.
        epoch: called before an epoch. Raises: Refusal, if one before it still has batches that were read.
        read: called for each batch that is read, which workers do ahead.
        begin: called with the draw a loader hands out. Raises: Refusal, if no step was taken on the one before.
    """

    probability: Fraction
    take: Take
    lease: Callable[[], int]
    doubt: Callable[[str], None]
    epoch: Callable[[], None]
    read: Callable[[], None]
    begin: Callable[[object], None]


def check_model(model: nn.Module) -> None:
    """Refuse layers that mix records, carry state of them or write into their weights. Raises: Refusal, naming them."""
    try:
        check_modules(model)
    except Malformed as error:
        raise Refusal(str(error)) from error


def hold(
    models: tuple[nn.Module, nn.Module],
    optimiser: DPOptimizer,
    loader: DPDataLoader,
    terms: Terms,
    *,
    batch_first: bool,
) -> None:
    """Let the optimiser add no noise without a step, and the loader draw at most with the plan's probability.

    Args:
        models: whose parameters the optimiser changes, as it was before Opacus wrapped it; and what its loop calls.
        optimiser: of Opacus.
        loader: of Opacus.
        terms: where steps come from.
        batch_first: whether the first dimension of what the model takes counts the records, or the second.

    Raises:
        Refusal: for a loader that does not sample by Poisson, draws more often or hands out in another order; for a
            model that mixes records, or whose parameters are not the optimiser's.
    """
    (model, called), sampler = models, loader.batch_sampler
    if type(sampler) is not UniformWithReplacementSampler:
        raise Refusal("the loader does not draw by Poisson sampling, as the plan does: it takes a DPDataLoader")
    if sampler.sample_rate > float_above(terms.probability):
        raise Refusal(
            f"the loader draws with probability {sampler.sample_rate}, the plan with {float(terms.probability)}"
        )
    if not getattr(loader, "in_order", True):
        raise Refusal("the loader hands out batches in another order than it draws them: in_order must be True")
    if not {id(one) for one in optimiser.params} <= {id(one) for one in model.parameters()}:
        raise Refusal("the optimiser changes parameters that are not the model's")
    guard = _Guard(optimiser, terms, PassWatch(batch_first=batch_first))
    guard.try_record(model, loader.dataset[0])
    guard.draws = PoissonDraws(sampler.num_samples, min(terms.probability, Fraction(sampler.sample_rate)), guard.forget)
    # A loader refuses another sampler once it is made, though it reads it anew whenever it is iterated.
    object.__setattr__(loader, "batch_sampler", guard.draws)
    report_draws(loader, guard.draws, DrawCallbacks(terms.epoch, terms.read, guard.hand_out))
    called.register_forward_pre_hook(_Look(guard, model), with_kwargs=True, prepend=True)
    called.register_forward_hook(_Seen(guard, model), always_call=True)
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


class _Guard:
    """Replaces methods of the optimiser."""

    draws: PoissonDraws

    def __init__(self, optimiser: DPOptimizer, terms: Terms, passes: PassWatch) -> None:
        self._optimiser, self._terms, self._passes = optimiser, terms, passes
        self._writes = PassWrites()
        self._entered, self._charged = 0, False
        self._clip, self._noise = optimiser.clip_and_accumulate, optimiser.add_noise
        self._fixed = FixedTerms(optimiser)
        self._newest: Part | None = None
        self._looked = False
        self._sum: Part | None = None
        self._summed = 0

    def try_record(self, model: nn.Module, record: object) -> None:
        """Look at the model before its first pass. Raises: Refusal."""
        try:
            self._passes.try_record(model, record)
        except Malformed as error:
            raise Refusal(str(error)) from error

    def look(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Before each pass of the model. Raises: Refusal, if it mixes records: then the charge stays in full."""
        if torch.is_grad_enabled():
            with self._doubting():
                self._passes.look(model, (args, kwargs))
            self._looked = True
        if not self._passes.looking:
            self._writes.begin(model)

    def seen(self) -> None:
        """After each pass. Raises: Refusal, if it wrote into the model's tensors: then the charge stays in full."""
        with self._doubting():
            self._writes.end()

    @contextmanager
    def _doubting(self) -> Iterator[None]:
        try:
            yield
        except Malformed as error:
            self._terms.doubt(str(error))
            self.forget()
            raise Refusal(str(error)) from error

    def hand_out(self, part: Part) -> None:
        """From now on a step is good on this batch alone. Raises: Refusal, if the draw before it had no step."""
        if self._sum is not None and self._sum.draw != part.draw:
            self.forget()
        try:
            self._terms.begin((self.draws.token, part.draw))
        except Refusal:
            self.forget()
            raise
        self._newest, self._looked = part, False
        # Opacus signals when it draws, which workers do ahead; a batch that its loop leaves out would shift all others.
        self._optimiser._step_skip_queue[:] = [not part.last]  # noqa: SLF001 - Opacus has no other way

    def clip_and_accumulate(self) -> None:
        """Clip the records' gradients and add them to the sum. Raises: Refusal."""
        with self._doubting():
            self._writes.end_step()
        part, self._newest = self._newest, None
        try:
            self._check(part)
        except Refusal:
            self.forget()
            raise
        with exact_products(self._optimiser):
            widen(self._optimiser)
            self._clip()

    def _check(self, part: Part | None) -> None:
        """Hold the gradients to the batch that was handed out last, and count them in."""
        if self._optimiser.accumulated_iterations != 1:
            raise Refusal("a step is one draw: gradients of several batches must not be accumulated")
        self._fixed.check()
        if part is None:
            raise Refusal(_NO_BATCH)
        if {len(sample) for sample in self._optimiser.grad_samples} != {part.records}:
            raise Refusal("a step is on the batch handed out last: the gradients are of another number of records")
        if not self._looked:
            raise Refusal("a step needs a pass of the model over its batch: call the model, and not a part of it")
        self._summed = part.records + (0 if self._sum is None else self._summed)
        self._sum = part

    def add_noise(self) -> None:
        """Take a step, then draw the noise; the gradients are thrown away if there is none."""
        self._charged = False
        try:
            self._step()
            with exact_products(self._optimiser):
                self._noise()
        except BaseException:
            self.forget()
            raise
        # What was frozen since the backward pass has the gradient of the records, and no noise.
        drop_gradients(self._optimiser, self._optimiser.params)
        self._charged = True

    def _step(self) -> None:
        optimiser, terms = self._optimiser, self._terms
        if optimiser.generator is None:
            # PyTorch's one generator gives the same noise again after the same seed.
            optimiser.generator = unseeded(optimiser.params[0].device)
        part, self._sum = self._sum, None
        self._fixed.check()
        if part is None:
            raise Refusal(_NO_BATCH)
        if self._summed != part.whole:
            raise Refusal("a step is on a whole draw: a part of it was left out")
        terms.take(noise_multiplier=optimiser.noise_multiplier, sample_rate=self.draws.sample_rate)
        if (entered := terms.lease()) != self._entered:
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

        A step that was refused would otherwise leave a part of a batch to be added to the next one's.
        """
        self._newest = self._sum = None
        optimiser = self._optimiser
        optimiser._step_skip_queue.clear()  # noqa: SLF001 - Opacus has no other way
        optimiser._is_last_step_skipped = False  # noqa: SLF001 - or the sum so far stays
        drop_gradients(optimiser)


class _Look:
    """A guard's look as a hook of the model; of a model that was saved whole nothing looks."""

    def __init__(self, guard: _Guard, model: nn.Module) -> None:
        self._guard, self._model = guard, model

    def __call__(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._guard.look(self._model, args, kwargs)

    def __reduce__(self) -> tuple[Callable[[], object], tuple[()]]:
        """A copy of a model is not what the optimiser trains, and a run cannot be copied."""
        return _nothing, ()


class _Seen(_Look):
    """The same after a pass."""

    def __call__(self, *_: object) -> None:
        self._guard.seen()


def _nothing() -> Callable[..., None]:
    return _pass_by


def _pass_by(*_: object) -> None:
    """What hooks of copies do."""


_NO_BATCH: Final = "no batch was handed out for this step: a batch is good for one, until the next is handed out"
_beneath: Final[WeakKeyDictionary[torch.optim.Optimizer, RemovableHandle]] = WeakKeyDictionary()
"""What waits before the updates of an optimiser: one hold at a time."""
