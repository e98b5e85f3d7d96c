"""The table of a GPU: its rows are the published sizes, and without one it says so and ends with a status."""

from __future__ import annotations

import pytest
import torch

from tests.bench.gpu_table import MAKERS, ROWS, UNMEASURED_STATUS, PictureTransformer, main, tail
from tests.bench.networks import Sizes


@pytest.mark.parametrize("arguments", [[], ["--machine"], ["--row", "vit"]])
def test_without_a_gpu_it_is_said_in_a_sentence(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """One line, no figure, and a status that is no success."""
    assert main(arguments, found=False) == UNMEASURED_STATUS
    assert capsys.readouterr().out == "The GPU table is not measured: PyTorch finds no CUDA device on this machine.\n"


def test_the_rows_are_of_published_sizes_beside_every_peer() -> None:
    """The five networks, each against training without privacy, both modes of Opacus and JAX-Privacy."""
    assert list(ROWS) == ["cnn", "resnet", "encoder", "decoder", "vit"]
    told = [network.sizes(torch.device("cuda")).told for network in ROWS.values()]
    for name, known in zip(told, ("26,010", "WRN-16-4", "BERT-base", "GPT-2 small", "ViT-B/16"), strict=True):
        assert known in name
    assert {"non-private", "Opacus hooks", "Opacus ghost", "JAX-Privacy"} < MAKERS.keys()


def test_the_picture_transformer_gives_scores_of_its_patches() -> None:
    """Two pictures, 196 patches each."""
    model = PictureTransformer(Sizes("small", 2, 64, 1, 196))
    assert model(torch.zeros(2, 3, 224, 224)).shape == (2, 10)


def test_the_tail_alone_is_timed() -> None:
    """On any device, here the CPU."""
    found = tail(torch.device("cpu"), 1_000, 3)
    assert found["values"] == 1_000
    assert 0 < found["ms"][1] <= found["ms"][0] <= found["ms"][2]
