"""Planning: decisions on planned runs, previews of policies and mergers, and forecasts."""
