"""The schema of a book: its revisions, what each adds, and database grants."""
