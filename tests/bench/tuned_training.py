"""Tuning at a total of ε 3 beside the untuned default at ε 3: ``python -m tests.bench.tuned_training adult``.

Each seed has two services with a book, a provider and a consumer of their own: in one `epsilon train` runs the job of
docs/jobs.md as it is there (its model, rate, momentum, batch, clipping norm and steps), in the other `epsilon tune`
draws from a space around it, at the law of docs/tuning.md. Trials are judged on public records; what leaves is measured
on others, which no one has seen. One JSON object a seed. Adult is read by public bounds; MNIST by 256 directions of
scattering coefficients, which the public pictures gave.
"""

from __future__ import annotations

import argparse
import io
import tempfile
import time
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from api.demo import participants
from api.keys.data_key_store import FileKeyStore
from client.keys.data_encryption import encrypt
from ledger.accounting.calibration import least_noise
from ledger.mechanisms.plan import Plan
from ledger.mechanisms.tuning import POISSON, Trials, TuningPlan, tuning_mechanism
from ledger.wire.exact_numbers import format_number
from tests.bench import adult
from tests.bench.accuracy import write
from tests.bench.pate_student import PUBLIC, Pictures
from tests.trainer_adapter.live_service import Place, open_place
from trainer_adapter.cli.train import train_job
from trainer_adapter.cli.tune import tune_job
from trainer_adapter.job.job_spec import Job
from trainer_adapter.session.noise_choice import load_job
from trainer_adapter.tuning.tuning_run import Clock

SEEDS: Final = 5
EPSILON: Final = Fraction(3)
DELTA: Final = Fraction(1, 100_000)
BUDGET: Final = "20"
"""Of a partition: more than one run, since its rule counts otherwise than a run's own ε is computed."""
STEPS: Final = 200
BATCH_MOST: Final = 1_024
TRIALS: Final = Trials(POISSON, Fraction(10), 34)
JUDGES: Final = 8_000
"""Of Adult's test records; the others measure."""
DEFAULT: Final = """
[train.privacy]
epsilon = "3"
batch_size_expected = 128
clipping_norm = "1"
steps = 200
"""
SPACE: Final = """
[train.tuning]
trial_s = 60

[train.tuning.space]
learning_rate = ["0.25", "0.5", "1", "2", "4"]
momentum = ["0", "0.5", "0.9"]
clipping_norm = ["0.25", "0.5", "1", "2"]
batch_size_expected = [128, 256, 512, 1024]
"""
JOB: Final = """v = 1

[train]
id = "{name}"
service = "{service}"
issuer = "{issuer}"
log = "{log}"
actor = "{actor}"
key = "../keys/{slug}.pem"
contract = "{contract}"
deadline_s = 36000
block_steps = 50
lease_s = 0
model = "linear"
outputs = {classes}
learning_rate = "0.5"
momentum = "0.5"
test = "../data/test.npz"
output = "../runs/{name}"

[train.attester]
issuer = "{attester}"
key = "../keys/attester.pem"

[train.data]
"{partition}" = "../data/governed.sealed"
"""
Arrays = tuple[NDArray[np.float32], NDArray[np.int64]]


@dataclass(frozen=True)
class Data:
    """Governed records, public ones that judge trials, and those that measure: inputs (records, numbers), classes."""

    governed: Arrays
    judges: Arrays
    measures: Arrays

    @classmethod
    def load(cls, name: str) -> Data:
        """``adult`` or ``mnist``. Raises: Malformed; OSError."""
        if name == "mnist":
            pictures = Pictures.load()
            train, test = pictures.train.numpy(), pictures.test.numpy()
            governed, answers, half = (train, pictures.targets.numpy()), pictures.answers, PUBLIC
        else:
            train, incomes = adult.load("data")
            test, others = adult.load("test")
            governed, answers, half = (train, incomes.astype(np.int64)), others.astype(np.int64), JUDGES
        return cls(governed, (test[:half], answers[:half]), (test[half:], answers[half:]))


def tuning_plan(records: int) -> TuningPlan:
    """Trials of the most records a step, with the least noise that keeps ε for all of them."""
    probability = Fraction(BATCH_MOST, records)

    def training(noise: int) -> Plan:
        return Plan(probability, Fraction(noise, 10_000), Fraction(2), STEPS, BATCH_MOST)

    least = least_noise(
        lambda noise: tuning_mechanism(TRIALS, training(noise).whole), EPSILON, DELTA, participants.RELATION
    )
    assert least is not None
    return TuningPlan(training(int(least * 10_000)), TRIALS)


def plan_text(plan: TuningPlan) -> str:
    """As a job states it."""
    training = plan.training
    return f"""
[train.plan]
kind = "tuning"
v = 1

[train.plan.trials]
law = "{plan.trials.law}"
mean = "{format_number(plan.trials.mean)}"
most = {plan.trials.most}

[train.plan.training]
batch_size_expected = {training.batch_size_expected}
clipping_norm = "{format_number(training.clipping_norm)}"
kind = "dp_sgd"
noise_multiplier = "{format_number(training.noise_multiplier)}"
steps = {training.steps}
v = 1

[train.plan.training.sampler]
kind = "poisson"
probability = "{format_number(training.sampling_probability)}"
"""


def archive(arrays: Arrays) -> bytes:
    """A NumPy archive of inputs and targets."""
    file = io.BytesIO()
    np.savez(file, inputs=arrays[0], targets=arrays[1])
    return file.getvalue()


def furnish(place: Place, data: Data, name: str, text: str) -> Job:
    """A partition of these records, a contract for runs of ε 3 at most, and the job."""
    slot, tdp, bank = f"bench-{name}", place.tdp, place.bank
    key = FileKeyStore(place.folder / "data-keys").create(tdp.did, f"{participants.DATASET}-{slot}").reveal()
    terms = participants.partition(tdp, slot, len(data.governed[0]))
    tdp.submit("partition", {**terms, "delta": format_number(DELTA), "epsilon": BUDGET})
    agreed = participants.contract(tdp, bank, place.clock() // 1000 * 1000)
    contract, _ = bank.enter("contract", {**agreed, "id": slot, "run": {"epsilon_max": format_number(EPSILON)}}, tdp)
    ref = f"{tdp.did}/{participants.DATASET}/{slot}"
    (place.folder / "data" / "governed.sealed").write_bytes(encrypt(key, ref, archive(data.governed)))
    (place.folder / "data" / "test.npz").write_bytes(archive(data.judges))
    address, path = place.address, place.folder / "jobs" / f"{name}.toml"
    known = {"issuer": address.issuer, "log": address.log.vkey, "service": address.service, "slug": bank.slug}
    own: dict[str, Any] = {
        "actor": bank.did,
        "attester": participants.ATTESTER,
        "classes": int(data.judges[1].max()) + 1,
        "contract": contract,
        "name": name,
        "partition": ref,
    }
    path.write_text(JOB.format(**known, **own) + text)
    return load_job(path)


def measured(model: Path, data: Data) -> float:
    """Per cent of the last records that a released linear model gets right."""
    weights = load_file(model)
    (weight,), (bias,) = ([value for value in weights.values() if value.dim() == size] for size in (2, 1))
    found = (torch.from_numpy(data.measures[0]) @ weight.T + bias).argmax(dim=1).numpy()
    return round(float((found == data.measures[1]).mean()) * 100, 2)


def run(data: Data, name: str, text: str) -> dict[str, Any]:
    """One charged run and what left: ``default``, or ``tuned``."""
    started, epsilon = time.process_time(), format_number(EPSILON)
    most: dict[str, Any] = {
        "budget": {"delta_max": "0.0001", "epsilon_max": BUDGET},
        "lineage": {"epsilon_max": BUDGET},
        "run": {"epsilon_max": epsilon},
    }
    mechanisms: list[Any] = ["poisson_gaussian", "repeat_and_select"]
    ahead = [0.0]

    def wait(seconds: float) -> None:
        ahead[0] += seconds

    clock = Clock(lambda: time.monotonic() + ahead[0], wait)
    with (
        tempfile.TemporaryDirectory() as folder,
        open_place(Path(folder) / "place", mechanisms=mechanisms, **most) as place,
    ):
        job = furnish(place, data, name, text)
        tuned = "tuning" in text
        report: Any = (
            tune_job(job, place.service, lambda _: None, clock=clock)
            if tuned
            else train_job(job, place.service, lambda _: None)
        )
        known = report.to_json()
        return {
            f"{name}_accuracy": measured(place.folder / "runs" / name / "model.safetensors", data),
            f"{name}_epsilon": known["epsilon"],
            f"{name}_processor_s": round(time.process_time() - started),
            **({"point": known["point"]} if tuned else {}),
        }


def pair(data: Data, plan: TuningPlan) -> dict[str, Any]:
    """One world: the untuned default, and the best of the trials."""
    return run(data, "default", DEFAULT) | run(data, "tuned", SPACE + plan_text(plan))


def main() -> None:
    """Write both accuracies of each seed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.tuned_training")
    parser.add_argument("data", choices=["adult", "mnist"])
    parser.add_argument("--seeds", type=int, default=SEEDS, help="worlds; their chance is the operating system's")
    parser.add_argument("--into", type=Path, default=Path("/dev/stdout"), help="JSON lines")
    given = parser.parse_args()
    data = Data.load(given.data)
    plan = tuning_plan(len(data.governed[0]))
    for world in range(given.seeds):
        write(given.into, {"data": given.data, "world": world, **pair(data, plan)})


if __name__ == "__main__":
    main()
