"""The distribution's browser, driven by Playwright from a folder of its own; no browser is ever downloaded.

``EPSILON_BROWSER`` says what to do: ``required`` fails without a browser, a path names one, and without it the usual
places are looked at.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[3]
DRIVER: Final = ROOT / ".venv" / "browser"
REQUIRED: Final = "required"
NAMES: Final = ("chromium", "chromium-browser", "google-chrome")


def browser_path() -> str | None:
    """The browser to walk with; None if there is none. Raises: AssertionError, where one is required."""
    wanted = os.environ.get("EPSILON_BROWSER", "")
    named = wanted if wanted not in {"", REQUIRED} else None
    found = named or next((path for name in NAMES if (path := shutil.which(name))), None)
    assert found or wanted != REQUIRED, "EPSILON_BROWSER=required, and no browser is there: apt install chromium"
    return found


def driver() -> Any:  # noqa: ANN401 - Playwright brings its types in a folder that no checker reads
    """Playwright's module. Raises: ModuleNotFoundError, if ``make soak`` or ``make .venv/.browser`` never ran."""
    if DRIVER.is_dir() and str(DRIVER) not in sys.path:
        sys.path.append(str(DRIVER))
    from importlib import import_module

    return import_module("playwright.sync_api")
