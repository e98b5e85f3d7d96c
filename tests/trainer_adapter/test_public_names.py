"""The names that users import: few, loaded when they are used, and documented."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import trainer_adapter

README = Path(__file__).resolve().parents[2] / "trainer_adapter" / "README.md"


def test_the_public_names_are_those_that_are_documented() -> None:
    """Each is what its module defines, and stands in the package's README."""
    page = README.read_text(encoding="utf-8")
    for name in trainer_adapter.__all__:
        assert getattr(trainer_adapter, name).__name__ == name
        assert f"`{name}`" in page


def test_any_other_name_is_an_attribute_error() -> None:
    """As of any module."""
    with pytest.raises(AttributeError, match="has no attribute 'engine_of_another'"):
        _ = trainer_adapter.engine_of_another


def test_the_package_alone_loads_no_torch() -> None:
    """Nor does reading a job, so a command that refuses one answers at once."""
    code = "import sys, trainer_adapter, trainer_adapter.job.job_spec; print('torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"
