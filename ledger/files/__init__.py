"""Files written atomically and durably."""
