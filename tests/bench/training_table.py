"""The table of training speed: each network at two sizes, ours beside its peers, one JSON object a row.

    make bench-training                                      every row, into docs/training_speed.jsonl as well
    python -m tests.bench.training_table --row resnet-small  one row; several may be named
    python -m tests.bench.training_table --rows              the names of the rows

Every engine takes a step in turn, in each of the rounds; what is told is the median of its processor time over that of
plain training in the same round, with the least and the most. A row during which the machine's load was above 2 says
"not measured". A peer that does not run a network says so with its own word. A row is written when it is whole, beside
those of earlier runs: a table that was taken twice has each row twice, with its day.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from tests.bench import contestants
from tests.bench.accuracy import write
from tests.bench.contestants import Contestant
from tests.bench.networks import ROWS, Network
from tests.bench.peers import in_reach
from tests.bench.race import held, seconds

ROUNDS: Final = 9
LOAD_MAX: Final = 2.0
Maker = Callable[[Network, torch.device], Contestant]
MAKERS: Final[dict[str, Maker]] = {
    "non-private": contestants.plain,
    "ours, eager": contestants.ours,
    "ours, auto": lambda network, device: contestants.ours(network, device, compiled="auto"),
    "vmap": contestants.vmapped,
    "Opacus hooks": lambda network, device: contestants.opacus(network, device, "hooks"),
    "Opacus ghost": lambda network, device: contestants.opacus(network, device, "ghost"),
    "opake": contestants.opake,
    "JAX-Privacy": contestants.jax_privacy,
}


@dataclass(frozen=True)
class Load:
    """The machine's load over a row: the greatest mean over a minute that was seen."""

    seen: list[float]

    def look(self) -> None:
        """Now."""
        self.seen.append(os.getloadavg()[0])

    @property
    def most(self) -> float:
        """So far."""
        return max(self.seen)


def row(  # noqa: PLR0913, PLR0917 - what a row is made of
    name: str,
    network: Network,
    device: torch.device,
    rounds: int,
    load_max: float,
    makers: Mapping[str, Maker] = MAKERS,
) -> dict[str, Any]:
    """One row. ``ratio`` is over plain training, [median, least, most]; ``ms`` the median, ``mb`` the memory."""
    load, lanes, refused = Load([]), dict[str, Contestant](), dict[str, str]()
    for lane, make in makers.items():
        if lane == "JAX-Privacy" and not network.in_jax:
            refused[lane] = "has no network of this kind here"
            continue
        try:
            lanes[lane] = make(network, device)
            lanes[lane].step()
        except Exception as error:  # noqa: BLE001 - a peer fails in ways of its own
            lanes.pop(lane, None)
            refused[lane] = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
    memory = {lane: held(one) for lane, one in lanes.items()}
    took: dict[str, list[float]] = {lane: [] for lane in lanes}
    for _ in range(rounds):
        load.look()
        for lane, one in lanes.items():
            took[lane].append(seconds(one.step))
    load.look()
    about = {"row": name, "sizes": network.sizes(device).told, "load": round(load.most, 2), "rounds": rounds}
    if load.most > load_max:
        return {**about, "result": "not measured"}
    return {**about, "result": _told(took, memory, lanes), "refused": refused}


def _told(took: dict[str, list[float]], memory: dict[str, int], lanes: dict[str, Contestant]) -> dict[str, Any]:
    first, found = took["non-private"], dict[str, Any]()
    for lane, times in took.items():
        ratios = [mine / plain for mine, plain in zip(times, first, strict=True)]
        ratio = [round(one, 3) for one in (statistics.median(ratios), min(ratios), max(ratios))]
        about = {"ratio": ratio, "ms": round(statistics.median(times) * 1e3, 2), "mb": round(memory[lane] / 1e6, 1)}
        found[lane] = {**about, **({"chose": lanes[lane].name} if lane == "ours, auto" else {})}
    return found


def dated(measured: dict[str, Any]) -> dict[str, Any]:
    """A row with the day, the device and PyTorch's version that it was measured with."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{torch.get_num_threads()} thread (CPU)"
    return {**measured, "day": time.strftime("%Y-%m-%d", time.gmtime()), "device": device, "torch": torch.__version__}


def main() -> None:
    """Run the rows that are named, or all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--row", action="append", choices=sorted(ROWS))
    parser.add_argument("--rows", action="store_true", help="name the rows and end")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--into", type=Path, help="JSON lines to add the rows to")
    parser.add_argument("--load", type=float, default=LOAD_MAX, help="above it a row says 'not measured'")
    given = parser.parse_args()
    if given.rows:
        sys.stdout.write("\n".join(ROWS) + "\n")
        return
    torch.set_num_threads(1)
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    with in_reach(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in given.row or ROWS:
            measured = dated(row(name, ROWS[name], device, given.rounds, given.load))
            sys.stdout.write(json.dumps(measured) + "\n")
            sys.stdout.flush()
            if given.into is not None:
                write(given.into, measured)
            torch.compiler.reset()


if __name__ == "__main__":
    main()
