"""Opacus under a charge: its engine clips and adds noise, the ledger decides how often.

    with Run(assignment) as run:
        records = run.open_data()
        run.begin()
        engine = PrivacyEngine(accountant=register(run))
        module, optimiser, loader = engine.make_private(...)

Each step is taken from the charge before its noise is drawn: if there is none left, or the step is another than the
plan's, the gradients are thrown away and :class:`Refusal` ends the loop, however many hooks the optimiser has; see
:mod:`trainer_adapter.integrations.opacus_guards`. Batches are drawn as our own engine draws them, at the plan's
probability, and each that is handed out is a step: a loop that passes over one, or ends on it, may have chosen by what
it saw, so nothing is posted and the charge stays in full. So is each that workers read ahead while steps are left:
their dataset and collator have seen it, so no new epoch begins before it is handed out. The noise is of PyTorch's
statistical generator in a state of fresh hardware entropy; not ours from a cryptographic one. Another generator that is
given stays in use where the run leases no steps; where it does, each lease has a generator of its own.

What Opacus offers and no plan covers is refused: other draws than Poisson's (``poisson_sampling=False`` reports the
same sampling rate), random records in the place of an empty draw, ghost clipping (whose norms miss a weight's second
use), adaptive clipping (which divides by the drawn batch's size), several devices, and models that mix records
(:mod:`trainer_adapter.integrations.opacus_models`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import wraps
from math import isclose
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

import torch
from opacus import GradSampleModule, PrivacyEngine
from opacus.accountants import IAccountant, register_accountant
from opacus.data_loader import DPDataLoader
from opacus.grad_sample import GradSampleModuleExpandedWeights
from opacus.grad_sample.gsm_base import AbstractGradSampleModule
from opacus.optimizers import DPOptimizer
from torch import nn
from torch.utils.data import Dataset

from ledger.mechanisms.plan import Plan
from ledger.mechanisms.run_plan import RECORD
from ledger.wire.malformed import Malformed
from trainer_adapter.dpsgd.engine import float_above
from trainer_adapter.integrations.opacus_generator import unseeded
from trainer_adapter.integrations.opacus_guards import Hook, Terms, check_model, hold
from trainer_adapter.integrations.opacus_refusal import Refusal
from trainer_adapter.run.charged_run import Run
from trainer_adapter.training.model_run import ModelRun

__all__ = ["COVERED", "NAME", "LedgerAccountant", "Refusal", "make_private", "register", "unseeded"]

NAME: Final = "ledger"
COVERED: Final = {
    "poisson_sampling": (True,),
    "rand_on_empty": (False,),
    "clipping": ("flat", "per_layer"),
    "grad_sample_mode": ("hooks", "functorch", "ew"),
}
"""The options of ``make_private`` that are covered, its default first."""
Private: TypeAlias = tuple[Any, DPOptimizer, DPDataLoader]


@dataclass
class _Loop:
    """What is known of the loop of a run, whichever of its loaders and optimisers it uses.

    Attributes:
        doubted: whether a pass over records was one that no plan covers.
        draw: the one that the loop has and took no step on; None if there is none.
        ahead: how many batches were read, so that a dataset and a collator saw them, and not handed out.
    """

    doubted: bool = False
    draw: object = None
    ahead: int = 0

    def mark_watched(self, run: Run) -> None:
        """A loop that ends on a draw may have ended because of it, or of one to come: then nothing is posted either."""
        run.watched = not self.doubted and self.draw is None and not self.awaited(run)

    def awaited(self, run: Run) -> bool:
        """Whether batches that were read are still to be handed out for steps."""
        return self.ahead > 0 and _goes_on(run)


class LedgerAccountant(IAccountant):
    """Takes each step of Opacus from a charge."""

    run: Run

    def __init__(self) -> None:
        """Nothing taken yet; :func:`register` makes the class that knows its run."""
        super().__init__()
        self.history: list[tuple[float, float, int]] = []
        self._making = False

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Take one step. Raises: Refusal; OSError, if its block cannot be made durable."""
        self._check(noise_multiplier, sample_rate)
        taken = self.run.budget.next_step()
        if taken is None:
            raise Refusal(self.run.budget.ended or f"all {self.run.steps} steps that were charged are taken")
        self.history = [(noise_multiplier, sample_rate, taken)]
        self.run.done(taken)

    def _check(self, noise: float, rate: float) -> None:
        plan = self.run.assignment.training
        if Fraction(noise) < plan.noise_multiplier or Fraction(rate) > plan.sampling_probability:
            raise Refusal(
                f"the plan has noise {float(plan.noise_multiplier)} at sampling probability "
                f"{float(plan.sampling_probability)}, and this step noise {noise} at {rate}"
            )

    def get_epsilon(self, delta: float, *_: Any, **__: Any) -> float:  # noqa: ANN401 - Opacus's signature
        """The ε of the whole run, as the ledger reports it. Raises: ValueError, for a δ below the partition's."""
        epsilon, at = self.run.privacy.epsilon, max(line.delta for line in self.run.privacy.run_epsilon)
        if Fraction(delta) < at:
            raise ValueError(f"the partition's δ is {float(at)}: no ε is reported for a smaller one")
        return float(epsilon)

    def get_optimizer_hook_fn(self, sample_rate: float) -> Hook:
        """A hook that does nothing: a held optimiser has taken its step before.

        Raises:
            Refusal: for any caller but :func:`make_private`, since another hook could take this one's place.
        """
        del sample_rate
        if not self._making:
            raise Refusal("steps are taken where noise is added: let make_private make the optimiser")
        return lambda _: None

    def private(self, make: Callable[..., Private], **options: Any) -> Private:  # noqa: ANN401 - Opacus's signature
        """What Opacus makes of these options, held to the charge. Raises: Refusal; anything Opacus raises."""
        _loop_of(self.run).mark_watched(self.run)
        for name, covered in COVERED.items():
            if options.get(name, covered[0]) not in covered:
                raise Refusal(
                    f"{name} must be {' or '.join(str(value) for value in covered)}: no plan covers anything else"
                )
        # Opacus' own validator would refuse some of them in other words, and accept the rest.
        if isinstance(model := options.get("module"), nn.Module):
            check_model(_plain(model))
        self._making = True
        try:
            private = make(**options)
        finally:
            self._making = False
        module, optimiser, loader = private
        called = module if isinstance(module, nn.Module) else options["module"]
        self.hold(called, optimiser, loader, batch_first=options.get("batch_first", True))
        return private

    def hold(self, model: nn.Module, optimiser: DPOptimizer, loader: DPDataLoader, *, batch_first: bool = True) -> None:
        """Let them take their steps from the charge.

        Raises:
            Refusal: for less noise, another clipping norm or other draws than the plan's, and for a model that mixes
                records.
        """
        plan, budget = self.run.assignment.training, self.run.budget
        if plan.unit != RECORD:
            raise Refusal("Opacus draws and clips records, and the plan's unit is the user")
        # Opacus computes the norm of all layers together in float32.
        if not isclose(optimiser.max_grad_norm, plan.clipping_norm, rel_tol=_FLOAT32):
            norms = f"{float(plan.clipping_norm)}, and the optimiser {float(optimiser.max_grad_norm)}"
            raise Refusal(f"the plan has the clipping norm {norms}: max_grad_norm must be the plan's")
        callbacks = (self._doubt, self._epoch, self._read, self._begin)
        terms = Terms(plan.sampling_probability, self._take, lambda: budget.lease, *callbacks)
        # In this mode the model within has other tensors in the place of its parameters while it runs.
        called = model if isinstance(model, GradSampleModuleExpandedWeights) else _plain(model)
        hold((_plain(model), called), optimiser, loader, terms, batch_first=batch_first)
        self._check(optimiser.noise_multiplier, loader.batch_sampler.sample_rate)

    def _epoch(self) -> None:
        """An epoch begins. Raises: Refusal, if batches were read that are not handed out: none is left behind."""
        if _loop_of(self.run).awaited(self.run):
            self.run.say(_AHEAD)
            raise Refusal(_AHEAD)

    def _read(self) -> None:
        """A batch is read: until it is handed out, the loop must go on."""
        loop = _loop_of(self.run)
        loop.ahead += 1
        loop.mark_watched(self.run)

    def _begin(self, draw: object) -> None:
        """A draw is handed out, so it is a step. Raises: Refusal, if the one before it was none."""
        loop = _loop_of(self.run)
        loop.ahead -= 1
        if loop.draw not in {None, draw}:
            self._doubt(_PASSED_OVER)
            raise Refusal(_PASSED_OVER)
        if _goes_on(self.run):
            # Else no step follows, whatever the loop sees.
            loop.draw = draw
        loop.mark_watched(self.run)

    def _take(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Take the step of the draw that was handed out. Raises: as :meth:`step`."""
        loop = _loop_of(self.run)
        try:
            self.step(noise_multiplier=noise_multiplier, sample_rate=sample_rate)
        except Refusal:
            # The run is over, by no choice of its loop: no draw gets a step.
            loop.draw = loop.draw if _goes_on(self.run) else None
            raise
        else:
            loop.draw = None
        finally:
            loop.mark_watched(self.run)

    def _doubt(self, why: str) -> None:
        """A pass over records was not what the plan describes: nothing is posted, and the charge stays in full."""
        # Of a run that leases its steps the error itself would leave with a post alone. It speaks of the model.
        self.run.say(why)
        loop = _loop_of(self.run)
        loop.doubted = True
        loop.mark_watched(self.run)

    def __len__(self) -> int:
        """Steps taken."""
        return self.run.budget.taken

    @classmethod
    def mechanism(cls) -> str:
        """The name it is registered by."""
        return NAME


def register(run: Run) -> str:
    """Let ``PrivacyEngine(accountant=NAME)`` take its steps from this run; the name.

    An engine gives its accountant neither its optimiser nor its loader, so from here on ``make_private`` of Opacus'
    engine is ours. For engines with another accountant it is as it was. If none of ours makes anything private,
    it is unknown what was done with the records: then nothing is posted, and the charge stays in full.

    Raises:
        Malformed: for what ``attach`` gives, and for a run that can be resumed.
    """
    accountant = _of(run)
    run.watched = False
    if not hasattr(PrivacyEngine.make_private, "held"):
        PrivacyEngine.make_private = _held(PrivacyEngine.make_private)
    register_accountant(NAME, accountant, force=True)
    return NAME


def _held(make: Callable[..., Private]) -> Callable[..., Private]:
    @wraps(make)
    def make_private(engine: PrivacyEngine, **options: Any) -> Private:  # noqa: ANN401 - Opacus's signature
        if not isinstance(engine.accountant, LedgerAccountant):
            return make(engine, **options)
        return engine.accountant.private(lambda **changed: make(engine, **changed), **options)

    marked: Any = make_private
    marked.held = True
    return make_private


def make_private(
    run: Run, model: nn.Module, optimiser: torch.optim.Optimizer, records: Dataset[Any]
) -> tuple[GradSampleModule, DPOptimizer, DPDataLoader]:
    """A model, an optimiser and a loader that are the plan's: its probability, noise, clipping and batch size.

    Raises:
        Refusal: for a model that mixes records. Malformed: as :func:`register`.
    """
    accountant = _of(run)()
    check_model(model)
    plan: Plan = run.assignment.training
    private = DPOptimizer(
        optimiser,
        generator=unseeded(next(model.parameters()).device),
        noise_multiplier=float_above(plan.noise_multiplier),
        max_grad_norm=float(plan.clipping_norm),
        expected_batch_size=plan.batch_size_expected,
    )
    loader = DPDataLoader(records, sample_rate=float_above(plan.sampling_probability))
    accountant.hold(model, private, loader)
    return GradSampleModule(model), private, loader


def _plain(model: nn.Module) -> nn.Module:
    """The model in Opacus' own around it, if it is one."""
    wrapped: nn.Module = model._module if isinstance(model, AbstractGradSampleModule) else model  # noqa: SLF001 - Opacus has no other way
    return wrapped


def _of(run: Run) -> type[LedgerAccountant]:
    if isinstance(run, ModelRun):
        raise Malformed("run", "is what attach gives, which has an engine of its own: pass a trainer_adapter.Run")
    if run.assignment.resume is not None:
        rule = "is for other runs: a process may have died of the batch that its loop had, and its steps would go on"
        raise Malformed("train.resume", rule)
    # Opacus makes an accountant by its name and no arguments: the run is known to the class.
    return type("RunAccountant", (LedgerAccountant,), {"run": run})


def _goes_on(run: Run) -> bool:
    """Whether a step may follow."""
    return run.budget.left > 0 and not run.budget.ended


def _loop_of(run: Run) -> _Loop:
    return _loops.setdefault(run, _Loop())


_FLOAT32: Final = 1e-6
"""How far off, of itself, what is computed in it may be."""
_PASSED_OVER: Final = "each batch that is handed out is a step, an empty one too: the one before had no step"
_AHEAD: Final = "workers have read batches of the epoch before: each is a step, so go on with that epoch to its end"
_loops: Final[WeakKeyDictionary[Run, _Loop]] = WeakKeyDictionary()
