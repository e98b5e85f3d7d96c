"""Every book that a test of this folder opens is compared with its rows and its entries when the test leaves it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.factories.stored import StoredWorld


@pytest.fixture(scope="module", autouse=True)
def checked() -> Iterator[None]:
    """Also those that a test opens by itself; one that it damages, it says not to check."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StoredWorld, "is_checked", True)
        yield
