"""The page of a run that goes on: steps of those charged, deadline, age of the last report, and the whole plan's ε."""

from __future__ import annotations

from typing import Final

from api.console.frame.addresses import address
from api.console.frame.pages import Inputs, Page, Pages
from api.console.frame.reader import Reader
from api.console.views.live.run_frame import run_frame
from api.console.views.runs import epsilon_table
from api.routes import accounts

PAGES: Final = Pages()


@PAGES.page("/runs/{id}/live", "", accounts.read_charge, accounts.read_charge_epsilon, slow=True)
def live_run(reader: Reader, inputs: Inputs) -> Page:
    """One run as it goes on. Raises: Malformed, Problem."""
    answer = reader.read(accounts.read_charge, inputs.path["id"])
    charge = reader.facts.charges[answer.id]
    frame = run_frame(charge, reader.view.context.progress.paced(charge.id), reader.view.time)
    values = {"frame": frame, "frames": address("runs", charge.id, "frames"), "run": charge.id}
    return Page("live.html", f"Run {charge.id}, live", (epsilon_table(reader, charge.id),), values)
