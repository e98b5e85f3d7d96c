"""What a TDC writes: the loop stays theirs, and whatever they do in it the charge, the log and the post are right."""

from __future__ import annotations

import io
import json
import re
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec import structs
from safetensors import safe_open
from torch.nn.functional import cross_entropy

from api.demo import digits
from client.http.problems import Refused
from client.keys.data_encryption import encrypt
from ledger.accounting.epsilon_report import report_epsilon
from ledger.accounts.run_epsilon import ChargeEpsilon, RunEpsilon
from ledger.domain.outcomes import ChargeState
from ledger.mechanisms.plan import Plan
from ledger.wire.canonical_json import digest
from ledger.wire.exact_numbers import format_number
from ledger.wire.malformed import Malformed
from ledger.wire.records import write
from tests.trainer_adapter.live_service import PLAN, Place, open_place
from trainer_adapter.job.step_log import steps_begun
from trainer_adapter.run.charged_run import Run
from trainer_adapter.training.attach import attach
from trainer_adapter.training.model_file import tensors_bytes
from trainer_adapter.training.model_run import ModelRun
from trainer_adapter.training.run_options import Options
from trainer_adapter.training.training_records import read_records, read_users

ROOT = Path(__file__).parents[3]
QUIET = structs.replace(PLAN, noise_multiplier=Fraction(80))
"""For runs that are only counted: many of them fit."""
OF_USERS = structs.replace(PLAN, batch_size_expected=digits.RECORDS // 4, unit="user")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One service for the file; each test has a run of its own."""
    with open_place(tmp_path_factory.mktemp("attach") / "place") as found:
        yield found


def _attached(place: Place, name: str, plan: Plan = PLAN, options: Options | None = None) -> ModelRun:
    model = torch.nn.Linear(64, 10)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    assignment = place.assignment(name, plan)
    return attach(model, optimiser, cross_entropy, assignment, options or Options(service=place.service))


def _used(place: Place) -> dict[str, str]:
    """The share of each account under its cap, as the service shows it."""
    listed: Any = place.service.accounts(place.ref)["accounts"]
    return {one["holder"]: one["under_its_cap"]["used"] for one in listed}


def test_the_page_does_what_it_says(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lines of the first page, run as they stand: a plan told, steps taken, posted, a model that leaves."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(lines.strip().splitlines()) <= 14
    monkeypatch.chdir(place.folder)
    shutil.copy(place.assignment_file("page"), place.folder / "job.toml")
    text = (place.folder / "job.toml").read_text().replace("../", "")
    (place.folder / "job.toml").write_text(text)
    exec(compile(lines, "README.md", "exec"), {"__name__": "page"})  # noqa: S102 - our own page
    told = capsys.readouterr().out
    charge = place.charge("page")
    assert charge is not None
    assert (charge.state, charge.steps_posted) == (ChargeState.POSTED, PLAN.steps)
    assert told.startswith("The run would be charged ε ")
    assert "0 steps left" in told
    assert (place.folder / "runs" / "page" / "model.safetensors").exists()


def test_a_plan_records_nothing_and_foresees_the_account(place: Place) -> None:
    """The ε and the shares told before are those that the accounts show afterwards, and as many runs still fit."""
    run, size = _attached(place, "foreseen"), len(place.kinds())
    seen = run.plan()
    assert (seen.permitted, len(place.kinds())) == (True, size)
    with run:
        for _ in run:
            pass
    listed = place.service.accounts(place.ref)["accounts"]
    assert isinstance(listed, list)
    shown = {one["holder"]: one for one in listed if isinstance(one, dict)}
    by_holder = {one.holder: one for one in seen.accounts}
    assert {holder: one.used for holder, one in by_holder.items()} == _used(place)
    assert by_holder["global"].runs == shown["global"]["runs_like_the_last"]
    assert str(seen).startswith(f"The run would be charged {run.remaining().epsilon}.")


def test_a_plan_counts_what_a_decree_forgave(place: Place) -> None:
    """The global account counts without what was posted before the decree: a plan shows what a run then uses."""
    with _attached(place, "forgiven") as run:
        for _ in run:
            pass
    before = {one.holder: one.used for one in _attached(place, "before").plan().accounts}
    place.sro.submit("decree", {"holder": "global", "partition": place.ref, "reason": "an order of the court"})
    run = _attached(place, "after")
    seen = run.plan()
    with run:
        for _ in run:
            pass
    assert {one.holder: one.used for one in seen.accounts} == _used(place)
    changed = {holder for holder, used in before.items() if _used(place)[holder] != used}
    assert changed == {"global"}
    assert seen.more == min(one.runs for one in seen.accounts)


def test_a_plan_that_would_be_refused_says_why(place: Place) -> None:
    """Each reason with its code; nothing is recorded, and no step can be taken of it."""
    loud = Plan(Fraction(1, 2), Fraction(1), Fraction(1), 20, digits.RECORDS // 2)
    run, size = _attached(place, "loud", loud), len(place.kinds())
    seen = run.plan()
    assert not seen.permitted
    assert {"run_above_contract", "run_above_policy"} <= {reason.code for reason in seen.reasons}
    assert str(seen).startswith("The run would be refused:\n  run_above_")
    assert len(place.kinds()) == size


def test_entering_spends_nothing(place: Place) -> None:
    """A block that asks for no step leaves no entry and no folder."""
    size = len(place.kinds())
    with _attached(place, "idle") as run:
        with pytest.raises(Malformed, match="has not begun"):
            run.remaining()
        assert len(place.kinds()) == size
    assert len(place.kinds()) == size
    assert not (place.folder / "runs" / "idle").exists()


@pytest.mark.parametrize(("after", "leased"), [(1, 10), (7, 20), (10, 20), (1, 0), (7, 0), (10, 0)])
def test_a_loop_that_is_left_posts_the_steps_taken_or_leased(place: Place, after: int, leased: int) -> None:
    """Broken off by their own ``break``: the steps taken are posted, though the whole block was begun; or the leased.

    The second lease is asked for once half of the first is used up.
    """
    name = f"left-{after}-{leased}"
    model = torch.nn.Linear(64, 10)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    known = replace(place.assignment(name, QUIET), step_leases=None if leased else False)
    with attach(model, optimiser, cross_entropy, known, Options(service=place.service)) as run:
        for step in run:
            if step == after:
                break
    charge = place.charge(name)
    assert charge is not None
    assert charge.steps_posted == (leased or after)
    assert run.taken == after
    log = place.folder / "runs" / name / "steps.log"
    assert steps_begun(log, name, QUIET) == -(-after // 10) * 10


def test_what_is_released_is_what_was_posted(place: Place) -> None:
    """A model that is changed once its run is posted stays as it is: what leaves is as it was when the block ended."""
    with _attached(place, "changed", QUIET) as run:
        for _ in run:
            pass
    with torch.no_grad():
        for one in run.model.parameters():
            one.zero_()
    charge = place.charge("changed")
    assert charge is not None
    assert run.release() == charge.model == digest((place.folder / "runs/changed/model.safetensors").read_bytes())


def test_one_charge_has_one_model_without_leases_too(place: Place) -> None:
    """The post names it, and no other is released: neither what was made of it afterwards, nor another copy's."""
    model = torch.nn.Linear(64, 10)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    known = replace(place.assignment("unleased", QUIET), step_leases=False)
    with attach(model, optimiser, cross_entropy, known, Options(service=place.service)) as run:
        for _ in run:
            pass
    charge = place.charge("unleased")
    assert charge is not None
    assert (charge.leases, charge.model) == (None, digest(run.model_data))
    assert run.release_model(b"another") == ""
    with torch.no_grad():
        model.weight.zero_()
    assert run.release() == charge.model


def test_a_run_that_names_no_model_has_none(place: Place) -> None:
    """A loop of its own that leases its steps sets the model before its block ends, or none leaves in any form."""
    for name, data in (("unnamed", b""), ("named-later", b"model")):
        with Run(replace(place.assignment(name, QUIET), step_leases=True), place.service) as run:
            run.open_data()
            for step in run.begin():
                run.done(step)
            run.model_data = data
        said: list[str] = []
        run.say = said.append
        assert run.release_model(b"model") == (digest(b"model") if data else "")
        assert bool(data) == (place.folder / "runs" / name / "model.safetensors").exists()
        assert not (place.folder / "runs" / name / "model.sealed").exists()


def test_the_run_has_one_epsilon_from_its_plan_to_its_end(place: Place) -> None:
    """What is left shrinks step by step; the ε is the quote's before the run, at each step and of what was posted."""
    told, run = [], _attached(place, "shrinks")
    quoted = run.plan().lines
    with run:
        for step in run:
            left = run.remaining()
            told.append((left.steps, left.epsilon))
            if step == 7:
                break
    assert told == [(PLAN.steps - step, quoted[0]) for step in range(1, 8)]
    assert (run.privacy.run_epsilon, run.privacy.with_ancestry) == (quoted, ())
    exact = report_epsilon(PLAN.whole, quoted[0].delta, quoted[0].relation)
    assert (quoted[0].epsilon, quoted[0].accountant) == (exact.epsilon, exact.accountant)


def test_one_run_has_one_loop(place: Place) -> None:
    """Asked for steps a second time, it refuses: one clean room, one run."""
    with _attached(place, "twice") as run:
        for _ in run:
            break
        with pytest.raises(Malformed, match="one clean room, one run"):
            next(iter(run))


def test_a_step_that_fails_quotes_no_record(place: Place) -> None:
    """What fails inside a step is told by its number and kind alone; what began is posted."""
    model, taken = torch.nn.Linear(64, 10), list[int]()

    def fail(*_: object) -> None:
        if len(taken) == 2:
            message = "Mrs Rao, 47"
            raise ValueError(message)

    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    optimiser.register_step_pre_hook(fail)

    def trained() -> None:
        with attach(model, optimiser, cross_entropy, place.assignment("quotes"), Options(service=place.service)) as run:
            for step in run:
                taken.append(step)

    with pytest.raises(Malformed, match=r"^step: 3 failed \(ValueError\)") as caught:
        trained()
    assert "Rao" not in str(caught.value)
    assert caught.value.__cause__ is None
    charge = place.charge("quotes")
    assert charge is not None
    assert charge.steps_posted == 10


@pytest.mark.parametrize("example", [None, (torch.zeros(2, 64), torch.zeros(2, dtype=torch.int64))])
def test_a_model_is_checked_before_anything_is_charged(
    place: Place, example: tuple[torch.Tensor, torch.Tensor] | None
) -> None:
    """A model that mixes records is refused while nothing is spent, with a public example and without."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 10), torch.nn.BatchNorm1d(10)).eval()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    options = Options(service=place.service, example=example)
    size = len(place.kinds())
    with (
        pytest.raises(Malformed, match=r"^model"),
        attach(model, optimiser, cross_entropy, place.assignment("mixing"), options) as run,
    ):
        next(iter(run))
    assert len(place.kinds()) == size
    assert not (place.folder / "runs" / "mixing").exists()


def test_a_weight_replaced_in_the_loop_ends_the_run_in_words(place: Place) -> None:
    """Named before the next step begins; what ran is posted."""
    with pytest.raises(Malformed, match=r"^model\.weight: was added, removed or"), _attached(place, "replaced") as run:
        _train_and_replace(run)
    charge = place.charge("replaced")
    assert charge is not None
    assert (charge.state, charge.steps_posted) == (ChargeState.POSTED, 10)


def _train_and_replace(run: ModelRun) -> None:
    for step in run:
        if step == 3:
            run.model.weight = torch.nn.Parameter(torch.zeros(10, 64))


def test_what_a_model_costs_is_reported_before_the_charge(place: Place) -> None:
    """With an example: once, and before anything is sent."""
    lines: list[str] = []
    model = torch.nn.Linear(64, 10)
    example = (torch.zeros(2, 64), torch.zeros(2, dtype=torch.int64))
    options = Options(service=place.service, say=lines.append, example=example)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    with attach(model, optimiser, cross_entropy, place.assignment("reported"), options) as run:
        next(iter(run))
    (first,) = [at for at, line in enumerate(lines) if line.startswith("rounding takes at most 0.01 % of a gradient")]
    (charged,) = [at for at, line in enumerate(lines) if line.startswith("charge reported is ")]
    assert first < charged


def test_the_released_model_names_what_it_cost(place: Place) -> None:
    """Charge, contract, plan, steps, ε, δ and accountant stand in its metadata, with the numbers told."""
    with _attached(place, "named") as run:
        for step in run:
            if step == 10:
                break
    assert run.release()
    with safe_open(place.folder / "runs" / "named" / "model.safetensors", framework="pt") as file:
        about = file.metadata()
    (told,) = run.privacy.run_epsilon
    assert told.epsilon is not None
    assert about == {
        "accountant": "PLD",
        "charge": "named",
        "contract": place.contract,
        "delta": "0.0001",
        "epsilon": format_number(told.epsilon),
        "partition": place.ref,
        "plan": PLAN.digest,
        "relation": told.relation,
        "run_epsilon": write((told,)).decode(),
        "steps": "10",
        "unit": "record",
    }


def test_the_file_of_a_model_with_ancestry_names_where_its_greatest_bound_is(place: Place) -> None:
    """Its own run's greatest ε and that of all runs together, each with the partition that it is of."""
    lines = [
        RunEpsilon("PLD", Fraction(1, 10**5), epsilon, ref, "REPLACE_SPECIAL", runs, "record")
        for ref, epsilon, runs in (
            (f"{place.ref}-own", Fraction(2), 1),
            (f"{place.ref}-low", Fraction(1), 1),
            (f"{place.ref}-high", Fraction(7, 2), 3),
            (f"{place.ref}-none", None, 3),
        )
    ]
    for ancestry, epsilon, ref in ((lines[:3], "3.5", lines[2].partition), (lines, "infinite", lines[3].partition)):
        privacy = ChargeEpsilon("named", (lines[1], lines[0]), tuple(ancestry))
        data = tensors_bytes({"weight": torch.zeros(1)}, place.assignment("named"), 1, privacy)
        about = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
        assert (about["epsilon"], about["partition"]) == ("2", lines[0].partition)
        assert (about["epsilon_with_ancestry"], about["partition_with_ancestry"]) == (epsilon, ref)


def test_data_of_a_second_partition_are_not_opened_with_another_key(place: Place) -> None:
    """What does not open with the released key ends the run before its first noise, and no step is posted."""
    kept = place.sealed.read_bytes()
    place.sealed.write_bytes(encrypt(bytes(32), place.ref, digits.archive(digits.FIRST)))
    try:
        with pytest.raises(Malformed), _attached(place, "sealed-else") as run:
            next(iter(run))
    finally:
        place.sealed.write_bytes(kept)
    charge = place.charge("sealed-else")
    assert charge is not None
    assert (charge.state, charge.steps_posted) == (ChargeState.POSTED, 0)


def test_a_last_state_that_cannot_be_kept_posts_all_that_was_begun(place: Place) -> None:
    """A folder in its place: the fault is told, the signals are the system's again, and the charge is not left open."""
    extra = '\n[train.resume]\nkey = "../keys/unkept.room"\nevery_s = 0\n'
    model, before = torch.nn.Linear(64, 10), signal.getsignal(signal.SIGTERM)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    assignment = place.assignment("unkept", extra=extra)

    def left_after_one_step() -> None:
        with attach(model, optimiser, cross_entropy, assignment, Options(service=place.service)) as run:
            next(iter(run))
            (assignment.output / "run.state").mkdir()

    with pytest.raises(OSError, match=r"run\.state"):
        left_after_one_step()
    charge = place.charge("unkept")
    assert charge is not None
    assert charge.steps_posted == 10
    assert signal.getsignal(signal.SIGTERM) == before


def test_users_are_the_units_where_the_partition_says_so(place: Place, tmp_path: Path) -> None:
    """Whose each record is stands in the archive; without it the run ends before its first noise."""
    size = len(place.kinds())
    for plan, bound in ((PLAN, 2), (OF_USERS, None)):
        options = Options(service=place.service, records_per_user_max=bound)
        with pytest.raises(Malformed, match="must be given where the plan's unit is the user"):
            next(iter(_attached(place, "records", plan, options)))
    # One record may move a user's clipped sum by twice the clipping norm.
    with pytest.raises(Refused, match="no price holds where the partition's unit is the record"):
        next(iter(_attached(place, "of-records", OF_USERS, Options(service=place.service, records_per_user_max=2))))
    assert len(place.kinds()) == size
    with open_place(tmp_path / "place", unit="user") as of_users:
        options = Options(service=of_users.service, records_per_user_max=2)
        with pytest.raises(Malformed, match="users"), _attached(of_users, "no-users", OF_USERS, options) as run:
            next(iter(run))
        inputs, targets = read_records(digits.archive(digits.FIRST), "digits")
        held = {"inputs": inputs.numpy(), "targets": targets.numpy(), "users": np.arange(len(targets)) // 2}
        of_users.put(**held)
        with _attached(of_users, "users", OF_USERS, options) as run:
            assert next(iter(run)) == 1
        charge = of_users.charge("users")
        assert charge is not None
        # Its first lease.
        assert charge.steps_posted == 10


def test_nothing_is_given_out_once_it_is_posted(place: Place) -> None:
    """Not the rest of a begun block either, to whoever kept the loop or asks for gradients."""
    with _attached(place, "posted") as run:
        steps = iter(run)
        assert [next(steps), next(steps), next(steps)] == [1, 2, 3]
    weight = run.model.weight.detach().clone()  # type: ignore[operator] # of a linear layer
    assert run.gradients() is None
    assert list(steps) == []
    assert torch.equal(weight, run.model.weight)  # type: ignore[arg-type] # the same
    charge = place.charge("posted")
    assert charge is not None
    # Its first lease.
    assert charge.steps_posted == 10


def test_one_label_of_no_class_is_told_by_nothing(place: Place) -> None:
    """Such a record adds nothing, and the run ends as without it."""
    inputs, targets = read_records(digits.archive(digits.FIRST), "digits")
    targets[7] = 4747
    kept = place.sealed.read_bytes()
    place.put(inputs=inputs.numpy(), targets=targets.numpy())
    try:
        with _attached(place, "label") as run:
            taken = list(run)
    finally:
        place.sealed.write_bytes(kept)
    assert taken == list(range(1, PLAN.steps + 1))
    assert all(bool(one.isfinite().all()) for one in run.model.parameters())


def test_a_step_that_breaks_after_its_update_is_told_of_the_model(place: Place) -> None:
    """What leaves names every step that the weights may have seen."""
    model, taken = torch.nn.Linear(64, 10), list[int]()

    def fail(*_: object) -> None:
        if len(taken) == 10:
            raise ArithmeticError

    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    optimiser.register_step_post_hook(fail)
    run = attach(model, optimiser, cross_entropy, place.assignment("breaks"), Options(service=place.service))
    with pytest.raises(Malformed, match="step: 11 failed"), run:
        taken.extend(run)
    assert (len(taken), run.taken) == (10, 11)


def test_users_of_two_partitions_are_never_one() -> None:
    """Their numbers are each archive's own, and what is no whole number is nobody."""

    def archive(users: list[int] | list[float]) -> bytes:
        file = io.BytesIO()
        np.savez(file, users=np.array(users))
        return file.getvalue()

    numbered = read_users({"a": archive([7, -3, 7]), "b": archive([7, 7])})
    assert [(numbered == one).sum().item() for one in numbered] == [2, 1, 2, 2, 2]
    with pytest.raises(Malformed, match=r"^b: must hold one integer"):
        read_users({"a": archive([1]), "b": archive([1.5])})
