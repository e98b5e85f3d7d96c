"""State transitions: decide a command by a ladder of guards, then apply the entry to the state."""
