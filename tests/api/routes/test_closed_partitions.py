"""What is closed, retired, past its age, frozen or revoked reads as open nowhere: each reader, each way to close."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import pytest

from client.http.endpoints import QUOTES
from ledger.commands.registry import PATHS
from ledger.domain.exit_codes import ExitCode
from ledger.wire import canonical_json as c
from policy.checks.calendar_periods import period_before, period_of
from policy.checks.field_readers import DAY_MS, format_time
from policy.documents.partition_commitments import MAGIC, PERSONS_MAGIC
from tests.factories.command_runs import Done, run_command
from tests.factories.documents import contract, dataset, partition, plan, stream
from tests.factories.people import BANK_A, BANK_B, HOSPITAL, SRO, CleanRoom
from tests.factories.service import ServedWorld, founded_world

RECORDS: Final = 500
RUN: Final = plan(10, "2")
BUDGET: Final = "1"
"""Three runs fit, if one bank makes them; where everyone together has no cap, two of each bank are more."""


class Readers:
    """A slice of a stream with a run on it, and all that people read of it; each reader says whether it is open."""

    def __init__(self, world: ServedWorld, folder: Path, issuer: str) -> None:
        """Everything is entered, and the bank has run once."""
        self.world, self.folder = world, folder
        self.period = period_before("week", period_of("week", world.clock.now))
        self.ref = f"{HOSPITAL}/claims/{self.period}"
        world.enter("policy", self.governing(2, level=0), SRO, world.sro)
        world.enter("dataset", dataset(name="claims"), HOSPITAL, world.hospital)
        budget = {"delta": "0.00001", "epsilon": BUDGET}
        world.enter("stream", stream(dataset="claims", budget=budget, life_days=60), HOSPITAL, world.hospital)
        self._open()
        world.register(BANK_B, "TDC", world.signers[BANK_B])
        for bank in (BANK_A, BANK_B):
            agreed = self._agreed(bank)
            world.contracts[bank] = world.enter("contract", agreed, bank, world.signers[bank], world.hospital)[0]
        self.charge(BANK_A, "run-1")
        world.bank.save(folder / "bank.pem")
        said = {"service": world.url, "key": "bank.pem", "actor": BANK_A, "log": world.log.vkey, "issuer": issuer}
        lines = ("v = 1", "[client]", *(f'{name} = "{value}"' for name, value in said.items()))
        (folder / "bank.toml").write_text("\n".join(lines))
        named = {"contract": world.contracts[BANK_A], "partitions": ["claims[last 1]"], "plan": RUN}
        (folder / "charge.json").write_text(json.dumps(named))

    def governing(self, version: int, level: int) -> dict[str, Any]:
        """A version of the policy, in force at once."""
        since = format_time(self.world.clock.now)
        return {**self.world.policy(), "version": version, "effective": since, "level": level}

    def _agreed(self, bank: str) -> dict[str, Any]:
        of_claims = [{"dataset": "claims", "provider": HOSPITAL}]
        return contract(bank, starts=self.world.begun, id=f"claims-{bank[8:14]}", datasets=of_claims)

    def _open(self) -> None:
        values = b"".join(sorted(sha256(str(number).encode()).digest() for number in range(RECORDS)))
        documents = [magic + bytes(32) + values for magic in (MAGIC, PERSONS_MAGIC)]
        stored = [self.world.service.put_document(self.world.hospital, one).document for one in documents]
        body = partition(self.period, commitments=[*stored], dataset="claims", epsilon=BUDGET, records=RECORDS)
        self.world.service.submit(self.world.hospital, HOSPITAL, "partition", body, "slice")

    def charge(self, bank: str, name: str) -> None:
        """A run of a bank's."""
        done = self.world.submit(self.world.charge(name, bank, RUN, partitions=(self.ref,)))
        assert [one.code.word for one in done] == ["pending"], done

    def get(self, path: str, did: str = BANK_A, **query: str) -> Any:  # noqa: ANN401 - JSON
        """What the service answers."""
        shown = self.world.everybody.shown(did)
        return self.world.http.get(path, params=query, headers=shown).raise_for_status().json()

    def run(self, *words: str) -> Done:
        """A command of the bank's."""
        return run_command([*words[:2], str(self.folder / "bank.toml"), *words[2:]])

    def listed(self) -> bool:
        """``GET /v1/partitions``."""
        return any(
            one["partition"] == self.ref and one["state"] == "open" for one in self.get("/v1/partitions")["items"]
        )

    def read(self) -> bool:
        """``GET /v1/partitions/{ref}``."""
        return bool(self.get(f"/v1/partitions/{self.ref}", HOSPITAL)["state"] == "open")

    def page(self) -> bool:
        """``GET /v1/accounts``: the partition that they are of."""
        return bool(self.get("/v1/accounts", partition=self.ref)["state"] == "open")

    def everyone(self) -> bool:
        """``GET /v1/accounts``: everyone's."""
        return self._account(lambda one: bool(one["holder"] == "global"))

    def own(self) -> bool:
        """``GET /v1/accounts``: the bank's own."""
        return self._account(lambda one: BANK_A in one["organisations"])

    def _account(self, wanted: Callable[[Any], bool]) -> bool:
        (one,) = filter(wanted, self.get("/v1/accounts", HOSPITAL, partition=self.ref)["items"])
        return bool(one["closed"] is None and one["runs_like_the_last"] != 0)

    def stream(self) -> bool:
        """``GET /v1/streams``: the slice, its alert, and the windows of now and of the months to come."""
        told = self.get(f"/v1/streams/{HOSPITAL}/claims")
        (one,) = [each for each in told["slices"] if each["period"] == self.period]
        windows = [told["newest_window"], *told["months"]]
        return one["status"] == "open" or one["alert_days"] is not None or any(each["slices"] for each in windows)

    def window(self) -> bool:
        """``GET /v1/streams``: the runs that fit in the newest window."""
        return bool(self.get(f"/v1/streams/{HOSPITAL}/claims")["newest_window"]["runs"])

    def plan(self) -> bool:
        """``POST /v1/plans``: decision, runs, steps and noise."""
        told = self._planned()
        fits = [told["runs"]["more"], told["steps_most"]["steps"], told["noise_multiplier_least"]]
        each = [one["runs"] for one in told["runs"]["accounts"]]
        return told["decision"]["outcome"] == "pending" or any(fits) or all(each)

    def lasts(self) -> bool:
        """``POST /v1/plans``: how long the accounts last."""
        return any(not one["full"] for one in self._planned()["lasts"])

    def _planned(self) -> Any:  # noqa: ANN401 - JSON
        requested: c.Object = {"contract": self.world.contracts[BANK_A], "partitions": [self.ref], "plan": RUN}
        headers = {**self.world.everybody.shown(BANK_A), "content-type": "application/json"}
        return self.world.http.post("/v1/plans", content=c.dump(requested), headers=headers).raise_for_status().json()

    def quoted(self) -> bool:
        """``POST /v1/quotes``."""
        return bool(self._asked(QUOTES, RUN).is_success)

    def remaining(self) -> bool:
        """A refusal: the shares that are left of everyone's account and the bank's own."""
        answer = self._asked(PATHS["charge"], plan(100_000, "1"))
        return all(one["share"] != "0" for one in answer.json()["remaining"])

    def _asked(self, path: str, run: c.Object) -> Any:  # noqa: ANN401 - a response
        world, name = self.world, f"asked-{self.world.size}"
        submission = world.charge(name, BANK_A, run, partitions=(self.ref,))
        world.everybody.rooms.setdefault(CleanRoom(name).signer.key_id, CleanRoom(name).signer)
        return world.post(path, submission.raw, world.sign(world.bank, path, submission.raw, name))

    def dataset_show(self) -> bool:
        """``epsilon dataset show``."""
        return _rows(self.run("dataset", "show"))[self.ref][-1] == "open"

    def account_show(self) -> bool:
        """``epsilon account``."""
        done = run_command(["account", str(self.folder / "bank.toml"), self.ref])
        return "takes no charge" not in done.out.splitlines()[0]

    def stream_show(self) -> bool:
        """``epsilon stream show``."""
        rows = _rows(self.run("stream", "show", HOSPITAL, "claims"))
        return rows[self.period][1] == "open" or rows["now"][1] != "none"

    def quote_of_the_newest(self) -> bool:
        """``epsilon quote`` of ``claims[last 1]``."""
        done = run_command(["quote", str(self.folder / "bank.toml"), str(self.folder / "charge.json")])
        assert done.code in {ExitCode.DONE, ExitCode.REFUSED, ExitCode.INVALID}, done
        return done.code == ExitCode.DONE


def test_what_is_open_reads_as_open_until_its_age(readers: Readers) -> None:
    """For every reader, and for none afterwards; ``epsilon stream show`` says that it closes soon."""
    assert {one.__name__ for one in EVERY if not one(readers)} == set()
    opened = _weeks(readers.world.clock.now)
    readers.world.clock.now += 55 * DAY_MS
    missed = _weeks(readers.world.clock.now) - opened - 1
    shown = readers.run("stream", "show", HOSPITAL, "claims")
    current, period = period_of("week", readers.world.clock.now), readers.period
    for line in (
        f"{HOSPITAL}/claims: stream version 1, a slice each week",
        "  budget of one record (1, 0.00001): a person is in one slice only",
        "  a slice lives 60 days; a run covers at most 52 slices",
        f"  may open now: {period_before('week', current)}, {current}",
    ):
        assert any(one.startswith(line) for one in shown.out.splitlines()), (line, shown.out)
    rows = _rows(shown)
    assert rows["now"][1:] == [f"{period}..{period}", "1", "2", f"{period}: the cap of a lineage, ε 1"]
    closes = format_time(readers.get(f"/v1/partitions/{readers.ref}")["closes"])
    assert rows[period][1:3] == ["open", f"{closes} (in 7 days or less)"]
    assert [row[1] for name, row in rows.items() if "-W" in name] == ["open", *["missed"] * missed]
    readers.world.clock.now += 6 * DAY_MS
    assert {one.__name__ for one in EVERY if one(readers)} == set()


def _weeks(time: int) -> int:
    """How many Mondays there were until then since 1970, which began on a Thursday."""
    return (time // DAY_MS + 3) // 7


def _rows(shown: Done) -> dict[str, list[str]]:
    """The rows of tables, by their first cells."""
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.out.splitlines()]
    return {row[0]: row for row in cells if row}


@pytest.fixture
def readers(tmp_path: Path) -> Iterator[Readers]:
    """One that nothing has closed yet."""
    with founded_world(tmp_path / "world") as world, world.issuing() as issuer:
        yield Readers(world, tmp_path, issuer)


def _retired(readers: Readers) -> None:
    readers.world.service.submit(readers.world.hospital, HOSPITAL, "retirement", {"partition": readers.ref}, "retire")


def _frozen(readers: Readers) -> None:
    for bank, name in ((BANK_B, "run-2"), (BANK_B, "run-3"), (BANK_A, "run-4")):
        readers.charge(bank, name)
    readers.world.enter("policy", readers.governing(3, level=1), SRO, readers.world.sro)


def _revoked(readers: Readers) -> None:
    body: c.Object = {"contract": readers.world.contracts[BANK_A]}
    readers.world.service.submit(readers.world.hospital, HOSPITAL, "revocation", body, "revoke")


EVERY: Final = (
    Readers.listed,
    Readers.read,
    Readers.page,
    Readers.everyone,
    Readers.own,
    Readers.stream,
    Readers.window,
    Readers.plan,
    Readers.lasts,
    Readers.quoted,
    Readers.remaining,
    Readers.dataset_show,
    Readers.account_show,
    Readers.stream_show,
    Readers.quote_of_the_newest,
)
OF_RUNS: Final = (Readers.own, Readers.window, Readers.plan, Readers.quoted, Readers.quote_of_the_newest)
"""Those that say what the bank may run: a revoked contract closes no partition."""


@pytest.mark.parametrize(
    ("close", "told"),
    [(_retired, EVERY), (_frozen, EVERY), (_revoked, OF_RUNS)],
)
def test_what_is_closed_reads_as_open_nowhere(
    readers: Readers, close: Callable[[Readers], None], told: tuple[Callable[[Readers], bool], ...]
) -> None:
    """For each reader that tells of it."""
    close(readers)
    assert {one.__name__ for one in told if one(readers)} == set()
