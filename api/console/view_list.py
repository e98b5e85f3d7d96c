"""Every page of the console, and those of the navigation in its order."""

from __future__ import annotations

from typing import Final

from api.console.frame.pages import ConsolePage
from api.console.views import datasets, home, partition

PAGES: Final[tuple[ConsolePage, ...]] = tuple(page for view in (home, datasets, partition) for page in view.PAGES.all)
NAVIGATION: Final = tuple(page for page in PAGES if page.title)
