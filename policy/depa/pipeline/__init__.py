"""A DEPA pipeline: its training stages, joins, preprocessing and privacy parameters."""
