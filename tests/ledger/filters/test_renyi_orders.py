"""The division of δ among orders as written down, for loads that are declared and for none."""

from fractions import Fraction

import pytest

from ledger.filters.renyi_orders import Shares, declared_shares, undeclared_shares

NO_LOAD: Shares = {}
IN_PROPORTION = {order: order << 33 for order in range(2, 12)}
CUBES = {order: order**3 << 38 for order in range(2, 6)}
STEADY = {2: 1 << 36}


@pytest.mark.parametrize(
    ("caps", "delta", "load", "shares"),
    [
        (("3",), Fraction(1, 1483), NO_LOAD, {5: 750, 4: 250}),
        (("3",), Fraction(1, 1483), IN_PROPORTION, None),
        (("5.8", "8"), Fraction(1, 1483), STEADY, None),
        (("6.2", "3.7"), Fraction(1, 20), NO_LOAD, {2: 800, 3: 200}),
        (("6.2", "3.7"), Fraction(1, 20), CUBES, {2: 925, 3: 75}),
        (("4.5", "7.9"), Fraction(1, 10**5), NO_LOAD, {6: 600, 4: 200, 3: 200}),
        (
            ("4.5", "7.9"),
            Fraction(1, 10**5),
            {2: 2 << 20, 3: 3 << 20, 4: 4 << 20, 5: 5 << 20},
            {5: 395, 4: 134, 3: 134, 6: 337},
        ),
    ],
)
def test_the_orders_of_a_partition_are_as_written_down(
    caps: tuple[str, ...], delta: Fraction, load: dict[int, int], shares: Shares | None
) -> None:
    """They are recorded in its terms, so another division is another partition; None where a load gains nothing."""
    of = tuple(map(Fraction, caps)), delta
    assert (declared_shares(*of, load) if load else undeclared_shares(*of)) == shares
