"""Reports of a stream: its slices in order, the room for runs, and when slices close."""
