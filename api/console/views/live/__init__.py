"""Runs while they go on: a page, and the frames that keep it up to date."""
