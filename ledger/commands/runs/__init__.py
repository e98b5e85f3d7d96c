"""Commands of one run: its charge, the release of its data keys, its settlement, the release of its model."""
