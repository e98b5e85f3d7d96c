"""Opacus under a charge: its engine draws, clips and adds noise, the ledger says how often.

    with ChargedRun(assignment) as run:
        records = run.open()
        engine = PrivacyEngine(accountant=register(run))
        module, optimiser, loader = engine.make_private(..., noise_generator=unseeded())

Each step is taken from the charge after the noise is drawn and before the weights change: if there is none left, or
the step is another than the plan's, the noisy gradient is thrown away and :class:`Refusal` ends the loop. The noise is
Opacus's, from PyTorch's statistical generator, not ours from a cryptographic one; an optimiser without a generator of
its own is refused, since two runs after one ``torch.manual_seed`` would have the same noise.

What this cannot see is how a batch was drawn: with ``poisson_sampling=False`` Opacus reports the same sampling rate.
:func:`make_private` draws by the plan, divides by its public batch size, and keeps the accountant's hook when another
is attached.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final

import torch
from opacus import GradSampleModule
from opacus.accountants import IAccountant, register_accountant
from opacus.data_loader import DPDataLoader
from opacus.optimizers import DPOptimizer
from torch import nn
from torch.utils.data import Dataset

from ledger.plan import Plan
from trainer_adapter.charged_run import ChargedRun
from trainer_adapter.engine import float_above, float_below

NAME: Final = "ledger"
Hook = Callable[[DPOptimizer], None]


class Refusal(RuntimeError):  # noqa: N818 - what it is
    """No step was left, or it was another than the one that was charged; the weights are as they were."""


class LedgerAccountant(IAccountant):  # type: ignore[misc] # Opacus brings no types
    """Takes each step of Opacus from a charge."""

    run: ChargedRun

    def __init__(self) -> None:
        """Nothing taken yet; :func:`register` makes the class that knows its run."""
        super().__init__()
        self.history: list[tuple[float, float, int]] = []

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Take one step. Raises: Refusal; OSError, if its block cannot be made durable."""
        plan = self.run.assignment.plan
        if Fraction(noise_multiplier) < plan.noise_multiplier or Fraction(sample_rate) > plan.sampling_probability:
            raise Refusal(
                f"the plan has noise {float(plan.noise_multiplier)} at sampling probability "
                f"{float(plan.sampling_probability)}, and this step noise {noise_multiplier} at {sample_rate}"
            )
        taken = self.run.steps.take()
        if taken is None:
            raise Refusal(self.run.steps.ended or f"all {plan.steps} steps that were charged are taken")
        self.history = [(noise_multiplier, sample_rate, taken)]
        self.run.done(taken)

    def get_epsilon(self, delta: float, *_: Any, **__: Any) -> float:  # noqa: ANN401 - Opacus's signature
        """The loss of all begun blocks, by the ledger's odometer. Raises: ValueError, for a δ below the partition's."""
        spent = self.run.spent(self.run.steps.begun)
        if Fraction(delta) < spent.delta:
            raise ValueError(f"the partition's δ is {float(spent.delta)}: no ε is told for a smaller one")
        return float("inf") if spent.epsilon is None else float_above(spent.epsilon)

    def get_optimizer_hook_fn(self, sample_rate: float) -> Hook:
        """The hook that takes a step, and throws the noisy gradient away if there is none."""
        take: Hook = super().get_optimizer_hook_fn(sample_rate)

        def hook(optimiser: DPOptimizer) -> None:
            try:
                _check_generator(optimiser)
                take(optimiser)
            except BaseException:
                # The gradients hold noise that nobody paid for.
                optimiser.zero_grad(set_to_none=True)
                raise

        return hook

    def __len__(self) -> int:
        """Steps taken."""
        return self.run.steps.taken

    @classmethod
    def mechanism(cls) -> str:
        """The name it is registered by."""
        return NAME


def register(run: ChargedRun) -> str:
    """Let ``PrivacyEngine(accountant=NAME)`` take its steps from this run; the name."""
    register_accountant(NAME, _of(run), force=True)
    return NAME


def chain(optimiser: DPOptimizer, hook: Hook) -> None:
    """Attach a hook after those that are there: ``attach_step_hook`` puts it in their place, the accountant's too."""
    before = optimiser.step_hook

    def both(stepped: DPOptimizer) -> None:
        if before is not None:
            before(stepped)
        hook(stepped)

    optimiser.step_hook = both


def make_private(
    run: ChargedRun, model: nn.Module, optimiser: torch.optim.Optimizer, records: Dataset[Any]
) -> tuple[GradSampleModule, DPOptimizer, DPDataLoader]:
    """A model, an optimiser and a loader that are the plan's: its probability, noise, clipping and batch size.

    Attaching another step hook to the optimiser then adds to the accountant's, instead of replacing it.
    """
    plan: Plan = run.assignment.plan
    private = _FiniteOptimizer(
        optimiser,
        generator=unseeded(next(model.parameters()).device),
        noise_multiplier=float_above(plan.noise_multiplier),
        max_grad_norm=float(plan.clipping_norm),
        expected_batch_size=plan.batch_size_expected,
    )
    rate = float_below(plan.sampling_probability)
    private.step_hook = _of(run)().get_optimizer_hook_fn(rate)
    private.attach_step_hook = lambda hook: chain(private, hook)
    loader = DPDataLoader(records, sample_rate=rate, generator=unseeded())
    return GradSampleModule(model), private, loader


def unseeded(device: torch.device | str = "cpu") -> torch.Generator:
    """A generator of PyTorch's whose seed comes from the operating system, and is nobody's."""
    return torch.Generator(device).manual_seed(secrets.randbits(63))


def _check_generator(optimiser: DPOptimizer) -> None:
    if optimiser.generator is None:
        raise Refusal("the noise comes from PyTorch's one generator: pass noise_generator=unseeded()")


class _FiniteOptimizer(DPOptimizer):  # type: ignore[misc] # Opacus brings no types
    """One record whose gradient is not finite adds nothing, where it would make every weight NaN."""

    def clip_and_accumulate(self) -> None:
        samples = self.grad_samples
        finite = torch.stack([one.flatten(1).isfinite().all(dim=1) for one in samples]).all(dim=0)
        for one in samples:
            one[~finite] = 0
        super().clip_and_accumulate()


def _of(run: ChargedRun) -> type[LedgerAccountant]:
    # Opacus makes an accountant by its name and no arguments: the run is known to the class.
    return type("RunAccountant", (LedgerAccountant,), {"run": run})
