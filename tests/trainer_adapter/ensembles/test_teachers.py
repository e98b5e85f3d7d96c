"""Teachers: each learns from its own chunk alone, bit for bit; what breaks one breaks no other."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ledger.wire.malformed import Malformed
from trainer_adapter.ensembles.teachers import Teachers, Training, train_teachers

COUNT, TEACHERS, CLASSES = 60, 4, 3
CHUNKS = np.arange(COUNT) % 3
"""The last teacher has none."""


class Picky(nn.Module):
    """A model whose Python looks at a value, so that no two teachers can be computed at once; it raises for some."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(5, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        """Raises: ValueError, for records of 9."""
        if float(inputs.max()) > 8:
            raise ValueError("a record is 9")
        found: Tensor = self.inner(inputs)
        return found


def _how(parameters: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters.parameters(), lr=0.5, momentum=0.9)


TRAINING = Training(cross_entropy, _how, 12, 8, seed=11)


def _model(kind: type[nn.Module] | None = None) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, CLASSES)) if kind is None else kind()


def _records() -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(2)
    return torch.rand((COUNT, 5), generator=source), torch.randint(0, CLASSES, (COUNT,), generator=source)


def _trained(records: tuple[Tensor, Tensor], kind: type[nn.Module] | None = None) -> Teachers:
    return train_teachers(_model(kind), records, CHUNKS, TEACHERS, TRAINING)


@pytest.mark.parametrize("change", [7.0, torch.nan, 1e38], ids=["other", "no-number", "huge"])
def test_a_changed_record_changes_its_teacher_and_no_other(change: float) -> None:
    """Record 3 is in chunk 0: teachers 1 and 2 have the same bits, whatever it is now."""
    before = _trained(_records())
    inputs, targets = _records()
    inputs[3] = change
    after = _trained((inputs, targets))
    for name, values in before.values.items():
        assert torch.equal(values[1:], after.values[name][1:])
    assert any(not torch.equal(one[0], after.values[name][0]) for name, one in before.values.items())
    outputs = after.outputs(torch.zeros((2, 5)))
    assert np.isfinite(outputs[1:3]).all()


def test_a_teacher_learns_as_it_would_alone() -> None:
    """The same model, trained by a plain loop on the records of one chunk, gives the same scores."""
    records, found = _records(), _trained(_records())
    model = _model()
    optimiser = _how(model)
    source = torch.Generator().manual_seed(11)
    own = np.flatnonzero(CHUNKS == 1)
    for _ in range(12):
        drawn = torch.rand((TEACHERS, 8), generator=source, dtype=torch.float64)[1]
        places = torch.from_numpy(own)[(drawn * len(own)).long()]
        optimiser.zero_grad()
        cross_entropy(model(records[0][places]), records[1][places]).backward()
        optimiser.step()
    requested = torch.rand((3, 5), generator=torch.Generator().manual_seed(4))
    alone = model(requested).detach().double().numpy()
    assert found.outputs(requested)[1] == pytest.approx(alone, abs=1e-5)


def test_an_optimiser_in_whose_state_teachers_would_meet_is_refused() -> None:
    """Its norm is over all of them."""
    meets = Training(cross_entropy, lambda held: torch.optim.Adafactor(held.parameters()), 12, 8, seed=11)
    with pytest.raises(ValueError, match=r"trained by SGD, Adam, AdamW, RMSprop, not by Adafactor"):
        train_teachers(_model(), _records(), CHUNKS, TEACHERS, meets)


def test_an_empty_chunk_has_no_score() -> None:
    """And no record needs to be there at all."""
    outputs = _trained(_records()).outputs(torch.zeros((1, 5)))
    assert np.isnan(outputs[3]).all()
    assert np.isfinite(outputs[:3]).all()
    empty = train_teachers(_model(), (torch.zeros((0, 5)), torch.zeros(0, dtype=torch.int64)), CHUNKS[:0], 2, TRAINING)
    assert np.isnan(empty.outputs(torch.zeros((1, 5)))).all()


def test_a_model_that_raises_for_one_chunk_fails_for_that_teacher_alone() -> None:
    """Trained one by one; a question that it raises for is answered by no teacher."""
    inputs, targets = _records()
    inputs[CHUNKS == 2] = 9.0
    found = _trained((inputs, targets), Picky)
    outputs = found.outputs(torch.zeros((1, 5)))
    assert np.isnan(outputs[2:]).all()
    assert np.isfinite(outputs[:2]).all()
    with pytest.raises(Malformed, match="fails for this question"):
        found.outputs(torch.full((1, 5), 9.0))


class Worded(nn.Module):
    """A model of eight tokens and a class for each; any other token is of no row of its table."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(8, 64)
        self.last = nn.Linear(5 * 64, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        """Scores, shape (records, classes)."""
        found: Tensor = self.last(self.table((inputs * 8).long()).flatten(1))
        return found


class Dropping(Picky):
    """The same, and what drops is drawn by PyTorch's own generator."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Raises: AssertionError, for records of 9."""
        assert float(inputs.max()) < 9, "a record is 9"
        return super().forward(torch.dropout(inputs, 0.3, train=self.training))


def _deep(dropped: float) -> nn.Module:
    """Large enough that one teacher alone rounds otherwise than beside others."""
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(5, 200), nn.Tanh(), nn.Dropout(dropped), nn.Linear(200, 200), nn.Tanh(), nn.Linear(200, CLASSES)
    )


def _same(one: Teachers, other: Teachers, places: slice) -> bool:
    return all(torch.equal(values[places], other.values[name][places]) for name, values in one.values.items())


@pytest.mark.parametrize("dropped", [0.0, 0.3])
def test_a_chunk_that_raises_changes_no_bit_of_another_teacher(dropped: float) -> None:
    """Two labels of no class: those teachers have failed, and the other learns as beside chunks of zeros."""
    inputs, targets = _records()
    bad, zeros = targets.clone(), torch.from_numpy(CHUNKS) != 1
    bad[3] = bad[11] = CLASSES + 4
    question, found = torch.rand((50, 5)), {}
    for name, records in (
        ("sound", (inputs, targets)),
        ("zeros", (inputs * ~zeros[:, None], targets * ~zeros)),
        ("broken", (inputs, bad)),
    ):
        found[name] = train_teachers(_deep(dropped), records, CHUNKS, TEACHERS, TRAINING)
    broken, answered = found["broken"], found["broken"].outputs(question)
    assert broken.alive.tolist() == [False, True, False, False]
    for other in (found["sound"], found["zeros"]):
        assert _same(other, broken, slice(1, 2))
        assert np.array_equal(other.outputs(question)[1], answered[1])
    assert np.isnan(answered[[0, 2, 3]]).all()


@pytest.mark.parametrize("token", [1.0, 2.5, -0.125], ids=["next", "far", "before"])
def test_a_token_of_no_row_reaches_no_other_teacher(token: float) -> None:
    """Side by side all rows would be one table, and a token beyond its end another teacher's first."""
    inputs, targets = _records()
    sound = _trained((inputs, targets), Worded)
    inputs[4] = token
    broken = _trained((inputs, targets), Worded)
    assert broken.alive.tolist() == [True, False, True, False]
    assert _same(sound, broken, slice(0, 1))
    assert _same(sound, broken, slice(2, 3))


def test_a_teacher_that_raises_leaves_no_other_draws() -> None:
    """Trained one by one, each drops from a stream of its own."""
    inputs, targets = _records()
    sound = _trained((inputs, targets), Dropping)
    inputs[3] = 9.0
    broken = _trained((inputs, targets), Dropping)
    assert broken.alive.tolist() == [False, True, True, False]
    assert _same(sound, broken, slice(1, 4))


class Rooted(nn.Module):
    """A model that takes the root of its own weights, which some have not."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(5, 64), nn.Tanh(), nn.Linear(64, 64))
        self.square = nn.Parameter(torch.eye(2))

    def forward(self, inputs: Tensor) -> Tensor:
        """Raises: RuntimeError, for weights that are not positive definite."""
        found: Tensor = self.inner(inputs) * torch.linalg.cholesky(self.square)[0, 0]
        return found


def test_weights_that_raise_change_no_answer_of_another_teacher() -> None:
    """All teachers answer side by side still, and that one has no answer."""
    torch.manual_seed(1)
    model, question = Rooted(), torch.rand((1, 5))
    values = {name: value.detach().expand(3, *value.shape).clone() for name, value in model.named_parameters()}
    values["inner.2.weight"] += torch.rand(values["inner.2.weight"].shape)
    teachers = Teachers(model, values, torch.ones(3, dtype=torch.bool))
    sound = teachers.outputs(question)
    values["square"][1] *= -1
    broken = teachers.outputs(question)
    assert np.array_equal(broken[[0, 2]], sound[[0, 2]])
    assert np.isnan(broken[1]).all()


def test_teachers_read_back() -> None:
    """With the same scores, for a model of the same form alone."""
    found, requested = _trained(_records()), torch.rand((2, 5), generator=torch.Generator().manual_seed(9))
    again = Teachers.of_bytes(found.to_bytes(), _model())
    assert np.array_equal(found.outputs(requested), again.outputs(requested), equal_nan=True)
    with pytest.raises(Malformed, match="another model"):
        Teachers.of_bytes(found.to_bytes(), nn.Linear(5, CLASSES))
    with pytest.raises(Malformed, match="holds no teachers"):
        Teachers.of_bytes(b"nothing", _model())
