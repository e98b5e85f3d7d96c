"""DP-SGD: the engine, Poisson sampling, secure randomness and privacy units."""
