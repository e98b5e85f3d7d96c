"""Whose commands are priced when: organisations take turns."""
