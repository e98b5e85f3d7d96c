"""The routes of the API, one module a group of paths."""
