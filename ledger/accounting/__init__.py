"""Prices and tellings: the only room that imports dp_accounting and holds floats.

A float leaves it as an integer rounded up (a price), rounded down (a capacity) or as an exact fraction rounded up (an
ε told to people). dp_accounting and scipy take seconds to import, so they are imported when first needed.
"""

from ledger.accounting.calibration import (
    NOISE_PLACES,
    Edge,
    beyond,
    calibrate_noise,
    calibrate_steps,
    edge,
    least_noise,
    most_steps,
)
from ledger.accounting.epsilon_report import Report, report_epsilon, reported_epsilon, slack
from ledger.accounting.gaussian_certificates import (
    certificate,
    certified,
    exact_square,
    exact_square_covers,
    gaussian_capacity,
    gaussian_epsilon,
    gaussian_keeps,
)
from ledger.accounting.pld_counting import count_capacity, count_epsilon, count_keeps
from ledger.accounting.pure_dp import pure_epsilon
from ledger.accounting.renyi import ACCEPTED, ISSUED, price
from ledger.accounting.renyi_closed_forms import conversion

__all__ = [
    "ACCEPTED",
    "ISSUED",
    "NOISE_PLACES",
    "Edge",
    "Report",
    "beyond",
    "calibrate_noise",
    "calibrate_steps",
    "certificate",
    "certified",
    "conversion",
    "count_capacity",
    "count_epsilon",
    "count_keeps",
    "edge",
    "exact_square",
    "exact_square_covers",
    "gaussian_capacity",
    "gaussian_epsilon",
    "gaussian_keeps",
    "least_noise",
    "most_steps",
    "price",
    "pure_epsilon",
    "report_epsilon",
    "reported_epsilon",
    "slack",
]
