"""Training with correlated noise (DP-FTRL): its engine, its noise, and the search for both."""
