"""Commands: one module a kind (body, roles, path, decision, effect), the registry of all, and their entries."""
