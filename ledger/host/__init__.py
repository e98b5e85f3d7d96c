"""What every program of the project asks of its machine: files written atomically, and how a command ends."""
