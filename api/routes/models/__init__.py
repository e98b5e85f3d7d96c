"""Routes about models that are sealed, and about the marks in those that leave."""
