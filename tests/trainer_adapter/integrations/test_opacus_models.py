"""Models of Opacus under a charge: one that mixes records is refused, by the name of the module that does."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import pytest
import torch
from opacus import PrivacyEngine
from opacus.layers import DPLSTM
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from ledger.domain.outcomes import ChargeState
from ledger.wire.malformed import Malformed
from tests.trainer_adapter.integrations.opacus_bench import PLAN, WARNINGS, Bench, bench_of, posted_steps
from tests.trainer_adapter.layer_models import Does
from tests.trainer_adapter.live_service import Place, open_place
from trainer_adapter.integrations import opacus
from trainer_adapter.integrations.opacus import Refusal, register

pytestmark = WARNINGS
Make: TypeAlias = Callable[[], nn.Module]
Pass: TypeAlias = Callable[[nn.Module, Tensor], Tensor]
MIXED: Final = "lets one record change the output of another"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One service for the file; each test has a run of its own."""
    with open_place(tmp_path_factory.mktemp("opacus") / "place") as found:
        yield found


def _private(bench: Bench, by: str, model: nn.Module, **requested: Any) -> nn.Module:  # noqa: ANN401 - Opacus's own
    """What the loop calls; optimiser and loader are the bench's from then on."""
    stepped = torch.optim.SGD(model.parameters(), lr=0.3)
    if by == "ours":
        made: Any = opacus.make_private(bench.run, model, stepped, bench.records)
    else:
        made = PrivacyEngine(accountant=register(bench.run)).make_private(
            module=model,
            optimizer=stepped,
            data_loader=DataLoader(bench.records, batch_size=350),
            **{"noise_multiplier": 8.0, "max_grad_norm": 1.0, **requested},
        )
    bench.optimiser, bench.loader = made[1:]
    return made[0] if isinstance(made[0], nn.Module) else model


def _step(bench: Bench, called: nn.Module, make_pass: Pass) -> None:
    inputs, targets = next(iter(bench.loader))
    bench.optimiser.zero_grad()
    cross_entropy(make_pass(called, inputs), targets).backward()
    bench.optimiser.step()


def _whole(called: nn.Module, inputs: Tensor) -> Tensor:
    given: Tensor = called(inputs)
    return given


def _pictures(called: nn.Module, inputs: Tensor) -> Tensor:
    return _whole(called, inputs.view(-1, 1, 8, 8))


def _around(mixing: nn.Module) -> Make:
    return lambda: nn.Sequential(nn.Linear(64, 16), mixing, nn.Tanh(), nn.Linear(16, 10))


class _Takes(nn.Module):
    """Its parts, and what is done with them and more than one input."""

    def __init__(self, body: Callable[..., Tensor], **parts: object) -> None:
        super().__init__()
        self.body = body
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *given: Any) -> Tensor:  # noqa: ANN401 - whatever the loop passes
        """Whatever it was given to do."""
        return self.body(self, *given)


def _centred() -> nn.Module:
    return Does(lambda _, x: x - x.mean(0))


def _convolution(mixing: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), mixing, nn.Linear(144, 10))


SEEN: Final[dict[str, tuple[Make, str]]] = {
    "trained statistics": (_around(nn.BatchNorm1d(16)), r"model\.1: is a batch normalisation, which mixes records"),
    "bare statistics": (
        _around(nn.BatchNorm1d(16, affine=False, track_running_stats=False)),
        r"model\.1: is a batch normalisation, which mixes records",
    ),
    "kept statistics": (
        _around(nn.InstanceNorm1d(16, track_running_stats=True)),
        r"model\.1: keeps running statistics of records",
    ),
    "mean of a batch": (_around(_centred()), rf"model\.1: {MIXED}"),
    "other order": (_around(Does(lambda _, x: x.flip(0))), rf"model\.1: {MIXED}"),
    "in the model's own code": (lambda: Does(lambda m, x: m.o(x / x.norm()), o=nn.Linear(64, 10)), f"model: {MIXED}"),
}


@pytest.mark.parametrize("by", ["ours", "engine"])
@pytest.mark.parametrize("name", SEEN)
def test_a_model_that_mixes_records_is_refused_before_a_step(place: Place, name: str, by: str) -> None:
    """Opacus' own validator accepts most of these; one record would move the sum by many times the clipping norm."""
    make, match = SEEN[name]
    run = f"{name}-{by}".replace(" ", "-").replace("'", "")
    with bench_of(place, run) as bench:
        with pytest.raises(Refusal, match=f"^{match}"):
            _private(bench, by, make())
        assert bench.run.budget.taken == 0
    assert posted_steps(place, run) == 0


MODES: Final[dict[str, dict[str, Any]]] = {
    "hooks": {},
    "functorch": {"grad_sample_mode": "functorch"},
    "ew": {"grad_sample_mode": "ew"},
    "unwrapped": {"wrap_model": False},
}


@pytest.mark.parametrize("mode", MODES)
def test_what_only_a_pass_shows_is_refused_before_its_step(place: Place, mode: str) -> None:
    """The loop makes pictures of its records, which no one else knows: the first pass ends the run, in each mode.

    It saw records, so nothing is posted and the charge stays in full, also for a model that is made private next.
    """
    with bench_of(place, f"pass-{mode}") as bench:
        model = _convolution(_centred())
        called = _private(bench, "engine", model, **MODES[mode])
        with pytest.raises(Refusal, match=rf"^model\.2: {MIXED}"):
            _step(bench, called, _pictures)
        assert bench.run.budget.taken == 0
        assert all(one.grad is None for one in model.parameters())
        _private(bench, "engine", nn.Linear(64, 10))
    charge = place.charge(f"pass-{mode}")
    assert charge is not None
    assert charge.state is ChargeState.PENDING


def test_why_a_leased_run_ends_is_said(place: Place) -> None:
    """Its error does not leave without a post; the line that names the module does."""
    told = list[str]()

    def run() -> None:
        with bench_of(place, "leased", step_leases=True) as bench:
            bench.run.say = told.append
            _step(bench, _private(bench, "ours", _convolution(_centred())), _pictures)

    with pytest.raises(Malformed, match="the ledger has no post of it"):
        run()
    assert f"model.2: {MIXED}" in told


@pytest.mark.parametrize("mode", MODES)
def test_a_model_that_keeps_records_apart_trains_in_each_mode(place: Place, mode: str) -> None:
    """With dropout and randomness of its own, whose draws are no record's doing."""
    with bench_of(place, f"apart-{mode}") as bench:
        apart = nn.Dropout(0.2) if mode == "ew" else Does(lambda _, x: nn.functional.dropout(x) + torch.randn_like(x))
        called = _private(bench, "engine", _convolution(apart), **MODES[mode])
        for _ in range(PLAN.steps):
            _step(bench, called, _pictures)
    assert posted_steps(place, f"apart-{mode}") == PLAN.steps


def test_a_normalisation_that_begins_to_train_is_refused(place: Place) -> None:
    """In evaluation mode its statistics are public; put into training mode between two steps, they are not."""
    with bench_of(place, "begins") as bench:
        model = nn.Sequential(nn.Linear(64, 16), nn.BatchNorm1d(16, affine=False).eval(), nn.Linear(16, 10))
        called = _private(bench, "ours", model)
        _step(bench, called, _whole)
        called.train()
        with pytest.raises(Refusal, match=r"^model\.1: is a batch normalisation"):
            _step(bench, called, _whole)
        assert bench.run.budget.taken == 1


def test_records_may_lie_along_the_second_dimension(place: Place) -> None:
    """As Opacus takes them with ``batch_first=False``: the mean over the first dimension is a record's own."""

    def read(m: Any, x: Tensor) -> Tensor:  # noqa: ANN401 - the module's layers
        over_time: Tensor = m.o(m.l(x)[0]).mean(0)
        return over_time

    def turned(called: nn.Module, inputs: Tensor) -> Tensor:
        return _whole(called, inputs.view(-1, 8, 8).transpose(0, 1))

    with bench_of(place, "second") as bench:
        layers = {"l": DPLSTM(8, 12), "o": nn.Linear(12, 10)}
        called = _private(bench, "engine", Does(read, **layers), batch_first=False)
        _step(bench, called, turned)
        layers = {"l": DPLSTM(8, 12), "o": nn.Linear(12, 10)}
        mixing = Does(lambda m, x: read(m, x - x.mean(1, keepdim=True)), **layers)
        called = _private(bench, "engine", mixing, batch_first=False)
        with pytest.raises(Refusal, match=f"^model: {MIXED}"):
            _step(bench, called, turned)


def _packed(centre: Callable[[Tensor], Tensor]) -> nn.Module:
    def read(m: Any, x: Tensor, lengths: Tensor) -> Tensor:  # noqa: ANN401 - the module's layers
        packed = nn.utils.rnn.pack_padded_sequence(
            centre(x).view(-1, 8, 8), lengths, batch_first=True, enforce_sorted=False
        )
        last: Tensor = m.o(m.l(packed)[1][0][-1])
        return last

    return _Takes(read, l=DPLSTM(8, 12, batch_first=True), o=nn.Linear(12, 10))


def test_what_runs_on_no_dummies_is_looked_at_on_its_batch(place: Place) -> None:
    """A length of nought is no length: the batch itself is passed, and passed again with its second record twice."""

    def with_lengths(called: nn.Module, inputs: Tensor) -> Tensor:
        given: Tensor = called(inputs, torch.arange(len(inputs)) % 8 + 1)
        return given

    with bench_of(place, "lengths") as bench:
        called = _private(bench, "ours", _packed(lambda x: x))
        _step(bench, called, with_lengths)
        called = _private(bench, "ours", _packed(lambda x: x - x.mean(0)))
        with pytest.raises(Refusal, match=f"^model: {MIXED}"):
            _step(bench, called, with_lengths)


def test_dummies_out_of_a_model_s_range_refuse_nothing(place: Place) -> None:
    """One of them is beyond what the records are: then the batch is looked at, and the model trains if it may."""

    def within(m: Any, x: Tensor) -> Tensor:  # noqa: ANN401 - the module's layers
        if float(x.max()) > 1:
            raise ValueError("a picture's values are from 0 to 1")
        given: Tensor = m.o(x)
        return given

    with bench_of(place, "range") as bench:
        bench.records = TensorDataset(torch.rand(700, 64), bench.records.tensors[1])
        called = _private(bench, "ours", Does(within, o=nn.Linear(64, 10)))
        _step(bench, called, _whole)
        called = _private(bench, "ours", Does(lambda m, x: within(m, x).flip(0), o=nn.Linear(64, 10)))
        with pytest.raises(Refusal, match=f"^model: {MIXED}"):
            _step(bench, called, _whole)
    charge = place.charge("range")
    assert charge is not None
    assert charge.state is ChargeState.PENDING


WRONG: Final[dict[str, tuple[Make, Pass, str]]] = {
    "a part of the model": (
        lambda: nn.Sequential(nn.Linear(64, 10)),
        lambda called, x: called._module[0](x),  # type: ignore[index,operator] # noqa: SLF001 - Opacus' own
        "call the model, and not a part of it",
    ),
    "no tensors": (
        lambda: Does(lambda m, x: m.o(x.data), o=nn.Linear(64, 10)),
        lambda called, x: called(nn.utils.rnn.pack_sequence([x])),
        "^model: takes a PackedSequence: must take tensors",
    ),
    "no records out": (
        lambda: _Takes(lambda m, x, _: m.o(x).mean((0, 1)).expand(10, 3), o=nn.Linear(64, 10)),
        lambda called, x: called(x, 1).sum() * torch.ones(len(x), 10),
        "^model: gives no tensor of which a dimension counts the records",
    ),
    "a kept count": (
        lambda: _Takes(lambda m, x, _: (m.n.add_(1), m.o(x))[1], o=nn.Linear(64, 10), n=nn.Buffer(torch.zeros(1))),
        lambda called, x: called(x, 1),
        r"^model\.n: is a buffer that training changes",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_pass_that_cannot_be_looked_at_is_good_for_no_step(place: Place, name: str) -> None:
    """It is not known what of it is a record's, so the step is refused."""
    make, make_pass, match = WRONG[name]
    with bench_of(place, name.replace(" ", "-")) as bench:
        called = _private(bench, "ours", make())
        with pytest.raises(Refusal, match=match):
            _step(bench, called, make_pass)
        assert bench.run.budget.taken == 0


def test_an_optimiser_of_another_model_is_refused(place: Place) -> None:
    """The model that is looked at is the one that trains."""
    with bench_of(place, "of-another") as bench:
        stepped = torch.optim.SGD(nn.Linear(64, 10).parameters(), lr=0.3)
        with pytest.raises(Refusal, match="changes parameters that are not the model's"):
            opacus.make_private(bench.run, bench.model, stepped, bench.records)
    assert posted_steps(place, "of-another") == 0


def test_a_model_under_a_charge_is_copied_and_saved_as_before(place: Place) -> None:
    """Its copies take part in no run: nothing looks at their passes, whatever they do with records."""
    with bench_of(place, "copied") as bench:
        model = nn.Sequential(nn.Linear(64, 10))
        opacus.make_private(bench.run, model, torch.optim.SGD(model.parameters(), lr=0.3), bench.records)
        for one in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):  # noqa: S301 - our own
            one.append(nn.BatchNorm1d(10)).requires_grad_(requires_grad=False)
            assert one(torch.zeros(3, 64)).shape == (3, 10)
