"""Plans of correlated noise (DP-FTRL), and the matrices that correlate it."""
