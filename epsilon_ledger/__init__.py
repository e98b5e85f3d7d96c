"""The `epsilon` command: assembled from the commands that each room brings."""

from importlib.metadata import version

__version__ = version("epsilon-ledger")
