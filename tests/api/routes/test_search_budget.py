"""A search ends when the time of its caller is used up, when it takes too long, and when its caller is gone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import pytest
from anyio.to_thread import run_sync
from starlette.requests import Request

from api.auth.authorisation import Caller
from api.auth.caller_quotas import CallerQuotas
from api.http.problems import Problem
from api.http.quota_terms import QuotaTerms
from api.http.wanted_answers import OVER, is_wanted
from api.routes.search_budget import LOOK_S, SEARCH_S, SearchBudget
from policy.planning.plan_report import report
from policy.planning.plan_search import runs_that_fit
from policy.planning.what_if import WhatIf
from tests.factories.documented import PLAN, opened
from tests.factories.documents import dense_plan
from tests.factories.people import BANK_A

BANK = Caller(BANK_A, ("TDC",))


class Sender:
    """A caller that is there until it leaves; counts how often it is looked for."""

    def __init__(self) -> None:
        self.gone, self.looked = False, 0

    async def __call__(self) -> dict[str, Any]:
        """What it sends after its body."""
        self.looked += 1
        if not self.gone:
            await anyio.sleep_forever()
        return {"type": "http.disconnect"}


class Scene:
    """The budget of one search, on a clock that the test sets."""

    def __init__(self, pricing_s: int = 600) -> None:
        self.used_s, self.over, self.sender = 0.0, False, Sender()
        self.quotas = CallerQuotas(QuotaTerms(pricing_s_per_hour=pricing_s), clock=lambda: 0.0)
        scope = {"type": "http", OVER: lambda: self.over}
        self.budget = SearchBudget(Request(scope, self.sender), BANK, self.quotas, lambda: self.used_s)

    def step(self, used_s: float) -> None:
        """One step of the search, after so many seconds of a processor. Raises: Problem."""
        self.used_s = used_s
        anyio.run(partial(run_sync, self.budget))

    def ended(self, used_s: float) -> tuple[int, str]:
        """The status and the code of the problem that ends the search at this step."""
        with pytest.raises(Problem) as caught:
            self.step(used_s)
        assert "retry-after" in caught.value.response().headers
        return caught.value.status, caught.value.details.code


def test_a_search_goes_on_while_its_caller_waits() -> None:
    """Its caller is looked for from time to time, not at every step."""
    scene = Scene()
    for number in range(20):
        scene.step(LOOK_S * number / 10)
    assert scene.sender.looked == 1
    scene.step(SEARCH_S)
    assert scene.sender.looked == 2


def test_a_search_ends_with_the_quota_of_its_caller() -> None:
    """What it has taken itself counts, though it is not charged yet."""
    scene = Scene(pricing_s=20)
    scene.step(18)
    assert scene.ended(20) == (429, "quota_exceeded")
    other = Scene(pricing_s=20)
    other.quotas.count_pricing(BANK_A, 10)
    assert other.ended(10) == (429, "quota_exceeded")


def test_a_search_ends_that_no_answer_waits_for() -> None:
    """After the longest time of an answer, when a problem has answered it, and when its caller is gone."""
    assert Scene().ended(SEARCH_S + 1) == (503, "unanswered")
    scene = Scene()
    scene.step(1)
    scene.over = True
    assert scene.ended(2) == (503, "unanswered")
    scene = Scene()
    scene.step(1)
    scene.sender.gone = True
    assert scene.ended(2) == (503, "unanswered")


def test_a_request_without_the_service_s_limits_is_waited_for() -> None:
    """As in a test of a route alone."""
    assert anyio.run(is_wanted, Request({"type": "http"}, Sender()))


class Ended(Exception):  # noqa: N818 - what is the case
    """What ends a search here."""


class Steps:
    """Ends a search after so many steps."""

    def __init__(self, most: int) -> None:
        self.left = most

    def __call__(self) -> None:
        """One step. Raises: Ended."""
        if not self.left:
            raise Ended
        self.left -= 1


def _report(question: WhatIf) -> object:
    return report(question, 0, 0)


@pytest.mark.parametrize(("search", "fewest"), [(_report, 40), (runs_that_fit, 15)])
@pytest.mark.parametrize("plan", [dense_plan(4_000), PLAN], ids=["refused", "admitted"])
def test_every_search_of_a_plan_can_be_ended(plan: Any, search: Callable[[WhatIf], object], fewest: int) -> None:  # noqa: ANN401 - a plan
    """At any step: it decides nothing more, and the problem is what ended it."""
    question = opened().ask(plan)
    counted = Steps(10_000)
    search(WhatIf(question.facts, question.run, question.now, proceed=counted))
    steps = 10_000 - counted.left
    assert steps >= fewest
    for most in {0, 1, steps // 2, steps - 1}:
        with pytest.raises(Ended):
            search(WhatIf(question.facts, question.run, question.now, proceed=Steps(most)))
