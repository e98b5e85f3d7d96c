"""One training job: its specification, step log, preprocessing and signals."""
