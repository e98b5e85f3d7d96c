"""The trainer: DP-SGD that runs exactly what a plan says and a charge covers."""
