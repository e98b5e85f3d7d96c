"""DP-SGD (Abadi et al. 2016, arXiv 1607.00133, Algorithm 1): clipped per-example gradients in a noisy sum.

One step releases ((sum of clip(g_i) over one Poisson draw) + N(0, (σC)²)) / E and nothing else:
σ, C and E come from the plan, E is public. ``i`` counts privacy units: records, or users (see ``privacy_units``). Each
unit goes through the model alone (``torch.func.vmap``), so that no layer could mix two of them even if it would;
its norm is taken of the very tensors that enter the sum (``gradient_norms``). So a wrong rule for a layer could spoil a
gradient; it could not make a contribution longer than C, nor depend on another record. Neither could dropout: each
record's masks are drawn from a key of its own (``dropout``).

Why putting zero in a record's place moves the sum by at most C, in floating point too. ``gradient_norms`` gives a bound
N² on the square of what a record adds to the sum over its weight², rounding of its own products included; N is off
by a factor within 1 ± 2^-11 for the rounding of squares, the weight min(1, bound / N) and its product with the
factors by 1 ± 8u. With u = 2^-24 and bound = C(1 - 2^-10), with C at least 2^-40 so that what underflows is below
2^-12 of C, a record's contribution is at most C in ``float32`` and ``bfloat16`` (where the model's outputs, and the
gradients that reach them, are rounded to bfloat16 *before* they become those tensors). So it is in
``bfloat16_products``, whose bound is C(1 - 2^-8) and whose N covers what tensor cores do (``tensor_core_product``).
What it leaves out in these three: a product over a microbatch rounds sums of several records, and rounds them otherwise
when one of them is gone. That is off by about u · sqrt(positions) of the sum in practice, which the margin covers; in
the worst case it does not.

In ``float64`` it is covered. Let u = 2^-53, n units drawn, b places in a microbatch. Only ways to sum are
taken whose terms cannot cancel within one record: products and additions are off by at most (b + m + 3) · u · n
· bound in norm in each of the two neighbours' sums (Higham 2002, section 4.2), where m is n/b, or 3 where the sum over
microbatches is compensated (``microbatch_total``), as it is where n/b would be too many. With bound = C(1 - 2^-16) and
(b + m + 3) · n <= 2^34, which is refused otherwise, all of it stays below C. What it leaves out: batched kernels
may round a record's own gradient differently by its place in the batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Final, Literal, TypeAlias, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ledger.mechanisms.plan import Plan
from ledger.wire.malformed import Malformed
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.dpsgd.known_updates import begin_updates, known_kind
from trainer_adapter.dpsgd.microbatch_total import MicrobatchTotal, is_compensated
from trainer_adapter.dpsgd.noisy_mean import noisy_mean, noisy_update, updates_in_pieces
from trainer_adapter.dpsgd.poisson_sampler import Microbatch, draw, microbatches
from trainer_adapter.dpsgd.privacy_units import Records, UnitRecords
from trainer_adapter.dpsgd.self_check import Comparison, SelfCheckFailed, check_places_apart, compare
from trainer_adapter.dpsgd.traced_parameters import TracedParameters
from trainer_adapter.layers.activation_checkpointing import without_checkpoints
from trainer_adapter.layers.dropout import Keys
from trainer_adapter.layers.functional_call import in_modes
from trainer_adapter.layers.memory_shortage import raise_if_short, refused_if_short
from trainer_adapter.layers.weight_writes import unwritten
from trainer_adapter.per_sample.graph_execution import Compiled
from trainer_adapter.per_sample.microbatch import Batch, MicrobatchGradientSum
from trainer_adapter.per_sample.model_checks import check_modules, check_on_dummies, public_parameters, trainable
from trainer_adapter.per_sample.record_loss import LossFn, RecordLoss
from trainer_adapter.per_sample.rounding_margins import precision_of
from trainer_adapter.per_sample.step_cost import times_plain

Certify: TypeAlias = Literal["dummies", "first_step", "always"]

MARGIN_MAX: Final = 1 / 100
"""The share of a record's gradient that may be lost to the margin for rounding."""
MICROBATCH: Final = 64
_CHECKPOINTS: Final = "activation checkpointing is left out: if memory is short, take a smaller microbatch"


def float_above(number: Fraction) -> float:
    """The least float64 that is at least ``number``."""
    near = float(number)
    return near if Fraction(near) >= number else math.nextafter(near, math.inf)


def float_below(number: Fraction) -> float:
    """The greatest float64 that is at most ``number``."""
    return -float_above(-number)


class Engine:
    """The steps of one plan on one model and one partition's records.

    Attributes:
        bound: what each unit's gradient is clipped to, in L2; a little below the plan's clipping norm.
        noise_std: standard deviation of the noise on each coordinate of the sum, never below σC.
        size: how many values train.
        compiled: whether the microbatch's graph is compiled.
        kernels: which kernel computes each parameter's norms, by name.
        margin: by how much the norms that units are clipped by are above their true ones, for what rounding could do,
            relative; the greater of what shapes alone say and what public dummies show. So much signal is lost.
        traced: the model's parameters as they were traced, which a run's model and optimiser are held to.
        notices: a line for people on each thing that this model costs; measured on public dummies.
    """

    def __init__(  # noqa: PLR0913 - one name for each thing a run may choose
        self,
        plan: Plan,
        model: nn.Module,
        loss_fn: LossFn,
        data: Records,
        microbatch: int = MICROBATCH,
        *,
        precision: str = "float32",
        compiled: Compiled = False,
        users: Tensor | None = None,
        records_per_user_max: int = 1,
        present: Tensor | None = None,
        certify: Certify = "dummies",
    ) -> None:
        """Check everything that can be checked before the first record is looked at.

        Args:
            plan: sampler, clipping, noise; the same value that was charged.
            model: put into training mode, unless it is already: then parts of it in evaluation mode stay so, and
                drop nothing. Its trained parameters are float32, all on one device.
            loss_fn: from outputs (1, ...) and targets (1, ...) of one record to one number. It and the model are
                traced: their Python runs on public dummies, and what it decides there holds for the whole run.
            data: inputs (records, ...) and targets (records, ...), or what reads them where they are drawn; moved to
                the model's device batch by batch.
            microbatch: units that pass through the model at once.
            precision: ``float32``, ``bfloat16``, ``bfloat16_products`` or ``float64``; see above for what each proves.
            compiled: whether the microbatch's graph is compiled (tens of seconds, once) or runs as it is; ``"auto"``
                takes the faster of both for a run of many minutes.
            users: whose each record is, shape (records,), where the plan's unit is the user: its sampling probability
                and expected batch size count users, and each adds the clipped sum over their records.
            records_per_user_max: how many records of one user train, fixed beforehand.
            present: which places of ``data`` hold a record, shape (records,), bool; None: all. Of a join: a place
                without a partner is drawn as any other, and adds nothing.
            certify: records are recomputed one by one and compared on public dummies only, on the first step's
                microbatches too, or on all; on the last two the run ends if they disagree, and the model's Python, its
                hooks among it, runs on records.

        Raises:
            Malformed: for a model this engine cannot keep its promise on, or data that does not fit together.
        """
        self._units = UnitRecords(plan, data, users, records_per_user_max, present)
        self._plan, self._microbatch, self._certify = plan, microbatch, certify
        self._parameters = trainable(model)
        self._record = RecordLoss(model, loss_fn, precision_of(precision), tuple(self._parameters))
        self._check_limits()
        self.size: Final = sum(value.numel() for value in self._parameters.values())
        self._device = next(iter(self._parameters.values())).device
        self.bound: Final = float_below(plan.clipping_norm * (1 - self._record.precision.margin))
        self.noise_std = float_above(plan.noise_multiplier * plan.clipping_norm)
        checkpointed = self._check_model(model, loss_fn)
        self.traced: Final = TracedParameters(model)
        with refused_if_short("microbatch", "take a smaller one"):
            public, values = self._units.public_batch(microbatch, self._device), self._record.values()
            self._sum = self._traced_sum(values, public, compiled)
            self.margin: Final = self._checked_margin(values, public_parameters(model), public)
            slow = self._cost_in_turn(values, public)
        self.compiled: Final = self._sum.compiled
        self.kernels: Final = self._sum.kernels
        self.notices: Final = (self._margin_notice(), *slow, *([_CHECKPOINTS] if checkpointed else []))

    def _check_model(self, model: nn.Module, loss_fn: LossFn) -> bool:
        """Run the model on dummies, as it will train; whether it uses activation checkpoints. Raises: Malformed."""
        if not model.training:
            model.train()
        self._modes = {module: module.training for module in model.modules()}
        check_modules(model)
        with (
            refused_if_short("model", "take a smaller one, or a machine with more"),
            without_checkpoints() as checkpoints,
        ):
            check_on_dummies(model, loss_fn, self._units.data)
        return bool(checkpoints.calls)

    def _traced_sum(self, values: dict[str, Tensor], public: Batch, compiled: Compiled) -> MicrobatchGradientSum:
        # By the plan, so that an example before the charge decides and compiles what the run will use.
        runs = self._plan.steps * math.ceil(self._plan.batch_size_expected / self._microbatch)
        return MicrobatchGradientSum(self._record, values, public, bound=self.bound, compiled=compiled, runs=runs)

    def _margin_notice(self) -> str:
        return f"rounding takes at most {max(1, math.ceil(self.margin * 1e4)) / 100} % of a gradient"

    def _cost_in_turn(self, values: dict[str, Tensor], public: Batch) -> list[str]:
        if not self._sum.in_turn:
            return []
        with in_modes(self._modes):
            times = times_plain(lambda: self._sum(values, public), self._record, values, public)
        slow = f"a step takes {times:.1f} times as long as plain training, and a smaller microbatch is traced sooner"
        return [f"the model cannot run on all {self._microbatch} places of a microbatch at once, but in turn: {slow}"]

    def _checked_margin(self, values: dict[str, Tensor], random: dict[str, Tensor], public: Batch) -> float:
        precision = self._record.precision
        drawn = {name: random[name].detach() for name in self._parameters}
        graph = self._compared({**values, **drawn}, public)
        if self._sum.in_turn:
            with in_modes(self._modes):
                check_places_apart(self._sum, {**values, **drawn}, public)
        if not graph.agrees(precision.name):
            raise Malformed("model", "gives other gradients traced than record by record")
        # Under autocast a unit alone may be rounded otherwise, which would hide what is looked for.
        margin = max(self._sum.margin, 0.0 if precision.autocast else graph.margin)
        if not margin <= MARGIN_MAX:
            rule = f"would lose {margin:.1%} of each gradient to the margin for rounding, {MARGIN_MAX:.0%} at most"
            raise Malformed("model", f"{rule}: take shorter records, a smaller microbatch, or precision float64")
        return margin

    def _check_limits(self) -> None:
        units, places, precision = len(self._units), self._microbatch, self._record.precision
        if self._certify not in get_args(Certify):
            raise Malformed("certify", f"must be one of {', '.join(get_args(Certify))}")
        if places < 1:
            raise Malformed("microbatch", "must be at least 1")
        self._compensated = is_compensated(units, places)
        if self._plan.clipping_norm < precision.clipping_norm_min:
            raise Malformed("clipping_norm", f"is too small for {precision.name}: what underflows would count")

    def step(self, step: int, optimiser: torch.optim.Optimizer, randomness: CsprngRandomness) -> None:
        """One logical step: draw, sum, noise, update. Counted from 1; an empty draw is a step like any other.

        Raises: NonceReused, if this step's randomness was used before; SelfCheckFailed, see ``certify``.
        """
        kind = self._kind_in_pieces(optimiser)
        if kind is None:
            self.set_gradients(step, randomness)
            try:
                optimiser.step()
            finally:
                optimiser.zero_grad(set_to_none=True)
            return
        total, expected = self.total(step, randomness), self._plan.batch_size_expected
        noise = randomness.stream("noise", step)
        updates = begin_updates(optimiser, self._parameters.values())
        noisy_update(total, noise, self.noise_std, expected, updates, kind)
        optimiser.zero_grad(set_to_none=True)

    def _kind_in_pieces(self, optimiser: torch.optim.Optimizer) -> int | None:
        """The rule by which the tail of a step updates the weights itself; None where the optimiser does."""
        own_noise = type(self).set_gradients is not Engine.set_gradients
        kind = None if own_noise else known_kind(optimiser, self._parameters.values())
        return kind if kind is not None and updates_in_pieces(self._device, kind) else None

    def set_gradients(self, step: int, randomness: CsprngRandomness) -> None:
        """Draw, sum, and put the noisy mean into the parameters' ``grad``. Raises: as :meth:`step`."""
        total = self.total(step, randomness)
        noise = randomness.stream("noise", step)
        self._assign(noisy_mean(total, noise, self.noise_std, self._plan.batch_size_expected))

    def total(self, step: int, randomness: CsprngRandomness) -> Tensor:
        """The clipped sum of one step's draw; private. Raises: as :meth:`set_gradients`."""
        batches, keys = self.microbatches(self.draw(step, randomness)), self.keys(step, randomness)
        total = self._summed(batches, keys)
        if self._certify == "always" or (self._certify == "first_step" and step == 1):
            self.check(batches, keys)
        return total

    def draw(self, step: int, randomness: CsprngRandomness) -> NDArray[np.int64]:
        """The units of one logical batch; private. Raises: NonceReused."""
        return draw(randomness.stream("sampler", step), len(self._units), self._plan.sampling_probability)

    def keys(self, step: int, randomness: CsprngRandomness) -> Keys | None:
        """The key of each record's dropout masks at this step; None if nothing drops. Raises: NonceReused."""
        return randomness.stream("dropout", step).words(self._units.records) if self._sum.drops else None

    def microbatches(self, drawn: NDArray[np.int64]) -> list[Microbatch]:
        """A logical batch cut into microbatches."""
        return list(microbatches(drawn, self._microbatch))

    def clipped_sum(self, batches: Iterable[Microbatch], keys: Keys | None = None) -> Tensor:
        """Sum of the clipped gradients of the units drawn, shape (parameters,), float64; private.

        ``keys`` are those of :meth:`keys`, for a model that drops something.

        A unit whose gradient has a value that is not finite gives zero, and so does one that has none, as for a
        label of no class: one bad record neither leaks by turning the model into NaN nor stops the run. (On a GPU, and
        compiled, the graph holds the latter to their range itself: see ``index_guard``.)

        Raises:
            Malformed: without keys for a model that needs them. MemoryError: rather than leave out a record.
        """
        return self._summed(batches, keys).to(torch.float64)

    def _summed(self, batches: Iterable[Microbatch], keys: Keys | None) -> Tensor:
        """The same, in the work type where there is one microbatch: its sum is exact in float64, and half as long."""
        values, total = self._record.values(), MicrobatchTotal(compensated=self._compensated)
        for batch in batches:
            total.add(self._sum_of(values, batch, keys))
        return torch.zeros(self.size, device=self._device) if total.value is None else total.value

    def _sum_of(self, values: dict[str, Tensor], batch: Microbatch, keys: Keys | None) -> Tensor:
        try:
            return self._sum(values, self._gathered(batch, keys)).total
        except (RuntimeError, LookupError) as error:
            raise_if_short(error, "a microbatch")
            # With no unit drawn: what fails there too is not caused by a record, and is reported.
            total = self._sum(values, self._gathered(batch.only(-1), keys)).total
        for place in np.flatnonzero(batch.mask):
            try:
                total = total + self._sum(values, self._gathered(batch.only(int(place)), keys)).total
            except (RuntimeError, LookupError) as error:
                raise_if_short(error, "a microbatch")
        return total

    def check(self, batches: Iterable[Microbatch], keys: Keys | None = None) -> None:
        """Compare with units recomputed one by one. Raises: SelfCheckFailed, WeightsWritten; neither shows a record."""
        values, precision = self._record.values(), self._record.precision.name
        with unwritten(values, values=True):
            if not all(self._compared(values, self._gathered(batch, keys)).agrees(precision) for batch in batches):
                raise SelfCheckFailed("the engine's sum is not that of the records one by one")

    def _compared(self, values: dict[str, Tensor], batch: Batch) -> Comparison:
        with in_modes(self._modes):
            return compare(self._record, values, batch, self.bound, self._sum(values, batch))

    def _gathered(self, batch: Microbatch, keys: Keys | None) -> Batch:
        if keys is None and self._sum.drops:
            raise Malformed("keys", "are needed: the model drops something")
        if len(batch.mask) > self._microbatch:
            raise Malformed("microbatch", f"has at most {self._microbatch} places, not {len(batch.mask)}")
        return self._units.gather(batch.filled(self._microbatch), keys, self._device)

    def _assign(self, flat: Tensor) -> None:
        parts = flat.split([value.numel() for value in self._parameters.values()])
        for value, part in zip(self._parameters.values(), parts, strict=True):
            value.grad = part.view_as(value)
