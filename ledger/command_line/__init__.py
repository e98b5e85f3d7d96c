"""What every command line of the project shares: how much a command shows."""
