"""Shared by every command line of the project: verbosity, and commands to print."""
