"""The planner: what a run would get, what of it fits, and what binds. It charges nothing."""

from __future__ import annotations

import shlex
from fractions import Fraction
from math import ceil
from typing import Final

from api.console.frame import cells
from api.console.frame.cells import Cell
from api.console.frame.names import CHECK_COLUMNS, check, partition
from api.console.frame.pages import Inputs, Page, Pages
from api.console.frame.reader import Reader
from api.console.frame.tables import Table
from api.console.views.public.public_results import public_results
from api.http.problems import Problem
from api.routes import accounts, planning, registry
from ledger.accounting.calibration import calibrate_noise
from ledger.domain.decision import Rejected
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import format_number, parse_positive
from ledger.wire.malformed import Malformed
from policy.decisions.documents_in_force import binding, read_contract
from policy.documents.contract import Waiver
from policy.planning.plan_report import PlanReport

PAGES: Final = Pages()
CHOICES_MAX: Final = 100
"""Contracts and partitions that the form offers; another one can be typed."""
_ANY_PIPELINE: Final = c.digest(b"")
"""Stands for the pipeline that a run would name, where a policy asks for one."""
_DEFAULTS: Final = {
    "probability": "0.05",
    "batch": "",
    "noise": "2",
    "epsilon": "",
    "steps": "100",
    "epochs": "",
    "contract": "",
    "partition": "",
}
_PARTS: Final = 10**6
"""A probability that follows from a batch is in millionths."""
STEPS_MAX: Final = 10**9
"""Steps of a planned run."""


@PAGES.page("/planner", "Planner", planning.plan_run, slow=True)
def planner(reader: Reader, inputs: Inputs) -> Page:
    """The form, and where it is filled in, its answer. Raises: Problem."""
    given = {name: inputs.get(name) or default for name, default in _DEFAULTS.items()}
    # First, for what they read together is asked about afterwards.
    choices = _choices(reader)
    report, wrong = None, ""
    if given["contract"] and given["partition"]:
        try:
            reader.view.context.quotas.admit_questions(reader.caller)
            given = _settled(reader, given)
            report = reader.read(planning.plan_run, _question(reader, given))
        except (Malformed, Rejected, ArithmeticError) as error:
            wrong = str(error)
        except Problem as problem:
            wrong = problem.details.detail or problem.details.title
    values = {"given": given, "wrong": wrong, "report": report, **choices}
    if report is not None:
        values |= {"about": _facts(report), "command": shlex.join(_command(given))}
    return Page("planner.html", "Planner", () if report is None else _tables(report), values)


def _choices(reader: Reader) -> dict[str, object]:
    """What the form offers."""
    agreed = reader.page(registry.list_contracts, CHOICES_MAX, None)
    opened = reader.page(accounts.list_partitions, CHOICES_MAX, None)
    return {
        "contracts": [
            (item.document, f"{item.id}, version {item.version}") for item in agreed.items if not item.revoked
        ],
        "partitions": [(item.partition, item.partition) for item in opened.items if item.state == "open"],
    }


def _settled(reader: Reader, given: dict[str, str]) -> dict[str, str]:
    """The plan with numbers for its batch, epochs and ε, where those are given. Raises: Malformed, Rejected."""
    found = dict(given)
    opened = reader.facts.partitions.get(given["partition"])
    seen = opened is not None and reader.caller.sees_partition(opened, reader.facts)
    if given["batch"] and opened is not None and seen:
        found["probability"] = format_number(_probability(parse_positive(given["batch"], "batch"), opened.records))
    probability = parse_positive(found["probability"], "probability")
    if probability > 1:
        raise Malformed("probability", "must be at most 1")
    if given["epochs"]:
        steps = ceil(parse_positive(given["epochs"], "epochs") / probability)
        if steps > STEPS_MAX:
            raise Malformed("epochs", f"must take at most {STEPS_MAX:,} steps")
        found["steps"] = str(steps)
    if given["epsilon"] and opened is not None and seen:
        epsilon = parse_positive(given["epsilon"], "epsilon")
        noise = calibrate_noise(probability, _whole(found["steps"]), epsilon, opened.delta, opened.relation)
        found["noise"] = format_number(noise)
    return found


def _probability(batch: Fraction, records: int) -> Fraction:
    """With which each of the records is taken to have so many on average; a little more rather than less."""
    return Fraction(ceil(batch / records * _PARTS), _PARTS)


def _whole(steps: str) -> int:
    if not (steps.isascii() and steps.isdecimal() and 0 < len(steps) <= 9):
        raise Malformed("steps", "must be a whole number")
    return int(steps)


def _question(reader: Reader, given: dict[str, str]) -> bytes:
    """The body of the API's question. Raises: Malformed."""
    plan: c.Object = {
        # The divisor of the noisy sum is public and no part of what a run reveals: any number will do here.
        "batch_size_expected": 1,
        "clipping_norm": "1",
        "kind": "dp_sgd",
        "noise_multiplier": given["noise"],
        "sampler": {"kind": "poisson", "probability": given["probability"]},
        "steps": _whole(given["steps"]),
        "v": 1,
    }
    found = reader.facts.partitions.get(given["partition"])
    if found is not None and found.unit == "user":
        plan["unit"] = "user"
    charge: c.Object = {"contract": given["contract"], "partitions": [given["partition"]], "plan": plan}
    binds = None if found is None else binding(reader.facts, found, reader.view.time)
    if binds is not None and binds.policy.step_leases:
        # A run does as its policy asks; without, each plan would be denied for that alone.
        charge["step_leases"] = True
    waivers = _waivers(reader, given["contract"])
    if waivers or (binds is not None and binds.policy.pipeline):
        charge["pipeline"] = waivers[0].pipeline if waivers else _ANY_PIPELINE
    return c.dump(charge)


def _waivers(reader: Reader, digest: str) -> tuple[Waiver, ...]:
    """The waivers of a contract, which admits runs of their pipelines alone."""
    contract = reader.facts.contracts.get(digest)
    return () if contract is None else read_contract(reader.facts.documents[contract.document]).waivers or ()


def _command(given: dict[str, str]) -> list[str]:
    return ["epsilon", "plan", "run", "tdc.toml", "charge.json", "--contract", given["contract"]]


def _outcome(found: PlanReport) -> str:
    return "would be charged" if found.decision.permit else found.decision.outcome.replace("_", " ")


def _facts(found: PlanReport) -> list[tuple[str, Cell]]:
    runs = found.runs
    return [
        ("Decision", cells.mark(_outcome(found), passed=found.decision.permit)),
        ("Such runs that fit", cells.text(f"{runs.more} or more" if runs.or_more else runs.more)),
        ("Steps that fit", cells.count(found.steps_most.steps)),
        ("Epochs that fit", cells.bound(found.steps_most.epochs)),
        (
            "Least noise that fits",
            cells.loss(found.noise_multiplier_least) if found.noise_multiplier_least else cells.text("none"),
        ),
    ]


def _tables(found: PlanReport) -> tuple[Table, ...]:
    checks = tuple(map(check, found.decision.checks))
    epsilon = tuple(
        (
            partition(line.partition),
            cells.loss(line.epsilon),
            cells.bound(line.delta),
            cells.text(line.accountant),
            cells.text(line.unit),
        )
        for line in found.run_epsilon
    )
    lasts = tuple(
        (
            partition(last.partition),
            Cell(last.name, exact=last.holder),
            cells.text("full") if last.full else cells.moment(last.projected_until),
        )
        for last in found.lasts
    )
    return (
        Table("checks", "Checks", CHECK_COLUMNS, checks, "The question was not read as a run."),
        Table(
            "epsilon",
            "What the run would reveal",
            ("Partition", "ε", "at δ", "Proven by", "Unit"),
            epsilon,
            "No ε is proven.",
        ),
        Table(
            "lasts",
            "How long the budget lasts at the recent rate",
            ("Partition", "Whose account", "Until"),
            lasts,
            "No rate yet.",
        ),
        *advice_tables(found),
        public_results(),
    )


def advice_tables(found: PlanReport) -> tuple[Table, ...]:
    """The smallest changes that would pass now, of a refused run; none of one that would be charged."""
    advice = found.advice
    if advice is None:
        return ()
    rows: list[tuple[Cell, ...]] = []
    if advice.steps:
        rows.append((cells.text("fewer steps"), cells.count(advice.steps)))
    if advice.noise_multiplier:
        rows.append((cells.text("more noise"), cells.loss(advice.noise_multiplier)))
    rows += [(cells.text("another partition"), partition(item.instead)) for item in advice.partitions]
    rows += [(cells.text("nothing helps while this fails"), cells.text(item.text)) for item in advice.blocked]
    return (
        Table("advice", "The smallest changes that would pass, each by itself", ("Change", "To"), tuple(rows), "None."),
    )
