"""Privacy accounting: RDP and PLD prices, capacities and reported ε; the only package with dp_accounting and floats.

A float leaves it as an integer rounded up (a price), rounded down (a capacity) or as an exact fraction rounded up (a
reported ε). dp_accounting and scipy take seconds to import, so they are imported when first needed.
"""
