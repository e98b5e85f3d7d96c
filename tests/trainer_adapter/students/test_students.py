"""Students: a few answers reach all public inputs, and an input that no one asked about teaches too."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ledger.wire.malformed import Malformed
from trainer_adapter.students import (
    Lessons,
    choose_questions,
    learn_student,
    rows_of,
    spread_labels,
    turned_and_shifted,
)

SIDE, CLASSES, EACH, ASKED = 8, 3, 60, 6
SPANS = ((1, 0), (0, 1), (1, 1))
"""Directions in which a class's stroke runs."""


def strokes(seed: int) -> tuple[Tensor, NDArray[np.int64]]:
    """Pictures of a stroke in one of three directions, shifted and noisy, (180, 1, 8, 8), and their classes."""
    random = np.random.default_rng(seed)
    classes = np.repeat(np.arange(CLASSES), EACH)
    pictures = random.normal(0, 0.1, (len(classes), 1, SIDE, SIDE)).astype(np.float32)
    for picture, kind in zip(pictures, classes, strict=True):
        for place in range(SIDE):
            picture[0, *(np.array(SPANS[kind]) * place + (1 - np.array(SPANS[kind])) * random.integers(3, 5))] += 1
    order = random.permutation(len(classes))
    return torch.from_numpy(pictures[order]), classes[order]


def network() -> nn.Module:
    """One hidden layer."""
    return nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 32), nn.ReLU(), nn.Linear(32, CLASSES))


def right(student: nn.Module, pictures: Tensor, classes: NDArray[np.int64]) -> float:
    """The share of classes that it names."""
    with torch.no_grad():
        return float((student(pictures).argmax(dim=1).numpy() == classes).mean())


def test_a_student_learns_from_inputs_that_no_one_asked_about() -> None:
    """Eighteen answers, one of them wrong: the other public pictures make the student right where those do not."""
    (public, classes), (others, truth) = strokes(1), strokes(2)
    flat = public.flatten(1).numpy()
    asked = choose_questions(flat, ASKED * CLASSES)
    answers = classes[asked].copy()
    answers[0] = (answers[0] + 1) % CLASSES
    beliefs = torch.from_numpy(spread_labels(flat, asked, answers, CLASSES))
    lessons = Lessons(steps=(50, 100), batch_size=16, learning_rate=1e-2)
    torch.manual_seed(0)
    student = learn_student(network, public, beliefs, turned_and_shifted, lessons)
    torch.manual_seed(0)
    alone = torch.from_numpy(np.eye(CLASSES)[answers])
    taught = learn_student(network, public[asked], alone, turned_and_shifted, lessons)
    assert right(student, others, truth) >= 0.95
    assert right(student, others, truth) > right(taught, others, truth) + 0.1


def test_one_question_for_each_cluster_the_one_nearest_its_mean() -> None:
    """Held to a search of all sets of three among nine points in three groups."""
    groups = np.array([[0.0, 0], [10, 0], [0, 10]])
    points = np.concatenate([one + np.array([[0, 0], [0.5, 0], [0, 0.6]]) for one in groups])

    def spread(rows: tuple[int, ...]) -> float:
        return float(np.linalg.norm(points[:, None] - points[[*rows]], axis=2).min(axis=1).sum())

    best = min(combinations(range(len(points)), 3), key=spread)
    assert tuple(choose_questions(points, 3)) == best


def test_answers_are_matched_to_the_inputs_by_their_numbers() -> None:
    """In the order of the answers, as float32; an input that is not public is refused."""
    public = np.arange(12, dtype=np.float64).reshape(6, 2) / 7
    assert rows_of(public, public[[4, 0, 2]].astype(np.float32)).tolist() == [4, 0, 2]
    with pytest.raises(Malformed, match="none of the public ones"):
        rows_of(public, public[:1] + 1)


def test_neighbours_overrule_a_wrong_answer() -> None:
    """Two groups of which each has five answers, one of them wrong; rows add up to 1, and no third class is named."""
    features = np.concatenate([np.linspace(0, 1, 11), np.linspace(10, 11, 11)])[:, None]
    asked = np.array([0, 3, 5, 7, 10, 11, 14, 16, 18, 21])
    answers = np.array([0, 0, 2, 0, 0, 2, 2, 2, 0, 2])
    beliefs = spread_labels(features, asked, answers, 3)
    assert beliefs.sum(axis=1) == pytest.approx(1)
    assert beliefs.argmax(axis=1).tolist() == [0] * 11 + [2] * 11
    assert (beliefs[:, 1] == 0).all()


def test_a_view_shows_the_same_a_little_moved() -> None:
    """As drawn again from one seed; brightness in the middle stays, and no view is the picture itself."""
    pictures = torch.zeros(5, 2, 16, 16)
    pictures[:, :, 6:10, 6:10] = 1
    views = [turned_and_shifted(pictures, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    assert torch.equal(views[0], views[1])
    assert not torch.equal(views[0], views[2])
    assert views[0].shape == pictures.shape
    assert ((views[0].sum(dim=(2, 3)) / 16 - 1).abs() < 0.5).all()
    assert (views[0].flatten(1) != pictures.flatten(1)).any(dim=1).all()


@pytest.mark.parametrize(
    ("asked", "answers", "refusal"),
    [([0, 0], [1, 1], "one for each row"), ([0], [1, 1], "one for each row"), ([0, 1], [0, 3], "classes below 3")],
)
def test_answers_that_do_not_fit_are_refused(asked: list[int], answers: list[int], refusal: str) -> None:
    """By name, before anything is spread."""
    with pytest.raises(Malformed, match=refusal):
        spread_labels(np.zeros((4, 1)), np.array(asked), np.array(answers), 3)


def test_questions_and_beliefs_that_do_not_fit_are_refused() -> None:
    """More questions than different inputs; beliefs of other inputs."""
    with pytest.raises(Malformed, match="from 1 to the number of different inputs"):
        choose_questions(np.zeros((4, 2)), 2)
    with pytest.raises(Malformed, match="one row of numbers for each public input"):
        learn_student(network, torch.zeros(3, 1, SIDE, SIDE), torch.zeros(2, CLASSES), turned_and_shifted)
