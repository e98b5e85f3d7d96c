"""The policy engine's decisions, one module a group of commands, denied by default."""
