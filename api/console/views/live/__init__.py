"""Runs while they go on: the frames that keep their page up to date."""
