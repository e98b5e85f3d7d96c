"""What only a PostgreSQL server has: pipelines, and settings that a book depends on."""
