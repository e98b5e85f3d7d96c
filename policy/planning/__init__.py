"""Planning: what a run would get, what a policy or merger would change, and forecasts."""
