"""The table of training speed: a row of a loaded machine is none, and a peer that cannot run says so."""

from __future__ import annotations

import json
import os
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
import torch

from tests.bench import contestants, training_table
from tests.bench.contestants import Contestant
from tests.bench.networks import ROWS, Network
from tests.bench.training_table import ROUNDS, row

CPU = torch.device("cpu")


def _no_peer(network: Network, device: torch.device) -> Contestant:
    del network, device
    message = "has no rule for this layer"
    raise NotImplementedError(message)


@pytest.mark.parametrize(("load", "measured"), [(0.5, True), (2.01, False)])
def test_a_row_above_the_load_is_not_measured(monkeypatch: pytest.MonkeyPatch, load: float, *, measured: bool) -> None:
    """Once is enough, in whichever round."""
    seen = iter([0.1, load, 0.2])
    monkeypatch.setattr(os, "getloadavg", lambda: (next(seen), 9.0, 9.0))
    makers = {"non-private": contestants.plain, "vmap": contestants.vmapped, "a peer": _no_peer}
    reported = row("cnn-64", ROWS["cnn-64"], CPU, 2, 2.0, makers)
    assert (reported["row"], reported["load"]) == ("cnn-64", load)
    if not measured:
        assert reported["result"] == "not measured"
        return
    assert reported["refused"] == {"a peer": "NotImplementedError: has no rule for this layer"}
    assert reported["result"]["non-private"]["ratio"] == [1, 1, 1]
    assert reported["result"]["vmap"]["ms"] > 0


def test_every_kind_of_network_has_two_sizes() -> None:
    """Seven kinds, and nine rounds."""
    kinds = [name.partition("-")[0] for name in ROWS]
    assert {kind: kinds.count(kind) for kind in kinds} == dict.fromkeys(
        ("cnn", "resnet", "encoder", "decoder", "lstm", "gpt2", "wide"), 2
    )
    assert ROUNDS == 9


def test_rows_are_added_to_a_file_with_their_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second run adds a second line; what was measured before stays."""
    into = tmp_path / "speed.jsonl"
    monkeypatch.setattr(training_table, "in_reach", nullcontext)
    monkeypatch.setattr(training_table, "row", partial(row, makers={"non-private": contestants.plain}))
    command = ["table", "--row", "cnn-64", "--rounds", "1", "--load", "inf", "--into", str(into)]
    monkeypatch.setattr(sys, "argv", command)
    for times in (1, 2):
        training_table.main()
        lines = [json.loads(line) for line in into.read_text().splitlines()]
        assert len(lines) == times
        assert {line["row"] for line in lines} == {"cnn-64"}
        assert all(len(line["day"]) == 10 and line["torch"] == torch.__version__ for line in lines)
