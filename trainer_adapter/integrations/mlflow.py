"""MLflow for a charged run: what is public is logged by its name on a list, and nothing else leaves.

Training loss, accuracy on governed data, gradient norms and batch sizes are private: they were computed from records
and no noise covers them. A name that is not on the list is refused before anything is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mlflow import MlflowClient

from ledger.wire.exact_numbers import format_number
from ledger.wire.malformed import Malformed
from trainer_adapter.run.charged_run import Run

PUBLIC: Final = frozenset({"public/accuracy", "public/auc", "public/loss"})
"""Metrics that may be given: measured on public records alone, which the caller vouches for."""


class PublicLog:
    """One MLflow run for one charged run."""

    def __init__(self, run: Run, client: MlflowClient, mlflow_run: str) -> None:
        """Log to the MLflow run of this id."""
        self._run, self._client, self._id = run, client, mlflow_run

    def begin(self) -> None:
        """Name the charge and the plan, once they may leave. After the run is open. Raises: Malformed."""
        assignment, plan = self._run.assignment, self._run.assignment.training
        figure = self._run.privacy.epsilon
        named = {
            "dp/accountant": figure.accountant,
            "dp/batch_size_expected": str(plan.batch_size_expected),
            "dp/charge": assignment.id,
            "dp/clipping_norm": format_number(plan.clipping_norm),
            "dp/contract": assignment.contract,
            "dp/delta": format_number(figure.delta),
            "dp/epsilon_charged": "infinite" if figure.epsilon is None else format_number(figure.epsilon),
            "dp/epsilon_partition": figure.partition,
            "dp/noise_multiplier": format_number(plan.noise_multiplier),
            "dp/partitions": " ".join(assignment.data)[:6_000],
            "dp/plan": plan.digest,
            "dp/relation": figure.relation,
            "dp/sampling_probability": format_number(plan.sampling_probability),
            "dp/steps": str(plan.steps),
            "dp/unit": figure.unit,
        }
        self._run.output.put({"parameters": {**named}}, lambda: self._name(named))

    def step(self, step: int, metrics: Mapping[str, float] | None = None) -> None:
        """Log the ε of the whole run, the same at each step, and metrics of public records, once they may leave.

        Raises:
            Malformed: for a metric that is not on the list; then nothing is logged.
        """
        private = sorted(set(metrics or {}) - PUBLIC)
        if private:
            raise Malformed(private[0], f"is not among what may leave a clean room: {', '.join(sorted(PUBLIC))}")
        logged = {**(metrics or {}), "dp/epsilon": float(self._run.privacy.epsilon)}
        texts = {name: repr(value) for name, value in logged.items()}
        self._run.output.put({"metrics": {**texts}, "step": step}, lambda: self._log(step, logged))

    def _name(self, named: Mapping[str, str]) -> None:
        for name, value in named.items():
            self._client.log_param(self._id, name, value)

    def _log(self, step: int, logged: Mapping[str, float]) -> None:
        for name, value in logged.items():
            self._client.log_metric(self._id, name, value, step=step)
