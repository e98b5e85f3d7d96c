"""The model that a job names: built in, a function of a file, or a folder of public weights; and its test set."""
