"""The page on answers: its student learns scikit-learn's digits from 120 answers, some of them wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from ledger.wire import canonical_json as c
from tests.documentation.fenced_blocks import ROOT, blocks
from trainer_adapter.ensembles.question_file import read_questions, write_labelled

MINE = "tests/trainer_adapter/students/test_student_page.py"
QUESTIONS, ANSWERS = (block.text for block in blocks(ROOT / "docs" / "answers.md") if block.run_by == MINE)
PUBLIC, WRONG, SCREENED = 1_200, 6, 5


def test_the_student_of_the_page_learns_from_few_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its two blocks, one after the other; of the answers in between some are wrong and some are missing."""
    pixels, classes = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(classes))
    inputs, truth = (pixels[order] / 16).astype(np.float32), classes[order]
    monkeypatch.chdir(tmp_path)
    np.savez("public.npz", inputs=inputs[:PUBLIC])
    names: dict[str, object] = {}
    torch.manual_seed(0)
    exec(compile(QUESTIONS, "questions", "exec"), names)  # noqa: S102 - the page's own
    rows = read_questions(Path("questions.npz"))
    places = [int((inputs[:PUBLIC] == row.numpy()).all(axis=1).argmax()) for row in rows]
    given: list[c.Object] = [{"class": int(truth[place])} for place in places]
    given[:WRONG] = [{"class": (int(truth[place]) + 1) % 10} for place in places[:WRONG]]
    given[WRONG : WRONG + SCREENED] = [{"screened": True}] * SCREENED
    write_labelled(Path("student.npz"), rows, [{"answer": one} for one in given])
    exec(compile(ANSWERS, "answers", "exec"), names)  # noqa: S102 - the page's own
    student = names["student"]
    assert isinstance(student, nn.Module)
    with torch.no_grad():
        found = student(torch.from_numpy(inputs[PUBLIC:]).reshape(-1, 1, 8, 8)).argmax(dim=1).numpy()
    assert (found == truth[PUBLIC:]).mean() >= 0.9
    assert Path("student.pt").stat().st_size
