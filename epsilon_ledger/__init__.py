"""The `epsilon` command: assembled from the commands of each package."""
