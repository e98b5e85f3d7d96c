"""Every page of the console, and those of the navigation in its order."""

from __future__ import annotations

from typing import Final

from api.console.frame.pages import ConsolePage
from api.console.views import (
    contracts,
    datasets,
    decisions,
    home,
    knowledge,
    lineage,
    log,
    meaning,
    models,
    operations,
    partition,
    planner,
    policies,
    runs,
)
from api.console.views.public import register

VIEWS: Final = (
    home,
    datasets,
    partition,
    knowledge,
    runs,
    planner,
    decisions,
    contracts,
    policies,
    lineage,
    models,
    log,
    operations,
    meaning,
    register,
)
PAGES: Final[tuple[ConsolePage, ...]] = tuple(page for view in VIEWS for page in view.PAGES.all)
NAVIGATION: Final = tuple(page for page in PAGES if page.title)
