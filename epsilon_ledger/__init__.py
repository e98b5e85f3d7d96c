"""The `epsilon` command: assembled from the commands that each room brings."""
