"""Tests mirror the packages: whoever knows where the code is knows where its tests are."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PRODUCT: Final = ("api", "client", "epsilon_ledger", "ledger", "migrations", "policy", "trainer_adapter")


def _packages() -> set[str]:
    """Every package inside a package of the product that holds a module, by its folder."""
    return {
        str(path.parent.relative_to(ROOT))
        for name in PRODUCT
        for path in (ROOT / name).glob("*/**/*.py")
        if path.name != "__init__.py"
    }


def _tested() -> set[str]:
    """The folders inside those of the product's packages that hold tests, by the package that each mirrors."""
    tests = ROOT / "tests"
    return {str(path.parent.relative_to(tests)) for name in PRODUCT for path in (tests / name).glob("*/**/test_*.py")}


def test_every_package_has_a_folder_of_tests_and_no_folder_is_of_no_package() -> None:
    """The folders of tests and the packages are the same."""
    packages = _packages()
    assert len(packages) > len(PRODUCT)
    assert {one for one in _tested() if not _is_page(one)} == {one for one in packages if not _is_page(one)}


def _is_page(folder: str) -> bool:
    """The console is tested by its pages, whichever of its packages make them."""
    return folder.split("/")[:2] == ["api", "console"]
