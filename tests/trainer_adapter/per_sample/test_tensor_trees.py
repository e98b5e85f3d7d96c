"""Records of several tensors: the same sums as per-record autograd of the plain model, by name, by place and nested."""

from __future__ import annotations

from collections import UserDict
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils._pytree import tree_map

from ledger.mechanisms.plan import Plan
from ledger.mechanisms.run_plan import USER
from ledger.wire.malformed import Malformed
from trainer_adapter.dpsgd.engine import Engine
from trainer_adapter.layers.tensor_trees import count_records, tree_of

RECORDS, WORDS, LENGTH, CLASSES = 5, 11, 4, 3
PLAN = Plan(Fraction(1), Fraction(1), Fraction(1, 2), 10, RECORDS)


class _Weighed(nn.Module):
    """Words, how much each counts, and what else is known of a record, in whatever form they come."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.known, self.head = nn.Embedding(WORDS, 6), nn.Linear(2, 6), nn.Linear(6, CLASSES)

    def scored(self, words: Tensor, mask: Tensor, known: Tensor) -> Tensor:
        """The scores of each record."""
        mean = (self.words(words) * mask[..., None]).sum(dim=1) / (mask.sum(dim=1, keepdim=True) + 1)
        scores: Tensor = self.head(torch.tanh(mean + self.known(known)))
        return scores


class _ByName(_Weighed):
    def forward(self, input_ids: Tensor, attention_mask: Tensor, about: dict[str, tuple[Tensor, ...]]) -> Tensor:
        return self.scored(input_ids, attention_mask, about["values"][0])


class _ByPlace(_Weighed):
    def forward(self, words: Tensor, mask: Tensor, known: Tensor) -> dict[str, Tensor]:
        return {"scores": self.scored(words, mask, known)}


def _parts() -> tuple[Tensor, Tensor, Tensor]:
    public = torch.Generator().manual_seed(4)
    words = torch.randint(0, WORDS, (RECORDS, LENGTH), generator=public)
    mask = (torch.arange(LENGTH)[None] <= torch.arange(RECORDS)[:, None]).long()
    return words, mask, torch.randn((RECORDS, 2), generator=public)


def _two(outputs: Any, targets: dict[str, Tensor]) -> Tensor:  # noqa: ANN401 - either model's output
    scores = outputs["scores"] if isinstance(outputs, dict) else outputs
    loss: Tensor = cross_entropy(scores, targets["kind"]) + ((scores[:, 0] - targets["size"]) ** 2).mean()
    return loss


def _forms() -> dict[str, tuple[_Weighed, Any]]:
    words, mask, known = _parts()
    named = UserDict({"input_ids": words, "attention_mask": mask, "about": {"values": [known]}})
    return {"by name": (_ByName(), named), "by place": (_ByPlace(), [words, mask, known])}


def _targets() -> dict[str, Tensor]:
    return {"size": torch.linspace(-1, 2, RECORDS), "kind": torch.arange(RECORDS) % CLASSES}


def _gradient(model: nn.Module, inputs: Any, record: int) -> Tensor:  # noqa: ANN401 - a tree
    """The gradient of one record of the plain model."""
    one = tree_map(lambda part: part[record : record + 1], dict(inputs) if isinstance(inputs, UserDict) else inputs)
    outputs = model(**one) if isinstance(one, dict) else model(*one)
    loss = _two(outputs, tree_map(lambda part: part[record : record + 1], _targets()))
    return torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(model.parameters()))]).double()


@pytest.mark.parametrize("by_user", [False, True])
@pytest.mark.parametrize("form", ["by name", "by place"])
def test_records_of_several_tensors_are_clipped_as_one_by_one(form: str, *, by_user: bool) -> None:
    """Each unit's whole gradient to at most C; a fifth record of a user who may have two does not train."""
    torch.manual_seed(5)
    model, inputs = _forms()[form]
    users, plan, kept = torch.tensor([7, 7, 2, 7, 2]), PLAN, [[0], [1], [2], [3], [4]]
    options: dict[str, Any] = {"certify": "always"}
    if by_user:
        plan, kept = Plan(Fraction(1), Fraction(1), Fraction(1, 2), 10, 2, USER), [[2, 4], [0, 1]]
        options |= {"users": users, "records_per_user_max": 2}
    engine = Engine(plan, model, _two, (inputs, _targets()), 3, **options)
    assert len(engine.notices) == 1, "it runs vectorised"
    expected = torch.zeros(engine.size, dtype=torch.float64)
    for unit in kept:
        whole = torch.stack([_gradient(model, inputs, record) for record in unit]).sum(dim=0)
        expected += whole * min(1.0, engine.bound / float(whole.norm()))
    batches = engine.microbatches(np.arange(len(kept)))
    found = engine.clipped_sum(batches)
    assert float((found - expected).norm()) <= 1e-3 * float(expected.norm())
    engine.check(batches)


def test_a_record_that_reaches_another_s_tensor_is_refused() -> None:
    """In any tensor of the inputs."""

    class Mixed(_ByPlace):
        def forward(self, words: Tensor, mask: Tensor, known: Tensor) -> dict[str, Tensor]:
            return super().forward(words, mask, known - known.mean(dim=0))

    with pytest.raises(Malformed, match="lets one record change the output of another"):
        Engine(PLAN, Mixed(), _two, (list(_parts()), _targets()), 3)


@pytest.mark.parametrize(
    ("inputs", "rule"),
    [
        ({"a": torch.zeros(5, 2), "b": "text"}, "inputs.b: is a str: must be a tensor"),
        ({"a": torch.zeros(5, 2), "b": []}, r"inputs.b: holds no tensor"),
        ({"a": torch.zeros(5, 2), "b": torch.zeros(4)}, "inputs: must hold tensors whose first dimension counts"),
        ((torch.zeros(5), torch.zeros(())), "inputs: must hold tensors whose first dimension counts"),
        ((torch.zeros(4), torch.zeros(4)), "data: has 4 inputs but 5 targets"),
    ],
)
def test_what_is_no_tree_of_records_is_refused_by_its_place(inputs: Any, rule: str) -> None:  # noqa: ANN401 - wrong ones
    """Before the model is looked at."""
    with pytest.raises(Malformed, match=rule):
        Engine(PLAN, _ByPlace(), _two, (inputs, _targets()), 3)


def test_names_are_put_in_order() -> None:
    """So that two partitions whose arrays stand in another order have the same records."""
    tree = tree_of(UserDict({"b": torch.zeros(2), "a": [torch.ones(2, 3)]}), "inputs")
    assert isinstance(tree, dict)
    assert list(tree) == ["a", "b"]
    assert isinstance(tree["a"], tuple)
    assert count_records(tree, "inputs") == 2
