"""What people read of a stream: its slices in order, what a run meets there, and what closes when."""
