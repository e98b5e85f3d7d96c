"""A step of DP-SGD by this engine and by its peers, over a step of training without privacy."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from tests.bench import contestants
from tests.bench.jax_networks import apply, weights
from tests.bench.networks import NETWORKS, Network, with_dropout
from tests.bench.peers import in_reach
from tests.bench.race import race
from trainer_adapter.cli.train import best_device

pytestmark = pytest.mark.bench

ROUNDS = 7


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """One thread for all, so that what is told is work; and the peers' own warnings, which are not ours to mend."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with in_reach(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch.set_num_threads(threads)
    torch.compiler.reset()


@pytest.mark.parametrize("network", NETWORKS, ids=[one.name for one in NETWORKS])
def test_both_frameworks_run_the_same_network(network: Network) -> None:
    """The same scores of the same records, so that JAX's times are of the same work."""
    device = best_device()
    model, (inputs, _) = network.model(device), network.data(device)
    with torch.no_grad():
        expected = model(inputs[:2]).cpu().numpy()
    found = apply(network, network.sizes(device), weights(model), inputs[:2].cpu().numpy())
    assert np.allclose(np.asarray(found), expected, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("network", NETWORKS, ids=[one.name for one in NETWORKS])
def test_a_step_beside_the_peers(benchmark: BenchmarkFixture, network: Network) -> None:
    """Time and memory of each; what runs eagerly first, so that compiling falls on nobody's times."""
    device = best_device()
    made = [
        contestants.plain(network, device),
        contestants.plain(network, device, compiled=True),
        contestants.ours(network, device),
        contestants.ours(network, device, compiled=True),
        contestants.opacus(network, device, "hooks"),
        contestants.opacus(network, device, "ghost"),
        contestants.opake(network, device),
        contestants.jax_plain(network, device),
        contestants.jax_privacy(network, device),
    ]
    lanes = race(benchmark, f"{network.name} ({network.sizes(device).told})", made, ROUNDS)
    assert all(lane.bytes_most > 0 and min(lane.seconds) > 0 for lane in lanes)


@pytest.mark.parametrize("network", NETWORKS[2:], ids=[one.name for one in NETWORKS[2:]])
def test_dropout_beside_none(benchmark: BenchmarkFixture, network: Network) -> None:
    """Masks by record cost a part of a step: ours with and without dropout, beside training without privacy."""
    device = best_device()
    made = [
        replace(make(one, device, compiled=compiled), name=f"{name}, {told}, {'compiled' if compiled else 'eager'}")
        for compiled in (False, True)
        for make, name in ((contestants.plain, "non-private"), (contestants.ours, "ours"))
        for one, told in ((network, "no dropout"), (with_dropout(network, 0.1), "dropout 0.1"))
    ]
    lanes = race(benchmark, f"{network.name} ({network.sizes(device).told})", made, ROUNDS)
    assert all(lane.bytes_most > 0 and min(lane.seconds) > 0 for lane in lanes)
