"""Accounts: what a run costs, what counts against which cap, whether there is room, and how runs change the sums."""
