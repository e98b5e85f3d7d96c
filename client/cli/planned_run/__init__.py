"""A run that is planned: the file that describes it, and the answer to what it would get."""
