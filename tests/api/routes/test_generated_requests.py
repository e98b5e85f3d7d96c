"""Whatever the OpenAPI document allows, and what it does not: no failure inside, and no answer that it does not tell.

Each operation is asked by somebody whom it is for, alone and after others whose answers it names, with the same
generated requests every time. What the document does not allow is refused: with a problem that it tells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Final

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.parameters import ParameterLocation
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from api.auth.authorisation import OPERATIONS
from tests.api.routes.generated import UNBOUNDED, Asking
from tests.api.two_of_each import TwoOfEach
from tests.factories.service import open_world

FEW: Final = 2
MANY: Final = 150
STEPS: Final = 20
"""Calls of one scenario."""
CHECKS: Final = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
MODES: Final = [pytest.param(FEW, id="few"), pytest.param(MANY, id="many", marks=pytest.mark.soak)]


@pytest.fixture
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoOfEach]:
    """Two of everything."""
    with open_world(tmp_path_factory.mktemp("generated")) as world:
        world.contract = world.found_service()
        yield TwoOfEach(world)


def _document(pairs: TwoOfEach) -> Any:  # noqa: ANN401 - the library's own
    document = schemathesis.openapi.from_url(f"{pairs.world.url}/v1/openapi.json")
    # A cursor that is too long may make a URL that is: the library's own list has no 414.
    rejection = document.config.checks.negative_data_rejection
    rejection.expected_statuses = [*rejection.expected_statuses, "414"]
    return document.exclude(path=sorted(UNBOUNDED))


def _settings(examples: int) -> settings:
    return settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


def _asking(pairs: TwoOfEach, operation: Any, *, mends: bool = True) -> Asking:  # noqa: ANN401 - the library's own
    return Asking(pairs, operation.definition.raw["operationId"], mends=mends)


def _ask(operation: Any, asking: Asking, examples: int, mode: GenerationMode) -> None:  # noqa: ANN401 - the library's own
    """So many generated requests, each answered as the document says."""

    @_settings(examples)
    @given(case=operation.as_strategy(generation_mode=mode))
    def asked(case: schemathesis.Case[Any]) -> None:
        case.call_and_validate(
            auth=None if _breaks_headers(case) else asking, checks=[*CHECKS, negative_data_rejection]
        )

    asked()


def _breaks_headers(case: schemathesis.Case[Any]) -> bool:
    """Whether what is not allowed is a token or a signature, which is then sent as it is."""
    header = case.meta.components.get(ParameterLocation.HEADER) if case.meta else None
    return header is not None and header.mode.is_negative


def _can_be_broken(operation: Any) -> bool:  # noqa: ANN401 - the library's own
    """Whether the document disallows anything: of what takes nothing from anybody it does not."""
    raw = operation.definition.raw
    return bool(raw["security"] or raw.get("parameters"))


@pytest.mark.parametrize("examples", MODES)
def test_every_answer_is_one_that_the_document_tells(pairs: TwoOfEach, examples: int) -> None:
    """Status, type and form, for every operation but the stream of events, which does not end."""
    operations = [one.ok() for one in _document(pairs).get_all_operations()]
    assert len(operations) > len(OPERATIONS)
    for operation in operations:
        _ask(operation, _asking(pairs, operation), examples, GenerationMode.POSITIVE)


@pytest.mark.parametrize("examples", MODES)
def test_what_the_document_does_not_allow_is_refused(pairs: TwoOfEach, examples: int) -> None:
    """A field too many or too few, a value of another type or form: never 200, and always a problem that is told."""
    asked = 0
    for operation in (one.ok() for one in _document(pairs).get_all_operations()):
        asking = _asking(pairs, operation, mends=False)
        if _can_be_broken(operation):
            _ask(operation, asking, examples, GenerationMode.NEGATIVE)
            asked += 1
    assert asked > len(OPERATIONS)


@pytest.mark.parametrize("examples", MODES)
def test_answers_lead_to_answers(pairs: TwoOfEach, examples: int) -> None:
    """What one operation answered with is what the next one names, as far as the document's links say."""
    answered = Counter[bool]()

    class Machine(_document(pairs).as_state_machine()):  # type: ignore[misc] # made at run time
        """Calls by whoever they are for."""

        def get_call_kwargs(self, case: schemathesis.Case[Any]) -> dict[str, Any]:
            """Its token and its signature."""
            return {"auth": _asking(pairs, case.operation)}

        def validate_response(self, response: Any, case: schemathesis.Case[Any], **_: Any) -> None:  # noqa: ANN401
            """As alone."""
            case.validate_response(response, checks=CHECKS)
            answered[response.status_code < HTTPStatus.BAD_REQUEST] += 1

    # The book remembers what a scenario entered, so none is ever played again: each is a run of its own, by its seed.
    for number in range(examples):
        seed(number)(Machine).run(settings=settings(_settings(1), derandomize=False, stateful_step_count=STEPS))
    assert answered[True] > answered.total() / 4, answered
